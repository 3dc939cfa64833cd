"""`penstock run`: the flow itself."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli.formatting import human_bytes, human_seconds
from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import complaints, console, print_json, translate_errors
from penstock.cli.run_screen import RunScreen
from penstock.operations.config.loading import load
from penstock.operations.config.run_settings import run_settings
from penstock.supervisor.status import RunSummary


def run(
    config: ConfigOption = DEFAULT_CONFIG,
    once: Annotated[
        bool, typer.Option("--once", help="Catch up to the source's position at start, flush, and end.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Copy changes from the source to the sinks until stopped.

    Ctrl-C drains: what was read is delivered, then everything ends. A second Ctrl-C ends at once; nothing is lost
    either way, the next run goes on where this one was.
    """
    from penstock.supervisor.supervisor import run as run_flow

    with translate_errors(as_json=json):
        loaded = load(config)
        settings = run_settings(loaded, once=once)
        if not json:
            names = ", ".join(f"{name} ({sink.format})" for name, sink in loaded.sinks.items())
            console.print(f"Penstock {__version__} · {loaded.source.type} → {names} · Ctrl-C drains and stops")
        with RunScreen(as_json=json) as screen:
            summary = run_flow(settings, on_progress=screen.update)
    show_summary(summary, as_json=json)
    raise typer.Exit(summary.exit_code)


def show_summary(summary: RunSummary, *, as_json: bool) -> None:
    """How the run ended."""
    if as_json:
        print_json({"event": "summary", **asdict(summary)})
        return
    if summary.exit_code:
        complaints.print(f"[bold red]✗[/] {summary.message}", soft_wrap=True)
        if summary.hint:
            complaints.print(f"  [dim]→ {summary.hint}[/]", soft_wrap=True)
        return
    mark = "[green]✓[/]" if summary.drained else "[yellow]![/]"
    rest = "" if summary.drained else " · stopped before everything was flushed; the next run goes on"
    console.print(
        f"{mark} {summary.rows:,} rows in {summary.files} files, {human_bytes(summary.bytes)}, "
        f"{human_seconds(summary.seconds)}{rest}"
    )
