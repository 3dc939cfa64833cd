"""Another user of the same machine, who means no good."""

from __future__ import annotations

import encodings.idna  # noqa: F401  # before the other user needs it for a connection: he may not read it
import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.components import is_strict

SECOND_USER = 65_534  # nobody: owns nothing here
needs_second_user = pytest.mark.skipif(
    os.geteuid() != 0 and not is_strict(), reason="only root can become another user; run the tests as root"
)


def as_second_user(function: Callable[[], Any]) -> Any:
    """What `function` returns (anything that JSON can hold) in a process of the other user."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become_second_user()
            answer = json.dumps({"result": function()})
        except BaseException:
            answer = json.dumps({"failed": traceback.format_exc()})
        with os.fdopen(writing, "w") as pipe:
            pipe.write(answer)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    answer = json.loads(text)
    assert "failed" not in answer, answer["failed"]
    return answer["result"]


def become_second_user() -> None:
    """For a forked process, which must end with `os._exit`."""
    os.setgroups([])
    os.setresgid(SECOND_USER, SECOND_USER, SECOND_USER)
    os.setresuid(SECOND_USER, SECOND_USER, SECOND_USER)


def can(action: Callable[[], Any]) -> bool:
    """Whether the system lets this process do it."""
    try:
        result = action()
    except OSError:
        return False
    if isinstance(result, int) and not isinstance(result, bool) and result > 2:
        os.close(result)  # a descriptor
    return True


def rights(path: Path) -> list[str]:
    """What this process can do to one file, directory or socket: everything here is an attack."""
    attempts: dict[str, Callable[[], Any]] = {
        "look": lambda: os.lstat(path),
        "read": lambda: os.open(path, os.O_RDONLY | os.O_NONBLOCK),
        "write": lambda: os.open(path, os.O_WRONLY | os.O_NONBLOCK),
        "list": lambda: os.listdir(path),
        "rename": lambda: os.rename(path, f"{path}.stolen"),  # noqa: PTH104
        "remove": lambda: os.unlink(path),  # noqa: PTH108
        "put beside": lambda: os.close(os.open(f"{path}.planted", os.O_WRONLY | os.O_CREAT | os.O_EXCL)),
        "put inside": lambda: os.close(os.open(f"{path}/planted", os.O_WRONLY | os.O_CREAT | os.O_EXCL)),
        "link beside": lambda: Path(f"{path}.link").symlink_to("/etc/passwd"),
        "change mode": lambda: os.chmod(path, 0o777),  # noqa: PTH101
    }
    return [name for name, attempt in attempts.items() if can(attempt)]
