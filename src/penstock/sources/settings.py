"""The `source:` part of the configuration: plain data, one model for each kind of source. Unknown keys are refused."""

from __future__ import annotations

import contextlib
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from penstock.errors import BadInput, Corruption
from penstock.files.private import check_not_planted
from penstock.patterns import matches
from penstock.secret import Secret
from penstock.sources.gtid import parse_gtid_set

DEMO_CHANGES = 300_000


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Tables(_Model):
    """Which tables are wanted, as `schema.table` with `*` and `?`. `exclude` always wins."""

    include: tuple[str, ...] = ("*.*",)
    exclude: tuple[str, ...] = ()

    @field_validator("include", "exclude")
    @classmethod
    def _schema_and_table(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            if "." not in pattern:
                raise ValueError(f"{pattern!r} names no table: write schema.table, for example {pattern}.*")
        return value

    def matches(self, schema: str, table: str) -> bool:
        name = f"{schema}.{table}"
        return any(matches(name, p) for p in self.include) and not any(matches(name, p) for p in self.exclude)

    def matches_database(self, schema: str) -> bool:
        """Whether a table of this database could be wanted."""
        return any(matches(schema, pattern[:dot]) for pattern in self.include for dot in _dots(pattern))


def _dots(pattern: str) -> list[int]:
    """Where the schema may end: names may have dots in them."""
    return [at for at, character in enumerate(pattern) if character == "."]


class LoadScope(_Model):
    """The tables that were to be loaded by themselves when capture last started: those that all of the filters take."""

    filters: tuple[Tables, ...]

    def matches(self, schema: str, table: str) -> bool:
        return all(tables.matches(schema, table) for tables in self.filters)

    def to_json(self) -> str:
        return self.model_dump_json()

    @classmethod
    def from_json(cls, raw: str | bytes) -> LoadScope:
        try:
            return cls.model_validate_json(raw)
        except ValueError as error:
            raise Corruption(f"the stored scope of a load cannot be read: {error}") from error


class StartAt(_Model):
    """A place in the server's binlog: after a GTID (MySQL: after a set of them), or a file and an offset in it."""

    gtid: str | None = None
    file: str | None = None
    pos: int | None = Field(default=None, ge=4)

    @model_validator(mode="after")
    def _one_place(self) -> StartAt:
        if (self.gtid is None) == (self.file is None):
            raise ValueError("give either gtid, or file and pos")
        if self.pos is not None and self.file is None:
            raise ValueError("pos needs a file")
        if self.gtid is not None:
            try:
                parse_gtid_set(self.gtid)
            except BadInput as error:
                raise ValueError(f"{error.message}: {error.hint}") from None
        return self


TlsMode = Literal["verify-identity", "verify-ca", "required", "disabled"]


class Tls(_Model):
    """TLS to the server. Only the first two modes know whom they talk to: `verify-identity` checks the certificate and the
    host's name in it, `verify-ca` the certificate alone. `required` encrypts for whoever answers."""

    mode: TlsMode = "verify-identity"
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    key_password: Secret | None = None

    @model_validator(mode="after")
    def _belong_together(self) -> Tls:
        given = [name for name in ("ca", "cert", "key", "key_password") if getattr(self, name) is not None]
        if self.mode == "disabled" and given:
            raise ValueError(f"mode is disabled, so {given[0]} would not be used")
        if self.mode == "required" and self.ca is not None:
            raise ValueError(
                "mode required verifies nothing, so ca would not be used; write verify-ca or verify-identity"
            )
        if self.cert is None and (self.key is not None or self.key_password is not None):
            raise ValueError("a key needs a cert")
        return self


class DemoSettings(_Model):
    """A small shop that exists only as a binlog: the same bytes for the same seed and size."""

    type: Literal["demo"]
    seed: int = Field(default=1, ge=0, lt=1 << 32)
    changes: int = Field(default=DEMO_CHANGES, ge=1, le=1 << 36)  # row changes in all, rounded up to a whole chunk
    rate: int = Field(default=0, ge=0)  # row changes per second; 0: as fast as possible
    tables: Tables = Tables()


class BinlogFilesSettings(_Model):
    """Binlog files on disk, in the order of their numbers."""

    type: Literal["binlog-files"]
    path: Path  # a directory, a file, or a glob
    follow: bool = False
    lower_case_table_names: int = Field(default=0, ge=0, le=2)  # as on the server that wrote them; no binlog says it
    tables: Tables = Tables()


class SnapshotSettings(_Model):
    """How rows are loaded, by `start: snapshot` and by `penstock backfill`: over how many connections, and how fast at most.
    Which of the tables `start: snapshot` loads."""

    parallel: int = Field(default=2, ge=1, le=32)  # connections that read at the same time
    max_rows_per_second: int = Field(default=0, ge=0)  # of all together; 0: no limit
    # MySQL without GTIDs says what others can see only by locks: chunks may lock their rows against writers while they are read.
    row_locks: bool = False
    tables: Tables = Tables()  # of source.tables; the others are followed from the start on without being loaded


class ServerSettings(_Model):
    """A live server. `type` may be either word: which of the two a server is, it says itself."""

    type: Literal["mariadb", "mysql"]

    host: str = "127.0.0.1"
    port: int = Field(default=3306, ge=1, le=65535)
    unix_socket: Path | None = None
    user: str
    password: Secret | None = None
    password_file: Path | None = None
    tls: Tls | None = None
    start: Literal["now", "snapshot"] | StartAt = "now"
    # As which replica it registers with the server; by default made from the state directory.
    server_id: int | None = Field(default=None, ge=1, lt=1 << 32)
    tables: Tables = Tables()
    snapshot: SnapshotSettings = SnapshotSettings()

    @model_validator(mode="after")
    def _one_password(self) -> ServerSettings:
        if self.password is not None and self.password_file is not None:
            raise ValueError("give password or password_file, not both")
        if self.start != "snapshot" and self.snapshot.tables != Tables():  # children get every default spelt out
            raise ValueError("snapshot.tables says what start: snapshot loads, and start is another one")
        return self

    @property
    def load_scope(self) -> LoadScope | None:
        """The tables that are loaded by themselves; None where none is."""
        return LoadScope(filters=(self.tables, self.snapshot.tables)) if self.start == "snapshot" else None

    @property
    def is_local(self) -> bool:
        """Whether the server is reached without a network: a Unix socket, or the loopback interface."""
        if self.unix_socket is not None or self.host.lower() == "localhost":
            return True
        with contextlib.suppress(ValueError):
            return ip_address(self.host).is_loopback
        return False

    @property
    def tls_mode(self) -> TlsMode | Literal["preferred"]:
        """What the file says; without a word, a remote server is verified, and a local one may do as it likes."""
        if self.tls is not None:
            return self.tls.mode
        return "preferred" if self.is_local else "verify-identity"

    @property
    def is_verified(self) -> bool:
        """Whether a server that answers has proved who it is."""
        return self.tls_mode in ("verify-identity", "verify-ca")

    def exposure(self) -> str:
        """What others on the network could do, in a sentence for each start; empty if nothing."""
        if self.is_local or self.is_verified:
            return ""
        if self.tls_mode == "required":
            return f"{self.host} is not verified (source.tls.mode required): whoever stands between sees and changes everything"
        return (
            f"plain text to {self.host} (source.tls.mode disabled): everybody on the way reads and changes everything"
        )

    def secret(self) -> Secret:
        """The password. Raises `OSError` where its file cannot be read, `BadInput` where anybody could have put it there."""
        if self.password_file is not None:
            check_not_planted(self.password_file)
            try:
                return Secret(self.password_file.read_text(encoding="utf-8").rstrip("\r\n"))
            except UnicodeDecodeError:
                raise BadInput(
                    f"source.password_file: {self.password_file} is no text in UTF-8", hint="write it anew, in UTF-8"
                ) from None
        return self.password if self.password is not None else Secret("")


SourceSettings = Annotated[DemoSettings | BinlogFilesSettings | ServerSettings, Field(discriminator="type")]
"""Use with `pydantic.TypeAdapter`, or as a field's type."""


def process_settings(settings: BaseModel) -> dict[str, Any]:
    """The settings as JSON for the standard input of a child, in which every `Secret` is still one."""
    document = settings.model_dump(mode="json", exclude_none=True)
    for name in document:
        value = getattr(settings, name)
        if isinstance(value, Secret):
            document[name] = value
        elif isinstance(value, BaseModel):
            document[name] = process_settings(value)
    return document
