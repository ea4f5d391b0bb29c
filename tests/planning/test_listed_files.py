"""Planning without opening manifests: tasks are those that pyiceberg makes, whichever way they are found.

The oracle is pyiceberg's own plan, task by task and field by field, and our plan that opens every manifest.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, bind
from pyiceberg.manifest import DataFile, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
)

import sidecar
from sidecar.bundle.model import FieldBounds, FileEntry
from sidecar.bundle.segment import Segment
from sidecar.bundle.units.reader import UnitsReader
from sidecar.iceberg.predicate import parse_predicate
from sidecar.planning import file_pruner, listed_files
from sidecar.planning.bound_columns import may_match
from sidecar.planning.file_pruner import FilePruner
from sidecar.planning.funnel import KeptBecause
from sidecar.planning.plan import Plan
from sidecar.planning.planner import plan
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import UNITS
from sidecar.reading.scanning import read
from sidecar.source import BytesSource
from tests.iceberg.cases import comparable, create, local, oracle, predicate, replaced
from tests.iceberg.forging import Forgery, put_sections, sections_of
from tests.iceberg.table_cases import ASKED, delete_by_position, with_a_past

COLUMNS = [name for name in ASKED if name not in ("renamed", "s")]
LONGS = pa.schema([("k", pa.int64()), ("v", pa.string())])


def longs(seed: int, count: int = 60) -> pa.Table:
    keys = np.random.default_rng(seed).integers(-(2**60), 2**60, count) * 2
    return pa.table({"k": keys, "v": [f"{seed}-{n}" for n in range(count)]}, schema=LONGS)


def key(seed: int) -> int:
    return int(longs(seed)["k"][17].as_py())


def build(table: Table, columns: list[str]) -> Table:
    sidecar.build(table, columns, kinds=["bloom"], engine="local")
    return table.refresh()


def file_values(file: DataFile) -> Any:
    """A data file field by field: pyiceberg compares paths alone."""
    parts = (dict(part) if hasattr(part, "items") else repr(part) for part in file._data)
    return (*parts, file.spec_id)


def task_values(task: FileScanTask) -> Any:
    deletes = sorted((file_values(file) for file in task.delete_files), key=repr)
    return file_values(task.file), deletes, repr(task.residual)


@contextmanager
def way(**settings: Any) -> Iterator[None]:
    """Other costs, so that small tables are planned as large ones are."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setattr(file_pruner if name == "BROAD" else listed_files, name, value)
        if settings:
            patch.setattr(listed_files.ListedFiles, "_columns_are_cheaper", lambda *_: True)
        yield


WAYS: list[dict[str, Any]] = [{}, {"FEW": 0, "BROAD": 0}, {"FEW": 0, "BROAD": 0, "OPENING": 0.0}]
"""Records first; filters, then bounds; the same, and manifests of which much is left are opened."""


