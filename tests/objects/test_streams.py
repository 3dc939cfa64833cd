"""Large objects: put as a stream, whole or not at all, and nothing stays behind of a process that died in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import pytest

from penstock.errors import StorageFailed, Terminal, Unavailable
from penstock.objects import ObjectStore, open_objects
from penstock.objects.remote import RemoteObjects
from penstock.objects.s3_uploads import end_uploads

MIB = 1 << 20


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.s3)])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "s3":
        return open_objects(request.getfixturevalue("s3_url"))
    return open_objects((tmp_path / "a b").as_uri())


def parts(count: int, size: int = MIB) -> Iterator[bytes]:
    for number in range(count):
        yield number.to_bytes(4, "big") * (size // 4)


def checksum(objects: ObjectStore, name: str) -> int:
    found, size = 0, objects.size(name) or 0
    for offset in range(0, size, 8 * MIB):
        found = google_crc32c.extend(found, objects.get(name, offset, 8 * MIB))
    return int(found)


@pytest.mark.parametrize("count", [0, 1, 9, 33])
def test_a_stream_is_put_whole(objects: ObjectStore, count: int) -> None:
    objects.put_stream("dir/x y+z", parts(count))
    assert objects.size("dir/x y+z") == count * MIB
    assert checksum(objects, "dir/x y+z") == google_crc32c.value(b"".join(parts(count)))
    assert objects.end_uploads("dir/x y+z") == 0


@pytest.mark.parametrize("kind", [Terminal, ValueError])
def test_a_stream_that_raises_leaves_nothing(objects: ObjectStore, kind: type[Exception]) -> None:
    def broken() -> Iterator[bytes]:
        yield from parts(20)
        raise kind("other bytes")

    with pytest.raises(kind, match="other bytes"):
        objects.put_stream("dir/x", broken())
    assert objects.size("dir/x") is None
    assert objects.end_uploads("dir/x") == 0
    objects.put_stream("dir/x", parts(9))
    assert objects.size("dir/x") == 9 * MIB


_DIES = """
import sys, time
from penstock.objects import open_objects
def parts():
    for number in range(64):
        yield bytes([number]) * (1 << 20)
        if number == 40:
            print("half", flush=True)
            time.sleep(600)
open_objects(sys.argv[1]).put_stream("dir/x", parts())
"""


def test_a_process_that_died_in_the_middle(objects: ObjectStore) -> None:
    url = objects.url
    child = subprocess.Popen([sys.executable, "-c", _DIES, url], stdout=subprocess.PIPE, env=dict(os.environ))
    assert child.stdout is not None and child.stdout.readline() == b"half\n"
    time.sleep(1.0)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert objects.size("dir/x") is None
    assert objects.end_uploads("dir/other") == 0
    assert objects.end_uploads("dir/x") == 1
    assert objects.end_uploads("dir/x") == 0
    objects.put_stream("dir/x", parts(9))
    assert objects.size("dir/x") == 9 * MIB


def test_stores_without_a_list_of_uploads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert end_uploads("az://container/prefix", "x") == 0
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    assert end_uploads("s3://bucket/prefix", "x") == 0


@pytest.mark.s3
def test_everything_that_others_began(s3_url: str) -> None:
    objects = open_objects(f"{s3_url}/mine")
    other = open_objects(f"{s3_url}/mine too")

    def ended(by: ObjectStore) -> Iterator[bytes]:
        yield from parts(20)
        time.sleep(0.5)
        assert by.end_uploads("") == (1 if by is objects else 0)
        yield from parts(20)

    objects.put_stream("dir/x", ended(other))
    assert objects.size("dir/x") == 40 * MIB
    with pytest.raises(Unavailable, match="was ended by somebody else"):
        objects.put_stream("dir/y", ended(objects))
    assert objects.size("dir/y") is None
    assert objects.end_uploads("") == 0


def test_who_makes_the_parts_may_use_the_store(objects: ObjectStore) -> None:
    """As a writer does that looks for the owner object before the last part."""
    objects.put("dir/owner", b"me")

    def looking() -> Iterator[bytes]:
        yield from parts(20)
        found = objects.read("dir/owner")
        assert found is not None and found.data == b"me"

    objects.put_stream("dir/x", looking())
    assert objects.size("dir/x") == 20 * MIB


@pytest.mark.s3
def test_a_panic_of_obstore_is_an_error_of_ours(s3_url: str) -> None:
    """It is no `Exception`, so it would end whichever thread meets it."""
    objects = RemoteObjects(s3_url)

    def calls_from_inside() -> Iterator[bytes]:
        yield bytes(16 * MIB)
        objects._obstore.head(objects._store, "any")  # in obstore's own event loop
        yield b"x"

    with pytest.raises(StorageFailed, match="obstore failed"), objects._translate_errors("x"):
        objects._obstore.put(objects._store, "x", calls_from_inside(), use_multipart=True)
