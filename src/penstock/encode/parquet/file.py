"""Payloads → a Parquet file (docs/formats/parquet.md). A payload is a Parquet file of its own; its row groups become those of
the whole, byte by byte, and only the footer is new. Needs no pyarrow: it runs in delivery."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.encode.parquet.footer import MAGIC, Struct, append_groups, parse_footer, write_footer
from penstock.errors import BadInput
from penstock.files import Buffer


class ParquetFile:
    def join(self, payloads: Iterable[Buffer]) -> Iterator[Buffer]:
        footer: Struct | None = None
        written = len(MAGIC)
        for payload in payloads:
            found, end = parse_footer(payload)
            if footer is None:
                yield MAGIC
                footer = found
            else:
                append_groups(footer, found, written - len(MAGIC))
            yield memoryview(payload).cast("B")[len(MAGIC) : end]
            written += end - len(MAGIC)
        if footer is None:
            raise BadInput("a Parquet file needs at least one payload")
        yield write_footer(footer)
