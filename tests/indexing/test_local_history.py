"""Builds of tables with a past: earlier sidecars, commits that come between, changed columns, old snapshots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.types import StringType

import sidecar
from sidecar.filters.theta import ThetaSketch
from sidecar.puffin.writer import PuffinWriter
from tests.indexing.cases import filters_of, sidecar_of
from tests.indexing.local_cases import ABSENT, SCHEMA, assert_nothing_is_denied, some_rows, some_table
from tests.tables import statistics_entry


def test_a_build_replaces_our_earlier_one_and_keeps_what_others_wrote(catalog: Any) -> None:
    table = some_table(catalog, "again", files=2)
    path = table.location_provider().new_metadata_location("theirs.stats")
    snapshot = table.current_snapshot()
    foreign = ThetaSketch()
    foreign.update(np.arange(1, 50, dtype=np.uint64))
    with table.io.new_output(path).create() as stream:
        writer = PuffinWriter(stream, created_by="someone else")
        numbers = (snapshot.snapshot_id, snapshot.sequence_number)
        writer.add_blob("apache-datasketches-theta-v1", [1], *numbers, foreign.to_bytes(), None, {"ndv": "49"})
        writer.add_blob("their-own-type", [2], *numbers, b"opaque bytes")
        written = writer.finish()
    entry = statistics_entry(snapshot.snapshot_id, path, written.file_size, written.footer_size)
    table.update_statistics().set_statistics(entry).commit()
    for _ in range(2):
        report = sidecar.build(table, ["k", "s"], engine="local", full=True)
        table = catalog.load_table("db.again")
        opened = sidecar_of(table)
        assert len(opened.segments) == 1
        blobs = {(b.type, b.fields): opened.puffin.read_blob(b) for b in opened.puffin.metadata.blobs}
        opened.close()
        assert blobs["their-own-type", (2,)] == b"opaque bytes"
        assert blobs["apache-datasketches-theta-v1", (1,)] == foreign.to_bytes()
        assert ("apache-datasketches-theta-v1", (3,)) in blobs
        assert any("field 1" in note and "is kept" in note for note in report.warnings)


def test_a_commit_that_comes_between_is_merged(catalog: Any) -> None:
    """Somebody sets another statistics file while we write ours: their blob is in ours in the end."""
    table = some_table(catalog, "race", files=2)
    theirs = catalog.load_table("db.race")
    snapshot = table.current_snapshot()
    done = []

    def interfere(what: str, done_steps: int | None = None, total: int | None = None) -> None:
        if what != "slicing" or done:
            return
        done.append(True)
        path = theirs.location_provider().new_metadata_location("race.stats")
        with theirs.io.new_output(path).create() as stream:
            writer = PuffinWriter(stream)
            writer.add_blob("their-own-type", [2], snapshot.snapshot_id, 1, b"came between")
            written = writer.finish()
        entry = statistics_entry(snapshot.snapshot_id, path, written.file_size, written.footer_size)
        theirs.update_statistics().set_statistics(entry).commit()

    with sidecar.progress(interfere):
        sidecar.build(table, ["k"], engine="local")
    assert done
    table = catalog.load_table("db.race")
    opened = sidecar_of(table)
    blobs = {b.type: opened.puffin.read_blob(b) for b in opened.puffin.metadata.blobs if b.type == "their-own-type"}
    opened.close()
    assert blobs == {"their-own-type": b"came between"}
    assert assert_nothing_is_denied(table) == 2


def test_evolved_columns(catalog: Any) -> None:
    """Old files under a promoted, a renamed and a new column."""
    table = catalog.create_table("db.evolved", pa.schema([("i", pa.int32()), ("old", pa.string())]))
    table.append(pa.table({"i": pa.array([1, 2, 3], pa.int32()), "old": ["a", "b", "c"]}))
    with table.update_schema() as update:
        update.update_column("i", field_type=pa_long())
        update.rename_column("old", "new")
        update.add_column("later", StringType())
    table = catalog.load_table("db.evolved")
    table.append(pa.table({"i": pa.array([3, 2**40], pa.int64()), "new": ["c", "d"], "later": ["x", "y"]}))
    report = sidecar.build(table, ["i", "new", "later"], engine="local")
    table = catalog.load_table("db.evolved")
    by_name = {column.name: column for column in report.columns}
    assert by_name["i"].ndv.to_dict() == {"estimate": 4, "lower": 4, "upper": 4}
    assert by_name["new"].ndv.to_dict() == {"estimate": 4, "lower": 4, "upper": 4}
    assert by_name["later"].uncovered["bloom"] == {"column absent from the file": 1}
    assert by_name["later"].uncovered["theta"] == {}
    assert sorted(encoding for encoding, _ in filters_of(table).values() if "int" in encoding) == [
        "int32",
        "int64",
    ]
    for predicate, rows in (
        ("i = 3", 2),
        (f"i = {2**40}", 1),
        ("new = 'd'", 1),
        ("later = 'x'", 1),
        ("i = 4", 0),
    ):
        assert sidecar.scan(table, predicate).num_rows == rows, predicate
    assert sidecar.plan(table, f"i = {2**40}").files_kept == 1


def pa_long() -> Any:
    from pyiceberg.types import LongType

    return LongType()


def test_deletes_do_not_matter_and_are_named(catalog: Any) -> None:
    table = some_table(catalog, "deletes", files=2, **{"write.delete.mode": "copy-on-write"})
    table.delete("c < 5")
    report = sidecar.build(table, ["k"], engine="local")
    table = catalog.load_table("db.deletes")
    assert report.warnings == []
    assert assert_nothing_is_denied(table) == 2


def test_an_old_snapshot_can_be_indexed(catalog: Any) -> None:
    table = some_table(catalog, "old_snapshot", files=1)
    first = table.current_snapshot().snapshot_id
    table.append(some_rows(9))
    report = sidecar.build(table, ["k"], engine="local", at=first)
    assert (report.snapshot_id, report.files_total) == (first, 1)
    table = catalog.load_table("db.old_snapshot")
    plan = sidecar.plan(table, f"k = {ABSENT}")
    assert (plan.files_total, plan.files_covered, plan.files_kept) == (2, 1, 1)


def test_a_snapshot_without_files_registers_an_empty_segment(catalog: Any) -> None:
    table = catalog.create_table("db.nothing", SCHEMA)
    table.append(some_rows(0, 10))
    table.delete("c >= 0")
    report = sidecar.build(table, ["k"], engine="local")
    assert (report.units, report.files_total, report.expected_false_units) == (0, 0, 0.0)
    assert sidecar.plan(catalog.load_table("db.nothing"), "k = 1").kept_files == []
