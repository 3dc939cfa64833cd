"""Debezium's JSON: an envelope of before, after, source and op on each line (docs/formats/debezium-json.md).

As Debezium does, an update that changes the primary key is two lines, d and c. Times come from commit_ts, never from a
clock: the same rows give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.commit_ts import milliseconds_of_all
from penstock.encode.debezium_json.schema import column_schema, envelope_schema
from penstock.encode.debezium_json.values import json_values
from penstock.encode.images import check_ops, images_with, key_changes, shown_images, split_updates
from penstock.encode.joining import JoinedLines
from penstock.encode.json_lines import JsonLines, Path, before_name, letter_column, seq_column, told_name
from penstock.encode.lines import chosen_rows, encode_lines, json_text, objects, op_words, seq_text
from penstock.encode.settings import TERMINATORS, DebeziumJsonOptions
from penstock.encode.text import Text, integer_text
from penstock.files import Buffer
from penstock.schema.changes import OP_DELETE, OP_INSERT, OP_UPDATE, ChangeBatch
from penstock.schema.model import TableSchema

_OPS = {"c": "I", "u": "U", "d": "D"}


class DebeziumJson:
    name = "debezium-json"
    extension = ".json"

    def __init__(self, options: DebeziumJsonOptions = DebeziumJsonOptions()) -> None:  # noqa: B008 - frozen
        self._options = options
        self._terminator = TERMINATORS[options.terminator]

    def row_bytes_min(self, table: TableSchema) -> int:
        names = sum(len(column.name.encode()) + 4 for column in table.columns)  # "": and a digit, once at least
        return sum(map(len, self._fragments(table))) + names

    def encode(self, batch: ChangeBatch) -> Buffer:
        check_ops(batch.op)
        for column in batch.table.columns:
            column_schema(column, self._options)  # refuses a type that it does not know
        return encode_lines(batch, self._fragments(batch.table), self._tokens)

    def join(self, payloads: Iterable[Buffer]) -> Iterator[Buffer]:
        return JoinedLines().join(payloads)

    def assemble(self, payloads: Sequence[Buffer]) -> Buffer:
        return b"".join(self.join(payloads))

    def pieces(self, file: Buffer, *, before: bool = False) -> Iterator[pa.Table]:
        yield self.rows(file, before=before)

    def rows_of(self, batch: ChangeBatch) -> pa.Table:
        return self.rows(self.encode(batch))

    def rows(self, file: Buffer, *, before: bool = False, keyless: bool = False) -> pa.Table:
        """`keyless`: the table has no primary key. Then an update is one line even where it changes what tells the row, and
        nothing in the line says so; here it is a delete and an insert."""
        above = ("payload",) if self._options.include_schema else ()
        op, seq, commit_ts = (*above, "op"), (*above, "source", "seq"), (*above, "source", "commit_ts")
        images = [(*above, "before"), (*above, "after")]
        names = [(*above, "source", "db"), (*above, "source", "table")]

        def image_names(line: bytes) -> list[Path]:
            payload = json.loads(line)
            payload = payload["payload"] if above else payload
            return [
                (*image, name) for image in images for name in {**(payload["before"] or {}), **(payload["after"] or {})}
            ]

        lines = JsonLines(file, self._terminator)
        known = image_names(lines.line(0)) if len(lines) else []
        lines.find([*known, op, *names, seq, commit_ts], images, image_names)
        ops = lines.letters(op, _OPS)
        pairs = {path[-1]: (lines.spans((*images[0], path[-1])), lines.spans(path)) for path in lines.below(images[1])}
        twice = np.zeros(len(lines), np.bool_)
        if keyless:
            for old, new in pairs.values():
                lines.different(old, new, twice)
            twice &= ops == OP_UPDATE
        row = np.repeat(np.arange(len(lines)), 1 + twice)
        ops, twice = ops[row], twice[row]
        second = np.concatenate([np.zeros(min(1, len(row)), np.bool_), row[1:] == row[:-1]])
        ops[twice] = np.where(second[twice], OP_INSERT, OP_DELETE)
        deleted = ops == OP_DELETE
        table = {
            "_seq": seq_column(lines.seqs(seq)[row]),
            "_op": letter_column(ops),
            "_commit_ts": pa.array(lines.integers(commit_ts).astype(np.int64)[row]),
        }
        for name, (old, new) in pairs.items():
            table[name] = lines.text(np.where(deleted[:, None], old[row], new[row]))
            if before:
                table[before_name(name)] = lines.text(old[row])
        for path in names if before else ():
            table[told_name(path[-1])] = lines.text(lines.spans(path)[row])
        return pa.table(table)

    def _tokens(self, batch: ChangeBatch) -> list[Text]:
        """What differs from line to line, in the order in which it stands between the fragments."""
        if batch.table.primary_key or not self._options.output_old_value:
            batch = split_updates(batch, key_changes(batch)).batch
        millis = integer_text(milliseconds_of_all(batch.commit_ts))
        with_before = batch.op != OP_INSERT if self._options.output_old_value else batch.op == OP_DELETE
        shown = shown_images(batch)
        after = (batch.op != OP_DELETE, shown.columns, shown.present)
        logged = [images_with(batch, n)[0] for n in range(len(batch.table.columns))] if batch.present_before else None
        return [
            self._images(batch, with_before, batch.before, logged),
            self._images(batch, *after),
            millis,
            integer_text(batch.commit_ts),
            seq_text(batch.seq),
            op_words(batch.op, "c", "u", "d"),
            millis,
        ]

    def _images(
        self,
        batch: ChangeBatch,
        rows: npt.NDArray[np.bool_],
        values: Sequence[pa.Array[Any]],
        present: Sequence[npt.NDArray[np.bool_]] | None,
    ) -> Text:
        """An object for each of `rows`, else null. A column that the server did not log has no key."""
        columns, count = batch.table.columns, int(np.count_nonzero(rows))
        chosen = np.ones((len(columns), count), np.bool_)
        tokens: list[Text] = []
        for ordinal, column in enumerate(columns) if count else ():
            array = chosen_rows(values[ordinal], rows)
            if present is not None:
                chosen[ordinal] = present[ordinal][rows]
                array = chosen_rows(array, chosen[ordinal])
            tokens.append(json_values(column, array, self._options))
        return objects(columns, tokens, chosen, rows)

    def _fragments(self, table: TableSchema) -> list[bytes]:
        source = json_text({"version": "1", "connector": "mysql", "name": self._options.name})[:-1]
        place = json_text({"snapshot": "false", "db": table.schema, "sequence": None, "table": table.table})[1:-1]
        rest = '"server_id":0,"gtid":null,"file":"","pos":0,"row":0,"thread":null,"query":null'
        opening, closing = "{", "}"
        if self._options.include_schema:
            opening = f'{{"schema":{json_text(envelope_schema(table, self._options))},"payload":{{'
            closing = "}}"
        fragments = [
            f'{opening}"before":',
            ',"after":',
            f',"source":{source},"ts_ms":',
            f',{place},{rest},"commit_ts":',
            ',"seq":"',
            '"},"transaction":null,"op":"',
            '","ts_ms":',
            closing + self._terminator,
        ]
        return [fragment.encode() for fragment in fragments]
