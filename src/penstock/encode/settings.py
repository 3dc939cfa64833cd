"""The options of each format, as a user writes them in a sink's section of that format: `csv: {delimiter: ";"}`.

Plain data; `penstock.encode.formats` makes a format from them. Everything here shapes what readers see, so a sink that
holds files keeps its options.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

FormatName = Literal["canal-json", "csv", "debezium-json", "parquet"]

TERMINATORS = {"crlf": "\r\n", "lf": "\n"}
Terminator = Literal["crlf", "lf"]

_OF_NUMBERS = re.compile(r"[0-9A-Za-z+.-]")
_OF_UNQUOTED_VALUES = re.compile(r"[ :/=]")  # of times and of base64


class FormatOptions(BaseModel):
    """What every format's options have in common: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class CsvOptions(FormatOptions):
    """As TiCDC's `[sink.csv]`. A reader needs the same settings to read the files."""

    delimiter: Annotated[str, Field(min_length=1, max_length=3)] = ","
    quote: Annotated[str, Field(max_length=1)] = '"'
    null_string: Annotated[str, Field(max_length=16)] = "\\N"
    include_commit_ts: bool = False
    binary_encoding: Literal["base64", "hex"] = "base64"
    output_old_value: bool = False
    output_handle_key: bool = False
    output_field_header: bool = False
    terminator: Terminator = "crlf"

    @field_validator("delimiter", "quote", "null_string")
    @classmethod
    def _printable(cls, value: str) -> str:
        if any(not (" " <= character <= "~" or character == "\t") for character in value):
            raise ValueError("use printable ASCII characters or a tab")
        return value

    @field_validator("delimiter")
    @classmethod
    def _apart_from_numbers(cls, value: str) -> str:
        if "\\" in value or _OF_NUMBERS.search(value):
            raise ValueError(
                f"{value!r} has a letter, a digit or one of + - . \\ in it, which numbers or escapes have too"
            )
        return value

    @field_validator("quote")
    @classmethod
    def _apart_from_values(cls, value: str) -> str:
        if value and ("\\" in value or _OF_NUMBERS.search(value)):
            raise ValueError(f"{value!r} cannot be a quote: values have it too")
        return value

    @model_validator(mode="after")
    def _told_apart(self) -> CsvOptions:
        if self.quote and self.quote in self.delimiter + self.null_string:
            raise ValueError(f"the quote {self.quote!r} is in the delimiter or in null_string")
        if self.delimiter in self.null_string:
            raise ValueError(f"the delimiter {self.delimiter!r} is in null_string")
        if self.null_string.endswith(tuple(self.delimiter[:size] for size in range(1, len(self.delimiter)))):
            raise ValueError(f"null_string {self.null_string!r} ends as the delimiter {self.delimiter!r} begins")
        if re.fullmatch(r"[0-9+.eE-]+", self.null_string):
            raise ValueError(f"null_string {self.null_string!r} may be a number")
        if not self.quote and not self.null_string.startswith("\\"):
            raise ValueError("without quotes, null_string must begin with a backslash: else a string may be the same")
        if not self.quote and _OF_UNQUOTED_VALUES.search(self.delimiter):
            raise ValueError(
                f"without quotes, {self.delimiter!r} cannot be the delimiter: times and base64 have it too"
            )
        return self


class CanalJsonOptions(FormatOptions):
    """`old`: which columns the image before an update has: those that it changed, as canal itself writes, or all."""

    old: Literal["changed", "all"] = "changed"
    terminator: Terminator = "crlf"


class DebeziumJsonOptions(FormatOptions):
    """`include_schema`: every line carries the schema of its values, as Debezium's JSON converter does by default."""

    include_schema: bool = False
    output_old_value: bool = True
    decimal: Literal["string", "double"] = "string"
    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,62}$")] = "penstock"
    terminator: Terminator = "lf"


class ParquetOptions(FormatOptions):
    compression: Literal["zstd", "snappy", "gzip", "none"] = "zstd"


OPTIONS: dict[str, type[FormatOptions]] = {
    "canal-json": CanalJsonOptions,
    "csv": CsvOptions,
    "debezium-json": DebeziumJsonOptions,
    "parquet": ParquetOptions,
}


def section_of(format_name: str) -> str:
    """The key of a sink that has the options of a format: `canal_json`."""
    return format_name.replace("-", "_")


def identity(format_name: str, options: FormatOptions) -> str:
    """Format and options in a line: files under one prefix have the same. Options that are the default are left out."""
    changed = options.model_dump(exclude_defaults=True)
    return f"{format_name} {json.dumps(changed, sort_keys=True)}" if changed else format_name
