"""The same rows with a sidecar as without, through every door, for tables with random pasts and random predicates.

``SIDECAR_CASES=5000 scripts/test tests/test_equivalence.py`` runs so many cases through pyiceberg's door, so many
through DuckDB's, and two for every five through Spark's; by default some two hundred in all. ``SIDECAR_SHARE=0/2`` and
``SIDECAR_SHARE=1/2`` are the halves of that for two processes. What the cases came to is printed at the end.

A case is one predicate on a table with a random past, a snapshot and a state of its sidecars, at most
:data:`BATCH` a table; every case is planned twice, as such a small table is, and from the manifests that the
sidecar lists, as large ones are. What is compared is what one engine says of the same predicate with and without the
sidecar: where engines differ, see ``engine_differences.py``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import copy
from functools import cache, partial, reduce
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions.visitors import bind
from pyiceberg.table import Table

import sidecar
from sidecar.errors import UnsupportedFeatureError
from sidecar.iceberg.predicates.predicate import parse_predicate
from sidecar.iceberg.refs import table_at
from sidecar.planning.files import cheapest
from sidecar.planning.plan import Plan
from sidecar.reading import table_files
from sidecar.reading.scanning import read
from tests.duckdb_predicates import duckdb_condition, spark_condition
from tests.iceberg.cases import local
from tests.life.pasts import CANNOT_COMPARE, Past, damaged, features_of, make_past
from tests.life.spark_changes import go_on_in_spark, name_in_spark
from tests.life.tally import Tally
from tests.life.truth import live_rows, right_ids, shown, shown_rows, truth_at

CASES = int(os.environ.get("SIDECAR_CASES", "0"))
SHARE, SHARES = map(int, os.environ.get("SIDECAR_SHARE", "0/1").split("/"))
BATCH = 25 if CASES else 16
"""Predicates that one table is asked."""


def batches(cases: int, flavours: Callable[[int], tuple[int, str]]) -> list[Any]:
    """The seed and flavour of the tables that so many cases need, with their features as names of tests."""
    chosen = [flavours(n) for n in range(-(-cases // BATCH))]
    return [
        pytest.param(*one, id="-".join(map(str, (*one, *features_of(*one)))))
        for one in chosen
        if one[0] % SHARES == SHARE
    ]


@contextmanager
def listed_manifests() -> Iterator[None]:
    """Plan from the manifests that a sidecar lists, however few files they have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cheapest, "BROAD", 0)
        patch.setattr(cheapest, "FEW", 0)
        patch.setattr(cheapest, "DECODING", 0.0)
        yield


@contextmanager
def as_planned() -> Iterator[None]:
    """Plan as the table is planned anyway."""
    yield


Rows = list[dict[str, Any]]
WAYS = (as_planned, listed_manifests)


def pasts(catalog: Any) -> Callable[..., Past]:
    """The table of a batch, made once."""
    return cache(partial(make_past, catalog))


@pytest.fixture(scope="session")
def past(catalog: Any) -> Any:
    """The tables of all doors of this module."""
    return pasts(catalog)


def planned_or_refused(
    made: Past, text: str, snapshot_id: int | None, allow_equality_deletes: bool = False
) -> Plan | None:
    """The plan; ``None`` where equality deletes forbid it, which must be there then, or where pyiceberg fails too."""
    try:
        return sidecar.plan(made.table, text, at=snapshot_id, allow_equality_deletes=allow_equality_deletes)
    except UnsupportedFeatureError as error:
        if made.holds(snapshot_id).equality_deletes and "equality deletes" in str(error):
            return None
        if isinstance(error.__cause__, TypeError):
            # pyiceberg 0.12 compares a NULL of an identity partition with a range's end, with or without a sidecar
            table = table_at(made.table, snapshot_id)[0]
            row_filter = parse_predicate(text, table.schema())
            before = snapshot_id or made.before_equality()
            with pytest.raises(TypeError):
                table.scan(row_filter, snapshot_id=before).plan_files()
            return None
        raise


