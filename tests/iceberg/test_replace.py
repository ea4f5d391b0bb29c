"""Which files have deletes, names of new files, and the private API that a replace is written with."""

from __future__ import annotations

import inspect
import random
from dataclasses import replace as changed
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg
import pytest
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    UNASSIGNED_SEQ,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriter,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation, Summary, update_snapshot_summaries
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, LongType, NestedField

from sidecar.access import Access
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.errors import CommitConflictError
from sidecar.iceberg import snapshot_producer
from sidecar.iceberg.deletes.delete_index import (
    EQUALITY,
    POSITION,
    DeleteIndex,
    _add,
    _Delete,
    _named,
    _partition_key,
)
from sidecar.iceberg.listing import Listing, list_snapshot
from sidecar.iceberg.replace import NewPaths, _rebase, commit_replace, find_replaceable
from sidecar.iceberg.snapshot_producer import _FIELDS, NewFile
from tests.iceberg.cases import delete_by_equality, file_in_manifest, local

ARROW = pa.schema([("k", pa.int64())])


@pytest.fixture
def table(catalog: Any) -> Table:
    made: Table = catalog.create_table(f"db.replace{random.getrandbits(60)}", ARROW)
    made.append(pa.table({"k": [1, 2, 3]}, schema=ARROW))
    return made


@pytest.fixture
def listing(table: Table) -> Listing:
    return list_snapshot(table)


def reason(listing: Listing, index: DeleteIndex, **differs: Any) -> str | None:
    (file,), (manifest,) = listing.files, listing.manifests
    return index.reason(changed(file, **differs), manifest)


def position(sequence: int, lower: bytes | None = None, upper: bytes | None = None) -> DeleteIndex:
    return DeleteIndex(everywhere=[_Delete(sequence, False, lower, upper)])


@pytest.mark.parametrize(("data", "applies"), [(4, True), (5, True), (6, False)])
def test_position_deletes_apply_to_files_that_are_not_newer(listing: Listing, data: int, applies: bool) -> None:
    expected = POSITION if applies else None
    assert reason(listing, position(5), sequence_number=data) == expected
    named = DeleteIndex(by_path={listing.files[0].path: 5})
    assert reason(listing, named, sequence_number=data) == expected


@pytest.mark.parametrize(("data", "applies"), [(4, True), (5, False), (6, False)])
def test_equality_deletes_apply_to_files_that_are_older(listing: Listing, data: int, applies: bool) -> None:
    index = DeleteIndex(everywhere=[_Delete(5, True, None, None)])
    assert reason(listing, index, sequence_number=data) == (EQUALITY if applies else None)


def test_bounds_of_paths_narrow_position_deletes(listing: Listing) -> None:
    path = listing.files[0].path.encode()
    assert reason(listing, position(5, path, path)) == POSITION
    assert reason(listing, position(5, b"a", b"zzz")) == POSITION
    assert reason(listing, position(5, path + b"0", b"zzz")) is None
    assert reason(listing, position(5, path[:20], path[:-1] + b"!")) is None
    # cut, and not rounded up; the lower bound shuts out the path's other spellings, which sort below
    assert reason(listing, position(5, path[:9], path[:9])) == POSITION
    assert reason(listing, position(5, path[:9], path[:-1])) == POSITION


def test_deletes_of_another_partition_or_spec_do_not_apply(listing: Listing) -> None:
    delete = [_Delete(5, False, None, None)]
    assert reason(listing, DeleteIndex(by_partition={(0, ()): delete})) == POSITION
    assert reason(listing, DeleteIndex(by_partition={(1, ()): delete})) is None
    assert reason(listing, DeleteIndex(by_partition={(0, ((1000, "a"),)): delete})) is None


def test_a_path_in_another_spelling_counts_as_the_same(listing: Listing) -> None:
    path = listing.files[0].path
    assert path.startswith("file:/")
    for spelt in (path, path.replace("file:/", "file:///", 1), path.removeprefix("file:")):
        assert reason(listing, DeleteIndex(by_path={spelt: 5})) == POSITION
    assert reason(listing, DeleteIndex(by_path={path + "x": 5})) is None


@pytest.mark.parametrize(
    "differs",
    [
        {"spec_id": 1},
        {"partition": (b"a",)},
        {"sequence_number": 7},
        {"file_size": 1},
        {"record_count": 4},
        {"added_snapshot_id": 7},
        {"added_snapshot_id": None},
        {"file_sequence_number": 7},
    ],
    ids=repr,
)
def test_a_commit_is_given_up_if_a_replaced_file_is_not_what_it_was(
    table: Table, listing: Listing, differs: dict[str, Any]
) -> None:
    """Another commit came between, and its manifests say something else of the file."""
    table.append(pa.table({"k": [7]}, schema=ARROW))
    (file,) = listing.files
    new_files = {file.path: NewFile(NewPaths.of(table).path_for(file.path), 1, None)}
    parent, current = _rebase(table, listing, {file.path: file}, new_files)
    assert (parent.snapshot_id, len(current.files)) == (table.metadata.current_snapshot_id, 2)
    parts = {name: value for name, value in differs.items() if name in DataFileIdentity._fields}
    was = changed(file, **({"known_as": file.known_as._replace(**parts)} if parts else differs))
    with pytest.raises(CommitConflictError, match="added the file again"):
        _rebase(table, listing, {file.path: was}, new_files)


