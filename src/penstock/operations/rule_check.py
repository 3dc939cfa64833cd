"""Holds the rules of a configuration against the tables of its source, before anything is started."""

from __future__ import annotations

import contextlib

from penstock.operations.config.model import Config
from penstock.patterns import matches
from penstock.rules.routes import Name
from penstock.rules.rules import Rules
from penstock.rules.sql.rows import NotAnalysed
from penstock.rules.table_rules import RuleMismatch
from penstock.rules.wholes import joined
from penstock.schema.model import TableSchema
from penstock.sources.mysql.checks import Check
from penstock.sources.settings import DemoSettings, ServerSettings, Tables


def look_at_rules(config: Config) -> tuple[Check, ...]:
    """A check for each thing that does not fit, or one that everything does; none without rules. Asks the server for its
    tables; a source that cannot say which it has is said to be unknown."""
    if not any(config.rules_of(name) for name in config.sinks):
        return ()
    tables = source_tables(config)
    if tables is None:
        return (Check("rules", True, f"rules: a source of type {config.source.type} does not say which tables it has"),)
    unasked: set[str] = set()
    found = {check.message: check for name in config.sinks for check in _of_sink(config, name, tables, unasked)}
    found |= {check.message: check for check in _unused(config, tables)}
    later = f"; sql of {', '.join(sorted(unasked))} is checked by Spark when the run starts" if unasked else ""
    return tuple(found.values()) or (Check("rules", True, f"rules fit the {len(tables)} tables of the source{later}"),)


def source_tables(config: Config) -> list[TableSchema] | None:
    """The tables that the source has now, of those that it captures; None if it cannot be asked."""
    source = config.source
    if isinstance(source, DemoSettings):
        from penstock.schema.ddl import table_from_show_create
        from penstock.sources.demo import shop

        made = (shop.CUSTOMERS, shop.PRODUCTS, shop.ORDERS, shop.ORDER_ITEMS)
        found = [table_from_show_create(table.create, shop.SCHEMA, 1) for table in made]
        return [table for table in found if source.tables.matches(table.schema, table.table)]
    if isinstance(source, ServerSettings):
        from penstock.sources.mysql.connection import connect
        from penstock.sources.mysql.definitions import read_definitions, versions_of
        from penstock.sources.mysql.family import server_version

        with contextlib.closing(connect(source)) as connection:
            mariadb = "mariadb" in server_version(connection).lower()
            versions = versions_of(read_definitions(connection, source.tables), 1, mariadb=mariadb)
        return [table for table in versions if table.table and table.columns]
    return None


def _of_sink(config: Config, name: str, tables: list[TableSchema], unasked: set[str]) -> list[Check]:
    """`unasked` gets the tables whose `sql` only Spark can judge."""
    only = Tables(include=tuple(config.sinks[name].only))
    rules = Rules(config.rules_of(name), config.mask_key_of(name), only.matches)
    wanted = [table for table in tables if only.matches(table.schema, table.table)]
    problems = []
    for table in wanted:
        try:
            rules.table(table)
        except RuleMismatch as error:
            problems.append(error.message)
        except NotAnalysed:
            unasked.add(table.name)
    meetings = rules.meetings((table.schema, table.table) for table in wanted)
    for same in sorted(set(meetings.values())):
        pair = " and ".join(".".join(one) for one in same)
        problems.append(
            f"{pair} would all be {'.'.join(rules.target(*same[0]))} at the sink {name}; a name is one table's"
        )
    gathered: list[Check] = []
    targets = {rules.target(*_name(table)) for table in wanted if rules.gathers(_name(table))}
    for target in sorted(targets):
        parts = [one for one in wanted if rules.gathers(_name(one)) and rules.target(*_name(one)) == target]
        try:
            key = [column.name for column in joined(target, parts, rules).columns if column.primary_key]
        except RuleMismatch as error:
            problems.append(error.message)
            continue
        apart = f"; no two of them may have a row with the same {', '.join(key)}" if key else ""
        names = ", ".join(one.name for one in parts)
        gathered.append(Check("rules", True, f"{names} are one table at the sink {name}: {'.'.join(target)}{apart}"))
    return [*(Check("rules", False, problem) for problem in problems), *gathered]


def _unused(config: Config, tables: list[TableSchema]) -> list[Check]:
    """Rules for tables that are not there. They may come later, so this is no error."""
    patterns = {rule.table for name in config.sinks for rule in config.rules_of(name)}
    return [
        Check("rules", False, f"no table of the source matches the rule of {pattern}", required=False)
        for pattern in sorted(patterns)
        if not any(matches(table.name, pattern) for table in tables)
    ]


def _name(table: TableSchema) -> Name:
    return table.schema, table.table
