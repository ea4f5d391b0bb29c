"""A small table, our blobs and those of others in its statistics files, and changes that come between."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from sidecar.iceberg.statistics_files import registering
from sidecar.iceberg.statistics_files.merge import KeptSketch
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import SBBF, THETA, TOC, UNITS
from sidecar.puffin.writer import PuffinWriter
from sidecar.storage.source import BytesSource
from tests.tables import create_with_rows, sketch_metadata, statistics_entry

ROWS = pa.table({"a": pa.array([1, 2, 3], pa.int64()), "b": ["x", "y", "z"], "c": [1.0, 2.0, 3.0]})
SKETCH = bytes.fromhex("010303000 01e0000".replace(" ", ""))
THETAS = [KeptSketch(1, SKETCH, 3), KeptSketch(2, SKETCH, 30)]
serial = itertools.count()


def create(catalog: Any, **properties: str) -> Table:
    """A table of one file that has no statistics."""
    return create_with_rows(catalog, f"db.statistics_{next(serial)}", [ROWS], **properties)


def head(table: Table) -> int:
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def write_ours(writer: PuffinWriter, replaced: Sequence[PuffinReader] = ()) -> None:
    """Stands for the bundle: plain blobs of our types, the table of contents last."""
    for blob_type in (UNITS, SBBF, TOC):
        writer.add_blob(blob_type, [1], 1, 1, f"ours {blob_type}".encode())


def blobs_of(path: str) -> dict[tuple[str, tuple[int, ...]], bytes]:
    reader = PuffinReader(BytesSource(Path(path.removeprefix("file:")).read_bytes(), path))
    return {(blob.type, blob.fields): reader.read_raw(blob) for blob in reader.metadata.blobs}


def entry(table: Table, snapshot_id: int | None = None) -> StatisticsFile:
    snapshot_id = snapshot_id or head(table)
    (found,) = [s for s in table.refresh().metadata.statistics if s.snapshot_id == snapshot_id]
    return found


def registered(table: Table) -> dict[int, str]:
    """NDV by field id, as an engine's planner sees it."""
    blobs = entry(table).blob_metadata
    assert all(blob.type == THETA for blob in blobs)
    return {blob.fields[0]: (blob.properties or {})["ndv"] for blob in blobs}


def set_foreign(
    table: Table,
    thetas: dict[int, str],
    others: list[tuple[str, list[int], bytes]] | None = None,
    codec: str | None = "zstd",
) -> str:
    """Another writer registers a statistics file for the head: its thetas are registered, the rest is not."""
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    sid, sequence = snapshot.snapshot_id, snapshot.sequence_number or 0
    path = f"{table.location()}/metadata/{sid}-foreign-{next(serial)}.stats"
    with table.io.new_output(path).create() as stream:
        writer = PuffinWriter(stream, created_by="Another Engine 1.0", properties={"engine": "yes"})
        for field, ndv in thetas.items():
            writer.add_blob(THETA, [field], sid, sequence, b"their sketch %d" % field, codec, {"ndv": ndv})
        for blob_type, fields, data in others or []:
            writer.add_blob(blob_type, fields, sid, sequence, data, codec)
        size, footer, metadata = writer.finish()
    found = [blob for blob in metadata.blobs if blob.type == THETA]
    sketches = [sketch_metadata(sid, blob.fields, blob.properties, sequence) for blob in found]
    table.update_statistics().set_statistics(statistics_entry(sid, path, size, footer, sketches)).commit()
    return path


def stats_files(table: Table) -> set[str]:
    return {f"file:{p}" for p in Path(table.location().removeprefix("file:")).rglob("*.stats")}


def damage(path: str, how: Callable[[bytes], bytes]) -> None:
    local = Path(path.removeprefix("file:"))
    local.write_bytes(how(local.read_bytes()))


class Interloper:
    """Lets others act at chosen moments: just before the ``n``-th commit of a registration, or after it."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        before: dict[int, Callable[[], object]] | None = None,
        after: dict[int, Callable[[], object]] | None = None,
    ) -> None:
        self.count = 0
        real = registering._commit

        def commit(table: Table, entry: StatisticsFile, *rest: Any) -> bool:
            turn, self.count = self.count, self.count + 1
            (before or {}).get(turn, lambda: None)()
            done = real(table, entry, *rest)
            (after or {}).get(turn, lambda: None)()
            return done

        monkeypatch.setattr(registering, "_commit", commit)
