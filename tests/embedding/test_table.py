"""Embedding into tables: the same rows in the same order for every engine, one ``replace`` commit, all or nothing."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.types import DateType, FloatType, LongType, NestedField, StringType, UUIDType

import sidecar
from sidecar.embedding import rewritten_files
from sidecar.embedding.rewritten_files import NOTHING_NEW
from sidecar.embedding.table import embed_table
from sidecar.errors import (
    CommitConflictError,
    StorageError,
    UnsupportedFeatureError,
    UsageError,
)
from sidecar.iceberg import replace
from sidecar.iceberg.deletes import POSITION
from sidecar.iceberg.replace import CommitUnknownError
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.footer import read_footer
from sidecar.source import LocalSource, local_path

ARROW = pa.schema([("k", pa.int64()), ("s", pa.string())])
FILES, ROWS = 4, 300
_names = itertools.count()


def rows(part: int) -> pa.Table:
    numbers = [(part + FILES * row) * 7919 % 100_003 for row in range(ROWS)]
    return pa.table({"k": numbers, "s": [f"text {n}" for n in numbers]}, schema=ARROW)


def create(catalog: Any, files: int = FILES, **properties: str) -> Table:
    table: Table = catalog.create_table(f"db.embed{next(_names)}", ARROW, properties=properties)
    for part in range(files):
        table.append(rows(part))
    return table


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replace, "FIRST_PAUSE", 0.0)


@pytest.fixture
def table(catalog: Any) -> Table:
    return create(catalog)


def on_disk(table: Table, ending: str = ".parquet") -> set[Path]:
    return {p for p in Path(local_path(table.location()) or "").rglob(f"*{ending}") if p.is_file()}


def data_files(table: Table) -> list[DataFile]:
    """In the order of partition and first value, which a path does not change."""
    files = [task.file for task in table.scan().plan_files()]
    return sorted(files, key=lambda f: (repr(f.partition), repr(sorted((f.lower_bounds or {}).items()))))


def contents(file: DataFile) -> pa.Table:
    return pq.ParquetFile(local_path(file.file_path)).read()


def filters_of(file: DataFile) -> set[str]:
    source = LocalSource(local_path(file.file_path) or "")
    footer = read_footer(source)
    assert footer.row_groups
    return {
        chunk.leaf.path
        for group in footer.row_groups
        for chunk in group.columns
        if read_bloom_filter(source, chunk) is not None
    }


def facts(file: DataFile) -> dict[str, Any]:
    """What a replace must not change of a manifest entry."""
    names = (
        "content file_format partition record_count column_sizes value_counts null_value_counts nan_value_counts "
        "lower_bounds upper_bounds key_metadata equality_ids sort_order_id spec_id"
    )
    return {name: getattr(file, name) for name in names.split()}


def entries(table: Table) -> list[dict[str, Any]]:
    return table.inspect.entries().to_pylist()


def embed(table: Table, **options: Any) -> Any:
    return embed_table(table, **{"bloom": ["k", "s"], "even_if_dictionary": True, **options})


def test_every_file_is_replaced_by_one_with_the_same_rows_in_one_commit(table: Table) -> None:
    before, old = data_files(table), table.current_snapshot()
    assert old is not None
    whole, numbers = table.scan().to_arrow().sort_by("k"), sequence_numbers(table)
    report = embed(table, page_index=True)
    after, new = data_files(table), table.current_snapshot()
    assert new is not None
    assert new.snapshot_id == report.snapshot_id
    assert new.parent_snapshot_id == old.snapshot_id == report.parent_snapshot_id
    assert [s.snapshot_id for s in table.history()][-2:] == [old.snapshot_id, new.snapshot_id]
    assert table.scan().to_arrow().sort_by("k") == whole
    assert {f.file_path for f in after}.isdisjoint(f.file_path for f in before)
    for was, now in zip(before, after, strict=True):
        assert facts(now) == facts(was)
        assert now.split_offsets == was.split_offsets
        assert contents(now) == contents(was)
        assert now.file_size_in_bytes == Path(local_path(now.file_path) or "").stat().st_size
        assert Path(now.file_path).parent == Path(was.file_path).parent
        assert Path(now.file_path).name.startswith(f"{Path(was.file_path).stem}-sidecar-")
        assert filters_of(now) == {"k", "s"}
        assert not filters_of(was)
    assert sequence_numbers(table) == numbers
    assert table.scan(snapshot_id=old.snapshot_id).to_arrow().sort_by("k") == whole


def sequence_numbers(table: Table) -> dict[Any, int]:
    """Data sequence numbers by the files' bounds."""
    return {
        repr(sorted(e["readable_metrics"]["k"].items())): e["sequence_number"]
        for e in entries(table)
        if e["status"] != 2
    }


