"""An S3 server on this machine (moto) that waits before each answer, and tells what it was asked.

It is a process of its own on the same processors: what it works is time of whoever asks it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from scripts.benchmarks.harness import data
from scripts.servers.processes import free_ports

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

BUCKET, USER, REGION = "bench", "testing", "us-east-1"
FSSPEC, ARROW = "pyiceberg.io.fsspec.FsspecFileIO", "pyiceberg.io.pyarrow.PyArrowFileIO"


class S3Server:
    """The server's own questions: what it was asked, what it carried, and how long it is to wait."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"

    def take_log(self) -> list[str]:
        """Return the requests since the last call."""
        return list(self._ask("log"))

    def take_bytes(self) -> dict[str, int]:
        """Return the bytes ``sent`` and ``received`` since the last call, of bodies alone."""
        return dict(self._ask("bytes"))

    def wait(self, milliseconds: float) -> None:
        """Have each request wait."""
        self._ask(f"latency/{milliseconds}")

    def _ask(self, text: str) -> Any:
        with urlopen(f"{self.endpoint}/-control/{text}") as answer:
            return json.load(answer)

    def make_bucket(self) -> Any:
        """Make the bucket; return fsspec's file system of it."""
        import s3fs

        where = {"endpoint_url": self.endpoint, "region_name": REGION}
        files = s3fs.S3FileSystem(key=USER, secret=USER, client_kwargs=where)
        files.call_s3("create_bucket", Bucket=BUCKET)
        return files

    def open_catalog(self, folder: Path, io: str) -> SqlCatalog:
        """Return a catalog whose SQLite file is in a local folder, and whose warehouse is in the bucket."""
        from pyiceberg.catalog.sql import SqlCatalog

        return SqlCatalog(
            "bench",
            **{
                "uri": f"sqlite:///{folder}/cat.db",
                "warehouse": f"s3://{BUCKET}/wh",
                "py-io-impl": io,
                "s3.endpoint": self.endpoint,
                "s3.access-key-id": USER,
                "s3.secret-access-key": USER,
                "s3.region": REGION,
            },
        )

    def duckdb(self) -> Any:
        """Return a new connection of DuckDB that knows the server."""
        from importlib import import_module

        import duckdb

        folder = Path(import_module("duckdb_extension_httpfs").__file__ or "").parent
        connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        connection.execute(f"LOAD '{next(folder.rglob('httpfs.duckdb_extension'))}'")
        host = self.endpoint.removeprefix("http://")
        connection.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID '{USER}', SECRET '{USER}', REGION '{REGION}', ENDPOINT '{host}',"
            " URL_STYLE 'path', USE_SSL false)"
        )
        return connection


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Start it; it is gone with the context."""
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [sys.executable, "-m", "scripts.benchmarks.peers.s3_server", str(port)],
        cwd=data.ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": "16777216"},
    )
    server = S3Server(port)
    try:
        for _ in range(300):
            try:
                server.take_log()
                break
            except OSError:
                time.sleep(0.2)
        yield server
    finally:
        process.terminate()
        process.wait()


class _Application:
    """moto, each request delayed and noted."""

    def __init__(self, moto: Callable[..., Any]) -> None:
        self._moto = moto
        self._log: list[str] = []
        self._carried = {"sent": 0, "received": 0}
        self._seconds = 0.0

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        path = environ["PATH_INFO"]
        if path.startswith("/-control/"):
            body = json.dumps(self._control(path.removeprefix("/-control/"))).encode()
            start("200 OK", [("Content-Length", str(len(body)))])
            return [body]
        self._log.append(f"{environ['REQUEST_METHOD']} {path} {environ.get('HTTP_RANGE', '')}".strip())
        time.sleep(self._seconds)
        length = environ.get("HTTP_X_AMZ_DECODED_CONTENT_LENGTH") or environ.get("CONTENT_LENGTH")
        self._carried["received"] += int(length or 0)
        answer = list(self._moto(environ, start))
        self._carried["sent"] += sum(map(len, answer))
        return answer

    def _control(self, asked: str) -> Any:
        if asked.startswith("latency/"):
            self._seconds = float(asked.rsplit("/", 1)[1]) / 1000
            return {}
        if asked == "log":
            taken, self._log = self._log, []
            return taken
        carried, self._carried = self._carried, {"sent": 0, "received": 0}
        return carried


def main(arguments: Sequence[str]) -> None:
    """Serve on a port until the process is ended."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, run_simple

    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    application = _Application(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", int(arguments[0]), application, threaded=True)


if __name__ == "__main__":
    main(sys.argv[1:])
