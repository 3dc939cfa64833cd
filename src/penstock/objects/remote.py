"""Objects in S3, GCS or Azure through obstore. Credentials and endpoints come from the usual environment variables:

    s3   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL (an http:// one: AWS_ALLOW_HTTP=true), …
    gs   GOOGLE_APPLICATION_CREDENTIALS, …
    az   AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY, …

A failed request is repeated a few times within half a minute, then raises `Unavailable`; the caller decides when to try
again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.errors import NotSupported, PenstockError, StorageFailed, Unavailable
from penstock.files import Buffer
from penstock.objects.s3_uploads import end_uploads
from penstock.objects.store import Found, changed_object, checked_name, missing_object

if TYPE_CHECKING:
    from types import ModuleType

PART_BYTES = 8 << 20  # S3 wants at least 5 MiB, and at most 10,000 parts
PARTS_AT_ONCE = 2
_RETRIES_MAX = 3
_RETRY_SECONDS_MAX = 20
_REQUEST_SECONDS_MAX = 30
_CONNECT_SECONDS_MAX = 5
_ALLOW_HTTP = ("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP")
# Texts of the error for a range that starts at or after the object's end: the server's, and that of obstore's own
# check.
_RANGE_AFTER_END = ("416", "Wanted range starting at")


class RemoteObjects:
    """An `ObjectStore`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._obstore = _imported(url)
        with self._translate_errors(""):
            self._store: Any = self._obstore.store.from_url(
                url,
                client_options={
                    "timeout": timedelta(seconds=_REQUEST_SECONDS_MAX),
                    "connect_timeout": timedelta(seconds=_CONNECT_SECONDS_MAX),
                    # obstore reads this from the environment only if it is given no client options.
                    "allow_http": any(os.environ.get(name, "").lower() in ("1", "true") for name in _ALLOW_HTTP),
                },
                retry_config={"max_retries": _RETRIES_MAX, "retry_timeout": timedelta(seconds=_RETRY_SECONDS_MAX)},
            )

    def put(self, name: str, data: Buffer) -> None:
        checked_name(name, self.url)
        with self._translate_errors(name):
            try:
                # One request: the object appears whole or not at all, and no unfinished multipart upload stays behind.
                self._obstore.put(self._store, name, data, use_multipart=False)
            except FileNotFoundError:
                raise self._no_bucket() from None

    def put_stream(self, name: str, parts: Iterable[Buffer]) -> None:
        """A multipart upload: the object appears whole with its last request, which is not sent where `parts` raises."""
        checked_name(name, self.url)
        # obstore asks for the parts inside its own event loop, where a call to the store would end in a panic; whoever makes
        # them may read an object on the way.
        maker = ThreadPoolExecutor(1, thread_name_prefix="parts")
        source = _Watched(parts, maker)
        try:
            with maker, self._translate_errors(name):
                self._obstore.put(
                    self._store,
                    name,
                    source,
                    use_multipart=True,
                    chunk_size=PART_BYTES,
                    max_concurrency=PARTS_AT_ONCE,
                )
        except FileNotFoundError:
            raise Unavailable(
                f"{self.url}/{name}: its upload was ended by somebody else", hint="it is tried again by itself"
            ) from None
        except BaseException as error:
            with suppress(PenstockError):  # the caller ends it again before its next try, or after a restart
                self.end_uploads(name)
            if source.error is not None and source.error is not error:
                raise source.error from None
            raise
        with suppress(PenstockError):  # begun by a request whose reply was lost, and begun again
            self.end_uploads(name)

    def end_uploads(self, name: str) -> int:
        if name:
            checked_name(name, self.url)
        return end_uploads(self.url, name)

    def put_if(self, name: str, data: Buffer, token: str | None) -> str:
        checked_name(name, self.url)
        errors = self._obstore.exceptions
        mode: Any = "create" if token is None else _from_token(token)
        with self._translate_errors(name):
            try:
                return _token(self._obstore.put(self._store, name, data, mode=mode, use_multipart=False))
            except FileNotFoundError:
                if token is None:
                    raise self._no_bucket() from None
            except (errors.AlreadyExistsError, errors.PreconditionError):
                pass
        found = self.read(name)
        if found is not None and found.data == bytes(data):
            return found.token  # the reply to an earlier try was lost
        raise changed_object(self.url, name, there=found is not None)

    def settle(self, name: str) -> None:
        checked_name(name, self.url)  # what a store shows, it keeps

    def read(self, name: str) -> Found | None:
        checked_name(name, self.url)
        with self._translate_errors(name):
            try:
                answer = self._obstore.get(self._store, name)
                return Found(bytes(answer.bytes()), _token(answer.meta))
            except FileNotFoundError:
                return None

    def size(self, name: str) -> int | None:
        checked_name(name, self.url)
        with self._translate_errors(name):
            try:
                return int(self._obstore.head(self._store, name)["size"])
            except FileNotFoundError:
                return None

    def get(self, name: str, offset: int, size: int) -> bytes:
        checked_name(name, self.url)
        with self._translate_errors(name):
            try:
                return bytes(self._obstore.get_range(self._store, name, start=offset, length=size))
            except self._obstore.exceptions.GenericError as error:
                if any(words in _first_line(error) for words in _RANGE_AFTER_END):
                    return b""
                raise

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            checked_name(name, self.url)
            with self._translate_errors(name):
                try:
                    self._obstore.delete(self._store, name)
                except FileNotFoundError:
                    continue

    def list(self, directory: str) -> list[str]:
        checked_name(directory, self.url)
        return sorted(self.walk(directory))

    def walk(self, directory: str = "") -> Iterator[str]:
        if directory:
            checked_name(directory, self.url)
        with self._translate_errors(directory):
            for chunk in self._obstore.list(self._store, directory or None):
                for found in chunk:
                    yield str(found["path"])

    def _no_bucket(self) -> StorageFailed:
        return StorageFailed(
            f"{self.url}: there is no such bucket or container", hint="make it first; Penstock never does"
        )

    @contextmanager
    def _translate_errors(self, name: str) -> Iterator[None]:
        """Raises obstore's errors as ours, with their first line: the rest is for obstore's developers."""
        errors = self._obstore.exceptions
        where = f"{self.url}/{name}" if name else self.url
        try:
            yield
        except PenstockError:
            raise
        except FileNotFoundError:
            raise missing_object(self.url, name) from None
        except (errors.PermissionDeniedError, errors.UnauthenticatedError, PermissionError) as error:
            raise StorageFailed(
                f"{where}: the store refuses these credentials: {_first_line(error)}",
                hint="give this process credentials that may read, write, list and delete there",
            ) from None
        except (errors.BaseError, OSError) as error:
            raise Unavailable(
                f"{where} does not answer as it should: {_first_line(error)}",
                hint="check the URL, the network and the environment; what was done before stays done",
            ) from None
        except ValueError as error:
            raise StorageFailed(f"{where}: {_first_line(error)}", hint="check the URL and the environment") from None
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            # Rust's own, which cannot be imported and is no `Exception`: a thread would end with it, in silence.
            raise StorageFailed(
                f"{where}: obstore failed: {_first_line(error)}", hint="restart; please report it"
            ) from None


class _Watched:
    """An iterator that runs on a thread of `maker`. Its own error is kept: obstore passes on only its text."""

    def __init__(self, parts: Iterable[Buffer], maker: ThreadPoolExecutor) -> None:
        self.error: BaseException | None = None
        self._parts = iter(parts)
        self._maker = maker

    def __iter__(self) -> _Watched:
        return self

    def __next__(self) -> Buffer:
        try:
            part = self._maker.submit(next, self._parts, None).result()
        except BaseException as error:
            self.error = error
            raise
        if part is None:
            raise StopIteration
        return part


def _token(answer: Any) -> str:
    """S3 and Azure name a content by its tag, GCS by its version."""
    return json.dumps({key: answer[key] for key in ("e_tag", "version") if answer.get(key)})


def _from_token(token: str) -> dict[str, str]:
    return dict(json.loads(token))


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _imported(url: str) -> ModuleType:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError as error:
        raise NotSupported(
            f"{url}: object stores need the package obstore, which is not installed",
            hint="pip install 'penstock[objects]'; a directory (file:///…) needs nothing",
        ) from error
    return obstore
