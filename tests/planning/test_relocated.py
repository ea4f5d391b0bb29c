"""Tables that have moved: files found again by relative path, and never another file in their place."""

from __future__ import annotations

import shutil
from typing import Any, ClassVar, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

import sidecar
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.iceberg.listing import list_snapshot
from sidecar.iceberg.paths import normal_path, spellings
from sidecar.iceberg.statistics_files.find_sidecar import open_sidecar
from sidecar.iceberg.statistics_files.sidecar_files import SidecarFiles
from tests.iceberg.cases import local
from tests.tables import create_with_rows

PLAIN = {"write.avro.compression-codec": "null", "write.parquet.compression-codec": "uncompressed"}


def keys(part: int) -> pa.Table:
    """Even keys only, those of all parts within the same bounds."""
    return pa.table({"k": pa.array([2 * (part + 5 * n) for n in range(40)], pa.int64())})


@pytest.fixture(scope="module", params=["1", "2"])
def table(catalog: Any, request: pytest.FixtureRequest) -> Table:
    properties = {**PLAIN, "format-version": request.param}
    parts = map(keys, range(3))
    kinds = ("bloom", "page-index")
    return create_with_rows(catalog, f"db.moving{request.param}", parts, columns=["k"], kinds=kinds, **properties)


@pytest.fixture
def copied(catalog: Any, table: Table) -> Table:
    """A copy as ``rewrite_table_path`` makes it: the same names, other paths in all metadata but statistics."""
    number = sum("db.moved" in ".".join(name) for name in catalog.list_tables("db"))
    old, new = table.location(), table.location().replace("moving", f"moved{number}")
    shutil.copytree(local(old), local(new))
    for path in (local(new) / "metadata").iterdir():
        if path.suffix in (".avro", ".json"):  # strings of one length: nothing else changes
            path.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))
    metadata = f"{new}/metadata/{local(table.metadata_location).name}"
    made: Table = catalog.register_table(f"db.moved{number}", metadata)
    return made


def test_files_are_found_again_by_relative_path(copied: Table) -> None:
    assert "moved" in copied.metadata.statistics[0].statistics_path
    plan = sidecar.plan(copied, "k = 41")
    assert (plan.files_total, plan.funnel.listed, plan.files_kept) == (3, 3, 0)
    (note,) = [note for note in plan.notes if "moving" in note]
    assert note.startswith("3 files were matched by their path within the table")
    assert sidecar.status(copied).files.to_dict() == {"live": 3, "listed": 3}
    assert sidecar.plan(copied, "k = 42").files_kept == 1


def test_verify_looks_their_values_up(copied: Table) -> None:
    found = sidecar.verify(copied, data=True)
    assert found.problems == []
    assert (found.looked_up.units, found.looked_up.values) == (3, 120)
    assert found.looked_up.files_not_indexed == 0
    for predicate in ("k = 42", "k > 70 and k < 80"):
        assert sidecar.scan(copied, predicate) == copied.scan(predicate).to_arrow()
    copied.append(keys(3))  # and life goes on at the new place
    assert sidecar.plan(copied, "k = 41").files_kept == 1
    sidecar.build(copied, ["k"], engine="local")
    copied.refresh()
    assert sidecar.plan(copied, "k = 41").files_kept == 0


def test_a_refresh_loses_nothing_that_is_found_by_relative_path(copied: Table) -> None:
    """A merge lists files under the paths of today. Once it took all files for gone, and lost every index."""
    assert sidecar.refresh(copied, engine="local").action == "current"
    assert sidecar.plan(copied.refresh(), "k = 41").files_kept == 0
    copied.append(keys(3))
    assert [sidecar.refresh(copied, engine="local").action for _ in range(2)] == ["written", "current"]
    assert sidecar.plan(copied.refresh(), "k = 41").files_kept == 0


