"""The contract of an object store, on a directory and on a real S3 server; what a cut of the power leaves of a put."""

from __future__ import annotations

import builtins
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInput, NotSupported, PenstockError, StorageFailed, Unavailable
from penstock.files import File, RealFiles
from penstock.files.memory import DiskFault, MemoryFiles, PowerCut
from penstock.objects import DirectoryObjects, ObjectChanged, ObjectStore, checked_url, open_objects
from tools.components.s3 import S3Server


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.s3)])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "s3":
        return open_objects(request.getfixturevalue("s3_url"))
    return open_objects((tmp_path / "a b").as_uri())


def test_put_get_list_delete(objects: ObjectStore) -> None:
    assert objects.list("log") == []
    objects.put("log/two", memoryview(b"0123456789"))
    objects.put("log/one", b"")
    objects.put("other/one", b"x")
    assert objects.list("log") == ["log/one", "log/two"]
    assert objects.get("log/two", 0, 10) == b"0123456789"
    assert objects.get("log/two", 3, 4) == b"3456"
    assert objects.get("log/two", 8, 100) == b"89"
    assert objects.get("log/two", 10, 1) == b"", "a range after the end is empty, not an error"
    objects.put("log/two", b"again")
    assert objects.get("log/two", 0, 100) == b"again"
    objects.delete(["log/two", "log/never", "nowhere/never"])
    assert objects.list("log") == ["log/one"]
    with pytest.raises(FileNotFoundError, match="log/two"):
        objects.get("log/two", 0, 1)
    objects.delete(["log/one", "other/one"])
    assert objects.list("log") == objects.list("other") == []


def test_whole_objects_and_their_sizes(objects: ObjectStore) -> None:
    assert objects.read("log/x") is None
    assert objects.size("log/x") is None
    objects.put("log/x", b"abc")
    objects.put("log/deep/er/y", b"")
    found = objects.read("log/x")
    assert found is not None
    assert found.data == b"abc"
    assert (objects.size("log/x"), objects.size("log/deep/er/y")) == (3, 0)
    assert objects.list("log") == sorted(objects.walk("log")) == sorted(objects.walk()) == ["log/deep/er/y", "log/x"]
    assert list(objects.walk("nowhere")) == []
    objects.delete(["log/x", "log/deep/er/y"])


def test_a_put_on_a_condition(objects: ObjectStore) -> None:
    first = objects.put_if("owner/a", b"one", None)
    with pytest.raises(ObjectChanged, match="owner/a holds something else"):
        objects.put_if("owner/a", b"two", None)
    second = objects.put_if("owner/a", b"two", first)
    assert second != first
    with pytest.raises(ObjectChanged):
        objects.put_if("owner/a", b"three", first)
    found = objects.read("owner/a")
    assert found == (b"two", second)
    assert objects.put_if("owner/a", b"two", first) == second, "the reply to an earlier try was lost"
    objects.delete(["owner/a"])
    with pytest.raises(ObjectChanged, match="owner/a is gone"):
        objects.put_if("owner/a", b"three", second)
    assert objects.read("owner/a") is None


def test_of_many_that_want_an_object_one_gets_it(objects: ObjectStore) -> None:
    def want(number: int) -> int | None:
        try:
            objects.put_if("owner/race", b"owner %d" % number, None)
        except ObjectChanged:
            return None
        return number

    with ThreadPoolExecutor(8) as pool:
        winners = [number for number in pool.map(want, range(16)) if number is not None]
    found = objects.read("owner/race")
    assert found is not None
    assert [b"owner %d" % number for number in winners] == [found.data]
    objects.delete(["owner/race"])


def test_a_large_object(objects: ObjectStore) -> None:
    data = random.Random(1).randbytes(9 << 20)
    objects.put("log/large", data)
    assert objects.get("log/large", 5 << 20, 100) == data[5 << 20 : (5 << 20) + 100]
    assert objects.get("log/large", 0, len(data)) == data


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../up", "a/../b", "a//b", "./a"])
def test_no_name_leaves_the_store(name: str, tmp_path: Path) -> None:
    store = open_objects(tmp_path.as_uri())
    for work in (lambda: store.put(name, b""), lambda: store.get(name, 0, 1), lambda: store.delete([name])):
        with pytest.raises(BadInput):
            work()


@pytest.mark.parametrize(
    "url",
    ["data/ledgers", "ftp://host/x", "file://host/x", "file:///", "s3://", "s3://key:secret@bucket/x",
     "s3://bucket/x?access_key=secret", "s3://bucket/a//b", "gs:///x"],
)  # fmt: skip
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(BadInput) as refused:
        checked_url(url)
    assert "secret" not in str(refused.value)