def assert_same_tasks(table: Table, text: str, snapshot_id: int | None = None) -> list[Plan]:
    """All ways keep the same files, and their tasks are pyiceberg's, in its order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilePruner, "answer_listed", lambda *_: {})
        usual = plan(table, text, snapshot_id=snapshot_id)
    theirs = list(table.scan(row_filter=usual.row_filter, snapshot_id=snapshot_id).plan_files())
    found = []
    for settings in WAYS:
        with way(**settings):
            planned = plan(table, text, snapshot_id=snapshot_id)
        assert planned.warnings == ()
        assert planned.kept_files == usual.kept_files, text
        assert planned.funnel.kept == len(planned.tasks)
        assert planned.files_total == usual.files_total
        kept = set(planned.kept_files)
        expected = [task_values(task) for task in theirs if task.file.file_path in kept]
        assert [task_values(task) for task in planned.tasks] == expected, text
        found.append(planned)
    return found


@pytest.fixture(scope="module")
def history(catalog: Any) -> Table:
    """Schema and partitions evolved; indexed, then more data and deletes of old and new rows: half of it is listed."""
    table = with_a_past(catalog, "db.listed_history", count=40)
    remove(table, 1)
    build(table, ["id", *ASKED])
    table.append(table.scan(row_filter="id < 60").to_arrow())
    remove(table, 2)
    return table


def remove(table: Table, seed: int) -> None:
    """Position deletes in every unpartitioned file of the moment."""
    files = [task.file for task in table.scan().plan_files() if task.file.spec_id == 0]
    rng = random.Random(seed)
    delete_by_position(table, {f.file_path: sorted(rng.sample(range(f.record_count), 5)) for f in files})


def test_tasks_are_pyicebergs_for_tables_with_a_past(history: Table) -> None:
    rng = random.Random(51)
    listed = opened = dropped = with_deletes = 0
    snapshots = [snapshot.snapshot_id for snapshot in history.snapshots()]
    for number in range(24):
        text = predicate(rng, COLUMNS, 240)
        if number % 3 == 0:
            parts = ["part = 'a'", "part is null", "bo = true", "bo is not null and part != 'b'"]
            text = f"({text}) and id >= {rng.randrange(160)} and {rng.choice(parts)}"
        snapshot_id = rng.choice(snapshots[-3:]) if number % 4 == 0 else None
        plans = assert_same_tasks(history, text, snapshot_id)
        listed += plans[1].manifests.listed
        opened += plans[1].manifests.opened
        dropped += plans[1].funnel.dropped_by_filter
        with_deletes += sum(bool(task.delete_files) for task in plans[1].tasks)
        if snapshot_id is None and number < 8:
            assert comparable(read(plans[1])) == comparable(oracle(history, plans[1].row_filter))
    assert listed > 60
    assert opened
    assert dropped > 30
    assert with_deletes > 10


def test_deletes_that_are_younger_than_listed_and_older_than_unknown_data(catalog: Any) -> None:
    """pyiceberg, given some manifests only, would take the smallest sequence number of those and drop these deletes."""
    table = catalog.create_table("db.listed_deletes", LONGS)
    table.append(longs(0))
    build(table, ["k"])
    (old,) = [task.file.file_path for task in table.scan().plan_files()]
    delete_by_position(table, {old: [17]})
    table.append(longs(1))
    for text, rows, deletes_opened in (
        (f"k = {key(0)}", 0, 1),  # the unknown file is kept, too
        (f"k = {key(1)}", 1, 0),  # the listed file is dropped, and no delete applies to the unknown one
    ):
        planned = plan(table, text)
        assert (planned.manifests.listed, planned.manifests.opened) == (1, 1)
        assert planned.manifests.deletes_opened == deletes_opened, "those that are older than every kept file"
        assert read(planned).num_rows == rows
        assert_same_tasks(table, text)
    assert [len(task.delete_files) for task in plan(table, f"k = {key(0)}").tasks] == [0, 1]


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_listed_manifest_is_not_opened_and_need_not_be_there(catalog: Any, tmp_path: Path, version: str) -> None:
    """Name-mapped files in a table of each version, identity partitions, and all manifests gone."""
    table = catalog.create_table(f"db.listed_v{version}", LONGS, properties={"format-version": version})
    paths = []
    for seed in range(3):
        path = tmp_path / f"{seed}.parquet"
        pq.write_table(longs(seed), path)
        paths.append(f"file:{path}")
    table.add_files(paths)
    with table.update_spec() as spec:
        spec.add_identity("v")
    table.append(longs(3, 3))
    build(table, ["k", "v"])
    texts = [f"k = {key(1)}", "v = '3-2'", f"k in ({key(0)}, {key(2)})", "k = 1"]
    before = [assert_same_tasks(table, text)[0] for text in texts]
    assert [planned.files_kept for planned in before] == [1, 1, 2, 0]
    snapshot = table.current_snapshot()
    for manifest in snapshot.manifests(table.io):
        local(manifest.manifest_path).unlink()
    for text, planned in zip(texts, before, strict=True):
        again = plan(table, text)
        assert list(map(task_values, again.tasks)) == list(map(task_values, planned.tasks))
        assert again.warnings == ()
        assert again.manifests.opened == 0
        assert again.manifests.total == 2
        data = again.to_dict()["manifests"]
        assert data["listed"] + data["ruled_out"] == 2
        assert f"{again.manifests.listed} answered by the sidecar" in again.explain()


def test_bounds_answer_predicates_that_filters_cannot_where_files_are_many(catalog: Any) -> None:
    table = catalog.create_table("db.listed_broad", LONGS)
    for first in range(0, 400, 100):
        table.append(pa.table({"k": range(first, first + 100), "v": ["x"] * 100}, schema=LONGS))
    build(table, ["k"])
    assert plan(table, "k < 150").index_reads == 0
    with way(BROAD=4, FEW=0):
        planned = plan(table, "k < 150")
        assert (planned.files_kept, planned.funnel.dropped_by_metadata) == (2, 2)
        assert (planned.manifests.listed, planned.manifests.opened) == (4, 0)
        assert planned.funnel.kept_because == {KeptBecause.NOT_ASKED.text: 2}
        assert plan(table, "v != 'x'").index_reads == 0, "bounds say nothing of it"
        assert plan(table, "true").index_reads == 0
    with way(BROAD=4, FEW=0, OPENING=0.0):
        planned = plan(table, "k < 150")
        assert (planned.files_kept, planned.manifests.listed, planned.manifests.opened) == (2, 2, 2)


def test_partitions_rule_files_out_that_have_no_bounds(catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {"write.metadata.metrics.default": "none"}
    table = catalog.create_table("db.listed_parts", LONGS, properties=properties)
    with table.update_spec() as spec:
        spec.add_identity("v")
        spec.add_identity("k")
    for first in (0, 10):
        rows = {"k": [first, first, 3] * 3, "v": ["a", "b", None] * 3}
        table.append(pa.table(rows, schema=LONGS))
    build(table, ["k"])
    files, read_files = Segment.files, []

    def seen(segment: Segment, wanted: Any) -> Any:
        read_files.extend(wanted)
        return files(segment, wanted)

    monkeypatch.setattr(Segment, "files", seen)
    for text in ("v = 'b'", "v is null", "v in ('a', 'b') and k != 3", "v != 'a'", "k = 4 or v = 'zz'"):
        read_files.clear()
        planned = assert_same_tasks(table, text)[1]
        assert planned.files_kept == 0 or planned.manifests.listed
    with way(FEW=0, BROAD=0):
        read_files.clear()
        planned = plan(table, "v = 'b'")
    assert sorted(read_files) == sorted(set(read_files))
    assert len(read_files) == planned.files_kept < planned.files_total / 2


def test_merged_manifests_are_read_and_their_files_known_by_what_they_are(catalog: Any) -> None:
    """Files move to another manifest: they are found by their fingerprints, in each of two segments."""
    properties = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
    table = catalog.create_table("db.listed_merged", LONGS, properties=properties)
    for seed in range(3):
        table.append(longs(seed))
    build(table, ["k"])
    table.append(longs(3))
    planned = assert_same_tasks(table, f"k = {key(1)}")[0]
    assert (planned.manifests.total, planned.manifests.opened, planned.manifests.listed) == (1, 1, 0)
    assert (planned.files_kept, planned.funnel.dropped_by_filter, planned.funnel.listed) == (2, 2, 3)
    build(table, ["v"])
    both = sidecar.open_sidecar(table)
    assert len(both.segments) == 2
    both.close()
    for planned in assert_same_tasks(table, f"k = {key(1)}")[:2]:
        assert (planned.manifests.opened, planned.files_kept, planned.funnel.dropped_by_filter) == (0, 2, 2)
    for planned in assert_same_tasks(table, f"k = {key(1)} and v = '0-17'"):
        assert planned.files_kept == 0


def test_files_of_several_manifests_are_those_of_another_segment_at_the_same_place(
    catalog: Any, tmp_path: Path
) -> None:
    """200 files in three manifests, ``k`` indexed first and ``v`` then: the second segment is asked by position."""
    table = catalog.create_table("db.listed_positions", LONGS)
    paths = [tmp_path / f"{seed}.parquet" for seed in range(200)]
    for seed, path in enumerate(paths):
        pq.write_table(longs(seed, 4), path)
    for part in (paths[:70], paths[70:150], paths[150:]):
        table.add_files([f"file:{path}" for path in part])
    build(table, ["k"])
    build(table, ["v"])
    for seed in (0, 1, 69, 70, 71, 149, 150, 151, 199):
        held = longs(seed, 4)["k"][3].as_py()
        for text in (f"v = '{seed}-3'", f"k = {held}", f"k = {held} and v = '{seed}-3'"):
            planned = plan(table, text)
            assert planned.manifests.opened == 0
            assert read(planned).to_pylist() == [{"k": held, "v": f"{seed}-3"}], text
            assert planned.files_kept <= 8, text
        planned = plan(table, f"k = {held} and v = '{seed}-4'")
        assert planned.files_kept <= 1


def test_fingerprints_are_not_read_for_files_that_are_younger_than_the_index(
    catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("db.listed_younger", LONGS)
    for seed in range(3):
        table.append(longs(seed))
    build(table, ["k"])
    table.append(longs(3))

    def fail(*_: Any) -> Any:
        raise AssertionError("fingerprints were read")

    monkeypatch.setattr(UnitsReader, "fingerprints", fail)
    planned = plan(table, f"k = {key(1)}")
    assert planned.warnings == ()
    assert planned.funnel.kept_because == {"may match": 1, KeptBecause.NOT_LISTED.text: 1}


def units_place(data: bytes) -> tuple[int, int]:
    with_units = [b for b in PuffinReader(BytesSource(data, "x")).metadata.blobs if b.type == UNITS]
    return with_units[0].offset, with_units[0].length


def test_damage_anywhere_in_the_units_opens_manifests_instead(catalog: Any) -> None:
    table = build(create(catalog, "db.listed_damage", files=3, partitioned=False), ["i", "s"])
    path = local(table.metadata.statistics[-1].statistics_path)
    whole = path.read_bytes()
    offset, length = units_place(whole)
    texts = ["i = 100", "s = 'värde-3'", "i in (1, 2, 3) or s = 'värde--7'", "i < -300"]
    right = {text: plan(table, text) for text in texts}
    rng = random.Random(52)
    opened = 0
    for position in sorted(rng.sample(range(offset, offset + length), 60)):
        data = bytearray(whole)
        data[position] ^= 1 << rng.randrange(8)
        text = rng.choice(texts)
        with replaced(path, bytes(data)), way(**rng.choice(WAYS[:2])):
            planned = plan(table, text)
        assert set(right[text].kept_files) <= set(planned.kept_files), position
        kept = {task.file.file_path: task_values(task) for task in planned.tasks}
        assert all(kept[task.file.file_path] == task_values(task) for task in right[text].tasks)
        assert planned.manifests.opened == 0 or planned.warnings or text == "i < -300", position
        opened += planned.manifests.opened
    assert opened > 20


@pytest.fixture(scope="module")
def pair(catalog: Any) -> Table:
    table = catalog.create_table("db.listed_pair", LONGS)
    for seed in range(2):
        table.append(longs(seed))
    return build(table, ["k"])


FORMAT = b"\x0ePARQUET"
"""The format in an entry's record; the number of rows and the size of the file follow."""


