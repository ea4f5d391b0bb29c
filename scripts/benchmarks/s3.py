"""A needle in files on an S3 server that takes 20 ms more for each request, and a refresh that copies a sidecar there.

658 files of 20,000 random longs with Bloom filters of their own (1 %), one key that one file has; a SQLite catalog, all
else in the bucket. A side runs from loading the table to its rows, cold each time: a new table object, a new connection
of DuckDB. The table is read through fsspec and through Arrow, which asks for the length of every file that it opens.
The server is moto on this machine's own processors. pyiceberg and DuckDB run once: no warm-up would show.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import sidecar
from scripts.benchmarks.harness import data
from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.results import at_least, at_most
from scripts.benchmarks.harness.timing import Side
from scripts.benchmarks.inputs.longs import SCHEMA, files_of_longs, keys_of
from scripts.benchmarks.inputs.tiny_files import rate, rows
from scripts.benchmarks.peers.s3_server import ARROW, BUCKET, FSSPEC, S3Server, s3_server

LATENCY = 20.0
"""Milliseconds added to each request."""


def measure(bench: Bench) -> None:
    """Measure lookups and refreshes."""
    with data.scratch() as folder, s3_server() as server:
        remote = server.make_bucket()
        needle(bench, server, remote, folder / "needle")
        for name, io in (("fsspec", FSSPEC), ("Arrow", ARROW)):
            refresh(bench, server, folder / name, name, io)


def needle(bench: Bench, server: S3Server, remote: Any, folder: Path) -> None:
    files, rows_each = bench.size(658, quick=20), bench.size(20_000, quick=2_000)
    bench.say("filling the bucket")
    local = files_of_longs(files, rows_each, with_filters=True)
    paths = [f"s3://{BUCKET}/data/{Path(path).name}" for path in local]
    remote.put(local, paths)
    folder.mkdir()
    catalog = server.open_catalog(folder, FSSPEC)
    catalog.create_namespace("db")
    table = catalog.create_table("db.longs", SCHEMA)
    table.add_files(paths, check_duplicate_files=False)
    sidecar.build(table, ["k"], kinds=["bloom"], engine="local")
    arrow, key, requests = server.open_catalog(folder, ARROW), keys_of(files, rows_each)[0], Counter[str]()
    server.wait(LATENCY)

    def side(name: str, run: Any) -> Side:
        def counted() -> None:
            server.take_log()
            if run().num_rows != 1:
                raise RuntimeError(f"{name} did not find the row")
            requests[name] = max(requests[name], len(server.take_log()))

        return Side(counted)

    def by_duckdb() -> Any:
        return server.duckdb().execute(f"SELECT * FROM read_parquet({paths}) WHERE k = {key}").to_arrow_table()

    own = {
        "sidecar, fsspec": lambda: sidecar.scan(catalog.load_table("db.longs"), f"k = {key}"),
        "sidecar, Arrow": lambda: sidecar.scan(arrow.load_table("db.longs"), f"k = {key}"),
    }
    peers = {
        "DuckDB": by_duckdb,
        "pyiceberg": lambda: catalog.load_table("db.longs").scan(row_filter=f"k = {key}").to_arrow(),
    }
    what = f"one key in {files} files on S3"
    times = bench.compare(what, {name: side(name, run) for name, run in {**own, **peers}.items()}, 1, warm_ups=0)
    more = bench.compare(f"{what}, again", {name: side(name, run) for name, run in own.items()}, 5)
    server.wait(0)
    for peer, target in (("DuckDB", at_least(10)), ("pyiceberg", None)):
        seconds, ours = times.of(peer).median, more.of("sidecar, fsspec")
        bench.row(what, seconds / ours.median, "x faster", target, against=peer, spread=ours.spread)
    for name, found in requests.items():
        bench.row(f"{what}: requests of {name}", found, "requests", at_most(12) if name == "sidecar, fsspec" else None)


def refresh(bench: Bench, server: S3Server, folder: Path, name: str, io: str) -> None:
    """Refresh after one appended file: s3fs has S3 copy the earlier segments, for Arrow's client too."""
    files, blocks = bench.size(40, quick=10), bench.size(32_768, quick=4_096)
    folder.mkdir()
    catalog = server.open_catalog(folder, io)
    catalog.create_namespace("db")
    table = catalog.create_table(f"db.{name}", rows(0).schema)
    for number in range(files):
        table.append(rows(number))
    built = sidecar.build(table, ["k"], kinds=["bloom"], fpp=rate(blocks), engine="local")
    table.append(rows(files))
    server.take_log()
    server.take_bytes()
    report = sidecar.refresh(table, engine="local")
    carried, asked = server.take_bytes(), Counter(line.split()[0] for line in server.take_log())
    if (report.action, report.files_indexed) != ("written", 1):
        raise RuntimeError(f"the refresh did something else: {report}")
    what = f"refresh of a sidecar of {built.file_size / 1e6:,.0f} MB on S3, {name}"
    note = f"requests: {', '.join(f'{n} {verb}' for verb, n in sorted(asked.items()))}"
    bench.row(f"{what}: bytes down", carried["sent"] / 1e6, "MB", note=note)
    bench.row(f"{what}: bytes up", carried["received"] / 1e6, "MB")
