"""The penstock.yaml that `penstock init` writes: complete, commented, and valid as it stands."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from penstock.errors import BadInput

_DEMO = """\
  type: demo                          # demo | binlog-files | mariadb
"""

_FILES = """\
  type: binlog-files
  path: {path}
"""

_SERVER = """\
  type: {kind}
  host: {host}
  port: {port}
  user: {user}
  password: ${{PENSTOCK_SOURCE_PASSWORD}}   # or password_file:
  start: now                          # now | {{gtid: "0-1-42"}}
"""

_TEMPLATE = """\
# Written by `penstock init`. `penstock check` reads it, `penstock run` runs it.
version: 1
state_dir: ./penstock-data            # log, progress; one owner
source:
{source}sinks:                                # each name is a changefeed with its own progress
  lake:
    url: {sink}
    format: parquet                   # parquet | canal-json
    flush: {{size: 64MiB, every: 60s}}
# log:                                # what every sink has already: kept for ever unless told otherwise
#   keep: {{for: 7d, size: 100GiB}}     # older, or beyond this size: trimmed
#   offload: {{url: s3://bucket/log, keep_local: 10GiB, lag: 4h}}
#                                     # every other key of log: is in docs/log-settings.md, of state: in docs/state.md
"""


def render(source: str, sink: str) -> str:
    """The text of a configuration for `demo`, a directory of binlog files, or `mariadb://user@host[:port]`."""
    return _TEMPLATE.format(source=_source(source), sink=sink)


def _source(source: str) -> str:
    if source == "demo":
        return _DEMO
    parts = urlsplit(source)
    if parts.scheme in ("", "file"):
        return _FILES.format(path=parts.path)
    if parts.scheme in ("mysql", "mariadb"):
        if not parts.hostname:
            raise BadInput(f"{source!r} names no host", hint="write mariadb://user@host[:port]")
        if parts.password is not None:
            raise BadInput(
                "a password on the command line would be seen by others",
                hint="leave it out; the file reads it from the environment variable PENSTOCK_SOURCE_PASSWORD",
            )
        user = unquote(parts.username or "penstock")
        return _SERVER.format(kind=parts.scheme, host=parts.hostname, port=parts.port or 3306, user=user)
    raise BadInput(
        f"a source of the kind {parts.scheme!r} is not known", hint="use demo, a directory, or mariadb://user@host"
    )