def one_off(entry: bytes, at: int) -> bytes:
    """The record with the number that starts at ``at`` one more or less, in as many bytes."""
    return entry[:at] + bytes([entry[at] ^ 2]) + entry[at + 1 :]


@pytest.mark.parametrize(
    "what",
    [
        "another file", "other rows", "another size", "another snapshot", "empty", "cut", "deleted", "unreadable",
        "no schema",
    ],
)  # fmt: skip
def test_records_that_cannot_be_right_open_the_manifest(
    pair: Table, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    normal = plan(pair, f"k = {key(0)}")
    files, decoder = Segment.files, listed_files.entry_decoder
    records: dict[str, Callable[[list[FileEntry]], list[bytes]]] = {
        "another file": lambda found: [file.entry for file in reversed(found)],
        "other rows": lambda found: [one_off(f.entry, f.entry.index(FORMAT) + 8) for f in found],
        "another size": lambda found: [one_off(f.entry, f.entry.index(FORMAT) + 9) for f in found],
        "another snapshot": lambda found: [one_off(file.entry, 2) for file in found],
        "empty": lambda found: [b""] * len(found),
        "cut": lambda found: [file.entry[:-1] for file in found],
    }

    class Deleted:
        def __init__(self, schema: str) -> None:
            self._decoder = decoder(schema)

        def decode(self, *args: Any) -> Any:
            entry = self._decoder.decode(*args)
            entry.status = ManifestEntryStatus.DELETED
            return entry

    def wrong(segment: Segment, wanted: Any) -> list[FileEntry]:
        found = files(segment, wanted)
        return [replace(file, entry=raw) for file, raw in zip(found, records[what](found), strict=True)]

    if what in records:
        monkeypatch.setattr(Segment, "files", wrong)
    elif what == "unreadable":
        monkeypatch.setattr(Segment, "files", lambda _, wanted: [None] * len(wanted))
    elif what == "deleted":
        monkeypatch.setattr(listed_files, "entry_decoder", Deleted)
    else:
        monkeypatch.setattr(Segment, "schemas", [])
    planned = plan(pair, f"k = {key(0)}")
    assert (planned.manifests.listed, planned.manifests.opened) == (0, 2)
    assert any("in doubt" in warning for warning in planned.warnings)
    assert list(map(task_values, planned.tasks)) == list(map(task_values, normal.tasks))
    assert planned.funnel.dropped_by_filter == 1


def with_first_file(data: bytes, live_files: int, first_file: int) -> bytes:
    """A sidecar in which the manifest of so many files begins at another file; every checksum is good."""
    forgery = Forgery.of(data)
    units = forgery.units()
    sections = sections_of(units)
    old = pa.ipc.open_stream(sections["manifests", 0][0]).read_all()
    rows = old.to_pylist()
    for row in rows:
        if row["live_files_count"] == live_files:
            row["first_file"] = first_file
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, old.schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema=old.schema))
    sections["manifests", 0] = [sink.getvalue().to_pybytes()]
    put_sections(units, sections)
    forgery.link()
    return forgery.stored()


