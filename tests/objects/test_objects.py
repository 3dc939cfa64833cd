"""The contract of an object store, on a directory and on a real S3 server; what a cut of the power leaves of a put."""

from __future__ import annotations

import builtins
import random
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInput, NotSupported, PenstockError, StorageFailed, Unavailable
from penstock.files.memory import DiskFault, MemoryFiles, PowerCut
from penstock.objects import ObjectStore, checked_url, open_objects
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
