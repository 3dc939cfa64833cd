"""The SQL of a chunk: the next rows of a range of keys, in the order of the key.

The order is the server's own, by the collation of each column: `after` is compared by the same server that made the
order. The values of a key are never NULL. An enum is ordered by its number, and compared by it.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.schema.model import TableSchema
from penstock.schema.quoting import quoted_name
from penstock.sources.load import KeyRange, TableLoad
from penstock.sources.mysql.load.columns import ColumnForm

LOCKING = " LOCK IN SHARE MODE"  # needs no right but SELECT


def chunk_query(table: TableSchema, forms: Sequence[ColumnForm], load: TableLoad, part: KeyRange, rows_max: int) -> str:
    """`forms`: of the table's columns."""
    key = key_ordinals(table, load.key)
    selected = ", ".join(form.expression for form in forms)
    compared = [forms[i].compared for i in key]
    order = ", ".join(quoted_name(table.columns[i].name) for i in key)
    return (
        f"SELECT {selected} FROM {indexed(table)}{where(compared, part, load.where)} ORDER BY {order} LIMIT {rows_max}"
    )


def key_ordinals(table: TableSchema, key: Sequence[str]) -> list[int]:
    """Where the key's columns stand in the table, in the order of the key."""
    ordinals = {column.name.lower(): i for i, column in enumerate(table.columns)}
    return [ordinals[name.lower()] for name in key]


def indexed(table: TableSchema) -> str:
    return f"{quoted_name(table.schema, table.table)} FORCE INDEX (PRIMARY)"


def where(compared: Sequence[str], part: KeyRange, condition: str = "") -> str:
    """The rows of a range, that meet a condition beside that, as `condition.py` lets it pass."""
    found = [_beyond(compared, part.after), _up_to(compared, part.until), condition]
    conditions = [f"({text})" for text in found if text]
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _beyond(compared: Sequence[str], after: Sequence[str]) -> str:
    """As alternatives, each of which is one range of the index: a comparison of whole tuples would read it from its start."""
    return _alternatives(compared, after, ">", ">")


def _up_to(compared: Sequence[str], until: Sequence[str]) -> str:
    """Exactly the rows that are not beyond it."""
    return _alternatives(compared, until, "<", "<=")


def _alternatives(compared: Sequence[str], values: Sequence[str], other: str, last: str) -> str:
    alternatives = []
    for depth, value in enumerate(values):
        equal = [f"{compared[i]} = {values[i]}" for i in range(depth)]
        sign = last if depth == len(values) - 1 else other
        alternatives.append("(" + " AND ".join([*equal, f"{compared[depth]} {sign} {value}"]) + ")")
    return " OR ".join(alternatives)
