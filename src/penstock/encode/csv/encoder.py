"""CSV: op, table, schema, what the options add, then the columns of the table (docs/formats/csv.md).

TiCDC's consumer counts the columns, so there is no place for a seq. An update is one line U with the row after it, or,
where it changes the key or `output_old_value` asks for it, a line D with the row before and a line I with the row after.
Times come from commit_ts, never from a clock: the same rows give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.encode.csv.reader import read_lines
from penstock.encode.csv.values import Dialect, fields, key_fields
from penstock.encode.images import Shown, check_ops, key_changes, shown_images, split_updates
from penstock.encode.joining import JoinedCsv
from penstock.encode.lines import encode_lines, op_words
from penstock.encode.settings import TERMINATORS, CsvOptions
from penstock.encode.text import Text, integer_text, text_of
from penstock.files import Buffer
from penstock.schema.changes import OP_UPDATE, ChangeBatch
from penstock.schema.model import TableSchema

OWN_COLUMNS = {
    "operation": "ticdc-meta$operation",
    "table": "ticdc-meta$table",
    "schema": "ticdc-meta$schema",
    "commit_ts": "ticdc-meta$commit-ts",
    "is_update": "ticdc-meta$is-update",
    "handle_key": "ticdc-meta$handle-key",
}


class Csv:
    name = "csv"
    extension = ".csv"

    def __init__(self, options: CsvOptions = CsvOptions()) -> None:  # noqa: B008 - frozen
        self._options = options
        self._dialect = Dialect.of(options)
        self._joined = JoinedCsv(options)

    def row_bytes_min(self, table: TableSchema) -> int:
        return sum(map(len, self._fragments(table))) + 1 + len(table.columns) * min(1, len(self._options.null_string))

    def encode(self, batch: ChangeBatch) -> Buffer:
        check_ops(batch.op)
        lines = encode_lines(batch, self._fragments(batch.table), self._tokens)
        if not self._options.output_field_header or not len(batch):
            return lines
        return self._header(batch.table) + bytes(lines)

    def join(self, payloads: Iterable[Buffer]) -> Iterator[Buffer]:
        return self._joined.join(payloads)

    def assemble(self, payloads: Sequence[Buffer]) -> Buffer:
        return b"".join(self.join(payloads))

    def pieces(self, file: Buffer, *, before: bool = False) -> Iterator[pa.Table]:
        del before
        yield self.rows(file)

    def rows_of(self, batch: ChangeBatch) -> pa.Table:
        return self.rows(self.encode(batch))

    def rows(self, file: Buffer) -> pa.Table:
        """`_op`, `_commit_ts` where it is there, then the columns as text; c0, c1, … where no header names them."""
        lines = list(read_lines(bytes(file).decode(), self._options))
        if not lines:
            return pa.table({"_op": pa.array([], pa.string())})
        options = self._options
        own = 3 + options.include_commit_ts + options.output_old_value + options.output_handle_key
        names = lines.pop(0)[own:] if options.output_field_header else [f"c{n}" for n in range(len(lines[0]) - own)]
        table: dict[str, pa.Array[Any]] = {"_op": pa.array([line[0] for line in lines], pa.string())}
        if options.include_commit_ts:
            table["_commit_ts"] = pa.array([int(line[3] or 0) for line in lines], pa.int64())
        for n, name in enumerate(names):
            table[str(name)] = pa.array([line[own + n] for line in lines], pa.string())
        return pa.table(table)

    def _tokens(self, batch: ChangeBatch) -> list[Text]:
        options, dialect = self._options, self._dialect
        updates = batch.op == OP_UPDATE
        split, origin = split_updates(batch, updates if options.output_old_value else key_changes(batch))
        shown = shown_images(split)
        tokens = [op_words(split.op, *(f"{options.quote}{letter}{options.quote}" for letter in "IUD"))]
        if options.include_commit_ts:
            tokens.append(integer_text(split.commit_ts))
        if options.output_old_value:
            tokens.append(_flags(updates if origin is None else updates[origin]))
        if options.output_handle_key:
            tokens.append(self._keys(split.table, shown, len(split)))
        return tokens + [
            fields(column, values, dialect) for column, values in zip(split.table.columns, shown.columns, strict=True)
        ]

    def _keys(self, table: TableSchema, shown: Shown, rows: int) -> Text:
        return key_fields([(table.columns[n], shown.columns[n]) for n in table.primary_key], rows, self._dialect)

    def _fragments(self, table: TableSchema) -> list[bytes]:
        """What stands between the tokens: nothing before the op, then the names, then delimiters, then the end."""
        options = self._options
        delimiter = options.delimiter.encode()
        between = len(table.columns) + options.include_commit_ts + options.output_old_value + options.output_handle_key
        names = delimiter.join([b"", self._string(table.table), self._string(table.schema)])
        end = TERMINATORS[options.terminator].encode()
        if not between:
            return [b"", names + end]
        return [b"", names + delimiter, *([delimiter] * (between - 1)), end]

    def _header(self, table: TableSchema) -> bytes:
        options = self._options
        own = [OWN_COLUMNS["operation"], OWN_COLUMNS["table"], OWN_COLUMNS["schema"]]
        own += [OWN_COLUMNS["commit_ts"]] if options.include_commit_ts else []
        own += [OWN_COLUMNS["is_update"]] if options.output_old_value else []
        own += [OWN_COLUMNS["handle_key"]] if options.output_handle_key else []
        names = [self._name(column.name) for column in table.columns]
        line = options.delimiter.encode().join([*(name.encode() for name in own), *names])
        return line + TERMINATORS[options.terminator].encode()

    def _name(self, name: str) -> bytes:
        """Names stand without quotes, unless they hold what ends a field."""
        special = (self._options.delimiter, self._options.quote or "\\", "\r", "\n")
        return self._string(name) if any(text in name for text in special) else name.encode()

    def _string(self, text: str) -> bytes:
        return self._dialect.strings(pa.array([text])).data.tobytes()


def _flags(values: npt.NDArray[np.bool_]) -> Text:
    return text_of(pc.if_else(pa.array(values), "true", "false"), "")
