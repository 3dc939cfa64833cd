"""Objects in S3, GCS or Azure through obstore. Credentials and endpoints come from the usual environment variables:

    s3   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL (an http:// one: AWS_ALLOW_HTTP=true), …
    gs   GOOGLE_APPLICATION_CREDENTIALS, …
    az   AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY, …

A failed request is repeated a few times within half a minute, then raises `Unavailable`; the caller decides when to try
again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.errors import NotSupported, PenstockError, StorageFailed, Unavailable
from penstock.files import Buffer
from penstock.objects.store import checked_name, missing_object

if TYPE_CHECKING:
    from types import ModuleType

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
                raise StorageFailed(
                    f"{self.url}: there is no such bucket or container", hint="make it first; Penstock never does"
                ) from None

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
        with self._translate_errors(directory):
            return sorted(str(found["path"]) for chunk in self._obstore.list(self._store, directory) for found in chunk)

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
