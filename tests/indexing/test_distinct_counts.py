"""Distinct counts after files were removed: what is indexed again, and what is marked as an upper bound."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

import sidecar
from sidecar.access import Access
from sidecar.bundle.inspect import inspect_sidecar
from sidecar.bundle.verify import verify_sidecar
from sidecar.filters.theta import ThetaSketch
from sidecar.indexing import sketch_groups, writing
from sidecar.puffin.types import THETA_GROUPS
from sidecar.storage.local import LocalSource
from sidecar.storage.locations import local_path
from sidecar.storage.source import Source
from tests.iceberg.table_cases import delete_by_position
from tests.indexing.cases import filters_of, group_sketches_of, sidecar_of, sketches_of
from tests.tables import iceberg_schema

SCHEMA = iceberg_schema("p long, k long, s string")
BY_P = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
FEW, MANY, LARGE = 20, 400, 60_000
PARTS = 6


def rows(part: int, count: int) -> pa.Table:
    keys = np.random.default_rng(part).integers(0, 2**60, count)
    return pa.table({"p": np.full(count, part), "k": keys, "s": [f"text {key}" for key in keys]})


@pytest.fixture
def table(catalog: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Six files, one for each partition, in two groups. Partition 0 has less than 5 % of the rows of its group."""
    monkeypatch.setattr(sketch_groups, "MOST_FILES", 12)  # a quarter of it ends with a partition
    table = catalog.create_table(
        f"db.counts_{request.node.name.translate({91: 95, 93: None})}", SCHEMA, partition_spec=BY_P
    )
    table.append(pa.concat_tables([rows(part, MANY if part else FEW) for part in range(PARTS)]))
    return table


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The partitions of the data files that were opened."""
    found: list[str] = []
    opens = Access.open

    def note(self: Access, path: str, size: int | None = None) -> Source:
        if "/p=" in path:
            found.append(partition_of(path))
        return opens(self, path, size)

    monkeypatch.setattr(Access, "open", note)
    return found


def partition_of(path: str) -> str:
    return path.partition("/p=")[2].partition("/")[0]


def build(table: Any, *columns: str, **options: Any) -> tuple[Any, Any]:
    options.setdefault("kinds", ["bloom", "theta"])
    report = sidecar.build(table, list(columns) or ["k"], engine="local", **options)
    assert verify_sidecar(LocalSource(local_path(report.statistics_path) or "")) == []
    return report, table.catalog.load_table(table.name())


def groups(table: Any, field_id: int = 2) -> list[set[str]]:
    """The partitions of each group."""
    return [{partition_of(path) for path in paths} for paths, _, _ in group_sketches_of(table)[field_id]]


def group_of(part: str, table: Any) -> set[str]:
    return next(group for group in groups(table) if part in group)


def true_sketch(table: Any) -> ThetaSketch:
    return ThetaSketch.from_arrow(table.scan().to_arrow()["k"].combine_chunks(), "long")


def bounds(table: Any, field: str = "k") -> Any:
    """Why the count is an upper bound, by the metadata, the file, ``inspect`` and ``status``."""
    entry = next(e for e in table.metadata.statistics if e.snapshot_id == table.current_snapshot().snapshot_id)
    (blob,) = [b for b in entry.blob_metadata if b.fields == [2]]
    registered = (blob.properties or {}).get("sidecar.upper-bound")
    opened = sidecar_of(table)
    (stored,) = [b for b in opened.puffin.metadata.blobs if b.type == blob.type and b.fields == (2,)]
    opened.close()
    assert stored.properties.get("sidecar.upper-bound") == registered
    described = sidecar.status(table).coverage[field]["theta"].upper_bound
    (column,) = [c for c in inspect_sidecar(LocalSource(local_path(entry.statistics_path) or "")).columns if c.id == 2]
    assert column.upper_bound == described
    assert (None if described is None else ",".join(described)) == registered
    return described


def test_a_first_build_counts_groups_of_files(table: Any) -> None:
    report, table = build(table)
    found = group_sketches_of(table)[2]
    assert sorted(len(paths) for paths, _, _ in found) == [3, 3]
    assert sorted(rows for _, rows, _ in found) == [2 * MANY + FEW, 3 * MANY]
    whole = ThetaSketch.union(ThetaSketch.from_bytes(sketch) for _, _, sketch in found)
    assert whole.to_bytes() == sketches_of(table)[2] == true_sketch(table).to_bytes()
    assert bounds(table) is None
    assert report.columns[0].ndv.to_dict().keys() == {"estimate", "lower", "upper"}


def test_after_removing_a_file_no_file_is_read(table: Any, opened: list[str]) -> None:
    """The count is marked until more than 5 % of a group are gone."""
    _, table = build(table, "k", "s")
    before = sketches_of(table)
    table.delete("p = 0")
    opened.clear()
    report, table = build(table, "k", "s")
    assert opened == []
    assert (report.units, report.files_carried, report.warnings) == (0, 5, [])
    assert sketches_of(table) == before
    assert report.columns[0].ndv.upper_bound == ["removed-files"]
    assert bounds(table) == ["removed-files"]


def test_after_more_than_five_percent_the_other_files_of_the_group_are_indexed_again(
    table: Any, opened: list[str]
) -> None:
    _, table = build(table)
    group = group_of("3", table)
    filters = filters_of(table)
    table.delete("p = 3")
    opened.clear()
    report, table = build(table)
    assert set(opened) == group - {"3"}
    assert (report.units, report.files_carried) == (2, 3)
    assert sketches_of(table)[2] == true_sketch(table).to_bytes()
    assert bounds(table) is None
    assert filters.items() <= filters_of(table).items()
    opened.clear()
    report, table = build(table)
    assert (opened, report.files_carried) == ([], 5)


def test_counts_of_sketches_that_estimate_are_within_their_stated_error(table: Any) -> None:
    """70,000 values in sketches of 4,096 hashes: an estimate, equal to that of a build from nothing."""
    table.append(rows(9, LARGE))  # the last group has the fewest values
    _, table = build(table)
    assert_groups_are_as_built_alone(table)
    table.delete("p = 4")
    table.append(rows(10, LARGE // 2))
    report, table = build(table)
    assert report.units == 3
    assert_groups_are_as_built_alone(table)
    oracle = true_sketch(table)
    assert not oracle.is_exact
    assert sketches_of(table)[2] == oracle.to_bytes()
    ndv = report.columns[0].ndv
    assert ndv.lower <= len(np.unique(table.scan().to_arrow()["k"])) <= ndv.upper


def assert_groups_are_as_built_alone(table: Any) -> None:
    """No group lost precision because of another one."""
    sizes = {"0": FEW, "9": LARGE, "10": LARGE // 2}
    for paths, _, sketch in group_sketches_of(table)[2]:
        keys = pa.concat_tables([rows(int(p), sizes.get(p, MANY)) for p in map(partition_of, paths)])["k"]
        assert sketch == ThetaSketch.from_arrow(keys.combine_chunks(), "long").to_bytes()


def test_a_group_without_a_live_file_counts_nothing(table: Any, opened: list[str]) -> None:
    _, table = build(table)
    group = group_of("0", table)
    table.delete(f"p in ({', '.join(group)})")
    opened.clear()
    report, table = build(table)
    assert opened == []
    assert report.columns[0].ndv.estimate == 3 * MANY
    assert bounds(table) is None


def test_new_files_beside_an_upper_bound(table: Any, opened: list[str]) -> None:
    """Two segments; the first has lost a file. Its groups are copied as bytes."""
    _, table = build(table)
    before = group_sketches_of(table)[2]
    table.delete("p = 0")
    table.append(rows(9, MANY))
    opened.clear()
    report, table = build(table)
    assert set(opened) == {"9"}
    after = group_sketches_of(table)[2]
    assert after[:-1] == before
    assert [(len(paths), rows) for paths, rows, _ in after[-1:]] == [(1, MANY)]
    assert bounds(table) == ["removed-files"]
    assert report.columns[0].ndv.estimate == FEW + 6 * MANY
    assert len(sidecar_of(table).segments) == 2


def test_groups_of_other_columns_are_carried(table: Any) -> None:
    _, table = build(table, "k", "s")
    before = group_sketches_of(table)
    table.delete("p = 3")
    report, table = build(table, "k")
    after = group_sketches_of(table)
    assert after[3] == before[3]
    assert after[2] != before[2]
    assert report.units == 2


@pytest.mark.parametrize("whole", [False, True])
def test_a_damaged_group_is_read_again(table: Any, opened: list[str], whole: bool) -> None:
    """Of a sketch its group, of the table of groups all of them; filters stay, and so does every answer."""
    report, table = build(table)
    filters = filters_of(table)
    path = Path(local_path(report.statistics_path) or "")
    data = bytearray(path.read_bytes())
    paths, _, sketch = group_sketches_of(table)[2][0]
    at = data.index(b'{"sketches":[') if whole else data.index(sketch)
    data[at + 30] ^= 1
    path.write_bytes(data)
    assert sidecar.plan(table, f"k = {2**59 + 1}").files_kept == 0
    table.append(rows(9, MANY))
    opened.clear()
    report, table = build(table)
    assert set(opened) == {"9"} | ({f"{part}" for part in range(PARTS)} if whole else set(map(partition_of, paths)))
    assert (report.units, report.warnings) == (7 if whole else 4, [])
    assert sketches_of(table)[2] == true_sketch(table).to_bytes()
    assert filters.items() <= filters_of(table).items()


def test_a_sidecar_without_groups_is_counted_once_more(
    table: Any, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was written before there were groups."""
    with monkeypatch.context() as patch:
        patch.setattr(writing, "segment_sketches", lambda *given: [])
        _, table = build(table)
    opened.clear()
    report, table = build(table)
    assert (report.units, len(opened)) == (6, 6)
    assert sketches_of(table)[2] == true_sketch(table).to_bytes()
    assert sorted(map(len, groups(table))) == [3, 3]
    opened.clear()
    build(table)
    assert opened == []


