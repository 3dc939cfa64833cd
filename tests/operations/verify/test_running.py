"""A flow goes on while it is verified: what is written meanwhile is no difference. And what nobody has read of the source
yet, or nobody has loaded, is no peace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cli.verify import exit_code
from penstock.log import Log, LogReader, LogSettings
from penstock.objects.directory import DirectoryObjects
from penstock.operations.config.loading import load
from penstock.operations.config.model import Config
from penstock.operations.verify.verify import verify
from penstock.sources.demo.source import DemoSource
from penstock.sources.settings import DemoSettings
from penstock.state import BucketState, StateSettings
from penstock.supervisor.status import ChangefeedStatus, PausedTable
from tests.cli.test_feeds import STATUS
from tests.operations.verify.sinks import capture, deliver

CHANGES = 6_000


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "penstock.yaml"
    path.write_text(
        f"version: 1\nstate_dir: ./state\nsource: {{type: demo, changes: {CHANGES}}}\n"
        "sinks:\n  lake: {url: ./lake, format: parquet}\n"
    )
    (tmp_path / "state").mkdir(mode=0o700)
    config = load(path)
    capture(config, DemoSource(DemoSettings(type="demo", changes=CHANGES)))
    return config


def trim(config: Config) -> None:
    """As capture does while it runs, of what every sink has."""
    by_hand = StateSettings(checkpoint_at_roll=False)
    with Log.open(config.state_dir / "log", LogSettings(retention_seconds=0, retention_bytes=0)) as log:
        state = BucketState.open(log, by_hand)
        log.roll()
        for _ in range(by_hand.checkpoints_kept):
            log.append(b"").result()
            state.checkpoint()
        log.trim()
    assert not LogReader.open(config.state_dir / "log").complete


def after_the_listing(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """`happens` once, when the names of all files were read and nothing else was."""
    walk = DirectoryObjects.walk
    left = [happens]

    def watched(self: DirectoryObjects, directory: str = "") -> Iterator[str]:
        yield from list(walk(self, directory))
        while left:
            left.pop()()

    monkeypatch.setattr(DirectoryObjects, "walk", watched)


def test_what_is_delivered_after_the_listing_is_not_lost(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    after_the_listing(monkeypatch, lambda: deliver(config))
    (lake,) = verify(config).sinks
    assert lake.equal, lake.faults
    assert lake.differences.pending >= CHANGES


def test_a_file_that_is_written_after_the_listing_is_not_missing(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(config)
    index = next(path for path in tmp_path.glob("lake/shop/orders/*/*/_meta/CDC.index") if "1" not in path.read_text())
    last = index.parents[1] / index.read_text().strip()
    files = sorted(last.parent.glob("CDC*.parquet"))
    assert files[-1] == last and len(files) > 1
    now, content = index.read_bytes(), last.read_bytes()
    index.write_text(f"{files[-2].name}\n")
    last.unlink()

    def written() -> None:
        last.write_bytes(content)
        index.write_bytes(now)

    after_the_listing(monkeypatch, written)
    report = verify(config)
    assert report.sinks[0].equal, report.sinks[0].faults
    assert exit_code(report) == 0


def test_a_log_that_is_trimmed_meanwhile_is_compared_from_where_it_begins(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(config)
    after_the_listing(monkeypatch, lambda: trim(config))
    (lake,) = verify(config).sinks
    assert lake.equal, lake.faults
    assert lake.before_log >= CHANGES


def test_a_log_that_is_trimmed_while_it_is_read(config: Config) -> None:
    deliver(config)
    left = [lambda: trim(config)]

    def told(_what: str, _done: int, _all: int) -> None:
        while left:
            left.pop()()

    (lake,) = verify(config, progress=told).sinks
    assert lake.equal, lake.faults
    assert lake.before_log + lake.differences.changes >= CHANGES


HELD = PausedTable(table="shop.orders", since_ms=1, held_rows=3, command="penstock resume lake --table shop.orders")
LAKE = ChangefeedStatus(name="lake", state="running")


@pytest.mark.parametrize(
    ("more", "held"),
    [
        ({}, ""),
        ({"state": "paused", "paused_ms": 1}, "→ penstock resume lake"),
        ({"state": "failed", "note": "it is full; penstock resume lake tries again"}, "(it is full; penstock resume"),
        (
            {"paused_tables": (HELD,)},
            "shop.orders is paused: its rows are held back in the log → penstock resume lake --table",
        ),
        ({"paused_tables": (HELD.model_copy(update={"held_rows": 0}),)}, ""),
    ],
)
def test_what_stands_still_does_not_come_by_waiting(
    more: dict[str, object], held: str, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of a running flow is on its way, but for that of who was paused or has failed."""
    after_the_listing(monkeypatch, lambda: deliver(config))  # so that all of it is pending
    run = STATUS.model_copy(update={"changefeeds": (LAKE.model_copy(update=more),)})
    monkeypatch.setattr("penstock.operations.verify.verify.ask_run", lambda _directory: run)
    report = verify(config)
    told = [one for one in report.sinks[0].held if "nothing was compared" not in one]
    assert [held in one for one in told] == ([True] if held else []), told


def test_a_sink_that_is_paused_and_has_everything_is_equal(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver(config)
    run = STATUS.model_copy(update={"changefeeds": (LAKE.model_copy(update={"state": "paused", "paused_ms": 1}),)})
    monkeypatch.setattr("penstock.operations.verify.verify.ask_run", lambda _directory: run)
    assert exit_code(verify(config)) == 0