def position_deletes(table: Table, path: str, deletes: pa.Table) -> DataFile:
    """The manifest's view of a position delete file without bounds."""
    with table.io.new_output(path).create() as stream:
        pq.write_table(deletes, stream)
    return file_in_manifest(
        path, deletes.num_rows, len(table.io.new_input(path)), content=DataFileContent.POSITION_DELETES
    )


def test_the_paths_that_position_deletes_name_are_read_or_unknown(table: Table) -> None:
    deletes = pa.table({"file_path": ["a", "b", "a"], "pos": pa.array([1, 2, 3], pa.int64())})
    path = f"{table.location()}/data/deletes"
    good = position_deletes(table, f"{path}-1.parquet", deletes)
    assert _named(Access(table.io), good) == {"a", "b"}
    good[_FIELDS["record_count"]] = 4
    assert _named(Access(table.io), good) is None
    missing = position_deletes(table, f"{path}-2.parquet", deletes)
    table.io.delete(missing.file_path)
    assert _named(Access(table.io), missing) is None
    other = position_deletes(table, f"{path}-3.parquet", deletes.rename_columns(["path", "pos"]))
    assert _named(Access(table.io), other) is None
    torn = position_deletes(table, f"{path}-4.parquet", deletes)
    local(torn.file_path).write_bytes(local(torn.file_path).read_bytes()[5:])
    assert _named(Access(table.io), torn) is None
    avro = position_deletes(table, f"{path}-5.parquet", deletes)
    avro[_FIELDS["file_format"]] = FileFormat.AVRO
    assert _named(Access(table.io), avro) is None
    equality = position_deletes(table, f"{path}-6.parquet", deletes)
    equality[_FIELDS["content"]] = DataFileContent.EQUALITY_DELETES
    assert _named(Access(table.io), equality) is None


@pytest.mark.parametrize("numbers", [(3, 7, 5), (7, 3, 5), (5, 3, 7)])
def test_of_several_position_deletes_of_a_file_the_newest_counts(
    table: Table, listing: Listing, numbers: tuple[int, ...]
) -> None:
    path = listing.files[0].path
    written = position_deletes(table, f"{table.location()}/data/d.parquet", pa.table({"file_path": [path]}))
    index = DeleteIndex()
    for number in numbers:
        entry = ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED, snapshot_id=1, sequence_number=number, data_file=written
        )
        _add(index, entry, (), frozenset([path]))
    assert index.by_path == {path: 7}
    assert reason(listing, index, sequence_number=7) == POSITION
    assert reason(listing, index, sequence_number=8) is None


def test_partitions_are_equal_in_whatever_order_a_manifest_has_their_fields() -> None:
    one, two = NestedField(1000, "a", LongType()), NestedField(1001, "b", DoubleType())
    there = DataFile.from_args(partition=Record(4, float("nan")))
    back = DataFile.from_args(partition=Record(float("nan"), 4))
    assert _partition_key(0, there, (one, two)) == _partition_key(0, back, (two, one))
    assert _partition_key(0, there, (one, two)) != _partition_key(1, there, (one, two))
    swapped = DataFile.from_args(partition=Record(float("nan"), 4))
    assert _partition_key(0, there, (one, two)) != _partition_key(0, swapped, (one, two))


def test_files_older_than_an_equality_delete_are_left_alone(table: Table) -> None:
    table.append(pa.table({"k": [4, 5]}, schema=ARROW))
    delete_by_equality(table, pa.table({"k": [2]}, schema=ARROW), [1])
    table.refresh()
    table.append(pa.table({"k": [6]}, schema=ARROW))
    found = find_replaceable(table)
    assert [reason for _, reason in found.left_alone] == [EQUALITY, EQUALITY]
    assert [file.sequence_number for file in found.files] == [4]


def test_a_manifest_of_files_that_stay_goes_on_living(catalog: Any) -> None:
    """Two replaces of one file: the other file of its manifest keeps who added it, and its rows."""
    properties = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
    table: Table = catalog.create_table(f"db.stays{random.getrandbits(60)}", ARROW, properties=properties)
    table.append(pa.table({"k": [1, 2]}, schema=ARROW))
    table.append(pa.table({"k": [3, 4]}, schema=ARROW))
    before = {entry["data_file"]["file_path"]: entry for entry in table.inspect.entries().to_pylist()}
    listing = list_snapshot(table)
    assert len(listing.manifests) == 1
    first, stays = (file.path for file in listing.files)
    for _ in range(2):
        path = NewPaths.of(table).path_for(first)
        local(path).write_bytes(local(first).read_bytes())
        commit_replace(table, list_snapshot(table), {first: NewFile(path, local(path).stat().st_size, None)})
        table.refresh()
        first = path
    assert sorted(table.scan().to_arrow()["k"].to_pylist()) == [1, 2, 3, 4]
    (entry,) = [e for e in table.inspect.entries().to_pylist() if e["data_file"]["file_path"] == stays]
    for name in ("snapshot_id", "sequence_number", "file_sequence_number"):
        assert entry[name] == before[stays][name]


