"""The penstock.yaml that `penstock init` writes: complete, commented, and valid as it stands."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml

from penstock.errors import BadInput
from penstock.secret import harmless

_HINT = "use demo, a directory, mariadb://user@host[:port], or mysql://user@host[:port]"
_PLAIN = re.compile(r"[A-Za-z0-9_./~$][A-Za-z0-9_./~$:{}@%+=,-]*\Z")

_DEMO = """\
  type: demo                          # demo | binlog-files | mariadb | mysql
"""

_FILES = """\
  type: binlog-files
  path: {path}
"""

_SERVER = """\
  type: {type}
  host: {host}
  port: {port}
  user: {user}
  password: ${{PENSTOCK_SOURCE_PASSWORD}}   # or password_file:
  # tls: {{ca: ./ca.pem}}               # a server that is not local must prove who it is (docs/secrets.md)
  start: snapshot                     # snapshot: what is there already, then every change | now | {{gtid: "0-1-42"}}
"""

_TEMPLATE = """\
# Written by `penstock init`. `penstock check` reads it, `penstock run` runs it.
version: 1
state_dir: ./penstock-data            # log, progress; one owner
source:
{source}sinks:                                # each name is a changefeed with its own progress
  lake:
    url: {sink}
    format: parquet                   # parquet | canal-json | csv | debezium-json
    flush: {{size: 64MiB, every: 60s}}
# rules:                              # which rows, columns and names the sinks get: docs/rules.md
#   - {{table: shop.customers, mask: {{email: hmac-sha256}}, filter: active = 1}}
# mask_key: ${{PENSTOCK_MASK_KEY}}       # for hmac-sha256
# http: {{listen: "127.0.0.1:8400"}}      # /metrics /healthz /readyz
# limits: {{log_disk: 200GiB}}          # a log of this size: capture pauses until the slowest sink has caught up
# log:                                # what every sink has already is deleted, unless more is to be kept:
#   keep: {{for: 7d, size: 100GiB}}     # until it is older, or the log is larger
#   offload: {{url: s3://bucket/log, keep_local: 10GiB, lag: 4h}}
#                                     # every other key of log: is in docs/log-settings.md, of state: in docs/state.md
"""


def render(source: str, sink: str | None = None, directory: Path = Path()) -> str:
    """The text of a configuration for `demo`, a directory of binlog files, `mariadb://user@host[:port]` or
    `mysql://user@host[:port]`.

    `directory` is the one that the file will be in: paths are given as seen from here, and written as seen from there.
    """
    place = "./lake" if sink is None else _seen_from(directory, sink)
    return _TEMPLATE.format(source=_source(source, directory), sink=_scalar(place))


def _source(source: str, directory: Path) -> str:
    if source == "demo":
        return _DEMO
    if not source:
        raise BadInput("an empty text names no source", hint=_HINT)
    if "://" not in source:
        return _FILES.format(path=_scalar(_seen_from(directory, source)))
    try:
        parts = urlsplit(source)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadInput(f"{harmless(source)!r} is no URL of a source: {error}", hint=_HINT) from None
    if parts.scheme == "file":
        return _FILES.format(path=_scalar(unquote(parts.path)))
    if parts.scheme not in ("mariadb", "mysql"):
        raise BadInput(f"a source of the kind {parts.scheme!r} is not known", hint=_HINT)
    if not host:
        raise BadInput(f"{harmless(source)!r} names no host", hint=_HINT)
    if parts.password is not None:
        raise BadInput(
            "a password on the command line would be seen by others",
            hint="leave it out; the file reads it from the environment variable PENSTOCK_SOURCE_PASSWORD",
        )
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise BadInput(f"{harmless(source)!r} says more than a server", hint=_HINT)
    user = unquote(parts.username or "penstock")
    return _SERVER.format(
        type=parts.scheme, host=_scalar(host), port=3306 if port is None else port, user=_scalar(user)
    )


def _seen_from(directory: Path, place: str) -> str:
    """A relative path as the file must name it; a URL or an absolute path as it is."""
    if not place or "://" in place or Path(place).is_absolute() or directory.resolve() == Path.cwd():
        return place
    return os.path.relpath(place, directory)


def _scalar(text: str) -> str:
    """The text as a value in YAML: plain where YAML reads the same text back, else in quotes."""
    if _PLAIN.match(text) and yaml.safe_load(text) == text:
        return text
    quoted = yaml.safe_dump(text, default_style='"', allow_unicode=True, width=sys.maxsize)
    return quoted.removesuffix("\n")
