"""URLs of object stores: which ones are allowed, and opening the store of a URL."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

from penstock.errors import BadInput
from penstock.files import REAL_FILES, Files
from penstock.objects.directory import DirectoryObjects
from penstock.objects.store import SCHEMES, ObjectStore
from penstock.secret import harmless

_HINT = "file:///directory, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"

_lock = threading.Lock()
_remote: dict[str, ObjectStore] = {}  # one client for each URL of a process, because a client holds connections


def checked_url(url: str) -> str:
    """The URL as metadata keeps it: without a slash at its end. Raises `BadInput`, also for a URL that carries a
    secret."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadInput(f"{harmless(url)!r} is no URL: {error}", hint=_HINT) from None
    if parts.scheme not in SCHEMES:
        raise BadInput(f"{harmless(url)!r} is no URL of an object store", hint=_HINT)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise BadInput(
            f"{harmless(url)!r} carries more than a place",
            hint="credentials and options come from the environment; the URL is written into metadata",
        )
    path = parts.path.rstrip("/")
    if parts.scheme == "file" and (parts.netloc or not path):
        raise BadInput(f"{url!r} names no directory", hint="three slashes and an absolute path: file:///data/ledgers")
    if parts.scheme != "file" and not parts.netloc:
        raise BadInput(f"{url!r} names no bucket", hint=_HINT)
    if any(part in ("", ".", "..") for part in path.split("/")[1:]):
        raise BadInput(f"{url!r} is no plain path", hint=_HINT)
    return f"{parts.scheme}://{parts.netloc}{path}"


def open_objects(url: str, files: Files = REAL_FILES) -> ObjectStore:
    """Opens the store of a URL, without a request to it. `files` is the file system that `file://` means."""
    url = checked_url(url)
    parts = urlsplit(url)
    if parts.scheme == "file":
        return DirectoryObjects(url, Path(unquote(parts.path)), files)
    from penstock.objects.remote import RemoteObjects

    with _lock:
        store = _remote.get(url)
        if store is None:
            store = _remote[url] = RemoteObjects(url)
        return store


def _forked() -> None:
    """A forked child must not use its parent's connections."""
    global _lock, _remote
    _lock, _remote = threading.Lock(), {}


os.register_at_fork(after_in_child=_forked)