@pytest.mark.parametrize(("live_files", "first_file"), [(2, 2), (2, 3), (1, 3)], ids=["half", "behind", "one behind"])
def test_a_listed_manifest_that_reaches_beyond_the_files_is_opened(
    catalog: Any, tmp_path: Path, live_files: int, first_file: int
) -> None:
    """Three files stand in the units table: one of a manifest of its own, and two of another."""
    table = catalog.create_table(f"db.listed_beyond_{live_files}_{first_file}", LONGS)
    for seeds in ([0], [1, 2]):
        paths = [tmp_path / f"{seed}.parquet" for seed in seeds]
        for seed, path in zip(seeds, paths, strict=True):
            pq.write_table(longs(seed), path)
        table.add_files([f"file:{path}" for path in paths])
    build(table, ["k"])
    entry = table.metadata.statistics[-1]
    data = with_first_file(local(entry.statistics_path).read_bytes(), live_files, first_file)
    local(entry.statistics_path).write_bytes(data)
    footer = int.from_bytes(data[-12:-8], "little") + 16
    sizes = {"file_size_in_bytes": len(data), "file_footer_size_in_bytes": footer}
    with table.update_statistics() as update:
        update.set_statistics(entry.model_copy(update=sizes))
    for seed in range(3):
        for planned in assert_same_tasks(table.refresh(), f"k = {key(seed)}"):
            assert read(planned)["v"].to_pylist() == [f"{seed}-17"]
            assert planned.manifests.opened >= 1
    for text in ("k < 0", "k is not null", "v = '1-3'"):
        assert_same_tasks(table, text)


