"""Stage 1 on Spark: what a task's rows hold, and what the driver makes of rows that come in any order or not at all."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from sidecar.bundle.model import UnitEntry
from sidecar.errors import StorageError
from sidecar.indexing.columns import FilterFacts
from sidecar.indexing.stage_one.tasks import StageResult, UnitsTask
from sidecar.spark import engine
from sidecar.spark.engine import SparkEngine

TASKS = [UnitsTask(number, ()) for number in range(3)]


def _records(task: int) -> list[StageResult]:
    """Records of two units with a filter of another size each, a page index, no filter, and a sketch."""
    records = []
    for group in range(2):
        blocks = task + group + 1
        records += [
            StageResult("unit", task, group, entry=UnitEntry(group, 0, 7)),
            StageResult(
                "column", task, group, 1, data=bytes([task, group] * 16 * blocks), filter=FilterFacts(blocks=blocks)
            ),
            StageResult("pages", task, group, 1, data=b"pages %d %d" % (task, group), length=9),
            StageResult("column", task, group, 2, reason="no filter was made"),
        ]
    return [*records, StageResult("sketch", task, field_id=1, data=b"sketch")]


class Frame:
    """Rows in partitions, and the methods of Spark's frames that the engine calls; what is lost does not come."""

    def __init__(self, partitions: list[list[dict[str, Any]]], lost: int = -1) -> None:
        self.partitions, self.lost = partitions, lost

    def coalesce(self, count: int) -> Frame:
        rows = [row for part in reversed(self.partitions) for row in part]
        return Frame([rows[i::count] for i in range(count)], self.lost)

    def hint(self, name: str) -> Frame:
        assert name == "broadcast"
        return self

    def join(self, other: Frame, column: str) -> Frame:
        assert column == "id"
        return Frame([[row] for part in other.partitions for row in part], self.lost)

    def mapInArrow(self, function: Any, ddl: str) -> Frame:  # noqa: N802 Spark's name
        def run(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            found: Iterator[pa.RecordBatch] = function(iter([pa.RecordBatch.from_pylist(rows)]))
            return [row for batch in found for row in batch.to_pylist()]

        assert [field.split()[0] for field in ddl.split(", ")] == engine.RESULTS.names
        return Frame([run(rows) for rows in self.partitions], self.lost)

    def selectExpr(self, key: str, total: str) -> Frame:  # noqa: N802
        terms = total.removesuffix(" AS bytes").split(" + ")
        names = [term.removeprefix("length(").removesuffix(")") for term in terms]
        assert key == "task AS key"
        rows = [row for part in self.partitions for row in part]
        return Frame([[{"key": row["task"], "bytes": sum(len(row[name]) for name in names)} for row in rows]])

    def toArrow(self) -> pa.Table:  # noqa: N802
        rows = [row for part in reversed(self.partitions) for row in part]
        return pa.Table.from_pylist([row for number, row in enumerate(rows) if number != self.lost])

    def toLocalIterator(self, prefetchPartitions: bool) -> Iterator[dict[str, Any]]:  # noqa: N802, N803
        assert prefetchPartitions
        rows = [row for part in self.partitions for row in part]
        yield from (row for number, row in enumerate(rows) if number != self.lost)

    def persist(self) -> None:
        """Nothing is computed twice here."""

    def unpersist(self) -> None:
        """Nothing is kept."""


class Session:
    def __init__(self, lost: int = -1) -> None:
        self.lost = lost

    def range(self, start: int, end: int, step: int, partitions: int) -> Frame:
        assert (start, end, step, partitions) == (0, len(TASKS), 1, len(TASKS))
        return Frame([[]], self.lost)

    def createDataFrame(self, rows: pa.Table) -> Frame:  # noqa: N802
        return Frame([rows.to_pylist()], self.lost)


@pytest.fixture
def stage_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "index_units", lambda task, plan: iter(_records(task.number)))
    monkeypatch.setattr("sidecar.spark.workers.spare_worker", lambda: None)


@pytest.mark.usefixtures("stage_one")
@pytest.mark.parametrize(("most_bytes", "most_records"), [(1 << 20, 1000), (0, 1000), (1 << 20, 2)])
def test_records_come_in_order_and_their_indexes_are_kept(
    most_bytes: int, most_records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "FLUSH_BYTES", most_bytes)
    monkeypatch.setattr(engine, "FLUSH_RECORDS", most_records)
    with closing(SparkEngine(Session())) as spark:
        found = spark.index(TASKS, None)  # type: ignore[arg-type]
        made = [record for task in TASKS for record in _records(task.number)]
        assert found == [record if record.kind == "sketch" else record._replace(data=None) for record in made]
        pages = [record for record in made if record.kind == "pages"]
        assert list(spark.kept.page_indexes([(r.file, r.row_group, 1) for r in pages])) == [r.data for r in pages]
        filters = {(r.file, r.row_group, r.field_id): r.data for r in made if r.filter.blocks}
        kept = {key: spark.kept._spool.read(at, len(filters[key] or b"")) for key, at in spark.kept._filters.items()}
        assert kept == filters


@pytest.mark.usefixtures("stage_one")
def test_a_lost_row_is_an_error() -> None:
    spark = SparkEngine(Session(lost=1))
    with closing(spark), pytest.raises(StorageError) as raised:
        spark.index(TASKS, None)  # type: ignore[arg-type]
    assert (raised.value.expected, raised.value.found) == (3, 2)


@pytest.mark.usefixtures("stage_one")
def test_rows_of_records_carry_no_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The filters of a row are beside its records, so they are not pickled, and sent once."""
    monkeypatch.setattr(engine, "FLUSH_BYTES", 0)
    batches = list(engine._parts(5, iter(_records(1))))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["last"] for row in rows] == [False] * (len(rows) - 1) + [True]
    assert [row["part"] for row in rows] == list(range(len(rows)))
    for row in rows:
        records = pickle.loads(row["records"])
        assert sum(record.kept_bytes for record in records) == len(row["indexes"])
        assert all(record.data is None or record.kind == "sketch" for record in records)
