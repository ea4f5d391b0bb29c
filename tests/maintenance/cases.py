"""Tables with sidecars for several snapshots, in a store that is a folder, and files that look old."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import pyarrow as pa
from pyiceberg.table import Table

import sidecar
from sidecar.puffin.types import THETA
from sidecar.puffin.writer import PuffinWriter
from tests.iceberg.registering_cases import head
from tests.object_store import open_store
from tests.tables import statistics_entry

DAY = 86_400.0
serial = itertools.count()


def rows(start: int = 0) -> pa.Table:
    return pa.table({"k": pa.array(range(start, start + 5), pa.int64()), "s": [f"s{n}" for n in range(5)]})


def make(folder: Path, builds: int = 1, name: str = "db.t", location: str | None = None) -> Table:
    """A table with an append and a build for each of ``builds``, in the store if no ``location`` is given."""
    table = open_store(folder).create_table(name, rows().schema, location)
    for n in range(builds):
        append_and_build(table, n)
    return table


def append_and_build(table: Table, n: int = 0) -> int:
    """One more append and a sidecar for it; the id of the snapshot."""
    table.append(rows(5 * n))
    sidecar.build(table, ["k"], engine="local")
    return head(table)


def entries(table: Table) -> dict[int, str]:
    """The paths of the registered statistics files by snapshot."""
    return {entry.snapshot_id: entry.statistics_path for entry in table.refresh().metadata.statistics}


def metadata_folder(table: Table) -> Path:
    folder = Path(table.io.properties["folder"]) / table.location().removeprefix("folder://") / "metadata"
    assert folder.is_dir()
    return folder


def stored(table: Table) -> set[str]:
    """The locations of the Puffin files in the metadata folder."""
    return {f"{table.location()}/metadata/{path.name}" for path in metadata_folder(table).glob("*.stats")}


def make_older(table: Table, days: float, pattern: str = "*") -> None:
    """Make files of the metadata folder look as if they were written ``days`` earlier."""
    for path in metadata_folder(table).glob(pattern):
        written = path.stat().st_mtime - days * DAY
        os.utime(path, (written, written))


def pass_days(table: Table, days: float) -> None:
    """Make all files older, and have a commit say what time it is."""
    make_older(table, days)
    touch(table)


def touch(table: Table) -> None:
    """A commit that changes a property."""
    with table.refresh().transaction() as change:
        change.set_properties({"touched": str(time.time())})


def others_file(table: Table, name: str) -> str:
    """A file that sidecar has not written, in the metadata folder."""
    (metadata_folder(table) / name).write_bytes(b"PFA1 theirs")
    return f"{table.location()}/metadata/{name}"


def register_others(table: Table, snapshot_id: int | None = None) -> str:
    """Another engine's statistics for a snapshot, by default the head: a sketch that the metadata does not name."""
    snapshot_id = snapshot_id or head(table)
    path = f"{table.location()}/metadata/{snapshot_id}-{next(serial)}-theirs.stats"
    with table.io.new_output(path).create() as stream:
        writer = PuffinWriter(stream, created_by="Another Engine 1.0")
        writer.add_blob(THETA, [1], snapshot_id, 1, b"their sketch", "zstd", {"ndv": "5"})
        size, footer, _ = writer.finish()
    table.refresh().update_statistics().set_statistics(statistics_entry(snapshot_id, path, size, footer)).commit()
    return path