KINDS: dict[str, tuple[Any, list[Any]]] = {
    "i": (IntegerType(), [-5, 0, 3, 2**31 - 1]),
    "l": (LongType(), [-(2**63), -5, 0, 3, 2**40]),
    "f": (FloatType(), [-1.5, 0.0, 0.1, float("inf"), float("nan")]),
    "d": (DoubleType(), [-1.5, -0.0, 0.1, 3.0, float("nan")]),
    "s": (StringType(), ["", "a", "ab", "abc", "abż", "b", "ż"]),
    "day": (DateType(), [-3, 0, 19000]),
    "ts": (TimestampType(), [-1, 0, 1_700_000_000_000_000]),
}
SPELT = {"day": lambda v: f"'{np.datetime64(v, 'D')}'", "ts": lambda v: f"'{np.datetime64(v, 'us')}'"}


def test_columns_of_bounds_rule_out_what_pyicebergs_evaluator_does_and_no_more() -> None:
    """Bounds of every kind, cut, absent, contradicting, NaN, of promoted columns; random predicates over them."""
    from pyiceberg.conversions import to_bytes

    rng = random.Random(53)
    schema = Schema(*(NestedField(n, name, kind) for n, (name, (kind, _)) in enumerate(KINDS.items(), 1)))
    narrow = {"l": IntegerType(), "d": FloatType()}

    def serialized(name: str) -> bytes | None:
        if rng.random() < 0.15:
            return None
        kind, values = KINDS[name]
        value = rng.choice(values)
        fits = name != "l" or abs(value) < 2**31
        return to_bytes(narrow[name] if name in narrow and fits and rng.random() < 0.3 else kind, value)

    def count(most: int) -> int | None:
        return rng.choice([None, 0, most])

    files: list[dict[int, FieldBounds]] = []
    for _ in range(200):
        files.append(
            {
                n: FieldBounds(serialized(name), serialized(name), count(5), count(5), count(5))
                for n, name in enumerate(KINDS, 1)
            }
        )

    def column(field_id: int) -> pa.Table:
        rows = [file[field_id] for file in files]
        types = [pa.binary()] * 2 + [pa.int64()] * 3
        columns = zip(*rows, strict=True)
        return pa.table(
            {
                name: pa.array(values, kind)
                for name, values, kind in zip(FieldBounds._fields, columns, types, strict=True)
            }
        )

    def data_file(file: dict[int, FieldBounds]) -> DataFile:
        def known(name: str) -> dict[int, Any]:
            return {i: getattr(b, name) for i, b in file.items() if getattr(b, name) is not None}

        return DataFile.from_args(
            record_count=5,
            value_counts=known("value_count"),
            null_value_counts=known("null_count"),
            nan_value_counts=known("nan_count"),
            lower_bounds=known("lower"),
            upper_bounds=known("upper"),
        )

    own = [data_file(file) for file in files]
    forms = ["{c} = {a}", "{c} < {a}", "{c} <= {a}", "{c} > {a}", "{c} >= {a}", "{c} in ({a}, {b})", "{c} != {a}",
             "{c} is null", "{c} is not null", "not ({c} >= {a})"]  # fmt: skip
    ruled_out = theirs_out = 0
    for _ in range(100):
        parts = []
        for _ in range(rng.choice([1, 1, 2, 3])):
            name = rng.choice(list(KINDS))
            spell = SPELT.get(name, lambda v: f"'{v}'" if isinstance(v, str) or np.isinf(v) else repr(v))
            values = [v for v in KINDS[name][1] if v == v]
            form = rng.choice([*forms, "{c} like 'ab%'", "{c} like 'ż%'"] if name == "s" else forms)
            parts.append(form.format(c=name, a=spell(rng.choice(values)), b=spell(rng.choice(values))))
        text = f" {rng.choice(['and', 'or'])} ".join(parts)
        expression = parse_predicate(text, schema)
        evaluator = _InclusiveMetricsEvaluator(schema, expression)
        theirs = np.array([evaluator.eval(file) for file in own])
        ours = may_match(bind(schema, expression, True), column, len(files))
        assert not (theirs & ~ours).any(), text
        ruled_out += int((~ours).sum())
        theirs_out += int((~theirs).sum())
    assert ruled_out > 0.9 * theirs_out > 500