def test_files_that_cannot_be_read_again_are_in_no_count_until_they_can(table: Any) -> None:
    _, table = build(table)
    group = group_of("3", table)
    table.delete("p = 3")
    lost = min(group - {"3"})
    (task,) = [task for task in table.scan().plan_files() if partition_of(task.file.file_path) == lost]
    path = Path(local_path(task.file.file_path) or "")
    path.rename(path.with_suffix(".away"))
    report, table = build(table)
    assert [partition_of(failed) for failed in report.files_failed] == [lost]
    assert report.columns[0].ndv.lower_bound == ["files-not-counted"]
    assert sidecar.plan(table, f"k = {2**59 + 1}").files_kept <= 1
    path.with_suffix(".away").rename(path)
    report, table = build(table)
    assert (report.files_failed, report.columns[0].ndv.lower_bound) == ({}, None)
    assert sketches_of(table)[2] == true_sketch(table).to_bytes()


def test_row_deletes_make_an_upper_bound(table: Any) -> None:
    _, table = build(table)
    (task,) = [task for task in table.scan().plan_files() if partition_of(task.file.file_path) == "5"]
    delete_by_position(table, {task.file.file_path: [1, 2, 3]}, partition=task.file.partition)
    table = table.catalog.load_table(table.name())
    report, table = build(table)
    assert report.units == 0
    assert bounds(table) == ["row-deletes"]
    table.delete("p = 0")
    _, table = build(table)
    assert bounds(table) == ["removed-files", "row-deletes"]