def same_as_pyiceberg(tally: Tally, made: Past, number: int, text: str, snapshot_id: int | None, said: Any) -> None:
    by_engine = None
    for way in WAYS:
        with way():
            planned = planned_or_refused(made, text, snapshot_id)
        if planned is None:
            return
        columns = projected(made, number, snapshot_id)
        if by_engine is None:
            by_engine = live_rows(made, tuple(columns or ["*"]), snapshot_id, planned.row_filter)
            truth = truth_at(made, text, snapshot_id)
            tally.cases += 1
        found = _rows(planned, number, columns)
        ids, without = _ids(found), partial(ids_without, made, text, snapshot_id)
        right = right_ids(truth, ids, _ids(by_engine), without)
        wanted = shown_rows(made, right, columns, snapshot_id)
        tally.compare(shown(made, found, snapshot_id), wanted, (way.__name__, *said))
        if number % 6 != 3 and {*ids} == {*_ids(by_engine)}:  # a deleted row may have made the engine's strings large
            assert found.schema.equals(by_engine.schema), said
        if number % 5 == 2:
            most = 1 + number % 3
            few = sidecar.scan(made.table, text, ["id"], most, at=snapshot_id)
            assert few.num_rows == min(most, found.num_rows), said
            assert _ids(few) <= ids, said


def projected(made: Past, number: int, snapshot_id: int | None) -> list[str] | None:
    """The columns that a case reads: the id, at times one beside it, or all."""
    names = table_at(made.table, snapshot_id)[0].schema().as_arrow().names
    other = names[number % len(names)]
    return None if number % 8 == 0 else ["id", other] if number % 4 == 1 and other != "id" else ["id"]


def _rows(planned: Plan, number: int, columns: list[str] | None) -> pa.Table:
    if number % 6 == 3:
        return planned.to_arrow_batch_reader(columns).read_all()
    return read(planned, columns)


def same_as_a_semi_join(tally: Tally, made: Past, text: str, said: Any) -> None:
    """Keys of a random column: the rows that pyiceberg finds, as far as their value is a key."""
    if made.head().equality_deletes:
        return
    column = made.rng.choice([name for name in made.values if "." not in name])
    rows = live_rows(made, ("id", column))
    values = rows[column].to_pylist()
    chosen = made.rng.sample(range(len(values)), min(len(values), made.rng.choice([1, 3, 20])))
    keys = rows[column].take(pa.array(chosen, pa.int64())).combine_chunks()
    asked = {_normal(key) for key in keys.to_pylist()} - {None}
    ids = {key for key, value in zip(rows["id"].to_pylist(), values, strict=True) if _normal(value) in asked}
    row_filter = parse_predicate(text, made.table.schema())
    by_engine = _ids(live_rows(made, ("id",), None, row_filter)) & ids
    truth = {key: one for key, one in truth_at(made, text).items() if key in ids}
    tally.cases += 1
    for way in WAYS:
        with way():
            found = sidecar.scan(made.table, text, ["id"], keys={column: keys})
        right = right_ids(truth, _ids(found), by_engine, partial(ids_without, made, text))
        tally.compare(shown(made, found), shown_rows(made, right, ["id"]), (way.__name__, *said, column, keys))


def _normal(value: Any) -> Any:
    """NaN equals NaN as a key."""
    return "NaN" if value != value else value


def without_sidecar(made: Past) -> Table:
    """The table as if no sidecar had been built."""
    table = copy(made.table)
    table.metadata = table.metadata.model_copy(update={"statistics": []})
    return table


def ids_without(made: Past, text: str, snapshot_id: int | None = None) -> set[int]:
    """The ids that are found without a sidecar."""
    return _ids(sidecar.scan(without_sidecar(made), text, ["id"], at=snapshot_id))


def _ids(rows: pa.Table) -> set[int]:
    return {*rows["id"].to_pylist()}


