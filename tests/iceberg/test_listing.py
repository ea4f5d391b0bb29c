"""What a snapshot holds: files in manifest order, partitions and bounds as the manifests have them."""

from __future__ import annotations

import datetime
import gc
import shutil
from decimal import Decimal
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.typedef import Record

import sidecar
from sidecar.bundle.model import FieldBounds
from sidecar.errors import DamagedFileError, UsageError
from sidecar.iceberg import listing as listing_module
from sidecar.iceberg.listing import READERS, list_snapshot, readers_of
from sidecar.iceberg.manifests import entry_decoder
from sidecar.planning import planner
from tests.iceberg.cases import file_in_manifest
from tests.iceberg.mixed_tables import append_files
from tests.tables import create_with_rows, iceberg_schema

SCHEMA = iceberg_schema("id long, part string, day date, price decimal(9, 2), ts timestamp, ratio double")
SPEC = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "part"),
    PartitionField(3, 1001, IdentityTransform(), "day"),
    PartitionField(4, 1002, IdentityTransform(), "price"),
    PartitionField(6, 1003, IdentityTransform(), "ratio"),
)


def rows(part: str | None, n: int = 4) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(n), pa.int64()),
            "part": pa.array([part] * n, pa.string()),
            "day": pa.array([datetime.date(2024, 1, 2)] * n),
            "price": pa.array([Decimal("-1.50")] * n, pa.decimal128(9, 2)),
            "ts": pa.array([datetime.datetime(2024, 1, 2, 3)] * n, pa.timestamp("us")),
            "ratio": pa.array([0.5] * n),
        }
    )


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    table: Table = catalog.create_table("db.listing", SCHEMA, partition_spec=SPEC)
    for part in ("a", "b", None):
        table.append(rows(part))
    return table


def test_files_stand_in_manifest_order(table: Table) -> None:
    listing = list_snapshot(table)
    assert [f.path for f in listing.files] == [t.file.file_path for t in table.scan().plan_files()]
    assert [f.ordinal for f in listing.files] == [0, 1, 2]
    assert [m.listed.first_file for m in listing.manifests] == [0, 1, 2]
    assert [(m.listed.live_files, m.listed.live_rows) for m in listing.manifests] == [(1, 4)] * 3
    assert [f.manifest for f in listing.files] == [0, 1, 2]
    assert listing.sequence_number == 3
    assert [f.sequence_number for f in listing.files] == [3, 2, 1]
    assert listing.table_uuid == str(table.metadata.table_uuid)