def test_entries_say_what_was_deleted_and_added(table: Table) -> None:
    before = {e["data_file"]["file_path"]: e for e in entries(table)}
    report = embed(table)
    rewritten_files = {file.old_path: file.new_path for file in report.replaced}
    snapshot = table.current_snapshot()
    assert snapshot is not None
    after = {e["data_file"]["file_path"]: e for e in entries(table)}
    assert len(after) == 2 * FILES
    for path, was in before.items():
        deleted, added = after[path], after[rewritten_files[path]]
        assert (deleted["status"], added["status"]) == (2, 1)
        assert deleted["snapshot_id"] == added["snapshot_id"] == snapshot.snapshot_id
        assert deleted["sequence_number"] == added["sequence_number"] == was["sequence_number"]
        assert deleted["file_sequence_number"] == was["file_sequence_number"]
        assert added["file_sequence_number"] == snapshot.sequence_number


def test_the_summary_says_replace_and_that_nothing_was_added_or_lost(table: Table) -> None:
    old = table.current_snapshot()
    sizes = sum(file.file_size_in_bytes for file in data_files(table))
    report = embed(table)
    new = table.current_snapshot()
    assert old is not None
    assert old.summary is not None
    assert new is not None
    assert new.summary is not None
    assert new.summary.operation == Operation.REPLACE
    found, count, size = new.summary.additional_properties, FILES, sum(f.new_size for f in report.replaced)
    assert found["total-records"] == old.summary["total-records"] == str(FILES * ROWS)
    assert found["added-records"] == found["deleted-records"] == str(FILES * ROWS)
    assert found["added-data-files"] == found["deleted-data-files"] == found["total-data-files"] == str(count)
    assert found["removed-files-size"] == str(sizes)
    assert found["added-files-size"] == found["total-files-size"] == str(size)
    assert table.inspect.files().num_rows == FILES
    assert table.inspect.history().num_rows == FILES + 1
    assert table.inspect.snapshots()["operation"].to_pylist() == ["append"] * FILES + ["replace"]


def test_commits_after_it_build_upon_it(table: Table) -> None:
    embed(table)
    table.append(rows(9))
    table.delete("k < 1000")
    expected = [r for part in (*range(FILES), 9) for r in rows(part).to_pylist() if r["k"] >= 1000]
    assert sorted(map(repr, table.scan().to_arrow().to_pylist())) == sorted(map(repr, expected))


def test_a_second_time_there_is_nothing_to_do_and_nothing_is_left(table: Table) -> None:
    embed(table)
    before, files, metadata = table.current_snapshot(), on_disk(table), table.metadata_location
    report = embed(table)
    assert report.snapshot_id is None
    assert not report.replaced
    assert {file.reason for file in report.left_alone} == {NOTHING_NEW}
    assert not report.damaged
    assert (table.refresh().current_snapshot(), table.metadata_location) == (before, metadata)
    assert on_disk(table) == files


def test_embedding_more_names_the_file_after_the_first(table: Table) -> None:
    stems = {Path(file.file_path).stem for file in data_files(table)}
    embed(table, bloom=["k"])
    embed(table, bloom=["s"])
    for file in data_files(table):
        name, mark, unique = Path(file.file_path).stem.partition("-sidecar-")
        assert name in stems
        assert mark
        assert uuid.UUID(unique)
        assert filters_of(file) == {"k", "s"}


def test_a_dry_run_changes_nothing(table: Table) -> None:
    before = on_disk(table), on_disk(table, ".avro"), table.metadata_location
    report = embed(table, dry_run=True)
    assert {f.old_path for f in report.replaced} == {f.file_path for f in data_files(table)}
    assert (on_disk(table), on_disk(table, ".avro"), table.refresh().metadata_location) == before
    assert report.to_dict()["files"] == {"total": FILES, "replaced": FILES, "left_alone": 0, "failed": 0}


@pytest.mark.parametrize("placement", ["end", "row-group"])
def test_split_offsets_follow_the_row_groups(catalog: Any, placement: str) -> None:
    table = create(catalog, files=2, **{"write.parquet.row-group-limit": "100"})
    embed(table, placement=placement)
    for file in data_files(table):
        footer = read_footer(LocalSource(local_path(file.file_path) or ""))
        assert len(footer.row_groups) == 3
        assert file.split_offsets == [group.columns[0].start for group in footer.row_groups]


def test_the_tables_sidecar_has_to_be_built_again(table: Table) -> None:
    sidecar.build(table, ["k"], engine="local")
    table.refresh()
    report = embed(table)
    assert report.stale_sidecar == table.metadata.statistics[0].statistics_path
    assert "build again" in report.warnings()[0]
    rebuilt = sidecar.build(table, ["k"], engine="local")
    assert rebuilt.columns[0].filters == {"harvested": FILES}


PARTITIONED = Schema(
    NestedField(1, "k", LongType()),
    NestedField(2, "s", StringType()),
    NestedField(3, "part", StringType()),
    NestedField(4, "day", DateType()),
    NestedField(5, "f", FloatType()),
    NestedField(6, "u", UUIDType()),
)


