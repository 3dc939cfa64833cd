"""The SQL of a chunk: the rows after a key, in the order of the primary key.

The order is the server's own, by the collation of each column: `after` is compared by the same server that made the
order. The values of a key, being a primary key's, are never NULL.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.schema.model import TableSchema
from penstock.schema.quoting import quoted_name
from penstock.sources.mysql.load.columns import ColumnForm


def chunk_query(
    table: TableSchema, forms: Sequence[ColumnForm], key: Sequence[int], after: Sequence[str], rows_max: int
) -> str:
    """`key`: the ordinals of the key's columns, in its order; `after`: a literal for each, or none for the first chunk."""
    selected = ", ".join(form.expression for form in forms)
    compared = [forms[i].compared for i in key]
    where = f" WHERE {_beyond(compared, after)}" if after else ""
    return (
        f"SELECT {selected} FROM {quoted_name(table.schema, table.table)} FORCE INDEX (PRIMARY){where}"
        f" ORDER BY {', '.join(compared)} LIMIT {rows_max}"
    )


def _beyond(compared: Sequence[str], after: Sequence[str]) -> str:
    """As alternatives, each of which is one range of the index: a comparison of whole tuples would read it from its start."""
    alternatives = []
    for depth in range(len(compared)):
        equal = [f"{compared[i]} = {after[i]}" for i in range(depth)]
        alternatives.append("(" + " AND ".join([*equal, f"{compared[depth]} > {after[depth]}"]) + ")")
    return " OR ".join(alternatives)
