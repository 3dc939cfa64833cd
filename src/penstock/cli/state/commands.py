"""`penstock state`: looks into the state of a log. Every command but checkpoint only looks."""

from __future__ import annotations

import json as _json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from penstock.cli.log.commands import say, table_of, told
from penstock.cli.output import EXIT_DIFFERENT, JsonOption, console, human_bytes, human_seconds, print_json

app = typer.Typer(
    help="Look into the state of a log: the key-value stores whose changes ride in its entries, such as a flow's source "
    "position and schema history.\n\n"
    "PATH is the log's directory, or a state directory that holds log/. A STORE is named OPERATOR/NAME, or NAME alone; `ls` "
    "lists them. A KEY is given as its store's codec wants it: a number, a text, a JSON list for a tuple "
    '(\'["shop", "orders", 0]\'), or 0x… for raw bytes. Everything but checkpoint only looks, and works while another '
    "process owns the log: it sees what is durable.",
    no_args_is_help=True,
)

PathArgument = Annotated[
    Path, typer.Argument(metavar="PATH", help="The log's directory, or a state directory that holds log/.")
]
AtOption = Annotated[
    str | None,
    typer.Option("--at", help="The state after this entry, included (LEDGER:ENTRY); the durable end without it."),
]
_PREVIEW = 100


@app.command("ls")
def ls(path: PathArgument, json: JsonOption = False) -> None:
    """Show the stores, with keys, bytes, codecs and schema versions, and the checkpoints that a restart begins with."""
    from penstock.operations.state.pairs import summarize_state

    with told(as_json=json):
        state = summarize_state(path)
    if json:
        stores = [
            {
                "id": line.registration.number,
                "store": line.name,
                **line.registration.namespace._asdict(),
                "keys": line.keys,
                "bytes": line.bytes,
                "key_codec": line.registration.key,
                "value_codec": line.registration.value,
                "schemas": {str(v): one.value for v, one in sorted(line.registration.schemas.items())},
            }
            for line in state.stores
        ]
        print_json(
            {
                "directory": str(state.directory),
                "engine": state.engine,
                "position": str(state.position),
                "pinned": str(state.pinned) if state.pinned else None,
                "stores": stores,
                "checkpoints": [_checkpoint_document(info) for info in state.checkpoints],
            }
        )
        return
    pinned = f"  log pinned at {state.pinned}" if state.pinned else ""
    console.print(
        f"[bold]STATE[/]  {state.directory}  at {state.position}  engine {state.engine}{pinned}", soft_wrap=True
    )
    table = table_of("ID", "STORE", "KEYS", "BYTES", "SCHEMAS", "KEY → VALUE")
    for line in state.stores:
        one = line.registration
        schemas = ", ".join(map(str, sorted(one.schemas)))
        size = human_bytes(line.bytes)
        table.add_row(str(one.number), escape(line.name), f"{line.keys:,}", size, schemas, f"{one.key} → {one.value}")
    console.print(table if state.stores else "[dim]no stores[/]")
    table = table_of("CHECKPOINT", "WRITTEN", "KEYS", "BYTES", "OF THEM NEW", "TOOK")
    for info in state.checkpoints:
        table.add_row(
            str(info.position),
            _time(info.wall_ms),
            f"{info.keys:,}",
            human_bytes(info.bytes),
            human_bytes(info.bytes_written),
            human_seconds(info.seconds),
        )
    console.print(table if state.checkpoints else "[dim]no checkpoint yet: a restart replays the whole log[/]")


