"""Segments are merged as builds go on: lookups stay cheap, plans stay right, nothing that is live is lost."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

import sidecar
from sidecar.access import Access
from sidecar.bundle.kinds.declared import THETA
from sidecar.bundle.merging import arrangement
from sidecar.bundle.model import Coverage, CoverageState, UnitState
from sidecar.bundle.verify import verify_sidecar
from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys
from sidecar.iceberg.statistics_files import registering
from sidecar.iceberg.statistics_files.find_sidecar import find_sidecar
from sidecar.indexing.previous import carrying
from sidecar.indexing.previous.carrying import SegmentCarrier
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import THETA_GROUPS
from sidecar.storage.local import LocalSource
from sidecar.storage.locations import local_path
from tests.indexing.cases import filters_of, sidecar_of

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("part", pa.int32())])
KEYS = EncryptionKeys(ExplicitKeys({b"key": bytes(range(16))}), bundle_keys={"s": b"key"})


def rows(number: int, files: int = 1) -> pa.Table:
    """Rows of ``files`` partitions, hence files, in one commit. Bounds of files say nothing."""
    keys = np.random.default_rng(number).integers(0, 2**60, 60 * files)
    parts = pa.array(np.arange(60 * files) % files + 1000 * number, pa.int32())
    return pa.table({"k": keys, "s": [f"{key} text" for key in keys], "part": parts}, schema=SCHEMA)


@pytest.fixture
def table(catalog: Any, request: pytest.FixtureRequest) -> Any:
    return catalog.create_table(f"db.carrying_{abs(hash(request.node.name))}", SCHEMA)


@pytest.fixture
def always_into_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    """No delta is large enough to be folded."""
    monkeypatch.setattr(arrangement, "FOLD_SHARE", 0)


def build(table: Any, *columns: str, **options: Any) -> Any:
    report = sidecar.build(table, list(columns), **{"engine": "local", "kinds": ["bloom"], **options})
    table.refresh()
    keys = options.get("encryption_keys")
    assert verify_sidecar(LocalSource(local_path(report.statistics_path) or ""), encryption_keys=keys) == []
    return report


def append_and_build(table: Any, number: int, *columns: str, **options: Any) -> Any:
    table.append(rows(number))
    return build(table, *columns, **options)


def locked_build(table: Any, number: int) -> None:
    """A build without keys over a sidecar with encrypted segments, which cannot be verified without them."""
    table.append(rows(number))
    sidecar.build(table, ["k"], kinds=["bloom"], engine="local")
    table.refresh()


def sizes(table: Any) -> list[int]:
    opened = sidecar_of(table)
    found = [segment.num_files for segment in opened.segments]
    opened.close()
    return found


def lookup(table: Any, value: int) -> tuple[int, int, int]:
    plan = sidecar.plan(table, f"k = {value}")
    assert plan.warnings == ()
    assert plan.files_covered == plan.files_total
    return plan.index_reads, plan.index_bytes_read, plan.files_kept


def keys_of(table: Any) -> list[int]:
    return table.scan().to_arrow()["k"].to_pylist()


def assert_plans_are_right(table: Any) -> None:
    """Each row is found through the index, and an absent value leaves no file."""
    for key in keys_of(table)[::37]:
        assert sidecar.scan(table, f"k = {key}").num_rows == 1
    assert lookup(table, 2**59 + 1)[2] == 0
    assert sidecar.verify(table).problems == []


def test_a_lookup_costs_little_more_than_after_a_fresh_build_at_any_time(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A base of many files, deltas that grow and are folded, with filters that are sliced and transposed."""
    monkeypatch.setattr(arrangement, "FOLD_SHARE", 3)  # so that few builds grow a delta and fold it
    with table.update_spec() as spec:
        spec.add_identity("part")
    table.append(rows(0, files=70))
    build(table, "k", kinds=["bloom", "page-index"])
    known = keys_of(table)[0]
    fresh, shapes = lookup(table, 5), []
    for number in range(1, 9):
        append_and_build(table, number, "k", kinds=["bloom", "page-index"])
        shapes.append(sizes(table))
        for value in (5, known):
            reads, num_bytes, kept = lookup(table, value)
            # A file that is kept costs its record: two reads.
            assert reads <= fresh[0] + 4 + 2 * kept
            assert num_bytes <= 2 * fresh[1]
    assert max(map(len, shapes)) == 2
    assert [70, 1] in shapes
    assert any(base == 70 and delta > 1 for base, delta in shapes)
    assert any(base > 70 for base, _ in shapes)
    assert_plans_are_right(table)