def test_a_column_that_older_files_lack_needs_no_reading(table: Any, opened: list[str]) -> None:
    with table.update_schema() as update:
        update.add_column("later", LongType())
    _, table = build(table, "later")
    table.delete("p = 0")
    opened.clear()
    report, table = build(table, "later")
    assert opened == []
    assert (report.units, group_sketches_of(table)[4][0][2]) == (0, ThetaSketch().to_bytes())


@pytest.mark.parametrize("kinds", [["theta"], ["bloom", "theta"]])
def test_encrypted_bundles_have_no_groups(table: Any, kinds: Any) -> None:
    """Those from before are left out when a column is encrypted from now on."""
    keys = sidecar.EncryptionKeys(sidecar.ExplicitKeys({b"m": bytes(16)}), bundle_keys={"k": b"m"})
    _, table = build(table, "k", "s", kinds=["theta"])
    assert group_sketches_of(table).keys() == {2, 3}
    sidecar.build(table, ["k", "s"], engine="local", kinds=kinds, encryption_keys=keys)
    table = table.catalog.load_table(table.name())
    opened = sidecar_of(table)
    kinds = [(blob.type, blob.fields) for blob in opened.puffin.metadata.blobs if blob.type == THETA_GROUPS]
    opened.close()
    assert kinds == [(THETA_GROUPS, (3,))]
    assert sketches_of(table).keys() == {3}


