"""Tests that need a real component (MariaDB, S3, Java, strace, the corpus, the right to mount).

On a user's machine such a test is skipped where the component is missing, with a reason that says how to get it, and one
line at the end of the run counts the skipped tests by reason. In strict mode (`CI=true` or `PENSTOCK_STRICT=1`) it fails,
so that a green CI means that everything ran.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import pytest

# Binlog files of real servers, beside the repository on the project's own machines.
CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
CORPUS_MISSING = f"the corpus of real binlogs is not at {CORPUS}; only the project's own machines have it"
NEEDS_CORPUS = [pytest.mark.corpus, pytest.mark.skipif(not CORPUS.is_dir(), reason=CORPUS_MISSING)]

# Of database servers, for a fixture or a test that runs once with each.
FAMILIES = [
    pytest.param("mariadb", marks=pytest.mark.mariadb),
    pytest.param("mysql", marks=pytest.mark.mysql),
]


def is_strict() -> bool:
    return os.environ.get("CI") == "true" or os.environ.get("PENSTOCK_STRICT") == "1"


def missing(reason: str) -> NoReturn:
    """Skips, or fails in strict mode. `reason` says what is missing and how to get it."""
    if is_strict():
        pytest.fail(f"strict mode: {reason}", pytrace=False)
    pytest.skip(reason)


def skipped_line(reports: Iterable[Any]) -> str:
    """`skipped: 12 tests (7: reason; 5: reason)` from the reports of skipped tests; empty where none was skipped."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else str(report.longrepr)
        for report in reports
    )
    if not reasons:
        return ""
    listed = "; ".join(f"{count}: {reason}" for reason, count in reasons.most_common())
    return f"skipped: {reasons.total()} {'test' if reasons.total() == 1 else 'tests'} ({listed})"
