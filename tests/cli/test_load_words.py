"""How far a load is, in words: by the server's guesses, which may be wrong."""

from __future__ import annotations

from penstock.cli.output import load_words
from penstock.supervisor.status import LoadStatus


def load(**values: object) -> LoadStatus:
    return LoadStatus.model_validate({"tables": 61, "done": 58, "rows": 710, "rows_left": 290, "begun_ms": 0} | values)


def test_a_share_and_the_time_that_is_left() -> None:
    assert load_words(load(seconds_left=360)) == "58 of 61 tables, 710 rows, 71 %, about 6 m 0 s left"


def test_a_table_with_more_rows_than_the_server_guessed_is_not_done_before_it_is() -> None:
    assert load_words(load(rows_left=0, seconds_left=0.0)) == "58 of 61 tables, 710 rows, 99 %"
    assert load_words(load(rows_left=0, done=61, seconds_left=None)) == "61 of 61 tables, 710 rows, 100 %"
