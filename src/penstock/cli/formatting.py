"""How figures, times and tables look to people."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.table import Table

_NUMBERS = ("ENTRIES", "BYTES", "BACKLOG", "HOLES", "KEYS")
_NAMES = ("STORE", "CURSOR")
_NAME_WIDTH_MIN = 23


def human_bytes(size: float) -> str:
    """`96.0 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def human_seconds(seconds: float) -> str:
    """`0.4 s`, `4 m 10 s`, `2 h 3 m`, `6 d 21 h`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} m"
    return f"{hours // 24} d {hours % 24} h"


def human_time(wall_ms: int) -> str:
    """`2026-11-16 08:30:00`, in UTC; `never` for 0."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") if wall_ms else "never"


def table_of(*headings: str) -> Table:
    """An empty table. Numbers are aligned to the right; names are never cut short, because other columns give way."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        name = heading in _NAMES
        table.add_column(
            heading,
            justify="right" if heading in _NUMBERS else "left",
            overflow="fold" if name else "ellipsis",
            min_width=_NAME_WIDTH_MIN if name else len(heading),
        )
    return table
