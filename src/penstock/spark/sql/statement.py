"""A SELECT of one table's rows, as Spark's own parser and analyser understand it.

Which plans and expressions there are is asked by their class names, and only the few that are a function of one row are let
through: what a later Spark adds is refused until it is known. Of Spark's inside this uses what is the same from 3.5 on: the
parser, analysed plans, `Project` and `Filter`, and `Dataset.ofRows`, which moved to another package in 4.0.

The relation has a column more than the user's statement sees: the number of the row. It is put into the analysed plan, so
that `*` never shows it, in `struct(*)` neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.rules.sql.rows import ROW, BadSql, Selection, SqlColumn, SqlPlan, relation_schema, spark_type
from penstock.rules.sql.text import RELATION, checked_select, is_certain_date, unstable
from penstock.schema.model import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PASSED_BY = ("SubqueryAlias", "View")
_REFUSED_PLANS = {
    "Aggregate": "an aggregate",
    "Distinct": "DISTINCT",
    "Deduplicate": "DISTINCT",
    "Join": "a join",
    "LateralJoin": "a join",
    "Window": "a window",
    "Generate": "a generator",
    "Sort": "an order",
    "GlobalLimit": "LIMIT",
    "LocalLimit": "LIMIT",
    "Offset": "OFFSET",
    "Union": "UNION",
    "Sample": "TABLESAMPLE",
    "WithCTE": "WITH",
}
_REFUSED_BY_SPARK = {"[MISSING_GROUP_BY]": "an aggregate", "[MISSING_AGGREGATION]": "an aggregate"}
# Functions whose value is no function of the row, though Spark calls them deterministic: one value for each query.
_UNSTABLE = {"Now", "LocalTimestamp", "SparkVersion", "CallMethodViaReflection", "TryReflect", "InputFileName"}
_OWN_FUNCTIONS = {"PythonUDF", "ScalaUDF", "HiveSimpleUDF", "HiveGenericUDF", "PythonUDAF", "ScalaAggregator"}
_MESSAGE_CHARACTERS_MAX = 400

RowsOf = Callable[[Iterator[Any]], Iterator[Any]]


def relation_ddl(columns: Sequence[Column], *, numbered: bool) -> str:
    """The relation's columns in Spark's words."""
    fields = list(relation_schema(columns))[: None if numbered else -1]
    return ", ".join(f"`{one.name.replace('`', '``')}` {spark_type(one.type)}" for one in fields)


def analysed(session: SparkSession, statement: str, columns: Sequence[Column]) -> SqlPlan:
    """What the statement makes of these columns. Raises `BadSql`. One thread at a time: the relation has one name."""
    parsed(session, statement)
    if any(column.name.lower() == ROW for column in columns):
        raise BadSql(f"a column is named {ROW}, a name that Penstock uses itself")
    relation = session.createDataFrame([], relation_ddl(columns, numbered=False))
    nodes = _nodes(_understood(session, statement, relation))
    sources = {_id(attribute): ordinal for ordinal, attribute in enumerate(_each(_plan(relation).output()))}
    uses: dict[int, tuple[int, ...]] = {key: (ordinal,) for key, ordinal in sources.items()}
    made: list[SqlColumn] = []
    where: set[int] | None = None
    for node in reversed(nodes):
        if _name(node) == "Filter":
            _check_expression(node.condition())
            where = (where or set()).union(_uses(node.condition(), uses))
            continue
        made = []
        for expression in _each(node.projectList()):
            _check_expression(expression)
            used = _uses(expression, uses)
            source = sources.get(_id(_passed_on(expression)))
            if source is not None:
                sources[_id(expression)] = source
            uses[_id(expression)] = used
            made.append(SqlColumn(expression.name(), source, expression.dataType().catalogString(), used))
    return SqlPlan(tuple(made), None if where is None else tuple(sorted(where)))


def query(session: SparkSession, selection: Selection, rows: RowsOf, parts: int) -> DataFrame:
    """The rows of the statement: the number of each, as `c0`, and the computed columns. `rows` makes those of the relation, of
    the number of a part, in a worker. One thread at a time; it may be run by any."""
    statement, columns, plan = selection
    source = session.range(0, parts, 1, parts).mapInArrow(rows, relation_ddl(columns, numbered=True))
    jvm: Any = session.sparkContext._jvm
    logical = jvm.org.apache.spark.sql.catalyst.plans.logical
    made = _plan(source)
    number = made.output().apply(len(columns))
    nodes = _nodes(_understood(session, statement, source.drop(ROW)))
    for node in reversed(nodes):
        if _name(node) == "Filter":
            made = logical.Filter(node.condition(), made)
            continue
        chosen = list(_each(node.projectList()))
        if node is nodes[0]:
            chosen = [one for one, column in zip(chosen, plan.columns, strict=True) if column.source is None]
        else:  # a step on the way: an alias that is used again in the same SELECT
            known = {_id(one) for one in chosen}
            chosen += [one for one in _each(made.output()) if _id(one) not in known and _id(one) != _id(number)]
        listed = jvm.java.util.ArrayList()
        for one in (number, *chosen):
            listed.add(one)
        made = logical.Project(jvm.org.apache.spark.api.python.PythonUtils.toSeq(listed), made)
    from pyspark.sql import DataFrame

    found = DataFrame(_dataset(jvm).ofRows(session._jsparkSession, made), session)
    return found.toDF(*(f"c{at}" for at in range(len(plan.computed) + 1)))


def _dataset(jvm: Any) -> Any:
    from py4j.java_gateway import JavaClass  # type: ignore[import-untyped]

    moved = jvm.org.apache.spark.sql.classic.Dataset
    return moved if isinstance(moved, JavaClass) else jvm.org.apache.spark.sql.Dataset


def _understood(session: SparkSession, statement: str, relation: DataFrame) -> Any:
    from pyspark.errors import AnalysisException, ParseException

    relation.createOrReplaceTempView(RELATION)
    try:
        return _plan(session.sql(statement))
    except (AnalysisException, ParseException) as error:
        message = one_line(str(error))
        what = next((what for start, what in _REFUSED_BY_SPARK.items() if message.startswith(start)), None)
        raise BadSql(message if what is None else _not_possible(what)) from None
    finally:
        session.catalog.dropTempView(RELATION)


def parsed(session: SparkSession, statement: str) -> None:
    """Raises `BadSql` for what no table could have: text that is no SELECT of rows, and columns that Spark would name itself, in
    another way in another Spark."""
    from pyspark.errors import ParseException

    try:
        checked_select(statement)
    except ValueError as error:
        raise BadSql(str(error)) from None
    jsession: Any = session._jsparkSession
    try:
        plan = jsession.sessionState().sqlParser().parsePlan(statement)
    except ParseException as error:
        raise BadSql(one_line(str(error))) from None
    if _name(plan) != "Project":
        return
    for expression in _each(plan.projectList()):
        if _name(expression) == "UnresolvedAlias":
            raise BadSql(f"sql: {one_line(expression.child().sql())} has no name: write … AS name")


def _nodes(plan: Any) -> list[Any]:
    """The `Project`s and `Filter`s, from the result down to the relation."""
    found = []
    node, named = plan, False
    while True:
        name = _name(node)
        if name in ("Project", "Filter") and not named:
            found.append(node)
        elif name in _PASSED_BY:
            # An alias of the relation stands above its name; below its view begins what is not the user's.
            named = named or name == "View" or (name == "SubqueryAlias" and _is_relation(node))
        elif not named:
            what = _REFUSED_PLANS.get(name)
            if what is not None:
                raise BadSql(_not_possible(what))
            raise BadSql(f"sql: it is one SELECT … FROM {RELATION} [WHERE …], and Spark sees {name} in it")
        if named:
            return found
        children = node.children()
        if children.length() != 1:
            raise BadSql(f"sql: its rows are those of the rule's table: SELECT … FROM {RELATION}")
        node = children.apply(0)


def _not_possible(what: str) -> str:
    return f"sql: {what} is not possible, because each row is shaped by itself; do it at the sink, or in a query of your own"


def _is_relation(node: Any) -> bool:
    return bool(str(node.alias()).lower() == RELATION and _name(node.children().apply(0)) not in ("Project", "Filter"))


def _check_expression(expression: Any) -> None:
    """Raises `BadSql` where it is no function of one row."""
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        name = _name(node)
        if name in _OWN_FUNCTIONS:
            raise BadSql(f"sql: {one_line(node.sql())} is a function that Spark does not have by itself")
        if (
            name.startswith("Current")
            or name in _UNSTABLE
            or (not node.deterministic() and not node.children().length())
        ):
            raise BadSql(str(unstable(_shown(node))))
        if name == "AesEncrypt" and _draws_an_iv(node):
            raise BadSql(f"{unstable(_shown(node))}: without an iv it draws one for each row; give it one")
        if name == "Cast":
            _check_cast(node)
        if name in ("ScalarSubquery", "Exists", "ListQuery", "InSubquery", "LateralSubquery"):
            raise BadSql(_not_possible("a subquery"))
        if name == "WindowExpression":
            raise BadSql(_not_possible("a window"))
        if name == "AggregateExpression":
            raise BadSql(_not_possible("an aggregate"))
        waiting.extend(_each(node.children()))
        waiting.extend(_stands_for(node))
    if not expression.deterministic():
        raise BadSql(str(unstable(_shown(expression))))


def _stands_for(node: Any) -> list[Any]:
    """What Spark puts in the place of a function once the statement is analysed: `to_date(s)` is a cast."""
    found = _asked(node.replacement)
    return [] if found is None else [found]  # none: it stands for itself


def _draws_an_iv(node: Any) -> bool:
    """Of `aes_encrypt(value, key, mode, padding, iv, aad)`: a deterministic function to Spark, and each call gives another value."""
    mode, iv = node.children().apply(2), node.children().apply(4)
    return _text_of(mode).upper() != "ECB" and bool(iv.foldable()) and not _text_of(iv)


def _check_cast(node: Any) -> None:
    """Texts may mean the day on which they are read: `now` and `today` as constants, and a time without a date anywhere."""
    to = str(node.dataType().typeName())
    child = node.child()
    if to not in ("date", "timestamp", "timestamp_ntz") or not str(child.dataType().typeName()).startswith("string"):
        return
    if child.foldable():
        if not is_certain_date(_text_of(child)):
            raise BadSql(str(unstable(_shown(node))))
    elif to == "timestamp":
        raise BadSql(
            f"{unstable(_shown(node))}: a text with a time alone becomes a time of that day; name the format, as in "
            "to_timestamp(…, 'yyyy-MM-dd HH:mm:ss')"
        )


def _text_of(constant: Any) -> str:
    """Empty for NULL, and for what has no value."""
    value = _asked(lambda: constant.eval(None)) if constant.foldable() else None
    if isinstance(value, bytes):  # a text where bytes are meant is cast to them
        return value.decode(errors="replace")
    return "" if value is None else str(value)


def _asked(question: Callable[[], Any]) -> Any:
    """The JVM's answer; None where it has none."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        return question()
    except Py4JError:
        return None


def _shown(node: Any) -> str:
    return one_line(str(node.sql()))


def _passed_on(expression: Any) -> Any:
    """The column that it only gives another name to; itself where it does more, or nothing."""
    child = expression.child() if _name(expression) == "Alias" else None
    return child if child is not None and _name(child) == "AttributeReference" else expression


def _uses(expression: Any, uses: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    found: set[int] = set()
    for attribute in _each(expression.references().toSeq()):
        found.update(uses[_id(attribute)])
    return tuple(sorted(found))


def _plan(frame: DataFrame) -> Any:
    made: Any = frame._jdf
    return made.queryExecution().analyzed()


def _id(expression: Any) -> int:
    return int(expression.exprId().id()) if hasattr(expression, "exprId") else -1


def _name(node: Any) -> str:
    return str(node.getClass().getName()).rpartition(".")[2].rpartition("$")[2] or str(node.nodeName())


def _each(sequence: Any) -> Iterator[Any]:
    for at in range(sequence.length()):
        yield sequence.apply(at)


def one_line(text: str) -> str:
    """Spark's message, without the plan that it shows below it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else "Spark gives no reason")[:_MESSAGE_CHARACTERS_MAX].rstrip(" ;")
