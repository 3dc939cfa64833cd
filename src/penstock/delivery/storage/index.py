"""The index of a data directory: the name of its last file that counts.

It is replaced only by whoever knows what it holds, so that of two writers one is refused, and a number that it has named
is never given again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from penstock.delivery.storage.layout import file_number
from penstock.delivery.storage.place import SinkObjects
from penstock.errors import Terminal, Transient

_REMEMBERED_MAX = 20_000  # directories in use; a forgotten one costs a read


class Indexes:
    """The indexes of one sink. Thread-safe; one thread at a time writes to a directory."""

    def __init__(self, objects: SinkObjects) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._tokens: OrderedDict[str, str] = OrderedDict()

    def last_number(self, path: str) -> int:
        """The number of the last file that counts; 0 where there is no index."""
        found = self._objects.read(path)
        if found is None:
            return 0
        number = file_number(found.data.decode(errors="replace"))
        self._remember(path, found.token)
        return number

    def name(self, path: str, file: str) -> None:
        """From here on `file` counts; done already if the index names it. Raises `Terminal` if it names a later one."""
        with self._lock:
            token = self._tokens.get(path)
        if token is None:
            last = self.last_number(path)
            if last == file_number(file):
                self._objects.settle(path)
                return  # by an earlier try, whose answer was lost
            if last > file_number(file):
                raise Terminal(
                    f"{path} names file {last} already, and {file} comes after it: nothing was changed",
                    hint="another writer uses this prefix: stop it",
                )
            with self._lock:
                token = self._tokens.get(path)
        try:
            token = self._objects.put_if(path, f"{file}\n".encode(), token)
        except Transient:
            with self._lock:
                self._tokens.pop(path, None)  # nobody knows what it holds now
            raise
        self._remember(path, token)

    def _remember(self, path: str, token: str) -> None:
        with self._lock:
            self._tokens[path] = token
            self._tokens.move_to_end(path)
            if len(self._tokens) > _REMEMBERED_MAX:
                self._tokens.popitem(last=False)
