"""Canal-JSON as TiCDC's storage consumer reads it: one change per line (docs/formats/canal-json.md).

The consumer ends a file at a blank line, reads only the first element of `data`, and panics on a value that is neither
a string nor null: so an empty batch has no bytes at all, and every value is a string. Times come from commit_ts, never
from a clock: the same rows give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.commit_ts import milliseconds_of_all
from penstock.encode.images import changed, check_ops, images_with, shown_images
from penstock.encode.joining import JoinedLines
from penstock.encode.json_lines import JsonLines, before_name, letter_column, seq_column, told_name
from penstock.encode.lines import ARRAY_OF_ONE, chosen_rows, encode_lines, json_text, objects, op_words, seq_text
from penstock.encode.settings import TERMINATORS, CanalJsonOptions
from penstock.encode.text import (
    BINARIES,
    CHARACTERS,
    FLOATS,
    JSON_STRING,
    Text,
    float_text,
    formatted,
    integer_text,
    is_text_decimal,
    json_strings,
    unsupported,
)
from penstock.files import Buffer
from penstock.schema.changes import OP_DELETE, OP_INSERT, OP_UPDATE, ChangeBatch
from penstock.schema.model import Column, TableSchema

_SQL_TYPES = {
    "bit": -7, "tinyint": -6, "smallint": 5, "mediumint": 4, "int": 4, "bigint": -5,
    "float": 7, "double": 8, "decimal": 3, "char": 1, "varchar": 12, "json": 12, "year": 12, "inet4": 12,
    "inet6": 12, "uuid": 12,
    "tinytext": 2005, "text": 2005, "mediumtext": 2005, "longtext": 2005, "date": 91, "time": 92, "datetime": 93,
    "timestamp": 93, "enum": 4, "set": -7,
}  # fmt: skip
_UNSIGNED_SQL_TYPES = {"tinyint": 5, "smallint": 4, "int": -5, "bigint": 3}
_BLOB = 2004
_TYPE, _COMMIT_TS, _SEQ = ("type",), ("_tidb", "commitTs"), ("_penstock", "seq")
_NAMES = (("database",), ("table",))
_OPS = {"I": "I", "U": "U", "D": "D"}


class CanalJson:
    name = "canal-json"
    extension = ".json"

    def __init__(self, options: CanalJsonOptions = CanalJsonOptions()) -> None:  # noqa: B008 - frozen
        self._options = options
        self._terminator = TERMINATORS[options.terminator]

    def row_bytes_min(self, table: TableSchema) -> int:
        # Every line repeats the names and types of all columns.
        return sum(map(len, _fragments(table, self._terminator)))

    def encode(self, batch: ChangeBatch) -> Buffer:
        check_ops(batch.op)
        partial = batch.present_before is not None or batch.present_after is not None
        return encode_lines(batch, _fragments(batch.table, self._terminator, partial=partial), self._tokens)

    def join(self, payloads: Iterable[Buffer]) -> Iterator[Buffer]:
        return JoinedLines().join(payloads)

    def assemble(self, payloads: Sequence[Buffer]) -> Buffer:
        return b"".join(self.join(payloads))

    def pieces(self, file: Buffer, *, before: bool = False) -> Iterator[pa.Table]:
        yield self.rows(file, before=before)

    def rows_of(self, batch: ChangeBatch) -> pa.Table:
        return self.rows(self.encode(batch))

    def rows(self, file: Buffer, *, before: bool = False) -> pa.Table:
        lines = JsonLines(file, self._terminator)
        first = json.loads(lines.line(0)) if len(lines) else {"mysqlType": {}, "pkNames": []}
        names = list(first["mysqlType"])
        lines.find([*_NAMES, _TYPE, *((image, name) for image in ("old", "data") for name in names), _COMMIT_TS, _SEQ])
        split = np.zeros(len(lines), np.bool_)
        for name in first["pkNames"] or names:
            lines.different(lines.spans(("old", name)), lines.spans(("data", name)), split)
        origin = np.repeat(np.arange(len(lines)), np.where(split, 2, 1))  # an update that changed the key is D and I
        second = np.flatnonzero(split) + np.arange(1, np.count_nonzero(split) + 1)
        ops = lines.letters(_TYPE, _OPS)[origin]
        ops[second - 1], ops[second] = OP_DELETE, OP_INSERT
        table = {
            "_seq": seq_column(lines.seqs(_SEQ)[origin]),
            "_op": letter_column(ops),
            "_commit_ts": pa.array(lines.integers(_COMMIT_TS)[origin].astype(np.int64)),
        }
        for name in names:
            spans = lines.spans(("data", name))
            if len(second):
                spans = spans[origin]
                old = lines.spans(("old", name))[origin[second - 1]]
                spans[second - 1] = np.where(old >= 0, old, spans[second - 1])
            table[name] = lines.text(spans)
        for name in names if before else ():
            table[before_name(name)] = lines.text(lines.spans(("old", name))[origin])
        for path in _NAMES if before else ():
            table[told_name(path[-1])] = lines.text(lines.spans(path)[origin])
        return pa.table(table)

    def _tokens(self, batch: ChangeBatch) -> list[Text]:
        """What differs from line to line, in the order in which it stands between the fragments."""
        columns = batch.table.columns
        millis = integer_text(milliseconds_of_all(batch.commit_ts))
        shown = shown_images(batch)
        if shown.present is None:
            data = [_token(column, values) for column, values in zip(columns, shown.columns, strict=True)]
        else:
            present = np.array(shown.present)
            every = np.ones(len(batch), np.bool_)
            data = [_objects(columns, shown.columns, present, every)]
        return [
            op_words(batch.op, "INSERT", "UPDATE", "DELETE"),
            millis,
            millis,
            self._old(batch),
            *data,
            integer_text(batch.commit_ts),
            seq_text(batch.seq),
        ]

    def _old(self, batch: ChangeBatch) -> Text:
        """Before images of updates: the columns that changed, as native canal writes them, or all that were logged."""
        updates = batch.op == OP_UPDATE
        columns = range(len(batch.table.columns))
        if self._options.old == "all":
            chosen = np.array([images_with(batch, ordinal)[0][updates] for ordinal in columns], np.bool_)
        else:
            chosen = np.array([changed(batch, ordinal)[updates] for ordinal in columns], np.bool_)
        chosen = chosen.reshape(len(columns), np.count_nonzero(updates))
        before = [column.filter(pa.array(updates)) for column in batch.before] if updates.any() else []
        return _objects(batch.table.columns, before, chosen, updates)


def _fragments(table: TableSchema, terminator: str, *, partial: bool = False) -> list[bytes]:
    """What stands between the tokens of a line: the same for all rows of a table version. Where a column may be absent
    (`partial`), the whole of `data` is one token."""
    head = {
        "id": 0,
        "database": table.schema,
        "table": table.table,
        "pkNames": [table.columns[i].name for i in table.primary_key],
    }
    sql_types = {column.name: _sql_type(column) for column in table.columns}
    mysql_types = {column.name: column.plain_type for column in table.columns}
    fragments = [
        json_text(head)[:-1] + ',"isDdl":false,"type":"',
        '","es":',
        ',"ts":',
        f',"sql":"","sqlType":{json_text(sql_types)},"mysqlType":{json_text(mysql_types)},"old":',
    ]
    before = ',"data":[{'
    for column in () if partial else table.columns:
        fragments.append(f"{before}{json_text(column.name)}:")
        before = ","
    closing = "}]" if table.columns else ',"data":[{}]'
    if partial:
        fragments.append(',"data":')
        closing = ""
    fragments += [f'{closing},"_tidb":{{"commitTs":', '},"_penstock":{"seq":"', '"}}' + terminator]
    return [fragment.encode() for fragment in fragments]


def _sql_type(column: Column) -> int:
    """java.sql.Types; an unsigned number takes the next larger type, as canal does."""
    base = column.base_type
    if base in BINARIES:
        return _BLOB
    if base not in _SQL_TYPES:
        raise unsupported(column)
    return _UNSIGNED_SQL_TYPES.get(base, _SQL_TYPES[base]) if column.unsigned else _SQL_TYPES[base]


def _objects(
    columns: Sequence[Column],
    values: Sequence[pa.Array[Any]],
    chosen: npt.NDArray[np.bool_],
    rows: npt.NDArray[np.bool_],
) -> Text:
    """For each of `rows` an array of one object with its `chosen` columns, else null. `values` and `chosen` have an
    element for each row that is true."""
    tokens = [
        _token(column, chosen_rows(array, chosen[ordinal]))
        for ordinal, (column, array) in enumerate(zip(columns, values, strict=False))
    ]
    return objects(columns, tokens, chosen, rows, ARRAY_OF_ONE)


def _token(column: Column, values: pa.Array[Any]) -> Text:
    """Each value as a JSON string, or `null`."""
    base = column.base_type
    if base in FLOATS:
        return json_strings(float_text(values))
    if base in CHARACTERS or is_text_decimal(column, values):
        return json_strings(values)
    if base in BINARIES:
        return json_strings(values, latin1=True)
    return formatted(column, values, JSON_STRING)
