"""`penstock state ls`, `get` and `dump`."""

from __future__ import annotations

import json as _json
from typing import Annotated, Any

import typer

from penstock.cli.options import JsonOption, LogPathArgument
from penstock.cli.output import (
    end_quietly,
    human_bytes,
    human_seconds,
    human_time,
    print_json,
    print_result,
)
from penstock.cli.screen import add_row, say, say_table, table_of
from penstock.cli.state.checkpoints import checkpoint_document
from penstock.process import EXIT_DIFFERENT

AtOption = Annotated[
    str | None,
    typer.Option("--at", help="The state after this entry, included (LEDGER:ENTRY); the durable end without it."),
]
_PREVIEW_CHARS = 100


def ls(path: LogPathArgument, json: JsonOption = False) -> None:
    """Show the stores, with keys, bytes, codecs and schema versions, and the checkpoints that a restart begins with."""
    from penstock.operations.state.looking import summarize_state

    with end_quietly(as_json=json):
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
                "checkpoints": [checkpoint_document(info) for info in state.checkpoints],
            }
        )
        return
    pinned = f"  log pinned at {state.pinned}" if state.pinned else ""
    say("[bold]STATE[/]  {}  at {}  engine {}{}", state.directory, state.position, state.engine, pinned)
    table = table_of("ID", "STORE", "KEYS", "BYTES", "SCHEMAS", "KEY → VALUE")
    for line in state.stores:
        one = line.registration
        schemas = ", ".join(map(str, sorted(one.schemas)))
        size = human_bytes(line.bytes)
        add_row(table, one.number, line.name, f"{line.keys:,}", size, schemas, f"{one.key} → {one.value}")
    if state.stores:
        say_table(table)
    else:
        say("[dim]no stores[/]")
    table = table_of("CHECKPOINT", "WRITTEN", "KEYS", "BYTES", "OF THEM NEW", "TOOK")
    for info in state.checkpoints:
        add_row(
            table,
            info.position,
            human_time(info.wall_ms),
            f"{info.keys:,}",
            human_bytes(info.bytes),
            human_bytes(info.bytes_written),
            human_seconds(info.seconds),
        )
    if state.checkpoints:
        say_table(table)
    else:
        say("[dim]no checkpoint yet: a restart replays the whole log[/]")


def get(
    path: LogPathArgument,
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
    from penstock.operations.state.looking import get_pair

    with end_quietly(as_json=json):
        pair = get_pair(path, store, key, at)
    if pair is None:
        document = {"store": store, "key": key, "found": False}
        print_result(document, "{} has no key {}", store, key, as_json=json)
        raise typer.Exit(EXIT_DIFFERENT)
    if raw:
        typer.get_binary_stream("stdout").write(pair.raw_value)
    elif json:
        print_json(_pair_document(pair) | {"found": True})
    else:
        say("{}", _text(pair.value))


def dump(
    path: LogPathArgument,
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
    from penstock.operations.state.looking import dump_pairs

    with end_quietly(as_json=json):
        for pair in dump_pairs(path, store, prefix, limit, at):
            if json:
                print_json(_pair_document(pair))
            else:
                value = _text(pair.value)
                more = "…" if len(value) > _PREVIEW_CHARS else ""
                say("{}  {}  {}{}", pair.store, _text(pair.key), value[:_PREVIEW_CHARS], more)


def _pair_document(pair: Any) -> dict[str, Any]:
    return {"store": pair.store, "key": pair.key, "value": pair.value, "schema": pair.schema}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json.dumps(value, ensure_ascii=False, default=str)