def test_a_file_that_is_listed_twice_is_left_alone(table: Table, tmp_path: Any) -> None:
    pq.write_table(pa.table({"k": [7]}, schema=ARROW), tmp_path / "a.parquet")
    for _ in range(2):
        table.add_files([f"file:{tmp_path}/a.parquet"], check_duplicate_files=False)
    found = find_replaceable(table)
    assert len(found.files) == 1
    assert [reason for _, reason in found.left_alone] == ["the snapshot lists it more than once"] * 2


@pytest.mark.parametrize(
    ("name", "stem", "ending"),
    [
        ("a.parquet", "a-sidecar-", ".parquet"),
        ("a.zstd.parquet", "a.zstd-sidecar-", ".parquet"),
        ("a", "a-sidecar-", ".parquet"),
        ("x" * 250 + ".parquet", "x" * 147 + "-sidecar-", ".parquet"),
        ("ü" * 120 + ".parquet", "ü" * 73 + "-sidecar-", ".parquet"),
        ("a." + "x" * 240, "a." + "x" * 145 + "-sidecar-", ".parquet"),
    ],
)
def test_names_of_new_files(table: Table, name: str, stem: str, ending: str) -> None:
    folder = f"{table.location()}/data/p=1"
    first = NewPaths.of(table).path_for(f"{folder}/{name}")
    again = NewPaths.of(table).path_for(first)
    for path in (first, again):
        assert path.startswith(f"{folder}/{stem}")
        assert path.endswith(ending)
        assert len(path) == len(f"{folder}/{stem}{ending}") + 36
    assert first != again
    spelt = f"{folder}/{name}".replace("file:/", "file:///", 1)
    assert NewPaths.of(table).path_for(spelt).startswith(spelt.removesuffix(name) + stem)
    elsewhere = NewPaths.of(table).path_for(f"{table.location()}x/{name}")
    assert elsewhere.startswith(f"{table.location()}/data/{stem}")


def test_the_private_api_is_the_one_this_was_written_for() -> None:
    """Fails when pyiceberg changes what snapshot_producer.py relies on: read its notes again, then adapt it."""
    assert pyiceberg.__version__.startswith("0.12."), "pyproject.toml pins pyiceberg below 0.13"
    assert not hasattr(pyiceberg.table.update.snapshot.UpdateSnapshot, "replace"), "there is a replace now: use it"
    assert list(inspect.signature(Transaction._apply).parameters) == ["self", "updates", "requirements"]
    retry = inspect.getsource(Transaction.commit_transaction)
    assert "not self._snapshot_producers" in retry  # without one, a conflict is raised at once
    parameters = ["spec", "schema", "output_file", "snapshot_id", "avro_compression"]
    writer = inspect.signature(snapshot_producer.write_manifest).parameters
    assert list(writer) == ["format_version", *parameters]
    assert list(inspect.signature(snapshot_producer.write_manifest_list).parameters) == [
        "format_version",
        "output_file",
        "snapshot_id",
        "parent_snapshot_id",
        "sequence_number",
        "avro_compression",
    ]
    # the only places where a manifest's writer asks for the types of partition values
    for place in (ManifestWriter._with_partition, pyiceberg.manifest.construct_partition_summaries):
        assert ".partition_type(" in inspect.getsource(place)
    assert list(inspect.signature(PartitionSpec.partition_type).parameters) == ["self", "schema"]
    added = inspect.getsource(ManifestWriter.add)
    assert "sequence_number=entry.sequence_number if entry.sequence_number != UNASSIGNED_SEQ else None" in added
    assert "file_sequence_number" not in added  # so that it is inherited
    assert UNASSIGNED_SEQ == -1
    # what theirs does with added files is why there is a producer of our own
    assert "spec=self._transaction.table_metadata.spec()" in inspect.getsource(_SnapshotProducer._manifests)
    with pytest.raises(ValueError, match="Operation not implemented"):
        update_snapshot_summaries(Summary(Operation.REPLACE))


def test_the_fields_of_a_data_file_stand_where_they_are_copied_from() -> None:
    """Every field of a version-2 entry is copied by position."""
    names = [part.name for part in DATA_FILE_TYPE[2].fields]
    file = DataFile(*range(len(names)))
    file.spec_id = 3
    file[names.index("partition")] = Record("a", "b")
    copied = snapshot_producer._copy(file, [1, 0])
    assert [copied[place] for place in range(len(names)) if names[place] != "partition"] == [
        place for place in range(len(names)) if names[place] != "partition"
    ]
    assert copied.partition == Record("b", "a")
    assert copied.spec_id == 3
    assert file.partition == Record("a", "b")
    assert (DataFile.file_path.fget(file), file.file_size_in_bytes, file.split_offsets) == tuple(  # type: ignore[attr-defined]
        names.index(name) for name in ("file_path", "file_size_in_bytes", "split_offsets")
    )
    assert DataFileContent.DATA == 0