def test_another_file_at_the_same_relative_path_is_not_taken_for_it(catalog: Any, copied: Table) -> None:
    """A file comes later to a name that was indexed at the old place, with the same size and rows."""
    listed = list_snapshot(copied).files[0]
    place, size, rows = listed.path, listed.file_size, listed.record_count
    other = pa.table({"k": pa.array([k + 1 for k in pq.read_table(local(place))["k"].to_pylist()], pa.int64())})
    source = create_with_rows(catalog, f"db.other_{copied.name()[1]}", [other], **PLAIN)
    copied.delete("k >= 0")
    shutil.copy(local(list_snapshot(source).files[0].path), local(place))
    copied.add_files([place])
    (added,) = list_snapshot(copied).files
    assert (added.path, added.file_size, added.record_count) == (place, size, rows)
    plan = sidecar.plan(copied, f"k = {other['k'][7]}")
    assert plan.files_kept == 1
    assert plan.to_arrow().num_rows == 1
    assert not any("matched" in note for note in plan.notes)

    found = open_sidecar(copied)
    moved = SidecarFiles(found.segments, copied.location())
    then = listed.known_as
    assert len(moved.earlier(then)) == 1
    assert len(moved.earlier(then._replace(file_sequence_number=0))) == 1
    for other in (
        added.known_as,
        then._replace(added_snapshot_id=added.known_as.added_snapshot_id),
        then._replace(added_snapshot_id=None),
        then._replace(file_size=size + 1),
        then._replace(record_count=rows + 1),
        then._replace(path=f"{copied.location()}/other{place.removeprefix(copied.location())}"),
    ):
        assert moved.earlier(other) == []
    sequence = then.file_sequence_number  # 0 in format version 1, where it tells nothing
    younger = then._replace(file_sequence_number=sequence + 1)
    assert bool(moved.earlier(younger)) == (sequence == 0)
    found.close()


def test_a_place_may_be_spelt_in_several_ways(table: Table) -> None:
    assert {normal_path(path) for path in spellings("file:/a/b")} == {"file:///a/b"}
    assert set(spellings("/a/b")) == {"file:/a/b", "file:///a/b", "/a/b"}
    assert set(spellings("s3a://b/x")) == {"s3://b/x", "s3a://b/x", "s3n://b/x"}
    assert spellings("gs://b/x") == ("gs://b/x",)
    assert (normal_path("s3n://b/x"), normal_path("gs://b/x")) == ("s3://b/x", "gs://b/x")
    found = open_sidecar(table)
    (file, *_) = list_snapshot(table).files
    for location in ("file:///", "file:/", "/"):
        moved = SidecarFiles(found.segments, location + table.location().removeprefix("file:/"))
        for beginning in ("file:///", "file:/", "/"):
            path = beginning + file.path.removeprefix("file:/")
            assert moved.find(file.known_as._replace(path=path)) == [file.ordinal]
    found.close()


def test_two_spellings_that_are_two_files_decide_nothing() -> None:
    """A file is looked up in a segment that lists two files under spellings of its path."""
    listed = {"/t/data/a": 0, "file:/t/data/a": 1, "/t/data/b": 2}

    class Listing:
        listed_manifests: ClassVar[list[Any]] = []
        first_file = 0

        def file_ordinal(self, file: DataFileIdentity) -> int | None:
            return listed.get(file.path)

    found = SidecarFiles(cast("Any", [Listing()]), "file:/t")
    assert found.find(DataFileIdentity("file:///t/data/a", 9, 9, 1, 1)) == []
    assert found.find(DataFileIdentity("file:///t/data/b", 9, 9, 1, 1)) == [2]


def test_a_sidecar_that_stayed_behind_is_told(copied: Table) -> None:
    (entry,) = copied.metadata.statistics
    local(entry.statistics_path).unlink()
    left = entry.model_copy(update={"statistics_path": "file:/old/place/metadata/1.stats"})
    stayed = copied.metadata.model_copy(update={"statistics": [left]})
    table = Table(copied.name(), stayed, copied.metadata_location, copied.io, copied.catalog)
    plan = sidecar.plan(table, "k = 41")
    assert plan.files_kept == 3
    assert any("it may have been moved without this file" in warning for warning in plan.warnings)
    assert sidecar.repair(table, dry_run=True).repairs[0].reasons == ["the file is gone"]
