"""A Python that has imported capture and forks itself for each request: `python -m tests.e2e.servers.warm_capture FD SECONDS`.

Its entries are small, so that transactions of some hundred kilobytes are cut into parts already.
A request on the socket FD has three descriptors: standard input, output and error of the fork. The answers are its pid,
and its exit code once it has ended (negative: the signal). SECONDS: how long a connection may be silent.
"""

from __future__ import annotations

import functools
import os
import signal
import socket
import sys

from penstock.capture import loop, process
from penstock.sources.mysql import source

ENTRY_BYTES = 1 << 16
EVENTS_BYTES_MAX = 1 << 18


def main() -> None:
    warm = socket.socket(fileno=int(sys.argv[1]))
    source.SILENCE_SECONDS_MAX = float(sys.argv[2])
    small = functools.partial(loop.Capture, entry_bytes=ENTRY_BYTES, events_bytes_max=EVENTS_BYTES_MAX)
    loop.Capture = small  # type: ignore[assignment, misc]
    while True:
        _, descriptors, _, _ = socket.recv_fds(warm, 1, 3)
        if not descriptors:
            return
        pid = os.fork()
        if pid == 0:
            warm.close()
            for target, descriptor in enumerate(descriptors):
                os.dup2(descriptor, target)
                os.close(descriptor)
            os._exit(process.main())
        for descriptor in descriptors:
            os.close(descriptor)
        try:
            warm.sendall(pid.to_bytes(4, "little"))
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            warm.sendall(code.to_bytes(4, "little", signed=True))
        except OSError:  # the test is gone
            os.kill(pid, signal.SIGKILL)
            return


if __name__ == "__main__":
    main()