def partitioned_rows(part: int) -> pa.Table:
    numbers = range(part * 10, part * 10 + 10)
    days = pa.array([19_000 + n % 2 for n in numbers], pa.int32()).cast(pa.date32())
    return pa.table(
        {
            "k": pa.array(numbers, pa.int64()),
            "s": [f"text {n}" for n in numbers],
            "part": [None if n % 3 == 0 else f"p {n % 3}" for n in numbers],
            "day": days,
            "f": pa.array([2.5 if n % 2 else 1.5 for n in numbers], pa.float32()),
            "u": pa.array([uuid.UUID(int=n % 2).bytes for n in numbers], pa.binary(16)),
        }
    ).cast(
        pa.schema(
            [
                ("k", pa.int64()),
                ("s", pa.string()),
                ("part", pa.string()),
                ("day", pa.date32()),
                ("f", pa.float32()),
                ("u", pa.binary(16)),
            ]
        )
    )


@pytest.fixture
def evolved(catalog: Any) -> Table:
    """Three specs, one of whose source columns is dropped; nulls and bytes as partition values."""
    spec = PartitionSpec(
        PartitionField(3, 1000, IdentityTransform(), "part"),
        PartitionField(5, 1001, IdentityTransform(), "f"),
        PartitionField(6, 1002, IdentityTransform(), "u"),
    )
    table: Table = catalog.create_table(f"db.evolved{next(_names)}", PARTITIONED, partition_spec=spec)
    table.append(partitioned_rows(0))
    with table.update_spec() as update:
        update.remove_field("f")
        update.remove_field("u")
        update.add_field("day", IdentityTransform(), "day of")
    table.append(partitioned_rows(1))
    with table.update_spec() as update:
        update.remove_field("day of")
        update.add_field("s", IdentityTransform(), "s")
    table.append(partitioned_rows(2))
    with table.update_schema() as schema:
        schema.delete_column("f")
    return table


def test_partitions_and_specs_of_old_files_are_kept(evolved: Table) -> None:
    before, old = data_files(evolved), evolved.scan().to_arrow().sort_by("k")
    lines = {m.partition_spec_id: m.partitions for m in evolved.current_snapshot().manifests(evolved.io)}  # type: ignore[union-attr]
    report = embed(evolved, bloom=["k", "part"])
    after = data_files(evolved)
    assert len(report.replaced) == len(before)
    assert {file.spec_id for file in before} == {0, 1, 2}
    for was, now in zip(before, after, strict=True):
        assert facts(now) == facts(was)
        assert contents(now) == contents(was)
    assert evolved.scan().to_arrow().sort_by("k") == old
    for row_filter in ("part is null", "part = 'p 1'", "k = 17", "s = 'text 25'", "day = '2022-01-08'"):
        found = evolved.scan(row_filter=row_filter).to_arrow()
        assert found.num_rows == sum(matches(row_filter, row) for row in old.to_pylist())
    new_lines = {
        m.partition_spec_id: m.partitions
        for m in evolved.current_snapshot().manifests(evolved.io)
        if m.added_files_count  # type: ignore[union-attr]
    }
    assert new_lines == lines


def matches(row_filter: str, row: dict[str, Any]) -> bool:
    name, _, wanted = row_filter.partition(" is ") if " is " in row_filter else row_filter.partition(" = ")
    value = row[name]
    return value is None if wanted == "null" else str(value) == wanted.strip("'")


def test_a_table_upgraded_from_version_1_keeps_its_old_files(catalog: Any) -> None:
    table = create(catalog, files=2, **{"format-version": "1"})
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    table.append(rows(2))
    old = table.scan().to_arrow().sort_by("k")
    embed(table)
    assert sorted(sequence_numbers(table).values()) == [0, 0, 1]
    assert table.scan().to_arrow().sort_by("k") == old


def test_imported_files_are_not_written_beside_their_originals(catalog: Any, tmp_path: Path) -> None:
    pq.write_table(rows(0), tmp_path / "a.parquet")
    table = create(catalog, files=1)
    table.add_files([f"file:{tmp_path}/a.parquet"])
    old = table.scan().to_arrow().sort_by("k")
    embed(table)
    assert table.scan().to_arrow().sort_by("k") == old
    assert [p.name for p in tmp_path.iterdir()] == ["a.parquet"]
    assert all(f.file_path.startswith(f"{table.location()}/data/") for f in data_files(table))
    assert all(filters_of(f) == {"k", "s"} for f in data_files(table))


def test_a_column_that_a_file_lacks_is_reported(table: Table) -> None:
    with table.update_schema() as schema:
        schema.add_column("later", LongType())
    report = embed(table, bloom=["k", "later"])
    (reason,) = [c for c in report.indexes.values() if c.column == "later"]
    assert (reason.way, reason.reason, reason.count) == ("none", "column absent from the file", FILES)


def test_a_renamed_column_is_found_by_its_id(table: Table) -> None:
    with table.update_schema() as schema:
        schema.rename_column("k", "key")
    embed(table, bloom=["key"])
    assert all(filters_of(file) == {"k"} for file in data_files(table))


# --- refused or left alone ---------------------------------------------------------------------------------------


