"""The README's code blocks do what they say, in a fresh directory, as a new user would paste them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from penstock.sources.demo.plan import Plan
from penstock.sources.demo.stream import chunk_file
from tests.docs.documents import ROOT, code_blocks

README = ROOT / "README.md"
_COMMAND_SECONDS_MAX = 600  # generous: a busy laptop starts Spark in a minute

# What the README's commands say → what the test says in its place, and the exit code where it is not 0.
_INSTEAD = {
    "penstock run": "penstock run --once",
    "penstock tail shop.orders": "penstock tail shop.orders --from earliest --no-follow --limit 3",
    "penstock check": "penstock check --offline",  # no server of that name here
    "penstock log offload penstock-data/log --to s3://b/l": "penstock log offload penstock-data/log --to {copies}",
    "penstock binlog decode mysql-bin.000042": "penstock binlog decode {binlog}",
}
_EXIT_CODES = {
    "penstock status": 5,
    "penstock status --table shop.orders": 5,
    "penstock resume shop.orders": 2,
    "penstock backfill shop.orders": 75,
    "penstock lag --max 60s": 5,
    "penstock errors": 5,
    "penstock dispatchers": 5,
    "penstock pause lake": 75,
    "penstock pause lake --table shop.orders": 75,
    "penstock reload": 75,
    "penstock forget old": 2,
    "penstock run --recover-from-sink": 2,
}  # stopped; no table is parked; no run to ask; no such sink; the state is not lost
_ELSEWHERE = {"penstock demo"}  # tests/e2e and `make demo` run it; `make compat` after an install


def shell_commands() -> list[str]:
    lines = [line for block in code_blocks(README, "sh") for line in block.splitlines()]
    return [re.split(r"\s{2,}#|\s#\s", line)[0].strip() for line in lines]


def run(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    program, *arguments = shlex.split(command)
    assert program == "penstock"
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli", *arguments],
        cwd=directory,
        env={**os.environ, "PENSTOCK_SOURCE_PASSWORD": "a secret of the test"},
        capture_output=True,
        text=True,
        timeout=_COMMAND_SECONDS_MAX,
        check=False,
    )


def test_the_yaml_of_the_readme_is_a_valid_configuration(tmp_path: Path) -> None:
    (block,) = code_blocks(README, "yaml")
    assert len(block.splitlines()) == 5, "the README says five lines"
    (tmp_path / "penstock.yaml").write_text(block)
    done = run("penstock check --offline", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.spark
@pytest.mark.timeout(_COMMAND_SECONDS_MAX)
def test_the_commands_of_the_readme_work_one_after_the_other(tmp_path: Path) -> None:
    places = {"copies": f"file://{tmp_path}/copies", "binlog": str(tmp_path / "demo-bin.000001")}
    Path(places["binlog"]).write_bytes(chunk_file(Plan(1, 100), 0).data.tobytes())
    ran = []
    for command in shell_commands():
        if not command.startswith("penstock ") or command in _ELSEWHERE:
            continue
        done = run(_INSTEAD.get(command, command).format(**places), tmp_path)
        assert done.returncode == _EXIT_CODES.get(command, 0), f"{command}\n{done.stdout}\n{done.stderr}"
        ran.append(command)
        if command == "penstock check":  # no server of that name here: the same five lines with the demo shop
            value = yaml.safe_load(code_blocks(README, "yaml")[0])
            value["source"] = {"type": "demo", "changes": 20_000}
            value["spark"] = {"master": "local[2,3]"}
            (tmp_path / "penstock.yaml").write_text(yaml.safe_dump(value))
    assert {"penstock run", "penstock verify"} <= set(ran)
    read_with_spark(tmp_path)


def read_with_spark(directory: Path) -> None:
    """The README's Python, in a session of its own as a user has it."""
    (block,) = code_blocks(README, "python")
    program = (
        "import os, pathlib\n"
        "from penstock.spark.jvm.java import find_java_home\n"
        "os.environ['JAVA_HOME'] = str(find_java_home(pathlib.Path('java').absolute()))\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').getOrCreate()\n"
        f"{block}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=_COMMAND_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for column in ("_op", "_commit_ts", "_seq", "note"):  # `note` was added on the way
        assert column in done.stdout.splitlines()[1], done.stdout
