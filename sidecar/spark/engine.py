"""The Spark engine: both stages of a build as two short DataFrame pipelines.

    tasks -> mapInArrow(stage 1) -> cached -> the driver reads everything but filters and assigns positions
    cached x positions -> cut into (group, block range) -> groupBy + applyInArrow(stage 2) -> cached -> in order

Only the DataFrame API is used, so the same code runs in a classic session and on Spark Connect. Workers run the same
functions as the in-process engine. Properties of a FileIO may hold secrets: they are sent inside the functions that
Spark ships, never in a column, a log line or an error.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from sidecar.convert.outcome import Progress
from sidecar.errors import StorageError
from sidecar.indexing.slices import PART_BYTES, GroupTask, Key, cut, gather
from sidecar.indexing.tasks import BuildPlan, Opener, Record, UnitsTask, index_units
from sidecar.spark.frames import ArrowMap, Names, in_order, partitions_for, size_of, spark_errors

RESULTS = pa.schema(
    Names(
        task=pa.int32(),
        ordinal=pa.int32(),
        kind=pa.string(),
        file=pa.int32(),
        row_group=pa.int32(),
        field_id=pa.int32(),
        first_row=pa.int64(),
        rows=pa.int64(),
        encoding=pa.string(),
        resolution=pa.string(),
        how=pa.string(),
        data=pa.binary(),
        blocks=pa.int32(),
        tail=pa.binary(),
        reason=pa.string(),
        theta_reason=pa.string(),
        fault=pa.string(),
        rate=pa.float64(),
        bytes_read=pa.int64(),
        bits=pa.int64(),
        hashes=pa.int32(),
        length=pa.int32(),
        column_length=pa.int32(),
        described=pa.string(),
        sketch_group=pa.int32(),
    )
)
"""Schema of stage 1: one row for each :class:`sidecar.indexing.tasks.Record`. Bytes are ``binary``, the only type for
bytes that applyInArrow accepts."""

POSITIONS = pa.schema(
    Names(file=pa.int32(), row_group=pa.int32(), field_id=pa.int32(), group=pa.int32(), position=pa.int32())
)
PIECES = pa.schema(Names(group=pa.int32(), part=pa.int32(), position=pa.int32(), factor=pa.int32(), data=pa.binary()))
SLICES = pa.schema(Names(group=pa.int32(), part=pa.int32(), data=pa.binary()))

FLUSH_BYTES = 16 << 20
"""Size in bytes of the batches that go back to Spark, about."""


class SparkEngine:
    """Runs both stages on a Spark session, classic or Connect. The caller owns the session; it is not stopped here."""

    name = "spark"

    def __init__(self, session: Any, opener: Opener) -> None:
        self._session = session
        self._opener = opener
        self._kept: list[Any] = []
        self._indexed: Any = None

    def index(self, tasks: Sequence[UnitsTask], plan: BuildPlan, progress: Progress) -> list[Record]:
        """Run stage 1, see :meth:`sidecar.indexing.engine.Engine.index`."""
        if not tasks:
            return []
        progress("indexing on Spark (starting workers takes a few seconds)", None, len(tasks))
        with spark_errors():
            return self._index(tasks, plan)

    def _index(self, tasks: Sequence[UnitsTask], plan: BuildPlan) -> list[Record]:
        rows = [(task.number, pickle.dumps(task)) for task in tasks]
        frame = self._session.createDataFrame(rows, "task int, payload binary").repartition(len(rows))
        stage = frame.mapInArrow(_stage_one(plan, self._opener), _ddl(RESULTS))
        self._indexed = self._keep(stage)
        others = [name for name in RESULTS.names if name != "data"]
        sketches = "case when kind = 'sketch' then data end as data"
        return _records(self._indexed.selectExpr(*others, sketches).toArrow())

    def slices(self, groups: Sequence[GroupTask], progress: Progress) -> Iterator[tuple[int, bytes]]:
        """Run stage 2, see :meth:`sidecar.indexing.engine.Engine.slices`."""
        ranges = [(group.number, part) for group in groups for part in range(group.parts)]
        if not ranges:
            return
        progress("slicing on Spark", 0, len(ranges))
        done = 0
        with spark_errors():
            # A missing row ends the loop early; the count below reports it.
            for (number, part), row in zip(ranges, self._slice(groups), strict=False):
                if (row["group"], row["part"]) != (number, part):
                    break
                yield number, bytes(row["data"])
                done += 1
                progress("slicing on Spark", done, len(ranges))
        if done != len(ranges):
            raise StorageError("Spark returned too few slices of the index", expected=len(ranges), found=done)

    def _slice(self, groups: Sequence[GroupTask]) -> Iterator[Any]:
        frame = self._indexed.where("kind = 'column' and data is not null")
        # Without the hint, Spark takes the small side for huge, and shuffles and sorts all filters to join them.
        positions = self._session.createDataFrame(_positions(groups)).hint("broadcast")
        placed = frame.join(positions, ["file", "row_group", "field_id"])
        by_number = {group.number: replace(group, keys=()) for group in groups}
        pieces = placed.select("group", "position", "data").mapInArrow(_cut(by_number), _ddl(PIECES))
        partitions = partitions_for(sum(group.parts for group in groups) * PART_BYTES)
        grouped = pieces.repartition(partitions, "group", "part").groupBy("group", "part")
        # Cached, because sorting samples its input first and would otherwise run stage 2 twice.
        sliced = self._keep(grouped.applyInArrow(_stage_two(by_number), _ddl(SLICES)))
        return in_order(sliced, partitions, "group", "part")

    def page_indexes(self, keys: Sequence[Key]) -> Iterator[bytes]:
        """Read page indexes back, see :meth:`sidecar.indexing.engine.Engine.page_indexes`."""
        if not keys:
            return
        table = pa.table(
            {
                name: pa.array([key[i] for key in keys], pa.int32())
                for i, name in enumerate(("file", "row_group", "field_id"))
            }
        ).append_column("place", pa.array(range(len(keys)), pa.int32()))
        done = 0
        with spark_errors():
            frame = self._indexed.where("kind = 'pages' and data is not null")
            places = self._session.createDataFrame(table).hint("broadcast")
            placed = frame.join(places, ["file", "row_group", "field_id"]).select("place", "data")
            for row in in_order(placed, partitions_for(size_of(placed, "data")), "place"):
                if row["place"] != done:
                    break
                yield bytes(row["data"])
                done += 1
        if done != len(keys):
            raise StorageError("Spark returned too few page indexes", expected=len(keys), found=done)

    def close(self) -> None:
        """Drop the cached frames."""
        for frame in self._kept:
            frame.unpersist()
        self._kept.clear()

    def _keep(self, frame: Any) -> Any:
        frame = frame.persist()
        self._kept.append(frame)
        return frame


def _stage_one(plan: BuildPlan, opener: Opener) -> ArrowMap:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, Any]] = []
        held = 0
        for batch in batches:
            for row in batch.to_pylist():
                for ordinal, record in enumerate(index_units(pickle.loads(row["payload"]), plan, opener)):
                    rows.append({"task": row["task"], "ordinal": ordinal, **record._asdict()})
                    held += len(record.data or b"")
                    if held > FLUSH_BYTES:
                        yield pa.RecordBatch.from_pylist(rows, schema=RESULTS)
                        rows, held = [], 0
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=RESULTS)

    return run


def _records(table: pa.Table) -> list[Record]:
    """Return the records in the order of their tasks; Spark returns rows in any order."""
    rows = table.sort_by([("task", "ascending"), ("ordinal", "ascending")]).to_pylist()
    return [Record(**{name: row[name] for name in Record._fields}) for row in rows]


def _positions(groups: Sequence[GroupTask]) -> pa.Table:
    rows = [(*key, group.number, position) for group in groups for position, key in enumerate(group.keys)]
    columns = np.array(rows, dtype=np.int32).reshape(-1, len(POSITIONS)).T
    return pa.Table.from_arrays([pa.array(column) for column in columns], schema=POSITIONS)


def _cut(groups: Mapping[int, GroupTask]) -> ArrowMap:
    """Return a function that cuts each filter into the block ranges of its group; pieces are not yet widened."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows: list[dict[str, Any]] = []
            held = 0
            for row in batch.to_pylist():
                group = groups[row["group"]]
                for piece in cut(row["data"], group, row["position"]):
                    rows.append({"group": group.number, "position": row["position"], **piece._asdict()})
                    held += len(piece.data)
                    if held > FLUSH_BYTES:
                        yield pa.RecordBatch.from_pylist(rows, schema=PIECES)
                        rows, held = [], 0
            yield pa.RecordBatch.from_pylist(rows, schema=PIECES)

    return run


def _stage_two(groups: Mapping[int, GroupTask]) -> Callable[[pa.Table], pa.Table]:
    def run(table: pa.Table) -> pa.Table:
        group, part = groups[table["group"][0].as_py()], table["part"][0].as_py()
        columns = (table[name].to_pylist() for name in ("position", "factor", "data"))
        data = group.slice(part, gather(group, part, zip(*columns, strict=True)))
        return pa.Table.from_pylist([{"group": group.number, "part": part, "data": data}], schema=SLICES)

    return run


def _ddl(schema: pa.Schema) -> str:
    """Return a schema as Spark's DDL text."""
    names = {
        pa.int32(): "int",
        pa.int64(): "bigint",
        pa.string(): "string",
        pa.binary(): "binary",
        pa.float64(): "double",
    }
    return ", ".join(f"{field.name} {names[field.type]}" for field in schema)