@app.command("get")
def get(
    path: PathArgument,
    store: Annotated[str, typer.Argument(metavar="STORE", help="OPERATOR/NAME, or NAME alone.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="As its codec wants it, or 0x… for raw bytes.")],
    *,
    at: AtOption = None,
    raw: Annotated[bool, typer.Option("--raw", help="Only the value's bytes, header and all.")] = False,
    json: JsonOption = False,
) -> None:
    """Print the value of one key. Exit code 1 where there is none.

    With --at, what it was after that entry: penstock state get penstock-data source.position source --at 4:17
    """
    from penstock.operations.state.pairs import get_pair

    with told(as_json=json):
        pair = get_pair(path, store, key, at)
    if pair is None:
        say(json, {"store": store, "key": key, "found": False}, f"{store} has no key {key}")
        raise typer.Exit(EXIT_DIFFERENT)
    if raw:
        typer.get_binary_stream("stdout").write(pair.raw_value)
    elif json:
        print_json(_pair_document(pair) | {"found": True})
    else:
        typer.echo(_text(pair.value))


@app.command("dump")
def dump(
    path: PathArgument,
    store: Annotated[str | None, typer.Argument(metavar="[STORE]", help="All of them without it.")] = None,
    *,
    prefix: Annotated[
        str | None, typer.Option(help="Only keys that begin with it (of a tuple its first parts).")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many pairs.")] = None,
    at: AtOption = None,
    json: JsonOption = False,
) -> None:
    """Print every key and value, in order of the keys; with --json, one document a line."""
    from penstock.operations.state.pairs import dump_pairs

    with told(as_json=json):
        for pair in dump_pairs(path, store, prefix, limit, at):
            if json:
                print_json(_pair_document(pair))
            else:
                value = _text(pair.value)
                more = "…" if len(value) > _PREVIEW else ""
                typer.echo(f"{pair.store}  {_text(pair.key)}  {value[:_PREVIEW]}{more}")


@app.command("checkpoint")
def checkpoint(
    path: PathArgument,
    compact: Annotated[bool, typer.Option("--compact", help="And merge all checkpoint files into one.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a checkpoint now, so that the next start replays nothing.

    Takes ownership while it runs, so it is refused (exit code 75) while another process has the log: a running flow writes
    its own whenever a ledger is full.
    """
    from penstock.operations.state.pairs import checkpoint_state

    with told(as_json=json):
        info = checkpoint_state(path, compact=compact)
        if info is None:
            say(json, {"checkpoint": None}, "this log has no state: nothing was written")
            return
        text = (
            f"✓ checkpoint at {info.position}: {human_bytes(info.bytes_written)} written in "
            f"{human_seconds(info.seconds)}, {info.keys:,} keys in {human_bytes(info.bytes)}"
        )
        say(json, {"checkpoint": _checkpoint_document(info)}, text)


@app.command("verify")
def verify(path: PathArgument, json: JsonOption = False) -> None:
    """Check every byte of the checkpoints, and that each of them, with the entries after it, leads to the same state.

    Where the log is whole, it is replayed from its start as well. Changes nothing. Exit code 1: something is wrong.
    """
    from penstock.operations.state.pairs import verify_state

    with told(as_json=json):
        check = verify_state(path)
    if json:
        print_json(
            {
                "directory": str(check.directory),
                "sound": check.sound,
                "checkpoints": check.checkpoints,
                "ways": check.ways,
                "keys": check.keys,
                "faults": check.faults,
            }
        )
    else:
        mark = "[green]✓[/]" if check.sound else "[bold red]✗[/]"
        console.print(
            f"{mark} {check.directory}: {check.checkpoints:,} checkpoints · {check.ways:,} ways to the same state · "
            f"{check.keys:,} keys · {len(check.faults):,} faults",
            soft_wrap=True,
        )
        for fault in check.faults:
            console.print(f"  [red]{escape(fault)}[/]", soft_wrap=True)
        if check.faults:
            console.print("  [dim]→ nothing was changed; the next start steps over a damaged checkpoint by itself[/]")
    raise typer.Exit(0 if check.sound else EXIT_DIFFERENT)


def _checkpoint_document(info: Any) -> dict[str, Any]:
    return {
        "position": str(info.position),
        "wall_ms": info.wall_ms,
        "keys": info.keys,
        "bytes": info.bytes,
        "bytes_written": info.bytes_written,
        "seconds": info.seconds,
    }


def _pair_document(pair: Any) -> dict[str, Any]:
    return {"store": pair.store, "key": pair.key, "value": pair.value, "schema": pair.schema}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json.dumps(value, ensure_ascii=False, default=str)


def _time(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") if wall_ms else "never"
