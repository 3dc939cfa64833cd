"""What a sink must satisfy, by name: one for each line of the facts that a file can break."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

REQUIREMENTS = {
    "metadata": "`metadata` is a JSON object with a whole number `checkpoint-ts`",
    "schema-name": "a schema file is called schema_<version>_<checksum of 10 digits>.json",
    "schema-depth": "a schema file lies in <schema>/meta or <schema>/<table>/meta",
    "schema-json": "a schema file has the protocol's keys and types; `Type` is a number",
    "schema-checksum": "the checksum in a schema file's name is that of its content",
    "schema-version": "`TableVersion` is the version in the file's name",
    "schema-twice": "one schema file a version",
    "schema-names": "`Schema` and `Table` are those of the directory",
    "schema-missing": "a data directory has a schema file of its exact version",
    "create-database": "a CREATE DATABASE has `Type` 1",
    "rename": "a rename's `Query` is a RENAME TABLE",
    "one-table": "a statement names no other table than the schema file's",
    "qualified": "a statement names tables in full",
    "runs": "a statement can be run where it comes: its table is there, or is not",
    "index-place": "an index lies in the directory `meta` of its data directory",
    "index-missing": "a data directory has an index",
    "index-content": "an index is a data file's name and at most one line feed",
    "index-ahead": "every file from 1 to the index is there",
    "index-behind": "no file lies beyond the index, but for the one that a crash left",
    "file-name": "a data file is called CDC<number in all its digits><extension>",
    "date": "a data directory ends with a date of the separator that is set",
    "checkpoint": "no version that has files is above checkpoint-ts",
    "order": "commit-ts never goes back within a table",
    "version-range": "rows of a version are committed before the next version",
    "terminator": "lines end as is set, and nothing else in the file looks like an end",
    "blank-line": "no line is empty",
    "json": "a line is one JSON object with the protocol's keys",
    "ddl-line": "no line is a DDL",
    "one-row": "`data` has one row",
    "value": "every value is a string or null",
    "enum-number": "ENUM and SET are numbers in strings",
    "latin1": "bytes are characters below U+0100",
    "mysql-type": "`mysqlType` names every column of the schema, and every column of the data",
    "mysql-type-case": "types in `mysqlType` are lower case",
    "pk-names": "`pkNames` names the key's columns",
    "commit-ts": "every row has a commit-ts above 0",
    "names": "a row names the schema and table of its directory",
    "old": "`old` of an update is null or one object of columns of the table",
    "csv-columns": "a line has as many columns as the schema and the settings say",
    "csv-op": "the operation is I, U or D",
    "csv-syntax": "fields are quoted and separated as is set",
    "csv-value": "a field reads as its column's type",
    "row-twice": "no row is inserted twice, updated or deleted without being there",
    "parquet": "a Parquet file has _op, _commit_ts and _seq before its columns, in the order of _seq",
}


class Violation(AssertionError):
    def __init__(self, requirement: str, path: Path | str, what: str) -> None:
        super().__init__(f"{requirement}: {path}: {what} (required: {REQUIREMENTS[requirement]})")
        self.requirement = requirement


def violated(requirement: str, path: Path | str, what: str) -> NoReturn:
    raise Violation(requirement, path, what)


def require(condition: object, requirement: str, path: Path | str, what: str) -> None:
    if not condition:
        violated(requirement, path, what)
