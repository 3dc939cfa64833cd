"""`penstock check`: shows the configuration, setting by setting, and looks whether the server is ready. Starts nothing."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import print_json, translate_errors
from penstock.cli.screen import complain, say
from penstock.operations.config.loading import BadConfig, load
from penstock.operations.config.model import describe, exposures_of
from penstock.operations.server_check import look_at_server
from penstock.process import EXIT_CONFIGURATION, EXIT_SOURCE
from penstock.sources.mysql.checks import Check
from penstock.sources.settings import ServerSettings


def check(
    config: ConfigOption = DEFAULT_CONFIG,
    offline: Annotated[bool, typer.Option("--offline", help="Look at the file alone; connect to nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Read the configuration, and ask the server whether it is ready. Says what is wrong, and what mends it.

    Starts nothing and changes nothing. For each setting or grant that the server lacks, the statement that gives it.
    """
    try:
        loaded = load(config)
    except BadConfig as error:
        if json:  # the answer that was asked for, so on standard output
            print_json({"ok": False, "problems": [asdict(p) for p in error.problems]})
        else:
            for problem in error.problems:
                where = f"{error.path}:{problem.line}: " if problem.line else f"{error.path}: "
                key = f"{problem.key}: " if problem.key else ""
                complain(f"{where}{key}{problem.message}")
        raise typer.Exit(EXIT_CONFIGURATION) from None
    findings = describe(loaded)
    if not json:
        for finding in findings:
            say("[green]✓[/] {} {}", f"{finding.key:<28}", finding.value)
        for exposure in exposures_of(loaded):
            say("[yellow]![/] {}", exposure)
    report = None
    rules: tuple[Check, ...] = ()
    with translate_errors(as_json=json):
        if not offline and isinstance(loaded.source, ServerSettings):
            report = look_at_server(loaded.source, begun=(loaded.state_dir / "log").exists())
        if not offline and any(loaded.rules_of(name) for name in loaded.sinks):
            from penstock.operations.rule_check import (
                look_at_rules,  # with Arrow and the kernels, which no other check needs
            )

            rules = look_at_rules(loaded)
    fits = all(one.passed or not one.required for one in rules)
    if json:
        server = {"server": report.server, "checks": [asdict(c) for c in report.checks]} if report else None
        ready = (report is None or report.ready) and fits
        settings = [asdict(f) for f in findings]
        print_json(
            {
                "ok": ready,
                "settings": settings,
                "exposures": exposures_of(loaded),
                "source": server,
                "rules": [asdict(c) for c in rules],
            }
        )
    elif report is not None:
        say("\n[bold]SOURCE[/]  {}", report.server)
        for one in report.checks:
            _say_check(one)
    if rules and not json:
        say("\n[bold]RULES[/]")
        for one in rules:
            _say_check(one)
    if report is not None and not report.ready:
        raise typer.Exit(EXIT_SOURCE)
    if not fits:
        raise typer.Exit(EXIT_CONFIGURATION)


def _say_check(check: Check) -> None:
    if check.passed:
        say("[green]✓[/] {}", check.message)
        return
    say("[bold red]✗[/] {}" if check.required else "[yellow]![/] {}", check.message)
    if check.sql:
        say("    {}", check.sql)
