"""A needle in files on an S3 server on this machine that takes 20 ms more for each request.

658 files of 20,000 random longs with Bloom filters of their own (1 %), one key that one file holds; a SQLite catalog,
all else in the bucket. Counted are the requests from loading the table to its rows, and the time of it, cold each time:
a new table object, a new connection of DuckDB, which reads the list of the data files. Targets: 12 requests, 10 x
DuckDB. The table is read through fsspec and through Arrow, which asks for the length of every file that it opens.

The server is moto's, in a process of its own on the same processors: what it works is time of whoever asks it. Needs
the extra "bench".
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

import duckdb
import s3fs
from pyiceberg.catalog.sql import SqlCatalog
from scan import write_longs

import sidecar

os.environ.pop("AWS_PROFILE", None)
BUCKET, USER = "bench", "testing"
FSSPEC, ARROW = "pyiceberg.io.fsspec.FsspecFileIO", "pyiceberg.io.pyarrow.PyArrowFileIO"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="s3", description=__doc__)
    parser.add_argument("--files", type=int, default=658)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--latency", type=float, default=20.0, help="milliseconds added to each request")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(options.serve)
        return 0
    with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as folder, server() as control:
        return int(measure(Path(folder), control, options))


class Control:
    """The server's own questions: what it was asked, and how long it is to wait."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"

    def ask(self, text: str) -> Any:
        with urlopen(f"{self.endpoint}/-control/{text}") as answer:
            return json.load(answer)


def measure(folder: Path, control: Control, options: argparse.Namespace) -> bool:
    """Print the figures; whether a target is missed."""
    paths, keys = write_longs(folder / "local", options.files, options.rows)
    remote = upload(control, paths)
    catalog = open_catalog(folder, control, FSSPEC)
    catalog.create_namespace("db")
    table = catalog.create_table("db.longs", sidecar_schema())
    table.add_files(remote)
    sidecar.build(table, ["k"], kinds=["bloom"], engine="local")
    arrow = open_catalog(folder, control, ARROW)
    key = int(keys[0])
    steps: dict[str, Callable[[], Any]] = {
        "sidecar, fsspec": lambda: sidecar.scan(catalog.load_table("db.longs"), f"k = {key}"),
        "sidecar, Arrow": lambda: sidecar.scan(arrow.load_table("db.longs"), f"k = {key}"),
        "duckdb": lambda: duck(control, remote, key),
        "pyiceberg": lambda: catalog.load_table("db.longs").scan(row_filter=f"k = {key}").to_arrow(),
    }
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    requests: dict[str, list[list[str]]] = {name: [] for name in steps}
    control.ask(f"latency/{options.latency}")
    for number in range(options.runs + 1):
        for name, run in steps.items():
            if number not in {"duckdb": (1, 2), "pyiceberg": (1,)}.get(name, (number,)):
                continue  # half a minute each, of requests: no warm-up would show
            control.ask("log")
            start = time.perf_counter()
            rows = run().num_rows
            taken = time.perf_counter() - start
            assert rows == 1, (name, rows)
            asked = control.ask("log")
            if number:
                seconds[name].append(taken)
                requests[name].append(asked)
    print(f"one key in {options.files} files of {options.rows:,} rows, {options.latency:g} ms a request")
    for name, taken_each in seconds.items():
        counts = [len(asked) for asked in requests[name]]
        print(
            f"  {name:<16} {min(taken_each) * 1000:9.1f} ms least {median(taken_each) * 1000:9.1f} median;"
            f"  {max(counts)} requests"
        )
    for name in ("sidecar, fsspec", "sidecar, Arrow"):
        print(f"  {name}:")
        for line in requests[name][-1]:
            print(f"    {line}")
    most = max(len(asked) for asked in requests["sidecar, fsspec"])
    ratio = median(seconds["duckdb"]) / median(seconds["sidecar, fsspec"])
    print(f"  duckdb / sidecar: {ratio:.1f} x (target 10 x); {most} requests (target 12)")
    missed = most > 12 or ratio < 10
    print(f"targets: {'MISSED' if missed else 'met'}")
    return missed


def sidecar_schema() -> Any:
    import pyarrow as pa

    return pa.schema([("k", pa.int64())])


def open_catalog(folder: Path, control: Control, io: str) -> SqlCatalog:
    return SqlCatalog(
        "bench",
        **{
            "uri": f"sqlite:///{folder}/cat.db",
            "warehouse": f"s3://{BUCKET}/wh",
            "py-io-impl": io,
            "s3.endpoint": control.endpoint,
            "s3.access-key-id": USER,
            "s3.secret-access-key": USER,
            "s3.region": "us-east-1",
        },
    )


def upload(control: Control, paths: Sequence[str]) -> list[str]:
    """The files in the bucket."""
    files = s3fs.S3FileSystem(
        key=USER, secret=USER, client_kwargs={"endpoint_url": control.endpoint, "region_name": "us-east-1"}
    )
    files.call_s3("create_bucket", Bucket=BUCKET)
    remote = [f"s3://{BUCKET}/data/{Path(path).name}" for path in paths]
    files.put(list(paths), remote)
    return remote


def duck(control: Control, paths: Sequence[str], key: int) -> Any:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{httpfs()}'")
    host = control.endpoint.removeprefix("http://")
    connection.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{USER}', SECRET '{USER}', REGION 'us-east-1', ENDPOINT '{host}',"
        " URL_STYLE 'path', USE_SSL false)"
    )
    return connection.execute(f"SELECT * FROM read_parquet({list(paths)}) WHERE k = {key}").to_arrow_table()


def httpfs() -> str:
    """Where the extension lies in its package."""
    folder = Path(import_module("duckdb_extension_httpfs").__file__ or "").parent
    return str(next(folder.rglob("httpfs.duckdb_extension")))


@contextmanager
def server() -> Iterator[Control]:
    """moto in a process of its own, gone with the context."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": "16777216"},
    )
    control = Control(port)
    try:
        for _ in range(150):
            try:
                control.ask("log")
                break
            except OSError:
                time.sleep(0.2)
        yield control
    finally:
        process.terminate()
        process.wait()


def serve(port: int) -> None:
    """Run moto, each request delayed and noted."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, run_simple

    moto = DomainDispatcherApplication(create_backend_app)
    log: list[str] = []
    carried = {"sent": 0, "received": 0}
    wait = [0.0]

    def application(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        path = environ["PATH_INFO"]
        if path.startswith("/-control/latency/"):
            wait[0] = float(path.rsplit("/", 1)[1]) / 1000
            start("200 OK", [("Content-Length", "2")])
            return [b"{}"]
        if path == "/-control/log":
            body = json.dumps(log).encode()
            log.clear()
            start("200 OK", [("Content-Length", str(len(body)))])
            return [body]
        if path == "/-control/bytes":
            body = json.dumps(carried).encode()
            carried.update(sent=0, received=0)
            start("200 OK", [("Content-Length", str(len(body)))])
            return [body]
        log.append(f"{environ['REQUEST_METHOD']} {path} {environ.get('HTTP_RANGE', '')}".strip())
        time.sleep(wait[0])
        length = environ.get("HTTP_X_AMZ_DECODED_CONTENT_LENGTH") or environ.get("CONTENT_LENGTH")
        carried["received"] += int(length or 0)
        answer = list(moto(environ, start))
        carried["sent"] += sum(map(len, answer))
        return answer

    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    run_simple("127.0.0.1", port, application, threaded=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
