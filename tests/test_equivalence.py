"""The same rows with a sidecar as without, through every door, for tables with random pasts and random predicates.

``SIDECAR_CASES=5000 scripts/test tests/test_equivalence.py`` runs so many cases through each door; by default some
hundreds. A case is a table's past, a state of its sidecars, a predicate and a snapshot. What is compared is what one
engine says of the same predicate with and without the sidecar: where engines differ, see ``engine_differences.py``.
"""

from __future__ import annotations

import math
import os
import pickle
from contextlib import ExitStack
from functools import cache, reduce
from typing import Any

import pyarrow as pa
import pytest
from duckdb_predicates import duckdb_condition
from equivalence_cases import History, damaged, local, make_history
from equivalence_spark import go_on_in_spark
from iceberg_cases import comparable
from pyiceberg.expressions.visitors import bind

import sidecar
from sidecar.errors import UnsupportedFeatureError
from sidecar.iceberg.predicate import parse_predicate
from sidecar.planning.plan import Plan
from sidecar.reading import table_files
from sidecar.reading.scanning import read

CASES = int(os.environ.get("SIDECAR_CASES", "0"))
BATCH = 30
"""Predicates that one table is asked."""


def batches(default: int) -> range:
    return range(-(-(CASES or default) // BATCH))


@pytest.fixture(scope="session")
def history(catalog: Any) -> Any:
    """The history of a batch, made once for all doors."""

    @cache
    def of(seed: int, flavour: str) -> History:
        return make_history(catalog, f"db.equivalence_{flavour}_{seed}", seed, flavour)

    return of


def planned_or_refused(history: History, text: str, snapshot_id: int | None) -> Plan | None:
    """The plan; ``None`` where equality deletes forbid it, which must be there then."""
    try:
        return sidecar.plan(history.table, text, snapshot_id=snapshot_id)
    except UnsupportedFeatureError as error:
        if history.equality_deletes and "equality deletes" in str(error):
            return None
        if isinstance(error.__cause__, TypeError):
            # pyiceberg 0.12 compares a NULL of an identity partition with a range's end, with or without a sidecar
            row_filter = parse_predicate(text, history.table.schema())
            with pytest.raises(TypeError):
                history.table.scan(row_filter, snapshot_id=snapshot_id).plan_files()
            return None
        raise


def through_spark_workers(planned: Plan, columns: list[str] | None) -> pa.Table:
    """As the Spark data source reads it: planned here, read from pickled partitions, a row group in each."""
    datasource = pytest.importorskip("sidecar.spark.datasource", reason="the extra [spark] is not installed")
    from pyspark import cloudpickle

    names = columns or [field.name for field in planned.table.schema().fields]
    reader = datasource.SidecarReader(planned, names, 1)
    copies = [pickle.loads(cloudpickle.dumps((reader, part))) for part in reader.partitions()]
    batches = [batch for copy, part in copies for batch in copy.read(part)]
    return pa.Table.from_batches(batches) if batches else pa.table({})


def same_as_pyiceberg(history: History, number: int, text: str, snapshot_id: int | None, said: Any) -> None:
    planned, table = planned_or_refused(history, text, snapshot_id), history.table
    if planned is None or history.equality_deletes:
        return  # pyiceberg plans nothing there
    columns = None if number % 8 == 0 else ["id"]
    fields = tuple(columns or ["*"])
    wanted = table.scan(planned.row_filter, selected_fields=fields, snapshot_id=snapshot_id).to_arrow()
    if number % 6 == 5 and snapshot_id is None:
        assert comparable(through_spark_workers(planned, columns)) == comparable(wanted), said
    elif number % 6 == 3:
        rows = planned.to_arrow_batch_reader(columns).read_all()
        assert comparable(rows) == comparable(wanted), said
    else:
        found = read(planned, columns)
        assert comparable(found) == comparable(wanted), said
        assert found.schema.equals(wanted.schema), said


def same_as_a_semi_join(history: History, text: str, said: Any) -> None:
    """Keys of a random column: the rows that pyiceberg finds, as far as their value is a key."""
    if history.equality_deletes:
        return
    column = history.rng.choice([name for name in history.values if "." not in name])
    scan = history.table.scan(parse_predicate(text, history.table.schema()))
    everything = history.table.scan().select(column).to_arrow()[column]
    chosen = history.rng.sample(range(len(everything)), min(len(everything), history.rng.choice([1, 3, 20])))
    keys = everything.take(pa.array(chosen, pa.int64())).combine_chunks()
    wanted = {_normal(key) for key in keys.to_pylist()} - {None}
    rows = scan.select("id", column).to_arrow().to_pylist()
    found = sidecar.scan(history.table, text, ["id"], keys={column: keys})["id"].to_pylist()
    expected = sorted(row["id"] for row in rows if _normal(row[column]) in wanted)
    assert sorted(found) == expected, (said, column, keys)


def _normal(value: Any) -> Any:
    """NaN equals NaN as a key."""
    return "NaN" if value != value else value


@pytest.mark.parametrize("batch", batches(120))
def test_pyiceberg(history: Any, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "SMALL", 0)
    if batch % 2:  # else pyiceberg gets most files whole
        monkeypatch.setattr(table_files, "TOO_MUCH", math.inf)
    made = history(batch, "mixed" if batch % 3 == 2 else "parquet")
    with damaged(made) as damage:
        for number in range(BATCH):
            text, snapshot_id = made.predicate(), made.snapshot()
            said = (batch, number, text, snapshot_id, damage, made.log)
            if number % 10 == 9:
                same_as_a_semi_join(made, text, said)
            else:
                same_as_pyiceberg(made, number, text, snapshot_id, said)


@pytest.mark.parametrize("batch", batches(90))
def test_duckdb(history: Any, duckdb_iceberg: Any, batch: int) -> None:
    """The rows that DuckDB finds in the table, by the files that they stand in: all of them are kept."""
    made = history(batch if batch % 3 != 2 else batch + 10_000, "parquet")  # it reads no ORC
    duckdb_iceberg.execute("set TimeZone = 'UTC'")
    with damaged(made) as damage:
        path = str(local(made.table.metadata_location))
        duckdb_iceberg.execute(f"create or replace temp table live as from iceberg_scan('{path}')")
        files = sidecar.plan(made.table, "true", allow_equality_deletes=True).kept_files
        listed = {str(local(file)): file for file in files}
        stands_in: dict[int, str] = {}
        if listed:
            rows = duckdb_iceberg.execute(
                "select id, filename from read_parquet(?, filename=true)", [list(listed)]
            ).fetchall()
            stands_in = {key: listed[name] for key, name in rows}
        for number in range(BATCH):
            text = made.predicate()
            schema = made.table.schema()
            bound = bind(schema, parse_predicate(text, schema), case_sensitive=True)
            condition = duckdb_condition(bound, schema)
            rows = duckdb_iceberg.execute(f"select id from live where {condition}").fetchall()
            kept = {*sidecar.plan(made.table, text, allow_equality_deletes=True).kept_files}
            lost = [key for (key,) in rows if stands_in.get(key) not in kept]
            assert not lost, (batch, number, text, condition, lost, damage, made.log)


@pytest.mark.jvm
@pytest.mark.parametrize("batch", batches(60))
def test_spark(spark: Any, history: Any, batch: int) -> None:
    """Spark's own reader with all files and with those that are left, in two jobs for all predicates."""
    from pyspark.sql import functions as f

    from sidecar.spark.columns import spark_column

    made: History = history(batch, "spark")
    go_on_in_spark(spark, made)
    name = "cat." + ".".join(made.table.name())
    texts = [made.predicate() for _ in range(BATCH)]
    with damaged(made) as damage, ExitStack() as stack:
        plain, pruned = [], []
        for number, text in enumerate(texts):
            schema = made.table.schema()
            condition = spark_column(bind(schema, parse_predicate(text, schema), True), schema)
            plain.append(spark.table(name).where(condition).select(f.lit(number), "id"))
            frame = stack.enter_context(sidecar.spark_read(spark, name, made.table, text, ["id"]))
            pruned.append(frame.select(f.lit(number), "id"))
        wanted, found = (
            sorted(map(tuple, reduce(lambda a, b: a.unionAll(b), frames).collect()))
            for frames in (plain, pruned)
        )
        if found != wanted:
            wrong = {number for number, _ in set(found) ^ set(wanted)}
            raise AssertionError((batch, [(n, texts[n]) for n in wrong], damage, made.log))

    if not made.equality_deletes and made.reads_parquet_alone:
        askable = [column for column in made.columns if made.values[column] != "u"]
        for number in range(8):  # deletion vectors among them
            text = made.predicate(askable)
            same_as_pyiceberg(made, number, text, None, (batch, number, text, made.log))
