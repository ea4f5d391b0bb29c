"""Theta sketches beside those of Spark's ``compute_table_stats``, and read by DataSketches on the JVM."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sidecar.filters.theta import ThetaSketch
from sidecar.puffin.reader import PuffinReader
from sidecar.storage.opening import open_source

pytestmark = pytest.mark.jvm

THETA = "apache-datasketches-theta-v1"
BELOW, ABOVE = 3000, 20_000


def words(count: int, bits: int) -> np.ndarray:
    return np.random.default_rng(bits).integers(0, 1 << bits, count, dtype=np.uint64, endpoint=False)


def decimals(numbers: np.ndarray, digits: int, scale: int) -> pa.Array:
    unscaled = [(-1) ** i * (int(n) * 10**18 + i) % 10**digits * (-1) ** i for i, n in enumerate(numbers.tolist())]
    values = [Decimal((int(u < 0), tuple(map(int, str(abs(u)))), -scale)) for u in unscaled]
    return pa.array(values, pa.decimal128(digits, scale))


def columns_of(count: int) -> dict[str, pa.Array]:
    """Random values of every type that Spark reads: nulls, empty strings, zeros of both signs and NaN among them."""
    longs = words(count, 64).view(np.int64)
    texts = [None if i % 97 == 0 else "" if i % 89 == 0 else f"ż{n}" for i, n in enumerate(longs.tolist())]
    doubles = longs.astype(np.float64) / 3
    doubles[:6] = [0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324]
    doubles[6:7].view(np.uint64)[:] = 0xFFF8000000000001  # another NaN: it counts apart
    microseconds = pa.array(longs % (1 << 50))
    return {
        "flag": pa.array([i % 3 == 0 if i % 5 else None for i in range(count)]),
        "i": pa.array(words(count, 32).astype(np.uint32).view(np.int32)),
        "l": pa.array(longs, mask=np.arange(count) % 7 == 0),
        "f": pa.array(doubles.astype(np.float32)),
        "d": pa.array(doubles),
        "day": pa.array((longs % 100_000).astype(np.int32)).view(pa.date32()),
        "ts": microseconds.view(pa.timestamp("us")),
        "tz": microseconds.view(pa.timestamp("us", "UTC")),
        "s": pa.array(texts, pa.string()),
        "b": pa.array([None if t is None else t.encode() for t in texts], pa.binary()),
        "fix": pa.array([n.to_bytes(8, "big", signed=True)[-5:] for n in longs.tolist()], pa.binary(5)),
        "dec9": decimals(words(count, 29), 9, 2),
        "dec18": decimals(words(count, 59), 18, 3),
        "dec38": decimals(words(count, 63), 38, 10),
        "u": pa.array([uuid.UUID(int=(n % 2**64) << 40).bytes for n in longs.tolist()], pa.uuid()),
    }


@pytest.fixture(scope="module")
def computed(spark: Any, catalog: Any) -> dict[int, tuple[Any, pa.Table, dict[str, ThetaSketch]]]:
    """For each number of rows: the table, its rows, and Spark's sketches by column name."""
    out = {}
    for count in (BELOW, ABOVE):
        rows = pa.table(columns_of(count))
        name = f"db.theta_{count}"
        table = catalog.create_table(name, rows.schema)
        table.append(rows.slice(0, count // 3))  # two files: Spark unites what it made of each
        table.append(rows.slice(count // 3))
        spark.sql(f"CALL cat.system.compute_table_stats(table => '{name}')")
        table = catalog.load_table(name)
        (statistics,) = table.metadata.statistics
        source = open_source(statistics.statistics_path)
        reader = PuffinReader(source)
        sketches = {
            table.schema().find_column_name(blob.fields[0]): ThetaSketch.from_bytes(reader.read_blob(blob), 13)
            for blob in reader.metadata.blobs
            if blob.type == THETA
        }
        source.close()
        out[count] = (table, rows, sketches)
    return out


def ours(table: Any, rows: pa.Table, column: str) -> ThetaSketch:
    return ThetaSketch.from_arrow(rows[column], str(table.schema().find_type(column)))


@pytest.mark.parametrize("column", [name for name in columns_of(7) if name != "u"])
def test_retained_hashes_are_those_of_spark(computed: Any, column: str) -> None:
    table, rows, theirs = computed[BELOW]
    mine, spark_sketch = ours(table, rows, column), theirs[column]
    assert mine.is_exact
    assert spark_sketch.is_exact
    assert mine.retained.tolist() == spark_sketch.retained.tolist()
    assert mine.to_bytes() == spark_sketch.to_bytes()


@pytest.mark.parametrize("column", [name for name in columns_of(7) if name != "u"])
def test_above_k_they_are_equal_below_the_smaller_theta(computed: Any, column: str) -> None:
    table, rows, theirs = computed[ABOVE]
    mine, spark_sketch = ours(table, rows, column), theirs[column]
    limit = min(mine.theta, spark_sketch.theta)
    below = [h for h in mine.retained.tolist() if h < limit]
    assert below == [h for h in spark_sketch.retained.tolist() if h < limit]
    assert len(below) > 3500 or column == "flag"
    assert mine.lower_bound(3) <= len(rows[column].unique().drop_null()) <= mine.upper_bound(3)


def test_spark_hashes_the_text_of_a_uuid(computed: Any) -> None:
    """Its type for uuid is string: the 16 bytes of single-value serialization are ours alone."""
    table, rows, theirs = computed[BELOW]
    texts = pa.array([str(v) for v in rows["u"].to_pylist()])
    assert ThetaSketch.from_arrow(texts, "string").retained.tolist() == theirs["u"].retained.tolist()
    mine = ours(table, rows, "u")
    assert mine.ndv == theirs["u"].ndv == BELOW
    assert not set(mine.retained.tolist()) & set(theirs["u"].retained.tolist())


SHADED = "org.apache.iceberg.shaded.org.apache.datasketches"


@pytest.mark.parametrize("package", ["org.apache.datasketches", SHADED])
@pytest.mark.parametrize("count", [0, 1, 2, 4096, 4097, 100_000])
def test_datasketches_on_the_jvm_reads_our_bytes(spark: Any, package: str, count: int) -> None:
    """Wrapped and on the heap, and united with itself: another seed hash would raise there."""
    mine = ThetaSketch.from_arrow(pa.array(np.arange(count)), "long")
    root = spark._jvm
    for part in package.split("."):
        root = getattr(root, part)
    memory = root.memory.Memory.wrap(mine.to_bytes())
    wrapped = root.theta.Sketches.wrapSketch(memory)
    heaped = root.theta.Sketches.heapifySketch(memory)
    union = root.theta.SetOperation.builder().setNominalEntries(4096).buildUnion()
    union.union(wrapped)
    for sketch in (wrapped, heaped, union.getResult()):
        assert sketch.getEstimate() == pytest.approx(mine.estimate, rel=1e-12)
        assert sketch.getRetainedEntries() == len(mine.retained)
        assert sketch.isEmpty() == (count == 0)
        assert sketch.getLowerBound(2) == pytest.approx(mine.lower_bound(2), rel=1e-9)
        assert sketch.getUpperBound(2) == pytest.approx(mine.upper_bound(2), rel=1e-9)
    assert bytes(union.getResult().toByteArray()) == mine.to_bytes()
