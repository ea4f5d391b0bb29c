"""Plans: pruned right, kept when in doubt, and honest about both. The oracle is pyiceberg's own scan."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo, In
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, DoubleType, LongType

import sidecar
from sidecar import errors
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.errors import UnsupportedFeatureError, UsageError
from sidecar.filters.encoding import Encoding
from sidecar.filters.leaf import ComparedColumn
from sidecar.iceberg.predicate import parse_predicate
from sidecar.planning import opened_sidecar
from sidecar.planning.file_question import FileQuestion
from sidecar.planning.filter_answers import FilterAnswers
from sidecar.planning.funnel import KeptBecause
from sidecar.planning.plan import Plan
from sidecar.planning.planner import plan
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import SBBF
from sidecar.questions.conditions import AllOf, AnyOf, HoldsAny
from sidecar.reading.scanning import read
from sidecar.source import BytesSource
from tests.iceberg.cases import (
    INDEXED,
    append,
    comparable,
    create,
    delete_by_equality,
    local,
    matching_files,
    oracle,
    predicate,
    replaced,
)

IDS = 240
LONGS = pa.schema([("k", pa.int64()), ("v", pa.string())])


def longs(seed: int, count: int = 200) -> pa.Table:
    """Random even keys, so that every odd key is absent and within bounds."""
    keys = np.random.default_rng(seed).integers(-(2**60), 2**60, count) * 2
    return pa.table({"k": keys, "v": [f"{seed}-{n}" for n in range(count)]}, schema=LONGS)


def key(seed: int, row: int = 17) -> int:
    return int(longs(seed)["k"][row].as_py())


def create_longs(catalog: Any, name: str, files: int = 5, build: bool = True) -> Table:
    table: Table = catalog.create_table(name, LONGS)
    for seed in range(files):
        table.append(longs(seed))
    if build:
        sidecar.build(table, ["k"], kinds=["bloom"], engine="local")
    return catalog.load_table(name)


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    """Five files, indexed."""
    return create_longs(catalog, "db.plan_longs")


@pytest.fixture(scope="module")
def history(catalog: Any) -> Table:
    """All types: built, then appended to, then rows of an indexed file deleted (which rewrites it)."""
    made = create(catalog, "db.plan_types", partitioned=False)
    sidecar.build(made, INDEXED, kinds=["bloom"], engine="local")
    made.refresh()
    append(made, IDS, 40)
    made.delete("id in (41, 42, 43, 250)")
    return made


def statistics_file(table: Table) -> Path:
    return local(table.metadata.statistics[-1].statistics_path)


def assert_right(table: Table, planned: Plan, snapshot_id: int | None = None) -> None:
    assert comparable(read(planned)) == comparable(oracle(table, planned.row_filter, snapshot_id))


def test_a_point_lookup_keeps_the_file_that_has_it(table: Table) -> None:
    planned = plan(table, f"k = {key(3)}")
    assert set(planned.kept_files) == matching_files(table, planned.row_filter)
    assert (planned.files_total, planned.files_covered, planned.files_kept) == (5, 5, 1)
    assert planned.funnel.dropped_by_filter == 4
    assert planned.funnel.kept_because == {"may match": 1}
    assert planned.warnings == ()
    assert planned.sidecar is not None
    assert planned.sidecar.snapshots_behind == 0
    assert planned.sidecar.path == table.metadata.statistics[-1].statistics_path
    assert_right(table, planned)


def test_an_absent_key_keeps_nothing_and_reads_little(table: Table) -> None:
    planned = plan(table, f"k = {key(3) + 1}")
    assert planned.files_kept == 0
    assert planned.index_reads <= 3
    assert 0 < planned.index_bytes_read <= 64 * 1024
    assert read(planned).num_rows == 0


def test_lists_and_composition(table: Table) -> None:
    assert plan(table, f"k in ({key(0)}, {key(1)}, 1)").files_kept == 2
    assert plan(table, f"k = {key(0)} or k = {key(1)} or k = 3").files_kept == 2
    assert plan(table, f"k = {key(0)} and v = '0-17'").files_kept == 1
    assert plan(table, f"k = {key(0)} and k = {key(1)}").files_kept == 0
    assert plan(table, f"not (k != {key(0)})").files_kept == 1
    assert plan(table, f"k = {key(0)} or v = '1-17'").files_kept == 5
    assert plan(table, EqualTo("k", key(0))).files_kept == 1
    assert plan(table, In("k", [key(0), key(1)])).files_kept == 2


@pytest.mark.parametrize(
    "text",
    [
        "k != 5",
        "k > 5",
        "k is not null",
        "k not in (1, 2)",
        "true",
        "v like '1%'",
        "k = 1 or v > '1'",
        "k = 1 and false",
    ],
)
def test_a_query_that_no_index_can_help_reads_none_of_it(
    table: Table, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("the index was opened")

    monkeypatch.setattr(opened_sidecar, "find_sidecar", fail)
    planned = plan(table, text)
    assert (planned.index_reads, planned.index_bytes_read, planned.warnings) == (0, 0, ())
    assert_right(table, planned)


def test_bounds_come_before_filters_in_small_tables(catalog: Any) -> None:
    clustered = catalog.create_table("db.plan_clustered", pa.schema([("k", pa.int64())]))
    for n in range(3):
        clustered.append(pa.table({"k": np.arange(n * 1000, n * 1000 + 1000)}))
    sidecar.build(clustered, ["k"], kinds=["bloom"], engine="local")
    clustered.refresh()
    for text, kept in (("k = 1500", 1), ("k = 5000", 0)):
        planned = plan(clustered, text)
        assert (planned.files_kept, planned.funnel.dropped_by_metadata, planned.funnel.dropped_by_filter) == (
            kept,
            3 - kept,
            0,
        )
        assert planned.files_covered == 3, "files that bounds dropped are covered, too"
        assert planned.manifests.opened == 0


def test_columns_that_are_not_indexed_are_kept_with_the_reason(table: Table) -> None:
    planned = plan(table, "v = '3-17'")
    assert planned.files_covered == 0
    assert planned.funnel.listed == 5
    reasons = dict(planned.funnel.kept_because)
    assert reasons == {"not indexed: v: no filters were built": planned.files_kept}
    assert_right(table, planned)


def test_too_many_values_are_said_so(table: Table) -> None:
    planned = plan(table, In("k", range(1, 401, 2)))
    assert planned.files_kept == plan(table, "k > 0 and k < 402").files_kept
    assert "200 values of k" in planned.notes[0]


def test_after_an_append_old_files_are_pruned_and_the_new_one_is_kept(catalog: Any) -> None:
    table = create_longs(catalog, "db.plan_append")
    table.append(longs(77))
    planned = plan(table, f"k = {key(2)}")
    assert (planned.files_total, planned.files_covered, planned.files_kept) == (6, 5, 2)
    assert planned.funnel.kept_because == {"may match": 1, KeptBecause.NOT_LISTED.text: 1}
    assert planned.sidecar is not None
    assert planned.sidecar.snapshots_behind == 1
    assert KeptBecause.NOT_LISTED.text in planned.explain()
    assert "1 snapshot ago" in planned.explain()
    assert_right(table, planned)
    assert read(plan(table, f"k = {key(77)}")).num_rows == 1


def test_time_travel_uses_the_nearest_ancestor(catalog: Any) -> None:
    table = create_longs(catalog, "db.plan_travel", files=3, build=False)
    before = table.metadata.current_snapshot_id
    table.append(longs(50))
    sidecar.build(table, ["k"], kinds=["bloom"], engine="local")
    table.refresh()
    indexed = table.metadata.current_snapshot_id
    table.append(longs(51))
    after = table.metadata.current_snapshot_id
    table.append(longs(52))
    table.delete(f"k = {key(1)}")
    cases = {before: (3, 0, 3), indexed: (4, 4, 1), after: (5, 4, 2), None: (6, 3, 4)}
    for snapshot_id, files in cases.items():
        planned = plan(table, f"k = {key(0)}", snapshot_id=snapshot_id)
        assert (planned.files_total, planned.files_covered, planned.files_kept) == files, snapshot_id
        assert planned.snapshot_id == (snapshot_id or table.metadata.current_snapshot_id)
        assert_right(table, planned, snapshot_id)
        gone = plan(table, f"k = {key(1)}", snapshot_id=snapshot_id)
        assert read(gone).num_rows == (0 if snapshot_id is None else 1)
    assert plan(table, "k = 1", snapshot_id=before).funnel.kept_because == {"no sidecar": 3}


def test_random_predicates_give_the_rows_of_pyiceberg(history: Table) -> None:
    rng = random.Random(20)
    columns = [name for name in INDEXED if name != "u"]  # pyarrow cannot compare UUIDs
    pruned = 0
    for _ in range(60):
        planned = plan(history, predicate(rng, columns, IDS))
        assert planned.warnings == ()
        assert_right(history, planned)
        pruned += planned.funnel.dropped_by_filter
    assert pruned > 70


def test_partitioned_tables_give_the_rows_of_pyiceberg(catalog: Any) -> None:
    table = create(catalog, "db.plan_parts", files=3)
    sidecar.build(table, INDEXED, kinds=["bloom"], engine="local")
    table.refresh()
    append(table, 120, 40)
    rng = random.Random(21)
    for _ in range(15):
        text = f"{predicate(rng, ['i', 's', 'dec9', 'st.x', 'f'], 120)} and part = 'a'"
        planned = plan(table, text)
        assert_right(table, planned)
        assert planned.funnel.dropped_by_metadata


def test_uuids_are_pruned_although_pyiceberg_cannot_scan_for_them(history: Table) -> None:
    files = {
        task.file.file_path: {str(uuid.UUID(bytes=value)) for value in _column(history, task, "u") if value}
        for task in history.scan().plan_files()
    }
    wanted = next(iter(sorted(next(iter(files.values())))))
    kept = set(plan(history, f"u = '{wanted}'").kept_files)
    assert {path for path, values in files.items() if wanted in values} <= kept
    assert len(kept) < len(files)


def _column(table: Table, task: Any, name: str) -> list[bytes]:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    rows = ArrowScan(table.metadata, table.io, table.schema().select(name), AlwaysTrue()).to_table([task])
    return [value.bytes if isinstance(value, uuid.UUID) else value for value in rows[name].to_pylist()]


def test_schema_evolution(catalog: Any) -> None:
    """int to long, float to double, wider decimals, a rename, and a name that is dropped and added again."""
    table = create(catalog, "db.plan_evolved", files=3, partitioned=False)
    sidecar.build(table, INDEXED, kinds=["bloom"], engine="local")
    table.refresh()
    with table.update_schema() as update:
        update.update_column("i", LongType())
        update.update_column("f", DoubleType())
        update.update_column("dec9", DecimalType(20, 2))
        update.rename_column("l", "renamed")
        update.delete_column("s")
    with table.update_schema() as update:
        update.add_column("s", table.schema().find_type("st.y"))
        update.add_column("fresh", LongType())
    append_evolved(table)
    rng = random.Random(22)
    columns = ["i", "f", "dec9", "st.y", "d"]
    pruned = 0
    for _ in range(60):
        planned = plan(table, predicate(rng, columns, 120))
        assert_right(table, planned)
        pruned += planned.funnel.dropped_by_filter
    assert pruned > 30
    for text, kept in (
        ("i = 1099511627776", 1),
        ("renamed = 7696581394432", None),
        ("s = 'again'", 4),
        ("fresh = 9", 4),
    ):
        planned = plan(table, text)
        assert_right(table, planned)
        assert kept is None or planned.files_kept <= kept, text
    assert plan(table, "renamed = 3").funnel.dropped_by_filter == 3
    assert plan(table, "s = 'again'").funnel.dropped_by_filter == 0
    assert plan(table, "f = 0.1").funnel.dropped_by_filter == 0, "engines differ on 0.1 in a promoted float"


def append_evolved(table: Table) -> None:
    schema = table.schema().as_arrow()
    row = {"id": 999, "i": 2**40, "f": 0.1, "renamed": 7, "s": "again", "fresh": 9}
    table.append(pa.Table.from_pylist([row], schema=schema))


def test_names_that_move_to_other_columns_of_imported_files(catalog: Any, tmp_path: Path) -> None:
    """Files without field ids are read by name mapping, and names move as columns are renamed and added."""
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    table = catalog.create_table("db.plan_names", schema)
    paths = []
    for n in range(4):
        path = tmp_path / f"{n}.parquet"
        a, b = ([base + row * 8 + n * 2 for row in range(30)] for base in (0, 1))
        pq.write_table(pa.table({"a": a, "b": b}, schema=schema), path)
        paths.append(f"file:{path}")
    table.add_files(paths)
    sidecar.build(table, ["a", "b"], kinds=["bloom"], engine="local")
    table.refresh()
    dropped = []
    steps: list[Any] = [
        lambda update: None,
        lambda update: update.rename_column("a", "old"),
        lambda update: update.add_column("a", LongType()),
        lambda update: update.delete_column("b"),
        lambda update: update.add_column("b", LongType()),
    ]
    for step in steps:
        with table.update_schema() as update:
            step(update)
        found = 0
        for column in table.schema().column_names:
            for value in (0, 8, 2, 9, 3, 100):
                planned = plan(table, f"{column} = {value}")
                assert_right(table, planned)
                found += planned.funnel.dropped_by_filter
        dropped.append(found)
    assert dropped[0] >= dropped[1] > 0
    assert dropped[-1] == 0


@pytest.mark.parametrize("what", ["missing", "empty", "truncated", "garbage", "other puffin"])
def test_a_sidecar_that_is_no_use_keeps_everything_and_says_why(
    table: Table, what: str, tmp_path: Path
) -> None:
    path = statistics_file(table)
    whole = path.read_bytes()
    data = {"missing": None, "empty": b"", "truncated": whole[:-9], "garbage": bytes(len(whole))}.get(
        what, b"PFA1" + whole[4:-4] + b"PFA2"
    )
    with replaced(path, data):
        planned = plan(table, f"k = {key(3)}")
        assert planned.files_kept == planned.files_total == 5
        assert str(path) in planned.warnings[0]
        assert planned.funnel.kept_because == {"index unreadable": 5}
        assert "warning: " in planned.explain()
        assert_right(table, planned)


def test_damaged_bytes_never_lose_a_row(table: Table) -> None:
    """Flipped bits anywhere in the file: the right file stays, and what is kept for it comes with a warning."""
    path = statistics_file(table)
    whole = path.read_bytes()
    wanted = {n: matching_files(table, parse_predicate(f"k = {key(n)}", table.schema())) for n in range(5)}
    rng = random.Random(23)
    warned = 0
    for position in sorted(rng.sample(range(len(whole)), 160)) + list(range(len(whole) - 40, len(whole))):
        data = bytearray(whole)
        data[position] ^= 1 << rng.randrange(8)
        with replaced(path, bytes(data)):
            number = rng.randrange(5)
            planned = plan(table, f"k = {key(number)}")
        assert wanted[number] <= set(planned.kept_files), position
        assert planned.files_kept == 1 or planned.warnings, position
        warned += bool(planned.warnings)
    assert warned > 20


def test_a_damaged_filter_keeps_its_units_and_is_named_in_the_funnel(table: Table) -> None:
    path = statistics_file(table)
    whole = path.read_bytes()
    [bundle] = [b for b in PuffinReader(BytesSource(whole)).metadata.blobs if b.type == SBBF]
    data = bytearray(whole)
    for position in range(bundle.offset + 32, bundle.offset + bundle.length - 600, 64):
        data[position] ^= 1
    with replaced(path, bytes(data)):
        planned = plan(table, f"k = {key(3)}")
    assert planned.funnel.kept_because == {KeptBecause.DAMAGED.text: 5}
    assert "checksum" in planned.warnings[0]
    assert planned.files_covered == 5


def test_nothing_an_index_does_fails_a_query(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(errors, "reraise_foreign", False)
    for target in ("verdict_on", "counts"):
        with monkeypatch.context() as patch:
            patch.setattr(FilterAnswers, target, fail)
            planned = plan(table, f"k = {key(3)}")
            assert "ZeroDivisionError" in planned.warnings[0]
            assert_right(table, planned)
    with monkeypatch.context() as patch:
        patch.setattr(opened_sidecar, "find_sidecar", fail)
        assert plan(table, f"k = {key(3)}").files_kept == 5


def test_a_statistics_entry_of_another_engine_is_passed_over(catalog: Any) -> None:
    table = create_longs(catalog, "db.plan_none", files=2, build=False)
    planned = plan(table, f"k = {key(1)}")
    assert (planned.files_kept, planned.sidecar, planned.warnings) == (2, None, ())
    assert planned.funnel.kept_because == {"no sidecar": 2}


def test_an_empty_table_has_an_empty_plan(catalog: Any) -> None:
    table = catalog.create_table("db.plan_empty", LONGS)
    planned = plan(table, "k = 1")
    assert (planned.tasks, planned.files_total, planned.snapshot_id) == ([], 0, None)
    assert read(planned).num_rows == 0
    assert planned.to_dict()["files"] == {"total": 0, "covered": 0, "kept": 0}


@pytest.mark.parametrize(
    ("text", "snapshot", "words"),
    [
        ("nope = 1", None, "no column 'nope'"),
        ("k = 'abc'", None, "not a number"),
        ("k = 1.5", None, "whole number"),
        ("k = 1", 12345, "no snapshot 12345"),
        ("k =", None, "expected a literal"),
    ],
)
def test_wrong_usage_is_one_sentence(table: Table, text: str, snapshot: int | None, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        plan(table, text, snapshot_id=snapshot)


def test_names_in_another_case(table: Table) -> None:
    assert plan(table, f"K = {key(3)}", case_sensitive=False).files_kept == 1


def test_equality_deletes_name_who_can_read_the_table(catalog: Any) -> None:
    table = create_longs(catalog, "db.plan_equality", files=2)
    before = table.metadata.current_snapshot_id
    delete_by_equality(table, pa.table({"k": [key(0)]}), [1])
    with pytest.raises(UnsupportedFeatureError, match=r"(?s)equality deletes.*Spark.*Trino.*DuckDB"):
        plan(table, f"k = {key(0)}")
    assert plan(table, f"k = {key(0)}", snapshot_id=before).files_kept == 1
    handed_over = plan(table, f"k = {key(0)}", allow_equality_deletes=True)
    assert handed_over.equality_deletes == {*handed_over.kept_files}
    with pytest.raises(UnsupportedFeatureError, match="equality deletes"):
        handed_over.to_arrow()


def test_equality_deletes_that_can_apply_to_no_survivor_do_not_matter(catalog: Any) -> None:
    """Rows that came after the deletes, in files that filters tell from the others."""
    table = create_longs(catalog, "db.plan_equality_late", files=2, build=False)
    delete_by_equality(table, pa.table({"k": [key(0)]}), [1])
    table.append(longs(7))
    sidecar.build(table, ["k"], kinds=["bloom"], engine="local")
    table.refresh()
    planned = plan(table, f"k = {key(7)}")
    assert planned.files_kept == 1
    assert read(planned).num_rows == 1
    with pytest.raises(UnsupportedFeatureError, match=r"(?s)equality deletes.*Spark.*DuckDB"):
        plan(table, f"k = {key(0)}")
    with pytest.raises(UnsupportedFeatureError, match="equality deletes"):
        plan(table, "true")


def test_a_plan_as_json_and_as_text(table: Table) -> None:
    data = plan(table, f"k = {key(3)}").to_dict()
    assert data["files"] == {"total": 5, "covered": 5, "kept": 1}
    assert len(data["kept_files"]) == 1
    assert data["funnel"]["dropped"] == {"partition_or_bounds": 0, "filter": 4, "page_index": 0}
    assert data["funnel"]["kept_because"] == {"may match": 1}
    assert data["index_reads"] >= 1
    assert data["index_bytes_read"] > 0
    assert data["seconds"] > 0
    assert data["sidecar"]["snapshot_id"] == data["snapshot_id"] == table.metadata.current_snapshot_id
    text = plan(table, f"k = {key(3)}").explain()
    assert "5  data files in the snapshot" in text
    assert "-4  dropped by filter" in text
    assert "5 files listed, 5 indexed" in text


class FakeSegment:
    """A segment of four files: two row groups, one, none that is known, one."""

    def __init__(self, holds: list[set[int]], fields: dict[int, list[int]]) -> None:
        self.holds = holds
        self.num_units = 4
        self.unit_ranges = np.array([0, 2, 3, 3, 4])
        self.fields = {
            field: [type("Group", (), {"units": np.array(units)})] for field, units in fields.items()
        }
        self.listed_manifests: list[Any] = []

    def file_ordinal(self, file: DataFileIdentity) -> int | None:
        return int(file.path) if file.path.isdigit() else None

    def coverage(self, _field: int, _kind: str) -> None:
        return None

    def might_match(self, field_id: int, probe: Any, _holds: Any) -> np.ndarray:
        from sidecar.filters.encoding import Encoding

        hashes = set(probe(Encoding.parse("int64")).hashes)
        known = {unit for group in self.fields.get(field_id, []) for unit in group.units.tolist()}
        return np.array([unit not in known or bool(hashes & held) for unit, held in enumerate(self.holds)])


def hashes_of(*values: int) -> set[int]:
    from sidecar.filters.encoding import Encoding
    from sidecar.filters.values import probe_hashes

    return {h for value in values for h in probe_hashes(value, "long", Encoding.parse("int64")).hashes}


def live(path: str) -> DataFileIdentity:
    return DataFileIdentity(path, 0, 0, added_snapshot_id=1)


def column(field_id: int, name: str) -> ComparedColumn:
    return ComparedColumn(field_id, "long", Encoding.parse("int64"), name)


def keeps(verdicts: FilterAnswers) -> list[bool]:
    return [verdicts.verdict_on(live(str(n))).keep for n in range(4)]


def test_a_file_is_dropped_only_if_every_row_group_of_it_is_known_not_to_match() -> None:
    one = HoldsAny(column(1, "a"), (1,))
    holds = [hashes_of(9), hashes_of(1), hashes_of(9), hashes_of(9)]
    everything = FakeSegment(holds, {1: [0, 1, 2, 3]})
    assert keeps(FilterAnswers([everything], one, lambda *_: True)) == [True, False, True, False]
    partly = FakeSegment([set()] * 4, {1: [0, 2, 3]})
    assert keeps(FilterAnswers([partly], one, lambda *_: True)) == [True, False, True, False]
    assert FilterAnswers([partly], one, lambda *_: True).verdict_on(live("elsewhere")) == (
        True,
        KeptBecause.NOT_LISTED,
    )
    assert (
        FilterAnswers([partly], one, lambda *_: True)
        .verdict_on(live("2"))
        .reason.text.startswith("not indexed")
    )


def test_each_segment_that_lists_a_file_can_drop_it() -> None:
    question = AllOf((HoldsAny(column(1, "a"), (1,)), HoldsAny(column(2, "b"), (2,))))
    first = FakeSegment([hashes_of(1)] * 4, {1: [0, 1, 2, 3]})
    second = FakeSegment([hashes_of(2), hashes_of(2), hashes_of(9), hashes_of(2)], {2: [0, 1, 2, 3]})
    assert keeps(FilterAnswers([first, second], question, lambda *_: True)) == [True, False, True, True]
    for unknown in (None, live("1")._replace(added_snapshot_id=None)):
        asked = FilterAnswers([first, second], question, lambda *_: True)
        assert (asked.verdict_on(unknown), asked.places(unknown)) == ((True, KeptBecause.NOT_LISTED), [])
    either = AnyOf(question.parts)
    assert keeps(FilterAnswers([second], either, lambda *_: True)) == [True] * 4


def test_a_line_of_the_manifest_list_must_be_the_listed_manifest(table: Table) -> None:
    from sidecar.iceberg.find_sidecar import find_sidecar
    from sidecar.iceberg.manifests import read_manifests
    from sidecar.planning.filter_answers import is_listed

    found = find_sidecar(table)
    assert found is not None
    snapshot = table.current_snapshot()
    assert snapshot is not None
    line: ManifestFile = read_manifests(table.io, snapshot.manifest_list)[0]
    entry = next(m for m in found.sidecar.segments[0].listed_manifests if m.path == line.manifest_path)
    found.sidecar.close()
    assert is_listed(line, entry)
    for position, value in (
        (0, "other"),
        (1, 1),
        (2, 5),
        (3, 1),
        (4, 99),
        (6, 99),
        (6, None),
        (7, 99),
        (10, 99),
    ):
        changed = type(line)(*line._data)
        changed._data[position] = value
        assert not is_listed(changed, entry), position
    unknown = type(line)(*line._data)
    unknown._data[6] = 0
    assert not is_listed(unknown, replace(entry, added_snapshot_id=0))


def test_notes_come_from_the_question(table: Table) -> None:
    from pyiceberg.expressions.visitors import bind

    schema = table.schema()
    text = " or ".join(f"k = {n}" for n in range(150))
    asked = FileQuestion(bind(schema, parse_predicate(text, schema), True), schema).for_filters
    assert plan(table, text).notes == asked.notes != ()
