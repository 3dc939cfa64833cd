"""The live view of a run and `penstock status` fit a terminal of 80 columns; status names the key behind small files."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.run import COLUMNS, RunScreen, heading
from penstock.supervisor.reporter import SMALL_FILES_MIN, Totals, _advice
from penstock.supervisor.status import ChangefeedStatus, HeadroomStatus, LogStatus, RunStatus
from tests.cli.test_feeds import STATUS, Flow, flow

__all__ = ["flow"]

LONG = "shop.orders retrying, attempt 7: " + "the bucket does not answer " * 6
BUSY = STATUS.model_copy(
    update={
        "source": STATUS.source.model_copy(
            update={
                "problem": "nothing came from it " * 8,
                "heard_ms": 50_000,
                "lag_seconds": 86_399.0,
                "place": "db-of-the-shop-7.eu-central-1.example.internal",
                "server": "MariaDB 10.11.6",
                "headroom": HeadroomStatus(
                    file="mysql-bin.000041", oldest="mysql-bin.000040", expire_seconds=864_000, seconds=1800, low=True
                ),
            }
        ),
        "log": LogStatus(bytes=14 << 30, bytes_max=200 << 30, end="1234:5678", pinned_by="lake", full_seconds=68_400),
        "changefeeds": (
            ChangefeedStatus(
                name="lake",
                state="running",
                rows=1_234_567_890,
                files=123_456,
                bytes=1 << 44,
                tables=61,
                rows_per_second=12_412.0,
                lag_seconds=86_399,
            ),
            ChangefeedStatus(name="a-sink-with-a-name-that-is-long", state="recovering", note=LONG, last_write_ms=1),
            ChangefeedStatus(
                name="bus", state="paused", note="penstock resume bus lets it go on", advice="files of 0.01 MiB"
            ),
        ),
    }
)


def later(status: RunStatus, rows: int) -> RunStatus:
    feeds = tuple(one.model_copy(update={"rows": one.rows + rows}) for one in status.changefeeds)
    return status.model_copy(update={"now_ms": status.now_ms + 1000, "changefeeds": feeds})


def test_the_live_view_has_one_line_a_sink_within_eighty_columns() -> None:
    screen = RunScreen(as_json=False)
    screen.update(BUSY)
    screen.update(later(BUSY, 9_999_999))
    lines = screen.lines(later(BUSY, 9_999_999))
    assert [line.split()[0] for line in lines] == ["source", *(feed.name for feed in BUSY.changefeeds)]
    assert all(len(line) < COLUMNS for line in lines), lines
    assert "5,000,000 rows/s" in lines[1] and "streaming" in lines[1]
    assert "recovering" in lines[2]
    assert "paused" in lines[3]


def test_the_heading_names_as_many_sinks_as_eighty_columns_hold() -> None:
    formats = {"lake": "parquet", "raw": "csv", "bus": "canal-json", "finance": "csv"}
    line = heading("mariadb", formats)
    assert line.endswith("→ lake (parquet), raw (csv) and 2 more · Ctrl-C drains") and len(line) <= 80
    assert heading("demo", {"lake": "csv"}).endswith(" · demo → lake (csv) · Ctrl-C drains")
    long = heading("mariadb", {"n" * 70: "csv", "raw": "csv"})
    assert f"{'n' * 70} (csv) and 1 more" in long, "the first one is named whole"


def test_a_sink_that_refuses_is_said_in_full_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where no row arrives, in a file: the full disk of a sink was silent for as long as it lasted."""
    well = STATUS.model_copy(update={"changefeeds": (ChangefeedStatus(name="lake", state="running"),)})

    def full(attempt: int) -> RunStatus:
        note = f"shop.orders retrying, attempt {attempt}: no space left on the disk of the sink, which is rather a long story"
        return well.model_copy(update={"changefeeds": (ChangefeedStatus(name="lake", state="recovering", note=note),)})

    screen = RunScreen(as_json=False)
    for status in (well, full(1), full(2), full(13), well, well):
        screen.update(status)
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("  !", "  ✓ lake"))]
    assert said == [
        "  ! lake: shop.orders retrying, attempt 1: no space left on the disk of the sink, which is rather a long story",
        "  ✓ lake is well again",
    ]
    screen.update(STATUS.model_copy(update={"source": STATUS.source.model_copy(update={"problem": "it is down"})}))
    assert "  ! source: it is down" in capsys.readouterr().out


