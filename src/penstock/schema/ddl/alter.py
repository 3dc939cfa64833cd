"""The clauses of ALTER TABLE → the table's new columns.

A server applies all clauses at once to the table as it was: first it takes away what is dropped, then changes columns in
place, then moves and adds in the order of the clauses. `AFTER` names a column of the new table, which stands at its old
place until its own clause moves it. So clauses are read first (`read_alter`) and applied together (`altered`).

Two clauses for one column: the first MODIFY or CHANGE that names a column has it. MariaDB takes a further one only if an
earlier clause adds a column of the new name, in whose stead it comes. A new default is for a column that stays as it was,
or that the same statement adds or moves, under its new name.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.schema.ddl.columns import ColumnDefinition
from penstock.schema.ddl.table_body import with_key
from penstock.schema.ddl.types import BINARY_TWIN, WITH_CHARSET, converted, varying
from penstock.schema.model import TEXT_TYPES, Column, DdlType, SchemaDrift, TableSchema


@dataclass(frozen=True)
class Redefinition:
    """ADD, MODIFY or CHANGE of one column. `old`: the column's name before; None for ADD."""

    definition: ColumnDefinition
    old: str | None = None
    if_exists: bool = False  # of ADD: if not exists


@dataclass
class Alteration:
    """Everything that an ALTER TABLE says about columns, keys and names."""

    drops: dict[str, bool] = field(default_factory=dict)  # name in lower case → whether it may be missing
    redefinitions: list[Redefinition] = field(default_factory=list)
    renames: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str | None] = field(default_factory=dict)
    computed: set[str] = field(default_factory=set)  # columns whose new default is an expression
    missing_ok: set[str] = field(default_factory=set)  # columns that RENAME or ALTER COLUMN names with IF EXISTS
    drops_key: bool = False
    key: list[str] | None = None
    key_if_missing: bool = False
    not_null: list[str] = field(default_factory=list)
    charset: str | None = None  # the table's new default
    converts_to: str | None = None
    new_name: tuple[str | None, str] | None = None
    exchanged: tuple[str | None, str] | None = None
    made_from_partition: tuple[str | None, str] | None = None
    rows_without_events: DdlType | None = None  # what made rows go or come without row events
    beside: DdlType | None = None  # what else may have changed (indexes, partitions, AUTO_INCREMENT): readers are told

    @property
    def replaces(self) -> bool:
        """Whether a column goes, and another one comes under its name: of the same type perhaps, but with other values."""
        return any(one.old is None and one.definition.column.name.lower() in self.drops for one in self.redefinitions)


def altered(alteration: Alteration, table: TableSchema) -> tuple[tuple[Column, ...], DdlType]:
    """The columns after the statement, and what was done. Raises `SchemaDrift` where the table as we know it cannot be
    the server's."""
    change = _Change(alteration, table)
    columns = change.columns()
    return columns, change.ddl_type(columns)


@dataclass(frozen=True)
class _Made:
    """A column of the new table. Keys find it by the name that it had, if it had one."""

    column: Column
    known_as: str

    @property
    def name(self) -> str:
        return self.column.name.lower()