def test_version_1_is_refused_with_the_reason(catalog: Any) -> None:
    table = create(catalog, files=1, **{"format-version": "1"})
    with pytest.raises(
        UnsupportedFeatureError, match="format version 1: its manifests have no sequence numbers"
    ):
        embed(table)
    assert len(on_disk(table)) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bloom": []}, "nothing to embed"),
        ({"bloom": ["nosuch"]}, "no column 'nosuch'"),
        ({"ndv": {"nosuch": 1}}, "no column 'nosuch'"),
        ({"ndv": {"k": 0}}, "at least 1"),
        ({"fpp": 2.0}, "rate"),
        ({"placement": "middle"}, "placement"),
        ({"harvest": "some"}, "harvest"),
    ],
)
def test_wrong_usage_is_told_before_any_work(table: Table, options: dict[str, Any], message: str) -> None:
    files = on_disk(table)
    with pytest.raises(UsageError, match=message):
        embed(table, **options)
    assert on_disk(table) == files


def test_a_table_without_a_snapshot_is_wrong_usage(catalog: Any) -> None:
    with pytest.raises(UsageError, match="no snapshot"):
        embed(create(catalog, files=0))


def test_a_broken_file_is_left_alone_and_the_others_are_replaced(table: Table) -> None:
    broken = data_files(table)[1]
    path = Path(local_path(broken.file_path) or "")
    good = path.read_bytes()
    path.write_bytes(good[:-20] + bytes(16) + good[-4:])
    report = embed(table)
    assert [file.path for file in report.failed] == [broken.file_path]
    assert report.damaged
    assert len(report.replaced) == FILES - 1
    path.write_bytes(good)
    assert table.scan().to_arrow().num_rows == FILES * ROWS


def test_a_file_with_other_rows_than_its_entry_says_is_left_alone(table: Table) -> None:
    chosen = data_files(table)[0]
    path = Path(local_path(chosen.file_path) or "")
    pq.write_table(rows(0).slice(1), path)
    report = embed(table)
    (left,) = report.left_alone
    assert left.failed
    assert "than its manifest says" in left.reason


# --- other commits at the same time ------------------------------------------------------------------------------


def before_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> list[int]:
    """Run ``act`` with the number of the attempt when all is written and the commit is about to be sent."""
    attempts: list[int] = []
    commit = replace.ReplaceProducer.commit

    def acting(self: Any) -> None:
        attempts.append(len(attempts))
        act(attempts[-1])
        commit(self)

    monkeypatch.setattr(replace.ReplaceProducer, "commit", acting)
    return attempts


def other(catalog: Any, table: Table) -> Table:
    loaded: Table = catalog.load_table(table.name())
    return loaded


def once(act: Callable[[], Any]) -> Callable[[int], None]:
    return lambda attempt: act() if attempt == 0 else None