def test_a_column_found_elsewhere_is_counted_without_its_former_values(catalog: Any, tmp_path: Path) -> None:
    """Files without field ids, whose name mapping changed: the former groups count another column."""
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"a": range(100), "b": [n % 7 for n in range(100)], "c": [0] * 100}), path)
    found = catalog.create_table("db.counts_mapped", pa.schema([(name, pa.int64()) for name in "abc"]))
    found.add_files([f"file:{path}"])
    report, found = build(found, "a", "c")
    assert report.columns[0].ndv.estimate == 100
    found.append(pa.table({"a": [5000], "b": [5001], "c": [1]}))
    _, found = build(found, "a", "c")  # its files have field ids
    before = json.loads(found.properties["schema.name-mapping.default"])
    swapped = [{"field-id": 1, "names": ["b"]}, {"field-id": 2, "names": ["a"]}, {"field-id": 3, "names": ["c"]}]
    with found.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": json.dumps(swapped)})
    report, found = build(found, "a")
    assert (report.units, report.files_carried, report.segments_carried) == (1, 1, 2)
    assert report.columns[0].ndv.estimate == 7 + 1
    found.append(pa.table({"a": [5001], "b": [5002], "c": [1]}))
    _, found = build(found, "a", full=True)  # now one group has a file of each kind
    with found.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": json.dumps(before)})
    report, found = build(found, "a")
    assert (report.units, report.columns[0].ndv.estimate) == (2, 100 + 2)
    assert not any("in no sketch" in warning for warning in report.warnings)


@pytest.mark.parametrize("seed", range(3))
def test_any_history_gives_the_true_count_or_an_upper_bound(
    catalog: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appends and removals between builds: no mark, no difference from the live rows."""
    monkeypatch.setattr(sketch_groups, "MOST_FILES", 8)
    chance = random.Random(seed)
    table = catalog.create_table(f"db.counts_history_{seed}", SCHEMA, partition_spec=BY_P)
    live: set[int] = set()
    part, seen = 0, Counter[str]()
    for _ in range(6):
        new = range(part, part + chance.choice([0, 1, 5]))
        part = new.stop
        if new:
            table.append(pa.concat_tables([rows(p, chance.choice([FEW, 10 * FEW])) for p in new]))
        live |= {*new}
        gone = {p for p in live if chance.random() < 0.15}
        if gone:
            table.delete(f"p in ({', '.join(map(str, sorted(gone)))})")
        live -= gone
        if not live:
            continue
        report, table = build(table)
        counted = ThetaSketch.from_bytes(sketches_of(table)[2])
        true = true_sketch(table)
        assert counted.is_exact
        assert set(true.retained) <= set(counted.retained)
        marked = report.columns[0].ndv.upper_bound
        assert (marked is None) == (counted.to_bytes() == true.to_bytes())
        seen.update(["marked" if marked else "exact"])
    assert seen["exact"]


@pytest.mark.parametrize("seed", [1, 4, 27])
def test_refreshes_of_one_file_come_to_an_end_after_any_history(catalog: Any, seed: int) -> None:
    """Each leaves fewer files, though the groups of two columns hold different ones. With these seeds, files that one
    column had counted again left the other's groups, which then were too small, and so on for ever."""
    chance = random.Random(seed)
    table = catalog.create_table(f"db.counts_limited_{seed}", SCHEMA)
    live: list[int] = []
    for part in range(10):
        live.append(part)
        table.append(rows(part, chance.choice([1, 5, 20, 100])))
        if part % 3 == 2:
            table.delete(f"p = {live.pop(chance.randrange(len(live) - 1))}")
        sidecar.build(table, chance.sample(["k", "s"], chance.choice([1, 1, 2])), kinds=["theta"], engine="local")
    table.delete(f"p = {live.pop(chance.randrange(len(live) - 1))}")
    left = len(live)
    while left:
        report = sidecar.refresh(table, engine="local", max_new_files=1)
        assert report.files_left < left
        left = report.files_left
    assert sidecar.refresh(table, engine="local").action == "current"
    counted, true = ThetaSketch.from_bytes(sketches_of(table)[2]), true_sketch(table)
    assert set(true.retained) <= set(counted.retained)
    assert (bounds(table) is None) == (counted.to_bytes() == true.to_bytes())