class _Change:
    def __init__(self, alteration: Alteration, table: TableSchema) -> None:
        self.alteration = alteration
        self.table = table
        self.added = False
        self.defaults = dict(alteration.defaults)  # those that no column has taken yet

    def columns(self) -> tuple[Column, ...]:
        wanted = self.alteration
        names = {column.name.lower() for column in self.table.columns}
        self._check_names(names)
        in_place = self._in_place(names)
        redefinitions = [one for one in wanted.redefinitions if self._applies(one, names, in_place)]
        made: list[_Made] = []
        for column in self.table.columns:
            name = column.name.lower()
            if name in wanted.drops:
                continue
            change = in_place.get(name)
            kept = self._kept(column) if change is None else change.definition.column
            made.append(_Made(kept, name))  # at its old place until it is moved: an earlier clause may name it
        for one in redefinitions:
            if one.old is None:
                self._place(made, one)
            elif in_place.get(one.old.lower()) is not one or _moves(one.definition):
                self._take_out(made, one)
                self._place(made, one)
            self.added = self.added or one.old is None
        if not made:
            raise SchemaDrift(f"{self.table.name} would have no columns left")
        return with_key([one.column for one in made], self._key(made, redefinitions), wanted.not_null)

    def _check_names(self, names: set[str]) -> None:
        wanted = self.alteration
        for name, missing_ok in wanted.drops.items():
            if name not in names and not missing_ok:
                raise self._missing(name)
        placed = {
            one.definition.column.name.lower()
            for one in wanted.redefinitions
            if one.old is None or _moves(one.definition)
        }
        for name in {*wanted.renames, *(wanted.defaults.keys() - placed)} - names - wanted.missing_ok:
            raise self._missing(name)

    def _in_place(self, names: set[str]) -> dict[str, Redefinition]:
        """The clause that has each column which MODIFY or CHANGE names."""
        found: dict[str, Redefinition] = {}
        for one in self.alteration.redefinitions:
            name = one.old.lower() if one.old is not None else None
            if name is not None and name in names and name not in self.alteration.drops:
                found.setdefault(name, one)
        return found

    def _applies(self, one: Redefinition, names: set[str], in_place: dict[str, Redefinition]) -> bool:
        if one.old is not None:
            if in_place.get(one.old.lower()) is one or self._is_added(one):
                return True
            if one.if_exists:
                return False
            raise self._missing(one.old)
        name = one.definition.column.name
        if name.lower() in names and name.lower() not in self.alteration.drops:
            if one.if_exists:
                return False
            if not self._is_renamed_away(name.lower()):
                raise SchemaDrift(f"{self.table.name} has a column {name} already, but the server adds it")
        return True

    def _is_added(self, change: Redefinition) -> bool:
        """Whether an earlier clause adds the column that this one changes."""
        for one in self.alteration.redefinitions:
            if one is change:
                return False
            if one.old is None and one.definition.column.name.lower() == change.definition.column.name.lower():
                return True
        return False

    @staticmethod
    def _take_out(made: list[_Made], change: Redefinition) -> None:
        name = change.definition.column.name.lower()
        del made[next(at for at, one in enumerate(made) if one.name == name)]

    def _is_renamed_away(self, name: str) -> bool:
        if name in self.alteration.renames:
            return True
        return any(
            one.old is not None and one.old.lower() == name and one.definition.column.name.lower() != name
            for one in self.alteration.redefinitions
        )

    def _kept(self, column: Column) -> Column:
        """A column that no definition replaces, with its new name, default or charset."""
        name = column.name.lower()
        wanted = self.alteration
        if wanted.converts_to is not None and column.base_type in WITH_CHARSET:
            column = _converted(column, wanted.converts_to)
        column = self._with_default(column)
        if name in wanted.renames:
            column = replace(column, name=wanted.renames[name])
        return column

    def _with_default(self, column: Column) -> Column:
        name = column.name.lower()
        if name not in self.defaults:
            return column
        return replace(column, default=self.defaults.pop(name), computed=name in self.alteration.computed)

    def _place(self, made: list[_Made], change: Redefinition) -> None:
        definition = change.definition
        new = _Made(self._with_default(definition.column), (change.old or definition.column.name).lower())
        if definition.first:
            made.insert(0, new)
        elif definition.after is not None:
            at = next((at for at, one in enumerate(made) if one.name == definition.after.lower()), None)
            if at is None:
                raise self._missing(definition.after)
            made.insert(at + 1, new)
        else:
            made.append(new)

    def _key(self, made: list[_Made], redefinitions: list[Redefinition]) -> list[str]:
        wanted = self.alteration
        known = {one.known_as: one.column.name for one in reversed(made)}  # the first of two that a key could mean
        before = (
            [] if wanted.drops_key else [column.name.lower() for column in self.table.columns if column.primary_key]
        )
        key = [known[name] for name in before if name in known]
        new = [
            *(wanted.key or ()),
            *(one.definition.column.name for one in redefinitions if one.definition.primary_key),
        ]
        if not new or (key and wanted.key_if_missing):
            return key
        return new

    def ddl_type(self, columns: tuple[Column, ...]) -> DdlType:
        if self.alteration.rows_without_events is not None:
            return self.alteration.rows_without_events
        before = {column.name.lower(): column for column in self.table.columns}
        after = {column.name.lower(): column for column in columns}
        both = [(before[name], column) for name, column in after.items() if name in before]
        if any(_shape(a) != _shape(b) for a, b in both) or _order(self.table.columns, after) != _order(columns, before):
            return DdlType.MODIFY_COLUMN
        if self.alteration.replaces:
            return DdlType.MODIFY_COLUMN
        gone, came = len(before) - len(both), len(after) - len(both)
        if gone and came and not self.added:
            return DdlType.MODIFY_COLUMN  # renamed
        if (gone or came) and _is_redefined(self.alteration):
            return DdlType.MODIFY_COLUMN
        key_before = {c.name.lower() for c in self.table.columns if c.primary_key}
        key_after = {c.name.lower() for c in columns if c.primary_key}
        if key_before != key_after:
            return DdlType.ADD_PRIMARY_KEY if key_after else DdlType.DROP_PRIMARY_KEY
        if came:
            return DdlType.ADD_COLUMN
        if gone:
            return DdlType.DROP_COLUMN
        if any(a != b for a, b in both):
            return DdlType.SET_DEFAULT
        return DdlType.MODIFY_TABLE_CHARSET

    def _missing(self, name: str) -> SchemaDrift:
        return SchemaDrift(f"{self.table.name} has no column {name}, but the server changes it")


def _is_redefined(alteration: Alteration) -> bool:
    """Whether a column gets another name."""
    return bool(alteration.renames) or any(
        one.old is not None and one.old.lower() != one.definition.column.name.lower()
        for one in alteration.redefinitions
    )


def _shape(column: Column) -> Column:
    """The column without what a default or a key changes."""
    return replace(column, default=None, primary_key=False, nullable=column.nullable and not column.primary_key)


def _order(columns: tuple[Column, ...], others: dict[str, Column]) -> list[str]:
    return [column.name.lower() for column in columns if column.name.lower() in others]


def _moves(definition: ColumnDefinition) -> bool:
    return definition.first or definition.after is not None


def _converted(column: Column, charset: str) -> Column:
    """The column after CONVERT TO CHARACTER SET."""
    base = column.base_type
    if charset == "binary" and base in BINARY_TWIN:
        return replace(column, mysql_type=column.mysql_type.replace(base, BINARY_TWIN[base], 1), charset=None)
    if base in TEXT_TYPES:
        return replace(column, mysql_type=converted(base, column.charset, charset), charset=charset)
    if base == "varchar":
        return replace(column, mysql_type=varying(base, column.arguments[0], charset), charset=charset)
    return replace(column, charset=charset)
