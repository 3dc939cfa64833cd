"""`penstock check`: shows the configuration, setting by setting, without starting anything."""

from __future__ import annotations

from dataclasses import asdict

import typer

from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import print_json
from penstock.cli.screen import complain, say
from penstock.operations.config.loading import BadConfig, load
from penstock.operations.config.model import describe
from penstock.process import EXIT_CONFIGURATION


def check(config: ConfigOption = DEFAULT_CONFIG, json: JsonOption = False) -> None:
    """Read the configuration and say what is right and what is wrong with it. Starts nothing."""
    try:
        findings = describe(load(config))
    except BadConfig as error:
        if json:  # the answer that was asked for, so on standard output
            print_json({"ok": False, "problems": [asdict(p) for p in error.problems]})
        else:
            for problem in error.problems:
                where = f"{error.path}:{problem.line}: " if problem.line else f"{error.path}: "
                key = f"{problem.key}: " if problem.key else ""
                complain(f"{where}{key}{problem.message}")
        raise typer.Exit(EXIT_CONFIGURATION) from None
    if json:
        print_json({"ok": True, "settings": [asdict(f) for f in findings]})
        return
    for finding in findings:
        say("[green]✓[/] {} {}", f"{finding.key:<28}", finding.value)
