"""What a refresh costs: files read, requests, bytes and seconds, and what a hundred refreshes leave behind.

    scripts/bench refresh [one] [removed] [small] [day] [--files 10000]

`one`: a table of FILES files; one more is appended and the sidecar refreshed, then refreshed again with nothing to do,
in this process and as a command. `removed`: one file is deleted; a refresh, and a build with `exact`. `small`: files
are appended to a table of ten, a hundred times, each followed by a refresh; a lookup is compared with that after a
fresh build. `day`: the same with FILES files, a sidecar of 131 kB a file (1.3 GB for 10,000) and default options, a
quarter of an hour apart by a simulated clock and then at once.

Requests are openings and ranged reads of files. Bytes that the kernel copies from one sidecar to the next are not read.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memory import make_table, rate, rows
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFile

import sidecar
from sidecar.run_steps import observe
from sidecar.source import LocalSource

PARTS = ("one", "removed", "small", "day")
STEPS = 100
BLOCKS = 2048
"""Blocks of each of the two filters of a file in the large sidecar."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="refresh", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--files", type=int, default=10_000)
    options = parser.parse_args(arguments)
    parts = options.parts or PARTS
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(PARTS)}")
    missed = False
    if "one" in parts or "removed" in parts:
        with new_table(options.files) as table:
            sidecar.build(table, ["k", "m"], engine="local", save=True)
            if "one" in parts:
                missed |= measure_one(table, options.files)
            if "removed" in parts:
                missed |= measure_removed(table)
    if "small" in parts:
        with new_table(10) as table, new_table(10) as fresh:
            missed |= measure_small(table, fresh)
    if "day" in parts:
        with new_table(options.files) as table:
            missed |= measure_hundred(table, options.files)
    print(f"targets: {'MISSED' if missed else 'met'}")
    return int(missed)


@contextmanager
def new_table(files: int) -> Iterator[Any]:
    with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as folder:
        catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/cat.db", warehouse=f"file:{folder}/wh")
        catalog.create_namespace("db")
        yield make_table(catalog, Path(folder), files)


KINDS = {".parquet": "data", ".stats": "sidecar", ".avro": "manifests", ".json": "metadata"}


