"""`penstock state get` and `dump`."""

from __future__ import annotations

import json as _json
from typing import Annotated, Any

import typer

from penstock.cli.options import JsonOption, LogPathArgument
from penstock.cli.output import EXIT_DIFFERENT, end_quietly, print_json, print_result

AtOption = Annotated[
    str | None,
    typer.Option("--at", help="The state after this entry, included (LEDGER:ENTRY); the durable end without it."),
]
_PREVIEW_CHARS = 100


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
    from penstock.operations.state.pairs import get_pair

    with end_quietly(as_json=json):
        pair = get_pair(path, store, key, at)
    if pair is None:
        print_result({"store": store, "key": key, "found": False}, f"{store} has no key {key}", as_json=json)
        raise typer.Exit(EXIT_DIFFERENT)
    if raw:
        typer.get_binary_stream("stdout").write(pair.raw_value)
    elif json:
        print_json(_pair_document(pair) | {"found": True})
    else:
        typer.echo(_text(pair.value))


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
    from penstock.operations.state.pairs import dump_pairs

    with end_quietly(as_json=json):
        for pair in dump_pairs(path, store, prefix, limit, at):
            if json:
                print_json(_pair_document(pair))
            else:
                value = _text(pair.value)
                more = "…" if len(value) > _PREVIEW_CHARS else ""
                typer.echo(f"{pair.store}  {_text(pair.key)}  {value[:_PREVIEW_CHARS]}{more}")


def _pair_document(pair: Any) -> dict[str, Any]:
    return {"store": pair.store, "key": pair.key, "value": pair.value, "schema": pair.schema}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json.dumps(value, ensure_ascii=False, default=str)