def besides_pruned(found: Rows, whole: Rows, pruned: Rows) -> Rows:
    """``whole`` but for rows that Spark does not find itself: its bounds take -0.0 as less than 0.0."""
    return [row for row in whole if row in found or row in pruned]


def pyiceberg_tables(number: int) -> tuple[int, str]:
    return number, "mixed" if number % 3 == 2 else "parquet"


def duckdb_tables(number: int) -> tuple[int, str]:
    """DuckDB 1.5 reads no ORC, and no snapshots of version 1 in tables of version 2."""
    seed = number // 2 * 3 + number % 2  # of pyiceberg's tables those that are all Parquet
    while "upgrade" in features_of(seed, "parquet"):
        seed += 25_200  # whatever the number of shares, it is of the same one
    return seed, "parquet"


def spark_tables(number: int) -> tuple[int, str]:
    return number, "spark"


@cache
def readable_spark_tables(number: int) -> tuple[int, str]:
    """Those of which pyiceberg reads all that Spark has written: the first one is also the second of all."""
    seed = readable_spark_tables(number - 1)[0] + 1 if number else 1
    while {"formats", "equality"} & {*features_of(seed, "spark")}:
        seed += 1
    return seed, "spark"


@pytest.mark.parametrize(("seed", "flavour"), batches(CASES or 5 * BATCH, pyiceberg_tables))
def test_pyiceberg(past: Any, seed: int, flavour: str, monkeypatch: pytest.MonkeyPatch, record_property: Any) -> None:
    monkeypatch.setattr(table_files, "SMALL", 0)
    if seed % 2:  # else pyiceberg gets most files whole
        monkeypatch.setattr(table_files, "TOO_MUCH", math.inf)
    tally = Tally("pyiceberg")
    made = past(seed, flavour)
    with damaged(made) as damage:
        for number in range(BATCH):
            snapshot_id = made.snapshot()
            text = made.predicate(made.columns_at(snapshot_id))
            said = (seed, number, text, snapshot_id, damage, made.log)
            if number % 10 == 9:
                same_as_a_semi_join(tally, made, text, said)
            else:
                same_as_pyiceberg(tally, made, number, text, snapshot_id, said)
    tally.finish(record_property)


@pytest.mark.parametrize(("seed", "flavour"), batches(CASES or 4 * BATCH, duckdb_tables))
def test_duckdb(past: Any, duckdb_iceberg: Any, seed: int, flavour: str, record_property: Any) -> None:
    """The rows that DuckDB finds in the table, by the files that they stand in: all of them are kept."""
    tally = Tally("DuckDB")
    made = past(seed, flavour)
    duckdb_iceberg.execute("set TimeZone = 'UTC'")
    with damaged(made) as damage:
        place = local(made.table.metadata_location)
        duckdb_iceberg.execute(f"create or replace temp table live as from iceberg_scan('{place}')")
        stands_in = made.places()
        for number in range(BATCH):
            text = made.predicate()
            schema = made.table.schema()
            bound = bind(schema, parse_predicate(text, schema), case_sensitive=True)
            condition = duckdb_condition(bound, schema)
            keys = duckdb_iceberg.execute(f"select id from live where {condition}").fetchall()
            rows = {key for (key,) in keys}
            truth = truth_at(made, text)
            asked = {key for key, one in truth.items() if one.must or (one.may and key in rows)}

            for way in WAYS:
                with way():
                    planned = planned_or_refused(made, text, None, allow_equality_deletes=True)
                if planned is None:
                    break
                tally.cases += way is as_planned
                found = _kept(planned, stands_in) & asked
                right = right_ids(truth, found, rows, partial(_kept_without, made, text, stands_in))
                said = (way.__name__, seed, number, text, condition, damage, made.log)
                tally.compare([{"id": key} for key in found], [{"id": key} for key in right], said)
    tally.finish(record_property)