def test_a_concurrent_append_is_built_upon(
    table: Table, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = before_commit(monkeypatch, once(lambda: other(catalog, table).append(rows(9))))
    before = on_disk(table, ".avro")
    report = embed(table)
    assert report.attempts == len(attempts) == 2
    operations = table.inspect.snapshots()["operation"].to_pylist()
    assert operations == ["append"] * (FILES + 1) + ["replace"]
    expected = [row for part in (*range(FILES), 9) for row in rows(part).to_pylist()]
    assert sorted(map(repr, table.scan().to_arrow().to_pylist())) == sorted(map(repr, expected))
    assert len(report.replaced) == FILES
    # of the failed attempt nothing is left: two manifests a file and a list, and the append's two
    assert len(on_disk(table, ".avro") - before) == 2 * FILES + 1 + 2


def test_a_concurrent_change_of_other_files_is_built_upon(
    table: Table, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overwriting what was appended meanwhile leaves the replaced files alone."""

    def act() -> None:
        late = other(catalog, table)
        extra = pa.table({"k": [-1, -2], "s": ["a", "b"]}, schema=ARROW)
        late.append(extra)
        late.delete("k = -1")

    before_commit(monkeypatch, once(act))
    embed(table)
    assert table.scan().to_arrow().num_rows == FILES * ROWS + 1
    assert table.scan(row_filter="k < 0").to_arrow()["k"].to_pylist() == [-2]


@pytest.mark.parametrize("change", ["delete", "overwrite", "empty"])
def test_a_concurrent_change_of_a_replaced_file_aborts_and_leaves_nothing(
    table: Table, catalog: Any, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    actions: dict[str, Callable[[Table], Any]] = {
        "delete": lambda late: late.delete(f"k = {rows(1)['k'][0].as_py()}"),
        "overwrite": lambda late: late.overwrite(rows(7), f"k = {rows(1)['k'][0].as_py()}"),
        "empty": lambda late: late.delete("k >= 0"),
    }
    after: dict[str, Any] = {}

    def act() -> None:
        late = other(catalog, table)
        actions[change](late)
        mine = {path for path in on_disk(table) if "-sidecar-" in path.name}
        assert len(mine) == FILES
        after["files"] = on_disk(table) - mine
        after["metadata"] = late.metadata_location
        after["rows"] = late.scan().to_arrow().sort_by("k")

    before_commit(monkeypatch, once(act))
    with pytest.raises(CommitConflictError, match="another commit"):
        embed(table)
    table.refresh()
    assert table.metadata_location == after["metadata"]
    assert on_disk(table) == after["files"]
    assert table.scan().to_arrow().sort_by("k") == after["rows"]
    assert named_avro(table) == on_disk(table, ".avro")


def named_avro(table: Table) -> set[Path]:
    """Manifests and manifest lists that some snapshot of the table names."""
    named = set()
    for snapshot in table.snapshots():
        named.add(snapshot.manifest_list)
        named |= {manifest.manifest_path for manifest in snapshot.manifests(table.io)}
    return {Path(local_path(path) or "") for path in named}


def test_commits_that_keep_coming_end_in_a_conflict_and_leave_nothing(
    table: Table, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = before_commit(monkeypatch, lambda _: other(catalog, table).append(rows(9)))
    with pytest.raises(CommitConflictError, match="other commits interfered with all 6 attempts"):
        embed(table)
    assert len(attempts) == replace.ATTEMPTS
    table.refresh()
    assert len(on_disk(table)) == FILES + replace.ATTEMPTS
    assert not [path for path in on_disk(table) if "-sidecar-" in path.name]


def test_a_commit_to_another_branch_is_no_conflict(
    table: Table, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes our sequence number, so the snapshot cannot be added as it is."""
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "b").commit()  # type: ignore[union-attr]
    before_commit(monkeypatch, once(lambda: other(catalog, table).append(rows(9), branch="b")))
    report = embed(table)
    assert report.attempts == 2
    assert len(report.replaced) == FILES
    assert table.scan().to_arrow().num_rows == FILES * ROWS


def test_the_branchs_retention_survives(table: Table) -> None:
    from pyiceberg.table.update import SetSnapshotRefUpdate

    snapshot = table.current_snapshot()
    assert snapshot is not None
    kept = {"max-snapshot-age-ms": 86_400_000, "min-snapshots-to-keep": 7, "max-ref-age-ms": 99_000_000}
    head = SetSnapshotRefUpdate.model_validate(
        {"ref-name": "main", "type": "branch", "snapshot-id": snapshot.snapshot_id, **kept}
    )
    with table.transaction() as transaction:
        transaction._apply((head,), ())
    embed(table)
    main = table.metadata.refs["main"].model_dump(by_alias=True)
    assert {key: main[key] for key in kept} == kept


# --- storage and catalogs that fail ------------------------------------------------------------------------------


class Failing:
    """A FileIO under which the creation of files fails, from the n-th of some ending on."""

    def __init__(self, inner: Any, ending: str, after: int) -> None:
        self._inner, self._ending, self._left = inner, ending, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def new_output(self, location: str) -> Any:
        if location.endswith(self._ending):
            self._left -= 1
            if self._left < 0:
                raise OSError("disk full")
        return self._inner.new_output(location)


def assert_untouched(table: Table, before: tuple[Any, ...]) -> None:
    table.refresh()
    assert (table.metadata_location, on_disk(table), on_disk(table, ".avro")) == before


def state(table: Table) -> tuple[Any, ...]:
    return table.metadata_location, on_disk(table), on_disk(table, ".avro")


@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("threads", [1, 3])
def test_storage_that_fails_at_a_data_file_leaves_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch, after: int, threads: int
) -> None:
    before, made = state(table), itertools.count()
    create_target = rewritten_files.create_target

    def failing(path: str, io: Any) -> Any:
        if next(made) >= after:
            raise StorageError("cannot create the file: disk full", file=path)
        return create_target(path, io)

    monkeypatch.setattr(rewritten_files, "create_target", failing)
    with pytest.raises(StorageError, match="disk full"):
        embed(table, threads=threads)
    assert_untouched(table, before)


