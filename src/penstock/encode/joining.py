"""Payloads → files, without the kernels that made the payloads: what the delivery process imports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.encode.format import Assembler
from penstock.encode.parquet.file import ParquetFile
from penstock.encode.settings import OPTIONS, TERMINATORS, CsvOptions, FormatOptions, ParquetOptions
from penstock.errors import BadInput
from penstock.files import Buffer


class JoinedLines:
    """Text: a file is its payloads, back to back."""

    def join(self, payloads: Iterable[Buffer]) -> Iterator[Buffer]:
        yield from payloads


class JoinedCsv:
    """With a header, every payload begins with it, and a file has the first one."""

    def __init__(self, options: CsvOptions) -> None:
        self._options = options

    def join(self, payloads: Iterable[Buffer]) -> Iterator[Buffer]:
        if not self._options.output_field_header:
            yield from payloads
            return
        header: bytes | None = None
        for payload in payloads:
            part = memoryview(payload).cast("B")
            if not len(part):
                continue
            if header is None:
                header = bytes(part[: self.header_end(part)])
                yield part
                continue
            if part[: len(header)] != header:
                raise BadInput("payloads of different table versions cannot share a CSV file")
            yield part[len(header) :]

    def header_end(self, payload: Buffer) -> int:
        """Where the first line ends: at the first terminator outside of quotes."""
        view, quote = memoryview(payload).cast("B"), self._options.quote.encode()
        terminator = TERMINATORS[self._options.terminator].encode()
        step, found = 4096, -1
        while found < 0:
            head = bytes(view[:step])
            pieces, at = head.split(terminator), 0
            for piece in pieces[:-1]:
                at += len(piece) + len(terminator)
                if not quote or head[:at].count(quote) % 2 == 0:
                    found = at
                    break
            if found < 0 and step >= len(view):
                raise BadInput("a payload of CSV has no end of its header")
            step *= 4
        return found


def open_assembler(format_name: str, options: FormatOptions | dict[str, Any] | None = None) -> Assembler:
    """The half of a format that makes files. `options` as in the configuration; defaults where there are none."""
    checked = options_of(format_name, options)
    if isinstance(checked, CsvOptions):
        return JoinedCsv(checked)
    if isinstance(checked, ParquetOptions):
        return ParquetFile()
    return JoinedLines()


def options_of(format_name: str, options: FormatOptions | dict[str, Any] | None) -> FormatOptions:
    """The options of a format, checked. Raises `BadInput` for a format that does not exist or options of another."""
    if format_name not in OPTIONS:
        raise BadInput(f"the format {format_name!r} is unknown", hint=f"use one of {', '.join(sorted(OPTIONS))}")
    kind = OPTIONS[format_name]
    if isinstance(options, FormatOptions):
        if not isinstance(options, kind):
            raise BadInput(f"{type(options).__name__} are not options of {format_name}")
        return options
    try:
        return kind.model_validate(options or {})
    except ValueError as error:
        raise BadInput(f"options of {format_name}: {error}") from error
