"""A sink whose first days have expired is compared from the first day that is there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from penstock.delivery.storage.expiry import EXPIRED_PATH, expired_before
from penstock.operations.verify.report import SinkReport
from penstock.operations.verify.sink_files import list_sink
from penstock.operations.verify.sink_tables import SinkTables
from penstock.operations.verify.verify import _first_commit_ts
from tests.delivery.rig import START_MS, local_objects
from tests.delivery.test_expiry import DAY_MS, at_day, deliver


def test_files_on_their_way_out_are_not_read(tmp_path: Path) -> None:
    deliver(tmp_path, 3)
    objects = local_objects(tmp_path)
    (tmp_path / "shop/orders/5/2024-10-04/CDC00000000000000000001.json").unlink()
    objects.put(EXPIRED_PATH, json.dumps({"before": "2024-10-05", "finished": False}).encode())
    report = SinkReport("raw")
    found = list_sink(objects)
    tables = SinkTables(objects, None, found, report, tmp_path, expired_before(objects))  # type: ignore[arg-type]
    assert report.faults == []
    assert [file.name.split("/")[3] for file in tables._files["shop", "orders"]] == ["2024-10-05"] * 2 + [
        "2024-10-06"
    ] * 2


def test_the_first_commit_of_a_day() -> None:
    midnight = START_MS // DAY_MS * DAY_MS
    first = _first_commit_ts("2024-10-04")
    assert first == np.uint64(at_day(0) - ((START_MS - midnight) << 18))
    assert _first_commit_ts("") == 0
