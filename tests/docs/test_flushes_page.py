"""docs/flushes.md: its command works on a sink, and what it names exists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.delivery.flushes import FlushReason
from penstock.observe.metrics import Metrics, SpoolTotals
from tests.docs.documents import ROOT

PAGE = (ROOT / "docs" / "flushes.md").read_text()


def test_every_metric_on_the_page_exists_and_every_reason_is_explained() -> None:
    metrics = Metrics()
    metrics.watch_spool("lake", SpoolTotals)
    known = {family.name for family in metrics.registry.collect()}
    named = set(re.findall(r"`(penstock_\w+)`", PAGE))
    assert len(named) > 10
    assert not {name for name in named if name.removesuffix("_total") not in known}
    assert not [reason.value for reason in FlushReason if f"`{reason.value}`" not in PAGE]


@pytest.mark.skipif(shutil.which("find") is None or shutil.which("awk") is None, reason="needs find and awk")
def test_the_command_shows_sizes_and_gaps(tmp_path: Path) -> None:
    directory = tmp_path / "sink" / "shop" / "orders" / "5" / "2026-11-17"
    (directory / "meta").mkdir(parents=True)
    (directory / "meta" / "CDC.index").write_text("CDC000002.json\n")
    for number, (size, at) in enumerate([(700, 1000), (20, 1060)], 1):
        path = directory / f"CDC{number:06}.json"
        path.write_bytes(b"x" * size)
        os.utime(path, (at, at))
    [command] = re.findall(r"```sh\n(find .*?)```", PAGE, re.DOTALL)
    shown = subprocess.run(
        ["sh", "-c", command],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    numbers = [tuple(map(int, re.findall(r"(\d+) bytes +(\d+) s", line)[0])) for line in shown.splitlines()]
    assert numbers == [(700, 0), (20, 60)]