def _kept(planned: Plan, stands_in: Mapping[int, str]) -> set[int]:
    """The ids in the files that a plan keeps."""
    files = {*planned.kept_files}
    return {key for key, file in stands_in.items() if file in files}


def _kept_without(made: Past, text: str, stands_in: Mapping[int, str]) -> set[int]:
    """The same of the plan without a sidecar."""
    return _kept(sidecar.plan(without_sidecar(made), text, allow_equality_deletes=True), stands_in)


@pytest.mark.jvm
@pytest.mark.parametrize(("seed", "flavour"), batches(CASES * 2 // 5 or 2 * BATCH, spark_tables))
def test_spark(spark: Any, past: Any, seed: int, flavour: str, record_property: Any) -> None:
    """Spark's own reader with all files and with those that are left, in two jobs for all predicates.

    A table's branch is read too. pyiceberg's table is at times older than what Spark did to it, or than the last
    change of the schema, after which there is no snapshot.
    """
    tally = Tally("Spark")
    made: Past = past(seed, flavour)
    before = made.catalog.load_table(made.name)
    go_on_in_spark(spark, made)
    table = [made.table, made.older or before, before][seed % 3]
    name = name_in_spark(made)
    names = [name, *(f"{name}.branch_{branch}" for branch in made.branches()[1:2])]
    # filters are not pushed into these: Iceberg 1.12 binds those of a branch to the schema of the branch's snapshot
    whole = {name: spark.table(name).localCheckpoint() for name in names}
    asked = [(names[n % 3 == 2 and len(names) > 1], made.predicate()) for n in range(BATCH)]
    with damaged(made) as damage, ExitStack() as stack:
        plain, pruned = [], []
        for number, (place, text) in enumerate(asked):
            plain.append(_numbered(whole[place].where(_condition(made, text)), number))
            with WAYS[number % 2]():
                frame = stack.enter_context(sidecar.spark_read(spark, place, table, text, ["id"]))
            pruned.append(_numbered(frame, number))
        found, wanted = (_collected(frames) for frames in (pruned, plain))
    for number, (place, text) in enumerate(asked):
        tally.cases += 1
        said = (seed, number, place, text, damage, made.log)
        own, whole_rows = found.get(number, []), wanted.get(number, [])
        if len(own) < len(whole_rows):
            where = spark.table(place).where(_condition(made, text))
            whole_rows = besides_pruned(own, whole_rows, _collected([_numbered(where, 0)]).get(0, []))
        tally.compare(own, whole_rows, said)
    tally.finish(record_property)


@pytest.mark.jvm
@pytest.mark.parametrize(("seed", "flavour"), batches(CASES * 2 // 25 or BATCH, readable_spark_tables))
def test_pyiceberg_after_spark(spark: Any, past: Any, seed: int, flavour: str, record_property: Any) -> None:
    """Tables that Spark has changed, with deletion vectors, through pyiceberg's door."""
    tally = Tally("pyiceberg after Spark")
    made: Past = past(seed, flavour)
    go_on_in_spark(spark, made)
    askable = [column for column in made.columns if made.values[column] not in CANNOT_COMPARE]
    for number in range(8):
        text = made.predicate(askable)
        same_as_pyiceberg(tally, made, number, text, None, (seed, number, text, made.log))
    tally.finish(record_property)


def _condition(made: Past, text: str) -> str:
    schema = made.table.schema()
    return spark_condition(bind(schema, parse_predicate(text, schema), True), schema)


def _numbered(frame: Any, number: int) -> Any:
    from pyspark.sql import functions as f

    return frame.select(f.lit(number), "id")


def _collected(frames: list[Any]) -> dict[int, list[dict[str, Any]]]:
    """The ids that each frame has, in one job."""
    found: dict[int, list[dict[str, Any]]] = {}
    for number, key in reduce(lambda a, b: a.unionAll(b), frames).collect():
        found.setdefault(number, []).append({"id": key})
    return found