def test_a_narrow_window_cuts_lines_and_never_wraps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    console = Console(force_terminal=True, width=40, height=20)
    monkeypatch.setattr("penstock.cli.run.console", console)
    screen = RunScreen(as_json=False)
    screen.update(BUSY)
    assert screen._live is not None
    drawn = console.render_lines(screen._live.renderable)
    assert len(drawn) == len(screen.lines(BUSY)), "Rich goes back over as many lines as it drew"


def test_status_fits_eighty_columns_but_for_messages(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    flow.status = BUSY
    done = flow.penstock("status")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    fixed = [line for line in lines if not line.startswith("! ")]
    assert all(len(line.rstrip()) <= 80 for line in fixed), [line for line in fixed if len(line) > 80]
    (heading,) = (line for line in lines if line.startswith("SINK"))
    assert heading.split() == ["SINK", "STATE", "LAG", "ROWS", "ROWS/S", "TABLES", "LAST", "WRITE"]
    assert "last event 10.0 s ago" in done.stdout
    assert f"! a-sink-with-a-name-that-is-long: {LONG.strip()[:60]}" in done.stdout
    assert "! bus: files of 0.01 MiB" in done.stdout
    assert "SOURCE  db-of-the-shop-7.eu-central-1.example.internal (MariaDB 10.11.6)" in lines
    assert "        binlog headroom 30 m 0 s" in lines
    assert "pinned by lake (full in 19 h 0 m at this rate)" in done.stdout
    assert "12.4k" in done.stdout
    assert "! the server purges mysql-bin.000041 in about 30 m 0 s" in done.stdout


UUID = "e6717656-e388-11f1-bfc8-02fc00000001"


@pytest.mark.parametrize("with_positions", [True, False])
def test_the_gtids_of_mysql_fit_eighty_columns(
    with_positions: bool, flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    place = {"file": "mysql-bin.000041", "pos": 870_791, "gtid": f"{UUID}:1-51,{UUID[::-1]}:1-205"}
    names = {"read": place, "snapshot": place, "pending_snapshot": place}
    more = {"unfinished": [], "unfinished_count": 0, "reconnect": "snapshot", "restart": "pending_snapshot"}
    positions = {**names, **more} if with_positions else None
    source = STATUS.source.model_copy(update={"position": place, "positions": positions})
    flow.status = STATUS.model_copy(update={"source": source})
    lines = flow.penstock("status").stdout.splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines), lines
    shown = [line for line in lines if UUID in line or "mysql-bin" in line or UUID[::-1] in line]
    if not with_positions:
        assert shown == [
            "        mysql-bin.000041:870791",
            f"        gtid {UUID}:1-51,",
            f"             {UUID[::-1]}:1-205",
        ]
        return
    assert shown[-3:] == [
        "        pending snapshot  mysql-bin.000041:870791  (a restart)",
        f"                          gtid {UUID}:1-51,",
        f"                               {UUID[::-1]}:1-205",
    ]


def test_a_source_that_is_down_is_not_said_to_run(flow: Flow) -> None:
    source = STATUS.source.model_copy(update={"problem": "cannot connect"})
    flow.status = STATUS.model_copy(update={"source": source})
    assert flow.penstock("status").stdout.splitlines()[0].split() == ["SOURCE", "mariadb", "degraded"]


def test_small_files_are_named_with_the_key_to_change() -> None:
    settings = {"flush": {"size": 64 << 20, "every": 60.0}}
    few, many = Totals(files=SMALL_FILES_MIN - 1, bytes=100), Totals(files=SMALL_FILES_MIN, bytes=SMALL_FILES_MIN << 18)
    assert _advice("raw", settings, few, Totals()) == ""
    assert (
        _advice("raw", settings, many, Totals())
        == "files of 0.25 MiB on average → raise sinks.raw.flush.every (now 60s)"
    )
    assert _advice("raw", settings, many, many) == "", "of this run"
    large = Totals(files=SMALL_FILES_MIN, bytes=SMALL_FILES_MIN << 26)
    assert _advice("raw", settings, large, Totals()) == ""
    asked_for = {"flush": {"size": 128 << 10, "every": 60.0}}
    assert _advice("raw", asked_for, many, Totals()) == "", "small files are what was asked for"


def test_nothing_is_shown_of_a_flow_without_changefeeds(tmp_path: Path) -> None:
    assert RunScreen(as_json=False).lines(STATUS.model_copy(update={"changefeeds": ()})) == []
