"""The result of `penstock plan`. Plain data; `--json` prints it as it is."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class PlannedTable(_Model):
    """`rows` and `bytes` are the server's estimates; None where the source does not say. `paths`: sink → the table's directory
    there. `load`: its rows are loaded by the next start; `refused`: why they would be, and cannot."""

    table: str
    globs: tuple[str, ...]
    rows: int | None = None
    bytes: int | None = None
    primary_key: bool | None = None
    load: bool = False
    refused: str = ""
    paths: dict[str, str] = {}


class PlannedGlob(_Model):
    """One pattern of source.tables.include, or of a sink's `only`, and how many tables it takes."""

    key: str
    glob: str
    tables: int
    rows: int | None = None
    bytes: int | None = None


class PlannedLoad(_Model):
    """What the next start loads. `stated`: where the rate comes from."""

    tables: int
    rows: int
    bytes: int
    rows_per_second: int
    stated: str
    seconds: float


class PlannedDisk(_Model):
    """`log_bytes`: what the log takes for the load, until every sink has it. `spool_bytes`: the most that the spools of all sinks
    take. `free_bytes`: of the state directory's disk."""

    log_bytes: int
    log_bytes_max: int | None
    spool_bytes: int
    free_bytes: int


class PlannedSink(_Model):
    """`example` is the path of a file to come."""

    name: str
    format: str
    url: str
    tables: int
    example: str


class Difference(_Model):
    """One thing that the next start changes: `+` it comes, `-` it goes, `~` it is otherwise. `effect` says what follows."""

    sign: Literal["+", "-", "~"]
    what: str
    effect: str
    refused: bool = False


class Problem(_Model):
    """What stands against a start (`exit_code` 2 or 3), with what mends it."""

    message: str
    hint: str = ""
    exit_code: int


class Plan(_Model):
    """`flow`: whether there is one already in the state directory. `differences` is None where there is none to compare with, or
    where nobody knows what it was started with."""

    source: str
    flow: Literal["new", "stopped", "running"]
    start: str
    globs: tuple[PlannedGlob, ...] = ()
    tables: tuple[PlannedTable, ...] | None = None  # None: the source does not say which it has
    load: PlannedLoad | None = None
    disk: PlannedDisk
    sinks: tuple[PlannedSink, ...]
    differences: tuple[Difference, ...] | None = None
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """That of the worst problem: a configuration that is wrong comes before a source that refuses."""
        return min((problem.exit_code for problem in self.problems), default=0)