def test_local_manifests_are_read_without_threads(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a store wait for it, local ones for the interpreter's lock."""
    monkeypatch.setattr(Thread, "start", lambda thread: pytest.fail(f"{thread.name} is started"))
    assert len(list_snapshot(table).manifests) > 1
    remote = SimpleNamespace(manifest_path="s3://lake/m.avro"), SimpleNamespace(manifest_path="s3://lake/n.avro")
    assert (readers_of(remote), readers_of([])) == (READERS, 1)


def test_python_does_not_search_for_cycles_while_files_are_listed(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take half of the time in a table of 100,000 files."""
    searches: list[bool] = []
    kept = listing_module.SnapshotFile
    monkeypatch.setattr(
        listing_module, "SnapshotFile", lambda *args, **facts: searches.append(gc.isenabled()) or kept(*args, **facts)
    )
    assert len(list_snapshot(table).files) == 3
    assert (searches, gc.isenabled()) == ([False] * 3, True)


def test_an_entry_is_listed_as_its_manifest_has_it(table: Table) -> None:
    listing = list_snapshot(table)
    for file in listing.files:
        manifest = listing.manifests[file.manifest]
        entry = entry_decoder(manifest.avro_schema).decode(file.raw_entry, manifest.line)
        assert entry.data_file.file_path == file.path
        assert (entry.data_file.record_count, entry.data_file.file_size_in_bytes) == (4, file.file_size)
        assert entry.sequence_number == file.sequence_number


def test_partition_values_are_single_value_bytes_in_the_specs_order(table: Table) -> None:
    day = (datetime.date(2024, 1, 2) - datetime.date(1970, 1, 1)).days
    price, ratio = (-150).to_bytes(2, "big", signed=True), b"\0\0\0\0\0\0\xe0\x3f"
    assert {f.partition for f in list_snapshot(table).files} == {
        (part, day.to_bytes(4, "little"), price, ratio) for part in (b"a", b"b", None)
    }


def test_bounds_and_counts_are_those_of_the_entry(table: Table) -> None:
    by_part = {file.partition[0]: file for file in list_snapshot(table).files}
    assert by_part[b"a"].bounds[1] == FieldBounds(bytes(8), (3).to_bytes(8, "little"), 4, 0, None)
    assert by_part[b"a"].bounds[2] == FieldBounds(b"a", b"a", 4, 0, None)
    assert by_part[None].bounds[2] == FieldBounds(None, None, 4, 4, None)


def test_identity_partitions_are_proven_by_bounds_and_never_for_floats(table: Table) -> None:
    for file in list_snapshot(table).files:
        assert file.identity == {2: True, 3: True, 4: True, 6: False}


def test_stored_values_that_contradict_the_partition_are_not_proven(catalog: Any) -> None:
    """A long string: the bounds are cut, so that they do not prove what the file holds."""
    table = catalog.create_table(
        "db.listing_long",
        SCHEMA,
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p")),
    )
    table.append(rows("x" * 40))
    (file,) = list_snapshot(table).files
    assert (file.partition, file.identity) == ((b"x" * 40,), {2: False})


def test_stored_nulls_contradict_the_partition(catalog: Any, tmp_path: Path) -> None:
    """``add_files`` takes the one value between the bounds for the partition's and does not look at nulls."""
    table = catalog.create_table(
        "db.listing_nulls",
        SCHEMA,
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p")),
    )
    for name, values in {"same": ["a", "a"], "nulls": ["a", None]}.items():
        pq.write_table(pa.table({"part": values}), tmp_path / f"{name}.parquet")
        table.add_files([f"file:{tmp_path}/{name}.parquet"])
    nulls, same = list_snapshot(table).files
    assert nulls.partition == same.partition == (b"a",)
    assert nulls.bounds[2] == FieldBounds(b"a", b"a", 2, 1, None)
    assert (nulls.identity, same.identity) == ({2: False}, {2: True})


@pytest.mark.parametrize("parts", [("a", "a"), ("a", "b"), ("b", "a")])
def test_of_two_partition_fields_of_one_column_both_must_be_the_stored_value(
    catalog: Any, parts: tuple[str, str]
) -> None:
    fields = (PartitionField(2, 1000 + n, IdentityTransform(), f"p{n}") for n in range(2))
    table = catalog.create_table(f"db.listing_twice_{'_'.join(parts)}", SCHEMA, partition_spec=PartitionSpec(*fields))
    file = file_in_manifest(
        f"{table.location()}/data/x.parquet",
        4,
        100,
        partition=Record(*parts),
        value_counts={2: 4},
        null_value_counts={2: 0},
        lower_bounds={2: b"a"},
        upper_bounds={2: b"a"},
    )
    append_files(table, [file])
    (listed,) = list_snapshot(table).files
    assert listed.partition == tuple(part.encode() for part in parts)
    assert listed.identity == {2: parts == ("a", "a")}


def test_an_older_snapshot_is_listed_as_it_was(table: Table) -> None:
    first = table.metadata.snapshots[0].snapshot_id
    listing = list_snapshot(table, first)
    assert (listing.snapshot_id, len(listing.files)) == (first, 1)


def test_deleted_files_are_not_listed(catalog: Any) -> None:
    table = catalog.create_table("db.listing_deleted", SCHEMA, partition_spec=SPEC)
    table.append(pa.concat_tables([rows("a"), rows("b")]))
    table.delete("part == 'a'")
    assert [f.partition[0] for f in list_snapshot(table).files] == [b"b"]


def test_a_changed_spec_gives_each_file_its_own_partition(catalog: Any) -> None:
    table = catalog.create_table("db.listing_evolved", SCHEMA, partition_spec=SPEC)
    table.append(rows("a"))
    with table.update_spec() as spec:
        spec.remove_field("part")
        spec.remove_field("ratio")
        spec.add_identity("id")
    table.append(rows("a", 1))
    new, old = list_snapshot(table).files
    assert (old.spec_id, new.spec_id) == (0, 1)
    assert len(old.partition) == 4
    assert new.partition == (*old.partition[1:3], bytes(8))
    assert new.identity == {3: True, 4: True, 1: True}


def test_version_1_tables_are_listed(catalog: Any) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    table = catalog.create_table("db.listing_v1", SCHEMA, partition_spec=spec, properties={"format-version": "1"})
    table.append(rows("a"))
    with table.update_spec() as update:
        update.remove_field("p")
    table.append(rows("b"))
    listing = list_snapshot(table)
    assert listing.sequence_number == 0
    assert [f.sequence_number for f in listing.files] == [0, 0]
    new, old = listing.files
    assert isinstance(table.spec().fields[0].transform, VoidTransform)
    assert (old.partition, old.identity) == ((b"a",), {2: True})
    assert (new.partition, new.identity) == ((None,), {})


def test_other_formats_are_listed_with_a_reason(table: Table, monkeypatch: Any) -> None:
    real = listing_module.read_manifest

    def as_avro(io: Any, manifest: Any, version: Any) -> Any:
        contents = real(io, manifest, version)
        for entry in contents.entries:
            entry.entry.data_file._data[2] = FileFormat.AVRO
        return contents

    assert {f.not_indexable for f in list_snapshot(table).files} == {None}
    monkeypatch.setattr(listing_module, "read_manifest", as_avro)
    assert {f.not_indexable for f in list_snapshot(table).files} == {"files in AVRO are not indexed"}


def test_a_damaged_manifest_is_named(catalog: Any) -> None:
    table = create_with_rows(catalog, "db.listing_damaged", map(rows, "ab"), SCHEMA)
    path = list_snapshot(table).manifests[1].listed.path
    local = Path(path.removeprefix("file:"))
    data = local.read_bytes()
    header_only = data[: data.index(data[-16:]) + 16]
    for broken in (data[:-1], b"", header_only):
        local.write_bytes(broken)
        with pytest.raises(DamagedFileError) as caught:
            list_snapshot(table)
        assert caught.value.file == path


def test_a_manifest_may_have_more_files_than_its_list_says(catalog: Any, monkeypatch: Any) -> None:
    """No plan takes it for the manifest that a sidecar lists: its files are found one by one."""
    table = create_with_rows(catalog, "db.listing_more", map(rows, "ab"), SCHEMA)
    real = listing_module.read_manifests

    def with_lower_counts(*given: Any) -> Any:
        lines = real(*given)
        for line in lines:
            line._data[7] = 0
            assert line.added_files_count == 0
        return lines

    for module in (listing_module, planner):
        monkeypatch.setattr(module, "read_manifests", with_lower_counts)
    assert len(list_snapshot(table).files) == 2
    sidecar.build(table, ["part"], engine="local")
    planned = sidecar.plan(table.refresh(), "part = 'a' and id >= 0")
    assert (planned.manifests.opened, planned.files_kept, planned.funnel.listed) == (2, 1, 1)
    assert planned.to_arrow().num_rows == 4


def test_a_whole_manifest_may_have_fewer_files_than_its_list_says(
    catalog: Any, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A writer that counts wrongly is a warning: the manifest has the length that the list tells."""
    table = create_with_rows(catalog, "db.listing_fewer", map(rows, "ab"), SCHEMA)
    real = listing_module.read_manifests

    def with_higher_counts(*given: Any) -> Any:
        lines = real(*given)
        for line in lines:
            line._data[7], line._data[9] = 5, 3  # added and deleted files
        return lines

    for module in (listing_module, planner):
        monkeypatch.setattr(module, "read_manifests", with_higher_counts)
    sidecar.build(table, ["part"], engine="local")
    assert sidecar.status(table.refresh()).waiting.files == 0
    assert sidecar.advise(table, ["part"]).files == 2
    planned = sidecar.plan(table, "part = 'a' and id >= 0")
    assert (planned.files_kept, planned.to_arrow().num_rows) == (1, 4)
    assert sidecar.find(table, {"part": ["a"]}).answer == "found"
    assert "the manifest list tells of 5 files in the manifest, and it has 1, which is whole" in caplog.text


def test_a_missing_snapshot_is_wrong_usage(table: Table, catalog: Any) -> None:
    with pytest.raises(UsageError, match=r"'db\.listing' has no snapshot 5"):
        list_snapshot(table, 5)
    with pytest.raises(UsageError, match="has no snapshot yet"):
        list_snapshot(catalog.create_table("db.listing_empty", SCHEMA))


@pytest.mark.jvm
def test_a_hive_import_lists_the_partition_that_no_file_stores(spark: Any, catalog: Any, tmp_path: Path) -> None:
    for part in ("a", "b"):
        (tmp_path / f"part={part}").mkdir()
        pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), tmp_path / f"part={part}" / "x.parquet")
    spark.sql("CREATE TABLE cat.db.listing_hive (id BIGINT, part STRING) USING iceberg PARTITIONED BY (part)")
    spark.sql(f"CALL cat.system.add_files('db.listing_hive', '`parquet`.`{tmp_path}`')")
    files = list_snapshot(catalog.load_table("db.listing_hive")).files
    assert {f.partition for f in files} == {(b"a",), (b"b",)}
    assert [f.identity for f in files] == [{2: False}] * 2
    shutil.rmtree(tmp_path)


@pytest.mark.jvm
def test_deletes_of_spark_are_counted_not_listed(spark: Any, catalog: Any) -> None:
    spark.sql(
        "CREATE TABLE cat.db.listing_deletes USING iceberg TBLPROPERTIES "
        "('format-version'='2', 'write.delete.mode'='merge-on-read') AS SELECT id FROM range(100)"
    )
    before = list_snapshot(catalog.load_table("db.listing_deletes"))
    spark.sql("DELETE FROM cat.db.listing_deletes WHERE id = 7")
    after = list_snapshot(catalog.load_table("db.listing_deletes"))
    assert [f.path for f in after.files] == [f.path for f in before.files]
    assert (before.delete_manifests, before.delete_files) == (0, 0)
    assert after.delete_manifests == 1
    assert after.delete_files >= 1


@pytest.mark.parametrize(("values", "nulls"), [(None, None), (4, None), (None, 4), (4, 3)])
def test_only_counts_prove_that_a_column_holds_nulls_alone(values: int | None, nulls: int | None) -> None:
    """An entry without counts says nothing of a file's rows, whatever its partition is."""
    assert not listing_module._holds_only(FieldBounds(None, None, values, nulls, None), None)
    assert listing_module._holds_only(FieldBounds(None, None, 4, 4, None), None)
