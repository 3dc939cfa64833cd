"""A logged statement and what its session says about how to read it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.binlog.types import Flavour
from penstock.schema.ddl.tokens import SYMBOL, Token, tokens_of

if TYPE_CHECKING:
    from penstock.binlog.bodies import Query  # with it come kernels, which delivery does not need


@dataclass(frozen=True)
class Statement:
    """`schema` is the session's database. `server_charset` is the default of new databases, and of tables in databases
    whose own default is not known."""

    sql: str
    schema: str = ""
    sql_mode: int = 0
    server_charset: str = "utf8mb4"
    mariadb: bool = True
    explicit_timestamps: bool = True
    error_code: int = 0  # the statement failed with it, and yet it changed something

    @classmethod
    def of(cls, query: Query) -> Statement:
        return cls(
            query.sql,
            query.schema,
            query.sql_mode,
            query.server_charset or "utf8mb4",
            query.flavour is Flavour.MARIADB,
            query.explicit_timestamps,
            query.error_code,
        )

    @cached_property
    def tokens(self) -> list[Token]:
        """All tokens, without the semicolons at the end. Raises `Unreadable`."""
        found = tokens_of(self.sql, self.sql_mode, mariadb=self.mariadb)
        while len(found) > 1 and found[-2].kind == SYMBOL and found[-2].text == ";":
            del found[-2]
        return found