class Requests:
    """Counts openings and reads, and the bytes read, by the kind of file, and which data files were opened."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.opened: set[str] = set()

    def add(self, path: str, requests: int, length: int) -> None:
        kind = KINDS.get(Path(path).suffix, "others")
        self.requests[kind] += requests
        self.bytes[kind] += length
        if kind == "data":
            self.opened.add(path)

    def __str__(self) -> str:
        counted = (f"{kind} {n} in {self.bytes[kind]:,} bytes" for kind, n in sorted(self.requests.items()))
        return f"{len(self.opened)} data files; requests: {', '.join(counted)}"


@contextmanager
def counted() -> Iterator[Requests]:
    """Count what is read through sidecar's local sources and pyiceberg's files."""
    found = Requests()
    start, read, opened = LocalSource.__init__, LocalSource.read, PyArrowFile.open

    def counting_start(self: LocalSource, path: str) -> None:
        found.add(path, 1, 0)
        start(self, path)

    def counting_read(self: LocalSource, offset: int, length: int) -> bytes:
        found.add(self.name, 1, length)
        return read(self, offset, length)

    def counting_open(self: Any, *arguments: Any, **named: Any) -> Any:
        found.add(self.location, 1, len(self))
        return opened(self, *arguments, **named)

    LocalSource.__init__, LocalSource.read, PyArrowFile.open = counting_start, counting_read, counting_open  # type: ignore[method-assign]
    try:
        yield found
    finally:
        LocalSource.__init__, LocalSource.read, PyArrowFile.open = start, read, opened  # type: ignore[method-assign]


class Taken(float):
    """Seconds. On a machine that does other work too, those of its processors count."""

    cpu = 0.0

    def __str__(self) -> str:
        return f"{float(self):.2f} s ({self.cpu:.2f} of CPU)"


def timed(run: Callable[[], Any]) -> tuple[Taken, Any]:
    before, start = os.times(), time.perf_counter()
    result = run()
    taken, after = Taken(time.perf_counter() - start), os.times()
    taken.cpu = sum(after[:4]) - sum(before[:4])
    return taken, result


def measure_one(table: Any, files: int) -> bool:
    """Print the cost of a refresh after an append, and of one with nothing to do; whether a target is missed."""
    table.append(rows(files))
    with counted() as found:
        taken, report = timed(lambda: sidecar.refresh(table, engine="local"))
    assert (report.action, report.files_indexed, report.files_carried) == ("written", 1, files), report
    copied, _ = timed(lambda: copy_of(report.statistics_path))
    print(f"one file more than {files:,}: {taken}, of it copying {report.bytes_carried:,} bytes {copied}")
    print(f"  {found}")
    missed = taken.cpu - copied.cpu > 2 or len(found.opened) > 1
    with counted() as found:
        taken, report = timed(lambda: sidecar.refresh(table))
    assert report.action == "current", report
    print(f"nothing to do: {taken}; {found}")
    uri = table.catalog.properties["uri"]
    environment = {**os.environ, "PYICEBERG_CATALOG__BENCH__URI": uri, "SIDECAR_CATALOG": "bench"}

    def least(*command: str) -> float:
        run = [sys.executable, *command]
        return min(
            timed(lambda: subprocess.run(run, env=environment, check=True, capture_output=True))[0] for _ in "123"
        )

    load = f"from pyiceberg.catalog import load_catalog; load_catalog('bench', uri={uri!r}).load_table('db.t')"
    python, loaded = least("-c", "pass"), least("-c", load)
    command = least("-m", "sidecar.cli", "refresh", "db.t")
    print(f"  as a command {command}; Python's start {python}, with pyiceberg loading the table {loaded}")
    return missed or command.cpu - loaded.cpu > 0.5


def copy_of(path: str) -> None:
    """Copy a file and write it to disk, as the kernel does for a refresh."""
    local = path.removeprefix("file:")
    with open(local, "rb") as old, open(f"{local}.copy", "wb") as new:
        shutil.copyfileobj(old, new, 8 << 20)
        new.flush()
        os.fsync(new.fileno())
    os.unlink(f"{local}.copy")


def measure_removed(table: Any) -> bool:
    """Print what a removed file costs; whether a target is missed."""
    gone = rows(3)["k"]
    table.delete(f"k >= {gone[0].as_py()} and k <= {gone[-1].as_py()}")
    with counted() as found:
        taken, report = timed(lambda: sidecar.refresh(table, engine="local"))
    print(f"one file removed: {report.action} in {taken}; {found}")
    with counted() as again:
        taken, built = timed(lambda: sidecar.build(table, exact=True, engine="local"))
    counts = {column.name: column.ndv.estimate for column in built.columns}
    print(f"  with exact: {taken}; {again}; distinct {counts}")
    return bool(found.opened) or not 0 < len(again.opened) < 256


def measure_small(table: Any, fresh: Any) -> bool:
    """Print the most that lookups cost beyond those after fresh builds; whether a target is missed."""
    for each in (table, fresh):
        sidecar.build(each, ["k"], kinds=["bloom"], engine="local", save=True)
    reads, ratio, written = 0, 0.0, 0
    for number in range(10, 10 + STEPS):
        table.append(rows(number))
        fresh.append(rows(number))
        report = sidecar.refresh(table, engine="local")
        written += report.file_size
        sidecar.build(fresh, full=True, engine="local")
        ours, best = (sidecar.plan(each, "k = -5") for each in (table, fresh))
        assert ours.files_kept == best.files_kept == 0, number
        reads = max(reads, ours.index_reads - best.index_reads)
        ratio = max(ratio, ours.index_bytes_read / best.index_bytes_read)
    print(f"{STEPS} refreshes of a small sidecar: lookups made at most {reads} reads more than after a fresh build")
    print(f"  and read at most {ratio:.2f} times its bytes; {written:,} bytes written, the last {report.file_size:,}")
    return reads > 4 or ratio > 2


def measure_hundred(table: Any, files: int) -> bool:
    """Print the bytes of a hundred refreshes of a large sidecar; whether a target is missed."""
    taken, built = timed(
        lambda: sidecar.build(table, ["k", "m"], kinds=["bloom"], fpp=rate(BLOCKS), engine="local", save=True)
    )
    print(f"{STEPS} refreshes of a sidecar of {built.file_size:,} bytes, built in {taken:.0f} s")
    missed = False
    for name, apart in (("in a day", 86_400 / STEPS), ("at once", 0.0)):
        with clock() as forward:
            written, copies, most = 0, 0, 0
            taken = 0.0

            def reached(step: str) -> None:
                nonlocal most
                if step == "refresh: unregister":
                    most = max(most, registered(table))

            for number in range(STEPS):
                forward(apart)
                table.append(rows(files + number))
                with observe(reached):
                    seconds, report = timed(lambda: sidecar.refresh(table, engine="local"))
                taken += seconds
                if report.action == "written":
                    written, copies = written + report.file_size, copies + 1
                most = max(most, registered(table))
                remove_unregistered(table)
            at_end = registered(table)
        print(
            f"  {name}: {copies} copies, {written:,} bytes written; registered at most {most:,}, at the end {at_end:,};"
        )
        print(f"    {taken / STEPS:.2f} s a refresh, the last {report.action}")
        missed |= written > 5e9 or most > 3e9
        files += STEPS
    return missed


@contextmanager
def clock() -> Iterator[Callable[[float], None]]:
    """Put the clock of this process forward: the seconds that the yielded function is given."""
    real, ahead = time.time, [0.0]
    time.time = lambda: real() + ahead[0]

    def forward(seconds: float) -> None:
        ahead[0] += seconds

    try:
        yield forward
    finally:
        time.time = real


def registered(table: Any) -> int:
    """Return the bytes of all files that the table's metadata names."""
    now = table.catalog.load_table(table.name())
    return sum({entry.statistics_path: entry.file_size_in_bytes for entry in now.metadata.statistics}.values())


def remove_unregistered(table: Any) -> None:
    """Delete the files that nothing names, to spare the disk."""
    named = {entry.statistics_path.rpartition("/")[2] for entry in table.refresh().metadata.statistics}
    for path in Path(table.metadata_location.removeprefix("file:")).parent.glob("*.stats"):
        if path.name not in named:
            path.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
