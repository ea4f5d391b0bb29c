"""Run by tests in a process of its own: every door on files that may hold anything, each in a forked child.

The worker does everything once on sound files, so that a child starts warm. For each file on the command line and
each door it prints a line of JSON: ``file``, ``door``, ``answer`` (``value``, the class of our error, or what went
wrong), ``cost``: CPU time in units of :func:`tests.cpu_cost.unit_of_work`, and ``bytes``: how far the child's peak of
resident memory is above its start.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

import sidecar
from sidecar.errors import (
    DamagedFileError,
    SidecarError,
    StorageError,
    UnsupportedFeatureError,
    UsageError,
)
from sidecar.files import format_of
from sidecar.orc.tail import read_tail
from sidecar.parquet.footer import read_footer
from sidecar.reading.file_scanning import open_scan
from sidecar.storage.opening import open_source
from tests.cpu_cost import unit_of_work

OURS = (DamagedFileError, UnsupportedFeatureError, UsageError, StorageError)

COLUMNS = 4
"""Columns of a file that are asked for, at most."""

MOST_BYTES = 1 << 30
"""Address space that a child may take more, touched or not: what it may use is less, see the tests."""

MOST_SECONDS = 120
"""CPU time after which a child is killed: it hangs, however slow the machine is."""

SOON = 0.5
"""CPU seconds below which a call is cheap on any machine, and its cost is not measured: it is 0."""


def columns_of(path: str) -> list[str]:
    """Some leaf columns of a data file; one that it has not, where it cannot be opened."""
    with contextlib.closing(open_source(path)) as source:
        try:
            if format_of(source) == "orc":
                found = [column.path for column in read_tail(source).columns[1:] if not column.is_compound]
            else:
                found = [leaf.path for leaf in read_footer(source).columns]
        except SidecarError:
            found = []
    return found[:COLUMNS] or ["k"]


def quoted(column: str) -> str:
    """A column's name as predicates spell it."""
    return ".".join(f'"{part}"' for part in column.split("."))


Door = tuple[str, Callable[[], object]]


def doors(path: str, folder: Path) -> Iterator[Door]:
    """Every door by name; each writes into files of its own in ``folder``."""
    columns = columns_of(path)
    suffix = Path(path).suffix

    def target(name: str) -> str:
        place = folder / name
        place.unlink(missing_ok=True)
        return str(place)

    yield "inspect", lambda: sidecar.inspect(path).only
    yield "verify", lambda: sidecar.verify(path)
    if suffix == ".stats":
        yield "inspect --fill", lambda: sidecar.inspect(path, fill=True).only
        yield "probe", lambda: sidecar.probe(path, "k", "20").only
        for field_id in range(1, COLUMNS + 1):
            yield f"probe {field_id}", lambda field_id=field_id: sidecar.probe(path, str(field_id), "20").only
        yield "verify --against", lambda: sidecar.verify(path, against=[str(folder / "sound.parquet")])
        yield (
            "embed",
            lambda: sidecar.embed(str(folder / "sound.parquet"), into=target("into.parquet"), from_=path).only,
        )
        yield "convert", lambda: sidecar.convert([path], target("converted.puffin"))
        return
    yield "verify --data", lambda: sidecar.verify(path, data=True)
    for column in columns:
        yield f"probe {column}", lambda column=column: sidecar.probe(path, column, "20").only
        yield f"scan {column}", lambda column=column: scan_for(path, quoted(column))
        yield (
            f"scan {column} null",
            lambda column=column: sidecar.scan(path, f"{quoted(column)} is not null", limit=3),
        )
    yield "scan all", lambda: scan_in_steps(path)
    yield "extract", lambda: sidecar.extract([path], target("extracted.puffin"))
    options: dict[str, Any] = {} if suffix == ".orc" else {"page_index": True}
    yield "embed", lambda: sidecar.embed(path, into=target(f"embedded{suffix}"), bloom=columns, **options).only
    yield "strip", lambda: sidecar.strip(path, target(f"stripped{suffix}")).only
    yield "convert", lambda: sidecar.convert([path], target("converted.puffin"))


def scan_for(path: str, column: str) -> object:
    """Rows with one value of a column, whatever its type."""
    try:
        return sidecar.scan(path, f"{column} = 20")
    except UsageError:
        return sidecar.scan(path, f"{column} = '20'")


def scan_in_steps(path: str) -> int:
    """All rows, as the command line reads them: no more than what comes at once is held."""
    rows = 0
    with open_scan(path, "true") as scan:
        for found in scan.found():
            rows += found.rows.num_rows
    return rows


def write_sound_files(folder: Path) -> list[str]:
    """Files without defect of both formats."""
    table = pa.table(
        {
            "k": pa.array(range(60), pa.int64()),
            "s": [None if i % 5 == 0 else f"text {i % 9}" for i in range(60)],
            "f": pa.array([i / 4 for i in range(60)], pa.float64()),
            "l": pa.array([[i] * (i % 3) for i in range(60)], pa.list_(pa.int32())),
        }
    )
    pq.write_table(
        table,
        folder / "sound.parquet",
        row_group_size=30,
        write_page_index=True,
        column_encoding={"k": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY"},
        use_dictionary=["l.list.element"],
        bloom_filter_options={"k": {"ndv": 40}},
    )
    orc.write_table(table, folder / "sound.orc", bloom_filter_columns=[0, 1], row_index_stride=1000, compression="zlib")
    return [str(folder / "sound.parquet"), str(folder / "sound.orc")]


def peak() -> int:
    """The peak of resident memory of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmHWM")


def attempt(call: Callable[[], object]) -> dict[str, Any]:
    """What a door answers, in this process."""
    started, before = time.process_time(), peak()
    try:
        call()
        answer = "value"
    except SidecarError as error:
        answer = next(kind.__name__ for kind in OURS if isinstance(error, kind))
        detail = str(error)
    except BaseException:
        answer = "foreign: " + traceback.format_exc()
    seconds, taken = time.process_time() - started, peak() - before
    found = {"answer": answer, "cost": seconds / unit_of_work() if seconds > SOON else 0, "bytes": taken}
    return found | ({"detail": detail} if "detail" in locals() else {})


def in_child(call: Callable[[], object]) -> dict[str, Any]:
    """The same in a forked child, which may crash."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        os.close(out)
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        room = pages * resource.getpagesize() + MOST_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        os.write(into, json.dumps(attempt(call))[:60000].encode())
        os._exit(0)
    os.close(into)
    with open(out, "rb") as file:
        data = file.read()
    _, status = os.waitpid(child, 0)
    return json.loads(data) if data else {"answer": f"killed by signal {status & 127}", "cost": 0, "bytes": 0}


def main(paths: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)
        for path in write_sound_files(folder):
            for _, call in doors(path, folder):
                attempt(call)
        for path in paths:
            for door, call in doors(path, folder):
                found = {"file": Path(path).name, "door": door, **in_child(call)}
                print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
