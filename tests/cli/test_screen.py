"""Names that others chose cannot paint on the terminal: no markup, no control characters, no marks of direction."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from penstock.cli import output, screen
from penstock.cli.output import fail, print_json
from penstock.cli.run import RunScreen, show_summary
from penstock.cli.screen import add_row, complain, line, say, say_table, table_of
from penstock.cli.status import _show
from penstock.cli.verify import show_report
from penstock.errors import BadInput
from penstock.observe.shown import shown
from penstock.operations.status import StatusReport
from penstock.operations.verify.report import SinkReport, VerifyReport
from penstock.secret import Secret
from penstock.supervisor.status import (
    ChangefeedStatus,
    ChildStatus,
    LogStatus,
    ParkedTable,
    RunStatus,
    RunSummary,
    SourceStatus,
)
from tests.support.waiting import LIMIT_SECONDS

CLI = Path(__file__).resolve().parents[2] / "src" / "penstock"

HOSTILE = (
    "[/x]",
    "[bold]x[/bold]",
    "[link=https://example.org]t[/link]",
    ":smile:",
    "back\\[slash]\\",
    "a\nb\r\x1b[31mred\x07",
    "user\u202egpj.exe",
    "zero\u200bwidth\u2066",
    "nul\0",
    "half \udc80 of a pair",
    "\u2028\u2029",
    "\x9b31m",
)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Everything that is printed, as a terminal with colours gets it."""
    text = io.StringIO()
    drawn = Console(file=text, highlight=False, emoji=False, force_terminal=True, width=400, color_system="standard")
    monkeypatch.setattr(screen, "console", drawn)
    monkeypatch.setattr(screen, "complaints", drawn)
    return text


def unpainted(text: str) -> str:
    """Without the colours that Rich writes."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def is_harmless(text: str) -> bool:
    text.encode()
    return all(c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in unpainted(text))


def status(name: str) -> RunStatus:
    feed = ChangefeedStatus(name="lake", state="recovering", note=f"shop.{name} stopped: no {name}")
    child = ChildStatus(name="driver", state="failed", restarts=3, note=f"ended: {name}")
    return RunStatus(
        pid=1,
        started_ms=0,
        now_ms=1000,
        phase="running",
        source=SourceStatus(type="mariadb", state="running", position={"file": name, "pos": 4}),
        log=LogStatus(),
        changefeeds=(feed,),
        children=(child,),
    )


def parked(name: str) -> RunStatus:
    table = f"shop.{name}"
    one = ParkedTable(
        table=table, since_ms=1, statement=f"ALTER {name}", reason=name, command=f"penstock resume {table}"
    )
    return status("x").model_copy(update={"parked": (one,) * 12, "parked_count": 70})


def positions(name: str) -> RunStatus:
    place = {"file": name, "pos": 4, "gtid": name}
    unfinished = [{"state": "in flight", "restart": place, "done": place}]
    found = {
        **dict.fromkeys(("read", "snapshot", "pending_snapshot"), place),
        "unfinished": unfinished,
        "unfinished_count": 3,
        "reconnect": "snapshot",
        "restart": "pending_snapshot",
    }
    source = SourceStatus(type="mariadb", state="running", positions=found)
    return status("x").model_copy(update={"source": source})


def summary(name: str) -> RunSummary:
    return RunSummary(3, 0, 0, 0, 1.0, drained=False, message=f"no {name}", hint=f"exclude: [shop.{name}]")


def raised(name: str) -> None:
    with pytest.raises(typer.Exit):
        fail(BadInput(f"no {name}", hint=f"exclude: [shop.{name}]"), as_json=False)


def table(name: str) -> None:
    made = table_of("CURSOR", "NOTE")
    add_row(made, name, name)
    say_table(made)


PLACES: dict[str, Any] = {
    "line": lambda name: say("[bold]{}[/] and {}", name, name),
    "table": table,
    "error": raised,
    "complaint": lambda name: complain(name, name),
    "summary": lambda name: show_summary(summary(name), as_json=False),
    "live": lambda name: RunScreen(as_json=False).update(status(name)),
    "status": lambda name: _show(StatusReport(exit_code=1, run=status(name))),
    "parked": lambda name: _show(StatusReport(exit_code=1, run=parked(name))),
    "positions": lambda name: _show(StatusReport(exit_code=1, run=positions(name))),
    "verify": lambda name: show_report(VerifyReport([SinkReport("lake", faults=[name], notes=[name])])),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_shown_escaped_everywhere(place: str, name: str, terminal: io.StringIO) -> None:
    PLACES[place](name)
    text = terminal.getvalue()
    assert is_harmless(text), text
    assert shown(name) in unpainted(text), "nothing of it is lost"


def test_status_shows_parked_tables_and_positions(terminal: io.StringIO) -> None:
    _show(StatusReport(exit_code=1, run=parked("orders")))
    text = unpainted(terminal.getvalue())
    assert "shop.orders is parked since 1970-01-01 00:00:00 by: ALTER orders" in text
    assert "→ penstock resume shop.orders" in text and "and 60 more that are parked" in text
    terminal.truncate(0)
    _show(StatusReport(exit_code=0, run=positions("bin.1")))
    lines = [" ".join(line.split()) for line in unpainted(terminal.getvalue()).splitlines()]
    assert "read bin.1:4 gtid bin.1" in lines
    assert "snapshot bin.1:4 gtid bin.1 (a reconnect)" in lines
    assert "pending snapshot bin.1:4 gtid bin.1 (a restart)" in lines
    assert "unfinished 3 transactions, the oldest in flight, from bin.1:4 gtid bin.1" in lines


@given(st.text(st.characters(), max_size=20), st.text(st.characters(), max_size=20))
def test_any_text_in_any_place_is_exact_and_harmless(one: str, other: str) -> None:
    text = line("[dim]a {} b [bold]{}[/][/] c", one, other)
    assert text.plain == f"a {shown(one)} b {shown(other)} c"
    assert is_harmless(text.plain)
    if one.isascii() and one.isprintable():
        assert shown(one) == one


def test_a_value_has_the_style_of_its_place(terminal: io.StringIO) -> None:
    say("[red]{}[/] {}", "inside", "outside")
    assert terminal.getvalue() == "\x1b[31minside\x1b[0m outside\n"


def test_a_template_and_its_values_must_fit() -> None:
    with pytest.raises(ValueError, match="1 places for 2 values"):
        line("{}", 1, 2)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize("name", HOSTILE)
def test_json_has_the_name_untouched(name: str, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(raw, encoding=encoding))
    print_json({"table": name})
    with pytest.raises(typer.Exit):
        output.fail(BadInput(name), as_json=True)
    written = raw.getvalue().decode(encoding)
    assert is_harmless(written), "a terminal shows it, too"
    first, second = written.rstrip("\n").split("\n")
    assert json.loads(first) == {"table": name}
    assert json.loads(second)["error"]["message"] == name


def test_an_error_has_no_secret(terminal: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a library wrote into its text."""
    Secret("hush-4711")
    complain("no hush-4711", "try hush-4711")
    with pytest.raises(typer.Exit):
        fail(BadInput("no hush-4711", hint="try hush-4711"), as_json=True)
    shown = terminal.getvalue() + capsys.readouterr().err
    assert "no ***" in shown
    assert "hush" not in shown


