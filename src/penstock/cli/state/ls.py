"""`penstock state ls`."""

from __future__ import annotations

from rich.markup import escape

from penstock.cli.formatting import human_bytes, human_seconds, human_time, table_of
from penstock.cli.options import JsonOption, LogPathArgument
from penstock.cli.output import console, end_quietly, print_json
from penstock.cli.state.checkpoint import checkpoint_document


def ls(path: LogPathArgument, json: JsonOption = False) -> None:
    """Show the stores, with keys, bytes, codecs and schema versions, and the checkpoints that a restart begins with."""
    from penstock.operations.state.summary import summarize_state

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
            human_time(info.wall_ms),
            f"{info.keys:,}",
            human_bytes(info.bytes),
            human_bytes(info.bytes_written),
            human_seconds(info.seconds),
        )
    console.print(table if state.checkpoints else "[dim]no checkpoint yet: a restart replays the whole log[/]")
