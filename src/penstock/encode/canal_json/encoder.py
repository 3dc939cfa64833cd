"""Canal-JSON as TiCDC's storage consumer reads it: one change per line, CRLF after each (docs/formats/canal-json.md).

The consumer ends a file at a blank line, reads only the first element of `data`, and panics on a value that is neither
a string nor null: so an empty batch has no bytes at all, and every value is a string. Times come from commit_ts, never
from a clock: the same rows give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.commit_ts import milliseconds_of_all
from penstock.encode import text_kernels
from penstock.encode.canal_json import kernels as json_kernels
from penstock.encode.format import OPS, differs, shown_images
from penstock.encode.text import BINARIES, Text, json_tokens, unsupported
from penstock.errors import BadInput
from penstock.files import Buffer
from penstock.log.position import Seq
from penstock.schema.changes import OP_DELETE, OP_INSERT, OP_UPDATE, ChangeBatch
from penstock.schema.model import Column, TableSchema

TERMINATOR = "\r\n"

# So few rows are encoded at a time that their tokens and lines stay in the processor's cache.
ROWS_AT_A_TIME = 4096

_SQL_TYPES = {
    "bit": -7, "tinyint": -6, "smallint": 5, "mediumint": 4, "int": 4, "bigint": -5,
    "float": 7, "double": 8, "decimal": 3, "char": 1, "varchar": 12, "json": 12, "year": 12,
    "tinytext": 2005, "text": 2005, "mediumtext": 2005, "longtext": 2005, "date": 91, "time": 92, "datetime": 93,
    "timestamp": 93, "enum": 4, "set": -7,
}  # fmt: skip
_UNSIGNED_SQL_TYPES = {"tinyint": 5, "smallint": 4, "int": -5, "bigint": 3}
_BLOB = 2004

_TYPES = {OP_INSERT: "INSERT", OP_UPDATE: "UPDATE", OP_DELETE: "DELETE"}
_OPS = {"INSERT": "I", "UPDATE": "U", "DELETE": "D"}


class CanalJson:
    name = "canal-json"
    extension = ".json"

    def row_bytes_min(self, table: TableSchema) -> int:
        return sum(map(len, _fragments(table)))  # every line repeats the names and types of all columns

    def encode(self, batch: ChangeBatch) -> Buffer:
        constants = _joined(_fragments(batch.table))
        out, length = np.empty(0, np.uint8), 0
        for start in range(0, len(batch), ROWS_AT_A_TIME):
            part = batch.slice(start, min(start + ROWS_AT_A_TIME, len(batch)))
            starts, arena = _arena(_tokens(part))
            end = length + len(part) * len(constants[1]) + len(arena)
            if end > len(out):
                # Space for all rows, if the others are like these: pages that are never touched cost no memory.
                grown = np.empty(end * len(batch) // (start + len(part)) * 9 // 8 + 1, np.uint8)
                grown[:length] = out[:length]
                out = grown
            json_kernels.lines(*constants, starts, arena, out[length:end])
            length = end
        return out[:length].data

    def assemble(self, payloads: Sequence[Buffer]) -> Buffer:
        return payloads[0] if len(payloads) == 1 else b"".join(payloads)

    def rows(self, file: Buffer) -> pa.Table:
        objects = [json.loads(line) for line in bytes(file).decode().split(TERMINATOR) if line]
        table = {
            "_seq": pa.array([Seq.parse(o["_penstock"]["seq"]).to_bytes() for o in objects], pa.binary()),
            "_op": pa.array([_OPS[o["type"]] for o in objects], pa.string()),
            "_commit_ts": pa.array([o["_tidb"]["commitTs"] for o in objects], pa.int64()),
        }
        for name in objects[0]["mysqlType"] if objects else ():
            table[name] = pa.array([o["data"][0][name] for o in objects], pa.string())
        return pa.table(table)


def _tokens(batch: ChangeBatch) -> list[Text]:
    """What differs from line to line, in the order in which it stands between the fragments."""
    columns = batch.table.columns
    millis = _integers(milliseconds_of_all(batch.commit_ts))
    return [
        _types(batch.op),
        millis,
        millis,
        _old(batch, batch.op == OP_UPDATE),
        *(json_tokens(column, values) for column, values in zip(columns, shown_images(batch), strict=True)),
        _integers(batch.commit_ts),
        _seqs(batch.seq),
    ]


def _fragments(table: TableSchema) -> list[bytes]:
    """What stands between the tokens of a line: the same for all rows of a table version."""
    head = {
        "id": 0,
        "database": table.schema,
        "table": table.table,
        "pkNames": [table.columns[i].name for i in table.primary_key],
    }
    sql_types = {column.name: _sql_type(column) for column in table.columns}
    mysql_types = {column.name: column.mysql_type for column in table.columns}
    fragments = [
        _json(head)[:-1] + ',"isDdl":false,"type":"',
        '","es":',
        ',"ts":',
        f',"sql":"","sqlType":{_json(sql_types)},"mysqlType":{_json(mysql_types)},"old":',
    ]
    before = ',"data":[{'
    for column in table.columns:
        fragments.append(f"{before}{_json(column.name)}:")
        before = ","
    closing = "}]" if table.columns else ',"data":[{}]'
    fragments += [f'{closing},"_tidb":{{"commitTs":', '},"_penstock":{"seq":"', '"}}' + TERMINATOR]
    return [fragment.encode() for fragment in fragments]


def _sql_type(column: Column) -> int:
    """java.sql.Types; an unsigned number takes the next larger type, as canal does."""
    base = column.base_type
    if base in BINARIES:
        return _BLOB
    if base not in _SQL_TYPES:
        raise unsupported(column)
    return _UNSIGNED_SQL_TYPES.get(base, _SQL_TYPES[base]) if column.unsigned else _SQL_TYPES[base]


def _old(batch: ChangeBatch, updates: npt.NDArray[np.bool_]) -> Text:
    """Before images of updates: only the columns that changed, as native canal writes them."""
    count = int(np.count_nonzero(updates))
    offsets = np.empty(len(batch) + 1, np.int64)
    tokens: list[Text] = []
    changed = np.empty((len(batch.table.columns), count), np.bool_)
    if count:
        mask = None if count == len(batch) else pa.array(updates)
        for ordinal, column in enumerate(batch.table.columns):
            before, after = batch.before[ordinal], batch.after[ordinal]
            if mask is not None:
                before, after = before.filter(mask), after.filter(mask)
            changed[ordinal] = differs(before, after)
            tokens.append(json_tokens(column, before.filter(pa.array(changed[ordinal]))))
    starts, arena = _arena(tokens)
    names, name_bytes = _joined([f"{_json(column.name)}:".encode() for column in batch.table.columns])
    json_kernels.old_offsets(updates, changed, names, starts, offsets)
    out = np.empty(offsets[-1], np.uint8)
    json_kernels.old_tokens(updates, changed, names, name_bytes, starts, arena, offsets, out)
    return Text(offsets, out)


def _types(op: npt.NDArray[np.uint8]) -> Text:
    unknown = set(np.unique(op).tolist()) - OPS
    if unknown:
        raise BadInput(f"unknown operations {sorted(unknown)} in a batch of changes")
    length = len(_TYPES[OP_INSERT])  # the three words are of one length
    words = np.zeros((256, length), np.uint8)
    for code, word in _TYPES.items():
        words[code] = np.frombuffer(word.encode(), np.uint8)
    return Text(np.arange(len(op) + 1, dtype=np.int64) * length, words[op].reshape(-1))


def _integers(values: npt.NDArray[np.uint64]) -> Text:
    offsets = np.empty(len(values) + 1, np.int64)
    out = np.empty(len(values) * text_kernels.INTEGER_WIDTH, np.uint8)
    text_kernels.integers(np.ascontiguousarray(values), np.empty(0, np.bool_), False, 0, offsets, out)
    return Text(offsets, out[: offsets[-1]])


def _seqs(seq: npt.NDArray[np.void]) -> Text:
    values = np.empty((len(seq), 4), np.uint64)
    for part, field in enumerate(("ledger", "entry", "event", "row")):
        values[:, part] = seq[field]
    offsets = np.empty(len(seq) + 1, np.int64)
    out = np.empty(len(seq) * 64, np.uint8)
    json_kernels.seqs(values, offsets, out)
    return Text(offsets, out[: offsets[-1]])


def _arena(tokens: Sequence[Text]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """All tokens in one buffer, and where those of each column start. Nothing is read past a column's last token."""
    if not tokens:
        return np.zeros((0, 1), np.int64), np.empty(0, np.uint8)
    starts = np.zeros((len(tokens), max(len(token.offsets) for token in tokens)), np.int64)
    base = 0
    for ordinal, token in enumerate(tokens):
        np.add(token.offsets, base, out=starts[ordinal, : len(token.offsets)])
        base += len(token.data)
    return starts, np.concatenate([token.data for token in tokens])


def _joined(pieces: Sequence[bytes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    bounds = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([len(piece) for piece in pieces], out=bounds[1:])
    return bounds, np.frombuffer(b"".join(pieces), np.uint8)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