def templates() -> Iterator[tuple[str, ast.expr]]:
    """(where, first argument) of every call that prints a template."""
    for file in [*sorted((CLI / "cli").rglob("*.py")), CLI / "operations" / "demo.py"]:
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or file.name == "screen.py":
                continue
            name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
            where = f"{file.relative_to(CLI)}:{node.lineno}"
            assert name not in ("echo", "secho", "print"), f"{where}: print with `say`, which escapes"
            if name in ("say", "tell") or (name == "line" and isinstance(node.func, ast.Name)):
                yield where, node.args[0]
            elif name == "print_result":
                yield where, node.args[1]


def alternatives(template: ast.expr) -> list[ast.expr]:
    if isinstance(template, ast.IfExp):
        return alternatives(template.body) + alternatives(template.orelse)
    return [template]


def test_every_template_is_a_constant() -> None:
    """A template with a value inside would let that value be markup."""
    found = list(templates())
    assert len(found) > 40
    for where, template in found:
        passed_on = isinstance(template, ast.Name) and template.id == "template"
        assert passed_on or all(isinstance(each, ast.Constant) for each in alternatives(template)), where


def test_a_terminal_that_was_closed_ends_nothing() -> None:
    """In a process of its own, whose standard output is a terminal that goes away under it."""
    program = (
        "import sys\n"
        "from penstock.cli.screen import outliving_terminal, say\n"
        "sys.stdin.readline()\n"
        "for _ in range(3):\n"
        "    with outliving_terminal():\n"
        "        say('{}', 'still here')\n"
        "sys.exit(6)\n"
    )
    ours, theirs = os.openpty()
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.close(ours)
    process.communicate(b"go\n", timeout=LIMIT_SECONDS)
    assert process.returncode == 6


def test_a_first_run_says_once_that_it_compiles(monkeypatch: pytest.MonkeyPatch, terminal: io.StringIO) -> None:
    noted: list[bool] = []
    monkeypatch.setattr("penstock.cli.run.are_compiled", lambda: False)
    monkeypatch.setattr("penstock.cli.run.note_compiled", lambda: noted.append(True))
    shown = RunScreen(as_json=False)
    for rows in (0, 0, 5, 9):
        shown.update(status("t").model_copy(update={"rows": rows}))
        assert bool(noted) == bool(rows), "they are, once a row came through"
    assert terminal.getvalue().count("compiling inner loops") == len(noted) == 1