@pytest.mark.usefixtures("always_into_delta")
def test_new_filters_join_the_delta_with_their_bytes(table: Any) -> None:
    for number in range(2):
        append_and_build(table, number, "k", "s")
    before = filters_of(table)
    for number in range(2, 5):
        append_and_build(table, number, "k", "s")
        assert sizes(table) == [1, number]
    after = filters_of(table)
    assert {key: after[key] for key in before} == before
    assert len(after) == 10
    assert_plans_are_right(table)


def test_sketches_count_for_what_a_new_segment_would_write_again(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    arrange = carrying.arrange

    def noted(carried: Any, new_size: int, into_one: bool) -> Any:
        sizes.append(new_size)
        return arrange(carried, new_size, into_one)

    monkeypatch.setattr(carrying, "arrange", noted)
    report = append_and_build(table, 0, "k", "s", kinds=["theta"])
    with closing(LocalSource(local_path(report.statistics_path) or "")) as source:
        blobs = PuffinReader(source).metadata.blobs
    stored = sum(blob.length for blob in blobs if blob.type == THETA_GROUPS)
    assert [stored / 2 < size < stored for size in sizes] == [True]


def test_segments_of_other_columns_become_one_that_knows_what_it_lacks(table: Any) -> None:
    table.append(rows(0))
    build(table, "k")
    build(table, "s")
    append_and_build(table, 1, "k")
    append_and_build(table, 2, "k")
    assert sizes(table) == [2, 1]
    opened = sidecar_of(table)
    coverage = opened.segments[0].coverage(2, "bloom")
    assert coverage is not None
    assert coverage.counts() == {UnitState.INDEXED.value: 1, UnitState.NOT_BUILT.value: 1}
    opened.close()
    report = build(table, "k", "s")
    assert report.units == 2  # the files without filters of s, and no other
    assert_plans_are_right(table)
    assert sidecar.plan(table, "s = '5 text'").files_kept == 0


def test_files_that_are_gone_are_left_out(table: Any) -> None:
    for number in range(3):
        append_and_build(table, number, "k")
    assert sizes(table) == [2, 1]
    table.delete(f"k = {keys_of(table)[-1]}")  # the oldest file is rewritten
    build(table, "k")
    assert sizes(table) == [2, 1]
    assert len(filters_of(table)) == 3
    assert_plans_are_right(table)


def test_a_sketch_with_a_file_that_merging_left_out_is_counted_again(table: Any) -> None:
    both = ["bloom", "theta"]
    for number in range(2):
        append_and_build(table, number, "k", kinds=both)
    table.delete(f"k = {keys_of(table)[0]}")
    build(table, "k")
    append_and_build(table, 5, "k")  # merges the segments that the sketches counted
    report = build(table, "k", kinds=both)
    assert report.columns[0].ndv.estimate == len(set(keys_of(table)))
    assert not report.columns[0].ndv.upper_bound
    again = build(table, "k", kinds=both)
    assert (again.units, again.columns[0].ndv.estimate) == (0, len(set(keys_of(table))))


def test_merged_segments_have_few_sketches_and_count_the_same(table: Any) -> None:
    both = ["bloom", "theta"]
    for number in range(9):
        report = append_and_build(table, number, "k", kinds=both)
    opened = sidecar_of(table)
    groups = [group for s in opened.segments for group in s.sketch_blobs[1].load()]
    files = sum(s.num_files for s in opened.segments)
    opened.close()
    assert sum(len(group.files) for group in groups) == files
    assert len(groups) <= 5
    assert report.columns[0].ndv.estimate == len(set(keys_of(table)))
    assert report.columns[0].ndv.upper_bound is None


def test_manifests_that_were_rewritten_are_listed_again(table: Any) -> None:
    """Otherwise plans would open them for each lookup."""
    with table.transaction() as transaction:
        transaction.set_properties({"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"})
    for number in range(5):
        append_and_build(table, number, "k")
    build(table, "k", full=True)
    table.append(rows(7))
    build(table, "k")
    sidecar.build(table, ["s"], kinds=["bloom"], engine="local")
    opened = sidecar_of(table)
    listed = [len(segment.listed_manifests) for segment in opened.segments]
    opened.close()
    assert listed[0] >= 1
    assert_plans_are_right(table)


def damage_filters(table: Any, segment: int) -> None:
    found = find_sidecar(table, Access())
    assert found is not None
    entry = next(entry for entry in found.sidecar.segments[segment].entries if entry.fields == (1,))
    path = Path(local_path(found.statistics.statistics_path) or "")
    found.sidecar.close()
    data = bytearray(path.read_bytes())
    data[entry.offset + 40] ^= 1
    path.write_bytes(data)


def test_damaged_filters_are_left_out_and_built_again(table: Any) -> None:
    for number in range(2):
        append_and_build(table, number, "k")
    damage_filters(table, 0)
    report = append_and_build(table, 2, "k")
    assert report.warnings == []
    assert (report.units, report.files_carried) == (2, 1)
    assert sidecar.plan(table, f"k = {2**59 + 1}").files_kept == 0
    assert build(table, "k").units == 0
    assert_plans_are_right(table)


@pytest.mark.usefixtures("always_into_delta")
def test_encrypted_segments_are_merged_with_their_keys(table: Any) -> None:
    for number in range(4):
        append_and_build(table, number, "k", "s", encryption_keys=KEYS)
    assert sizes(table) == [1, 3]
    absent = sidecar.plan(table, "s = '5 text'", encryption_keys=KEYS)
    assert (absent.files_covered, absent.files_kept, absent.warnings) == (4, 0, ())
    without = sidecar.plan(table, "s = '5 text'")
    assert without.files_kept == 4


def test_a_sketch_does_not_keep_segments_apart_in_which_its_column_is_encrypted(table: Any) -> None:
    both = EncryptionKeys(KEYS.retriever, bundle_keys={"k": b"key", "s": b"key"})
    for number in range(2):
        append_and_build(table, number, "k", "s", encryption_keys=both)
    declared = {"sidecar.columns": "k:1,s:2", "sidecar.column.1.kinds": "theta", "sidecar.column.2.kinds": "bloom"}
    with table.transaction() as change:
        change.set_properties(declared)
    for number in range(2, 4):
        table.append(rows(number))
        sidecar.build(table, engine="local", encryption_keys=KEYS, allow_plaintext=True)
        table.refresh()
    assert len(sizes(table)) == 2
    assert sidecar.plan(table, "s = '5 text'", encryption_keys=KEYS).files_kept == 0


def test_segments_without_encrypted_blobs_are_arranged_apart(table: Any) -> None:
    """Anybody could have written them, so no key may vouch for them."""
    for number, column in enumerate("sksksk"):
        append_and_build(table, number, column, encryption_keys=KEYS)
    opened = sidecar_of(table)
    fields = [set(segment.fields) for segment in opened.segments]
    opened.close()
    assert sorted(map(sorted, fields)) == [[1], [1], [2], [2]]
    for predicate, most in (("k = 5", 0), ("s = '5 text'", 1)):  # the last build was of k alone
        plan = sidecar.plan(table, predicate, encryption_keys=KEYS)
        assert plan.warnings == ()
        assert plan.files_kept <= most


def test_without_their_keys_encrypted_segments_stay_as_they_are(table: Any) -> None:
    for number in range(2):
        append_and_build(table, number, "s", encryption_keys=KEYS)
    before = {segment.id for segment in sidecar_of(table).segments}
    for number in range(2, 6):
        locked_build(table, number)
    segments = sidecar_of(table).segments
    assert before <= {segment.id for segment in segments}
    assert len(segments) == 4  # two that are locked, a base and a delta
    assert sidecar.plan(table, "s = '5 text'", encryption_keys=KEYS).files_kept == 4
    assert lookup(table, 5)[2] == 0


def test_a_merge_of_another_build_in_between_loses_nothing(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other build merges the very segments that this one carries."""
    for number in range(2):
        append_and_build(table, number, "k")
    table.append(rows(2))
    write_file, done = registering.write_file, []

    def another_first(*arguments: Any) -> Any:
        written = write_file(*arguments)
        if not done:
            done.append(True)
            sidecar.build(table.catalog.load_table(table.name()), ["s"], kinds=["bloom"], engine="local")
        return written

    monkeypatch.setattr(registering, "write_file", another_first)
    build(table, "k")
    assert len(done) == 1
    for column, value in (("k", "5"), ("s", "'5 text'")):
        plan = sidecar.plan(table, f"{column} = {value}")
        assert (plan.files_covered, plan.files_kept) == (3, 0)
    append_and_build(table, 3, "k")
    assert len(sizes(table)) == 2
    assert_plans_are_right(table)


def test_a_file_that_another_segment_counts_is_not_lost_with_a_damaged_sketch() -> None:
    def counting(segment_id: str, is_damaged: bool) -> Any:
        coverage = Coverage.of(1, THETA, [CoverageState(UnitState.INDEXED)])
        return SimpleNamespace(
            segment=SimpleNamespace(id=segment_id),
            damaged={},
            first_units=np.array([0, 1]),
            coverage={(1, THETA): coverage},
            uncounted=lambda: {1: np.array([is_damaged])},
        )

    table: Any = SimpleNamespace(schema=lambda: SimpleNamespace(field_ids={1}))
    for segments, lost in (([True], 1), ([True, False], 0), ([False, True], 0), ([True, True], 1)):
        carrier = SegmentCarrier(table, cast("Any", None), Access())
        carrier._live = {str(number): {0: 0} for number in range(2)}
        carrier._count_lost([counting(str(number), is_damaged) for number, is_damaged in enumerate(segments)])
        assert carrier.lost == ({(1, THETA): lost} if lost else {}), segments