def test_urls_are_kept_without_a_slash_at_the_end() -> None:
    assert checked_url("s3://bucket/a/") == "s3://bucket/a"
    assert checked_url("gs://bucket") == "gs://bucket"
    assert checked_url("az://container/x") == "az://container/x"
    assert checked_url("file:///data/") == "file:///data"


def test_without_obstore_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "obstore":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(NotSupported, match=r"penstock\[objects\]"):
        open_objects("s3://bucket/never-opened")
    open_objects(tmp_path.as_uri()).put("a/b", b"a directory needs nothing")


@pytest.mark.s3
def test_wrong_credentials_are_lasting_and_a_server_that_is_gone_is_not(
    s3_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StorageFailed, match="credentials"):
        open_objects(f"{s3_url}/wrong").put("a/b", b"x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", S3Server(tmp_path).endpoint)  # never started
    with pytest.raises(Unavailable, match="does not answer"):
        open_objects(f"{s3_url}/gone").put("a/b", b"x")


@pytest.mark.parametrize("seed", range(20))
def test_a_put_survives_a_power_cut_or_never_was(seed: int) -> None:
    rng = random.Random(seed)
    for operation in range(1, 20):
        files = MemoryFiles()
        store = open_objects("file:///o", files)
        store.put("log/kept", b"kept" * 400)
        files.cut_power_at(files.operations + operation)
        acknowledged = False
        try:
            store.put("log/new", b"new" * 400)
            store.delete(["log/kept"])
            acknowledged = True
        except PowerCut:
            pass
        after = open_objects("file:///o", files.crash(rng))
        names = after.list("log")
        for name, data in (("log/kept", b"kept" * 400), ("log/new", b"new" * 400)):
            if name in names:
                assert after.get(name, 0, 10_000) == data
        if acknowledged:
            assert names == ["log/new"]
            return
        assert "log/kept" in names or "log/new" in names, "deleted before the put was durable"
    pytest.fail("it never came to an end")


@pytest.mark.parametrize("fault", list(DiskFault))
def test_a_failed_put_leaves_what_was_there(fault: DiskFault) -> None:
    for operation in range(1, 6):
        files = MemoryFiles()
        store = open_objects("file:///o", files)
        store.put("log/x", b"old")
        files.fail_at(files.operations + operation, fault)
        try:
            store.put("log/x", b"new")
        except PenstockError as error:
            assert error.transient, "a full disk heals"
        assert store.get("log/x", 0, 10) in (b"old", b"new")
        store.put("log/x", b"newer")
        assert store.get("log/x", 0, 10) == b"newer"


class OneWaits(MemoryFiles):
    """The first one that writes waits for a second, for a moment, and notes whether there was one."""

    def __init__(self) -> None:
        super().__init__()
        self.created = 0
        self.together = threading.Event()

    def create(self, path: Path) -> File:
        file = super().create(path)
        self.created += 1
        if self.created > 1:
            self.together.set()
        elif self.together.wait(0.5):
            raise AssertionError("two wrote at once")
        return file


@pytest.mark.parametrize("stream", [False, True])
def test_two_puts_of_one_name_come_one_after_another(stream: bool) -> None:
    """They have a temporary file in common: one of them renamed that of the other, or wrote into it."""
    files = OneWaits()
    objects = DirectoryObjects("sink", Path("/sink"), files)
    contents = (b"a" * 1000, b"b" * 1000)

    def put(data: bytes) -> None:
        if stream:
            objects.put_stream("x", iter((data[:500], data[500:])))
        else:
            objects.put("x", data)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(put, contents))
    found = objects.read("x")
    assert files.created == 2 and found is not None and found.data in contents


class SlowFiles(RealFiles):
    """Creates files in `slow` only once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.may = threading.Event(), threading.Event()

    def create(self, path: Path) -> File:
        if path.parent.name == "slow":
            self.reached.set()
            assert self.may.wait(60)
        return super().create(path)


def test_a_slow_put_holds_up_nobody_else(tmp_path: Path) -> None:
    """The files of all tables are put on a condition: one after another they would be as slow as one writer."""
    files = SlowFiles()
    objects = DirectoryObjects("here", tmp_path, files)
    thread = threading.Thread(target=objects.put_if, args=("slow/one", b"1", None), daemon=True)
    thread.start()
    assert files.reached.wait(60)
    other = threading.Thread(target=objects.put_if, args=("fast/one", b"1", None), daemon=True)
    other.start()
    other.join(20)
    assert not other.is_alive()
    assert objects.read("slow/one") is None
    files.may.set()
    thread.join(60)
    assert objects.read("slow/one") is not None
