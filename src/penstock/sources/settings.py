"""The `source:` part of the configuration: plain data, one model for each kind of source. Unknown keys are refused."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

_GTID = re.compile(r"^\d+-\d+-\d+(,\d+-\d+-\d+)*$")
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
        return any(fnmatch.fnmatchcase(name, p) for p in self.include) and not any(
            fnmatch.fnmatchcase(name, p) for p in self.exclude
        )


class StartAt(_Model):
    """A place in the server's binlog: a GTID, or a file and an offset in it."""

    gtid: str | None = None
    file: str | None = None
    pos: int | None = Field(default=None, ge=4)

    @model_validator(mode="after")
    def _one_place(self) -> StartAt:
        if (self.gtid is None) == (self.file is None):
            raise ValueError("give either gtid, or file and pos")
        if self.pos is not None and self.file is None:
            raise ValueError("pos needs a file")
        if self.gtid is not None and not _GTID.match(self.gtid):
            raise ValueError(f"{self.gtid!r} is not a MariaDB GTID such as 0-1-42")
        return self


class Tls(_Model):
    """TLS to the server. The server's identity is verified unless `verify` says otherwise."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    verify: bool = True


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
    tables: Tables = Tables()


class _ServerSettings(_Model):
    """What a live server needs, of either flavour."""

    host: str = "127.0.0.1"
    port: int = Field(default=3306, ge=1, le=65535)
    unix_socket: Path | None = None
    user: str
    password: SecretStr | None = None
    password_file: Path | None = None
    tls: Tls | None = None
    start: Literal["now", "snapshot"] | StartAt = "now"
    # As which replica it registers with the server; by default made from the state directory.
    server_id: int | None = Field(default=None, ge=1, lt=1 << 32)
    tables: Tables = Tables()

    @model_validator(mode="after")
    def _one_password(self) -> _ServerSettings:
        if self.password is not None and self.password_file is not None:
            raise ValueError("give password or password_file, not both")
        if self.start == "snapshot":
            raise ValueError(
                "start: snapshot (an initial load) is not in this version yet; use now, {gtid} or {file, pos}"
            )
        return self

    def secret(self) -> str:
        """The password. Raises `OSError` where its file cannot be read."""
        if self.password_file is not None:
            return self.password_file.read_text(encoding="utf-8").rstrip("\r\n")
        return self.password.get_secret_value() if self.password is not None else ""


class MariadbSettings(_ServerSettings):
    type: Literal["mariadb"]


class MysqlSettings(_ServerSettings):
    type: Literal["mysql"]

    @model_validator(mode="after")
    def _not_yet(self) -> MysqlSettings:
        raise ValueError("type: mysql is not in this version yet; use mariadb, binlog-files or demo")


SourceSettings = Annotated[
    DemoSettings | BinlogFilesSettings | MariadbSettings | MysqlSettings, Field(discriminator="type")
]
"""Use with `pydantic.TypeAdapter`, or as a field's type."""


def process_settings(source: DemoSettings | BinlogFilesSettings | MariadbSettings | MysqlSettings) -> dict[str, Any]:
    """The source as JSON, for the standard input of capture: the only place where a secret is written out."""
    value = source.model_dump(mode="json", exclude_none=True)
    if isinstance(source, MariadbSettings | MysqlSettings) and source.password is not None:
        value["password"] = source.password.get_secret_value()
    return value