@pytest.mark.parametrize("after", [0, 1, 4, 8])
def test_storage_that_fails_at_a_manifest_leaves_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Manifests are 0 to 7, the manifest list is 8."""
    before = state(table)
    reload = replace.reload_table

    def reloaded(of: Table) -> Table:
        now = reload(of)
        now.io = Failing(now.io, ".avro", after)
        return now

    monkeypatch.setattr(replace, "reload_table", reloaded)
    with pytest.raises(StorageError, match="cannot write the manifests: OSError: disk full"):
        embed(table)
    assert_untouched(table, before)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("progress")], ids=repr)
def test_an_interruption_leaves_nothing(table: Table, error: BaseException) -> None:
    before = state(table)

    def progress(what: str, done: int, total: int) -> None:
        assert (what, total) == ("files", FILES)
        if done == 2:
            raise error

    with pytest.raises(type(error)):
        embed(table, progress=progress)
    assert_untouched(table, before)


def test_progress_counts_the_files(table: Table) -> None:
    seen: list[Any] = []
    embed(table, progress=lambda *told: seen.append(told))
    assert seen == [("files", done, FILES) for done in range(1, FILES + 1)]


def failing_commit(monkeypatch: pytest.MonkeyPatch, error: BaseException, *, lands: bool) -> list[str]:
    """The catalog raises; ``lands``: after it did what it was asked for. Gives the snapshot ids tried."""
    tried: list[str] = []
    commit = replace.ReplaceProducer.commit

    def failing(self: Any) -> None:
        tried.append(self.snapshot_id)
        if lands:
            commit(self)
        raise error

    monkeypatch.setattr(replace.ReplaceProducer, "commit", failing)
    return tried


@pytest.mark.parametrize(
    "error", [ConnectionError("reset"), KeyboardInterrupt(), CommitFailedException("409")], ids=repr
)
def test_a_commit_that_seemed_to_fail_is_found_in_the_table(
    table: Table, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    tried = failing_commit(monkeypatch, error, lands=True)
    report = embed(table)
    assert [report.snapshot_id] == tried
    assert table.scan().to_arrow().num_rows == FILES * ROWS
    assert all(filters_of(file) for file in data_files(table))


@pytest.mark.parametrize("error", [ConnectionError("reset"), KeyboardInterrupt()], ids=repr)
def test_files_of_a_commit_of_unknown_outcome_are_kept_and_named(
    table: Table, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    failing_commit(monkeypatch, error, lands=False)
    with pytest.raises(
        CommitUnknownError,
        match=r"may still take effect, so the new files were kept.*-sidecar-.* and 3 more",
    ):
        embed(table)
    assert len(on_disk(table)) == 2 * FILES
    assert len(on_disk(table, ".avro")) == 2 * FILES + 2 * FILES + 1


def test_a_refused_commit_leaves_nothing(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.exceptions import ForbiddenError

    before = state(table)
    failing_commit(monkeypatch, ForbiddenError("no"), lands=False)
    with pytest.raises(StorageError, match="refused the commit: ForbiddenError"):
        embed(table)
    assert_untouched(table, before)


def test_new_files_that_cannot_be_deleted_are_named(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(location: str) -> None:
        raise PermissionError(location)

    monkeypatch.setattr(table.io, "delete", refuse)

    def progress(*told: Any) -> None:
        raise RuntimeError("stop")

    with pytest.raises(StorageError, match=r"new files could not be deleted.*-sidecar-"):
        embed(table, progress=progress)


class FolderIO(PyArrowFileIO):
    """An object store that is a folder: its locations are no local paths, and nothing but FileIO reaches them."""

    def __init__(self, properties: Any = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._folder = self.properties["folder"]

    def _local(self, location: Any) -> str:
        location = location if isinstance(location, str) else location.location
        return f"{self._folder}/{location.removeprefix('folder://')}"

    def new_input(self, location: str) -> Any:
        return super().new_input(self._local(location))

    def new_output(self, location: str) -> Any:
        output = super().new_output(self._local(location))
        output._location = location  # what a manifest is written down as
        return output

    def delete(self, location: Any) -> None:
        super().delete(self._local(location))


@pytest.fixture
def stored(tmp_path: Path) -> Table:
    """A table behind :class:`FolderIO`."""
    catalog = SqlCatalog(
        "folder",
        **{
            "uri": f"sqlite:///{tmp_path}/cat.db",
            "warehouse": "folder://wh",
            "folder": str(tmp_path),
            "py-io-impl": f"{__name__}.FolderIO",
        },
    )
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", ARROW)
    for part in range(2):
        table.append(rows(part))
    return table


def test_a_table_in_an_object_store(stored: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stored.scan().to_arrow().sort_by("k")
    report = embed(stored, page_index=True)
    assert all((file.new_path or "").startswith("folder://wh/db/t/data/") for file in report.replaced)
    assert len(report.replaced) == 2
    assert stored.scan().to_arrow().sort_by("k") == before
    files = sorted(tmp_path.rglob("*"))

    def failing(self: Any, *args: Any) -> None:
        raise OSError("out of reach")

    monkeypatch.setattr(replace.ReplaceProducer, "write_list", failing)
    with pytest.raises(StorageError, match="out of reach"):
        embed(stored, harvest="never")
    assert sorted(tmp_path.rglob("*")) == files


# --- deletes, and other engines ----------------------------------------------------------------------------------


def as_text(found: Any) -> list[str]:
    """Rows of Spark or DuckDB, in no order."""
    return sorted(repr(tuple(row)) for row in found)


SPARK_SCHEMA = "(k bigint, s string, part string, day date, f double)"


def fill(spark: Any, name: str, part: int) -> None:
    spark.sql(
        f"""insert into {name} select id * 7 + {part}, concat('text ', id), if(id % 3 = 0, null, concat('p/', id % 3)),
        date_add(date '2024-01-01', cast(id % 2 as int)), if(id % 2 = 0, double('nan'), 1.5)
        from range({part * 1000}, {part * 1000 + 400}, 1, 1)"""
    )


@pytest.mark.jvm
def test_spark_sees_the_same_rows_a_replace_and_sane_entries(
    spark: Any, catalog: Any, duckdb_iceberg: Any
) -> None:
    name = f"db.spark{next(_names)}"
    spark.sql(
        f"create table cat.{name} {SPARK_SCHEMA} using iceberg partitioned by (part, f) "
        "tblproperties ('format-version' = '2')"
    )
    fill(spark, f"cat.{name}", 0)
    spark.sql(f"alter table cat.{name} drop partition field f")
    spark.sql(f"alter table cat.{name} replace partition field part with bucket(2, k)")
    spark.sql(f"alter table cat.{name} add partition field days(day)")
    fill(spark, f"cat.{name}", 1)
    spark.sql(f"alter table cat.{name} add partition field truncate(6, s)")
    spark.sql(f"alter table cat.{name} write ordered by k")
    fill(spark, f"cat.{name}", 2)
    spark.sql(f"alter table cat.{name} drop column f")
    before = as_text(spark.table(f"cat.{name}").collect())
    in_order = orders(spark, name)
    metrics = (
        "select spec_id, record_count, partition, sort_order_id, column_sizes, value_counts, null_value_counts, "
        f"nan_value_counts, lower_bounds, upper_bounds, split_offsets from cat.{name}.files"
    )
    files = as_text(spark.sql(metrics).collect())
    table = catalog.load_table(name)
    old = table.current_snapshot().snapshot_id
    report = embed(table, bloom=["k", "s", "part"], page_index=True)
    assert len(report.replaced) == len(files)
    assert not report.left_alone

    assert as_text(spark.table(f"cat.{name}").collect()) == before
    assert as_text(spark.sql(metrics).collect()) == files
    assert orders(spark, name) == in_order
    assert (
        as_text(
            spark.sql(f"select * from cat.{name} version as of {old}")
            .select("k", "s", "part", "day")
            .collect()
        )
        == before
    )
    snapshots = spark.sql(
        f"select operation, parent_id, summary from cat.{name}.snapshots order by committed_at"
    ).collect()
    assert [row.operation for row in snapshots] == ["append"] * 3 + ["replace"]
    assert snapshots[-1].parent_id == old
    assert snapshots[-1].summary["total-records"] == snapshots[-2].summary["total-records"] == "1200"
    listed = spark.sql(
        f"select status, snapshot_id, sequence_number, file_sequence_number from cat.{name}.entries"
    ).collect()
    assert {(row.status, row.snapshot_id) for row in listed} == {
        (1, report.snapshot_id),
        (2, report.snapshot_id),
    }
    added = sorted(row.sequence_number for row in listed if row.status == 1)
    assert added == sorted(row.sequence_number for row in listed if row.status == 2)
    assert set(added) == {1, 2, 3}
    assert {row.file_sequence_number for row in listed if row.status == 1} == {4}
    history = spark.sql(f"select snapshot_id from cat.{name}.history order by made_current_at").collect()
    assert [row.snapshot_id for row in history][-2:] == [old, report.snapshot_id]
    for predicate in (
        "k = 7 * 1005 + 1", "s = 'text 2010'", "part is null", "day = date '2024-01-02'", "part = 'p/1'"
    ):  # fmt: skip
        now = as_text(spark.table(f"cat.{name}").where(predicate).collect())
        past = spark.sql(f"select k, s, part, day from cat.{name} version as of {old}").where(predicate)
        assert now == as_text(past.collect())
        assert now
    assert duck_count(duckdb_iceberg, table) == 1200

    # maintenance goes on from here
    result = spark.sql(
        f"call cat.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
    ).collect()[0]
    assert result.rewritten_data_files_count == len(files)
    assert as_text(spark.table(f"cat.{name}").collect()) == before
    spark.sql(
        f"call cat.system.expire_snapshots(table => '{name}', older_than => timestamp '2100-01-01', retain_last => 1)"
    )
    assert as_text(spark.table(f"cat.{name}").collect()) == before
    table.refresh()
    assert len(on_disk(table)) == spark.table(f"cat.{name}.files").count()
    assert not [file for file in report.replaced if Path(local_path(file.new_path) or "").exists()]


def orders(spark: Any, name: str) -> list[str]:
    """The values of each file, in the order of the file, whatever its path."""
    found: dict[str, list[tuple[int, int]]] = {}
    for row in spark.sql(f"select k, _file, _pos from cat.{name}").collect():
        found.setdefault(row["_file"], []).append((row["_pos"], row["k"]))
    return sorted(repr([k for _, k in sorted(rows)]) for rows in found.values())


def duck_count(duckdb_iceberg: Any, table: Table) -> int:
    path = local_path(table.metadata_location)
    found: int = duckdb_iceberg.execute(f"select count(*) from iceberg_scan('{path}')").fetchone()[0]
    return found


@pytest.mark.jvm
def test_files_with_position_deletes_are_left_alone_and_keep_them(
    spark: Any, catalog: Any, duckdb_iceberg: Any
) -> None:
    name = f"db.spark{next(_names)}"
    spark.sql(
        f"create table cat.{name} (k bigint, s string, part string) using iceberg partitioned by (part) "
        "tblproperties ('format-version' = '2', 'write.delete.mode' = 'merge-on-read')"
    )
    for part in range(3):
        spark.sql(
            f"insert into cat.{name} select id, concat('text ', id), concat('p', id % 2) "
            f"from range({part * 100}, {part * 100 + 100}, 1, 1)"
        )
    spark.sql(f"delete from cat.{name} where k in (3, 104)")
    spark.sql(f"insert into cat.{name} select id, 'late', 'p0' from range(300, 350, 1, 1)")
    before = as_text(spark.table(f"cat.{name}").collect())
    assert len(before) == 348
    table = catalog.load_table(name)
    with_deletes = {t.file.file_path for t in table.scan().plan_files() if t.delete_files}
    assert len(with_deletes) == 2
    report = embed(table)
    assert {file.path: file.reason for file in report.left_alone} == dict.fromkeys(with_deletes, POSITION)
    assert len(report.replaced) == 5
    assert as_text(spark.table(f"cat.{name}").collect()) == before
    assert sorted(repr(tuple(row.values())) for row in table.scan().to_arrow().to_pylist()) == before
    assert table.scan().to_arrow().num_rows == duck_count(duckdb_iceberg, table) == 348
    summary = table.current_snapshot().summary
    assert (summary["total-delete-files"], summary["total-position-deletes"]) == ("2", "2")

    # deletes that come later apply to the new files, and then those are left alone as well
    spark.sql(f"delete from cat.{name} where k = 205")
    table.refresh()
    again = embed(table, harvest="never")
    assert len(again.left_alone) == 3
    assert spark.table(f"cat.{name}").count() == 347 == table.scan().to_arrow().num_rows


@pytest.mark.jvm
def test_of_a_partitions_files_only_those_that_deletes_name_are_left_alone(spark: Any, catalog: Any) -> None:
    """One delete file names the first and the last file by path; what lies between them has no deletes."""
    name = f"db.spark{next(_names)}"
    spark.sql(
        f"create table cat.{name} (k bigint, s string) using iceberg tblproperties ('format-version' = '2', "
        "'write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = 'partition')"
    )
    for part in range(5):
        spark.sql(
            f"insert into cat.{name} select /*+ coalesce(1) */ id, concat('text ', id) "
            f"from range({part * 100}, {part * 100 + 100}, 1, 1)"
        )
    table = catalog.load_table(name)
    files = sorted(task.file.file_path for task in table.scan().plan_files())
    first = {path: pq.read_table(local_path(path))["k"][7].as_py() for path in (files[0], files[-1])}
    spark.sql(f"delete from cat.{name} where k in ({', '.join(map(str, first.values()))})")
    table.refresh()
    assert table.current_snapshot().summary["added-delete-files"] == "1"
    report = embed(table)
    assert {file.path for file in report.left_alone} == set(first)
    assert len(report.replaced) == 3
    assert spark.table(f"cat.{name}").count() == table.scan().to_arrow().num_rows == 498


@pytest.mark.jvm
def test_position_deletes_that_come_meanwhile_abort(
    spark: Any, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"db.spark{next(_names)}"
    spark.sql(
        f"create table cat.{name} (k bigint, s string) using iceberg tblproperties "
        "('format-version' = '2', 'write.delete.mode' = 'merge-on-read')"
    )
    spark.sql(f"insert into cat.{name} select id, concat('text ', id) from range(0, 100, 1, 1)")
    table = catalog.load_table(name)
    before_commit(monkeypatch, once(lambda: spark.sql(f"delete from cat.{name} where k = 5")))
    with pytest.raises(CommitConflictError, match="position deletes apply to it"):
        embed(table)
    assert not [path for path in on_disk(table) if "-sidecar-" in path.name]
    assert spark.table(f"cat.{name}").count() == 99


@pytest.mark.jvm
def test_version_3_is_refused_with_the_reason(spark: Any, catalog: Any) -> None:
    name = f"db.spark{next(_names)}"
    spark.sql(f"create table cat.{name} (k bigint) using iceberg tblproperties ('format-version' = '3')")
    spark.sql(f"insert into cat.{name} values (1)")
    with pytest.raises(UnsupportedFeatureError, match=r"format version 3: .* row ids of replaced files"):
        embed(catalog.load_table(name), bloom=["k"])


def test_duckdb_reads_the_table(table: Table, duckdb_iceberg: Any) -> None:
    embed(table, page_index=True)
    path = local_path(table.metadata_location)
    found = duckdb_iceberg.execute(f"select k, s from iceberg_scan('{path}') order by k").to_arrow_table()
    assert found.to_pylist() == table.scan().to_arrow().sort_by("k").to_pylist()
    key = rows(2)["k"][5].as_py()
    hits = duckdb_iceberg.execute(f"select s from iceberg_scan('{path}') where k = {key}").fetchall()
    assert hits == [(f"text {key}",)]
