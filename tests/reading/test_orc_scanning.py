"""Scans of plain ORC files give the rows of a full read under the same residual, from few of its stripes."""

from __future__ import annotations

import io
import random
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import orc
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow

import sidecar
from sidecar.errors import SidecarError, UnsupportedFeatureError, UsageError
from sidecar.iceberg.predicates.predicate import as_expression
from sidecar.orc.protobuf import decode, encode
from sidecar.orc.tail import read_tail
from sidecar.reading.file_scanning import open_scan
from sidecar.storage.source import BytesSource, CountingSource
from tests.tables import iceberg_schema

ROWS, CASES = 12_000, 40
DATA = Path(__file__).resolve().parents[1] / "data" / "orc"
UTC = timezone.utc
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCHEMA = iceberg_schema(
    "a long, b long, s string, f double, d date, n decimal(12, 2), z timestamptz, o boolean, x long"
)


def rows(seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    floats = draw.choice([0.0, -0.0, float("nan"), 1.5, -2.5, 1e9], ROWS)
    numbers = np.sort(draw.integers(0, 5_000, ROWS))
    return pa.table(
        {
            "a": numbers,
            "b": pa.array(draw.integers(-50, 50, ROWS), mask=draw.random(ROWS) < 0.2),
            "s": [None if x < 0.1 else f"k{int(x * 1000):04}" for x in draw.random(ROWS)],
            "f": pa.array(floats, mask=draw.random(ROWS) < 0.1),
            "d": pa.array(numbers.astype(np.int32), pa.date32()),
            "n": pa.array([Decimal(int(k)) / 4 for k in numbers], pa.decimal128(12, 2)),
            "z": pa.array([EPOCH + timedelta(seconds=int(k)) for k in numbers], pa.timestamp("ns", "UTC")),
            "o": pa.array(draw.random(ROWS) < 0.01),
            "st": pa.array([None if k % 9 == 0 else {"x": int(k), "y": str(k)} for k in numbers]),
            "l": [[1, 2, None][: k % 4] if k % 7 else None for k in range(ROWS)],
        }
    )


def written(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    settings = {
        "stripe_size": 150_000,
        "batch_size": 3_000,
        "row_index_stride": 1_000,
        "bloom_filter_columns": [1, 2, 3, 5, 6],
        "bloom_filter_fpp": 0.01,
    }
    orc.write_table(table, sink, **(settings | options))
    return sink.getvalue().to_pybytes()


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return rows(1)


@pytest.fixture(scope="module")
def data(table: pa.Table) -> bytes:
    made = written(table)
    tail = read_tail(BytesSource(made))
    assert len(tail.stripes) >= 3
    assert all(stripe.num_row_groups >= 2 for stripe in tail.stripes)
    return made


def leaf(draw: random.Random) -> str:
    column = draw.choice(["a", "b", "s", "f", "d", "n", "z", "o", "st.x"])
    operator = draw.choice(["=", "!=", "<", ">=", ">", "<=", "is null", "is not null", "in", "not in"])

    def value() -> str:
        number = draw.randrange(-10, 5_100)
        return {
            "a": str(number),
            "b": str(draw.randrange(-60, 60)),
            "s": f"'k{draw.randrange(1_100):04}'",
            "f": draw.choice(["0.0", "1.5", "-2.5", "3.0"]),
            "d": f"'{(EPOCH + timedelta(days=number)).date()}'",
            "n": str(Decimal(number) / 4),
            "z": f"'{(EPOCH + timedelta(seconds=number)).isoformat()}'",
            "o": draw.choice(["true", "false"]),
            "st.x": str(number),
        }[column]

    if operator.startswith("is"):
        return f"{column} {operator}"
    if "in" in operator:
        return f"{column} {operator} ({value()}, {value()})"
    return f"{column} {operator} {value()}"


def predicate(draw: random.Random) -> str:
    text = leaf(draw)
    for _ in range(draw.randrange(3)):
        text = f"({text}) {draw.choice(['and', 'or'])} {draw.choice(['', 'not '])}({leaf(draw)})"
    return text


def flat(table: pa.Table) -> pa.Table:
    """What the oracle filters: zeros made equal, the struct's field beside the others, rows numbered."""
    st = pc.struct_field(table["st"], "x")
    kept = table.drop(["st", "l"]).append_column("x", st)
    kept = kept.set_column(3, "f", pc.add(kept["f"], 0.0))
    return kept.append_column("row", pa.array(range(table.num_rows)))


@pytest.mark.parametrize("codec", ["uncompressed", "zlib", "zstd", "snappy", "lz4"])
def test_random_predicates_give_the_rows_of_a_full_read(table: pa.Table, codec: str) -> None:
    made = written(table, compression=codec)
    full = orc.ORCFile(pa.BufferReader(made)).read()
    numbered = flat(full)
    draw = random.Random(codec)
    pruned = 0
    for _ in range(CASES):
        text = predicate(draw)
        oracle = text.replace("st.x", "x")
        matching = expression_to_pyarrow(bind(SCHEMA, as_expression(oracle, SCHEMA, True), True), SCHEMA)
        positions = np.sort(numbered.filter(matching)["row"].to_numpy())
        wanted = full.take(pa.array(positions))
        with open_scan(BytesSource(made), text) as scan:
            parts = list(scan.found())
        assert [p for part in parts for p in part.positions.tolist()] == positions.tolist(), text
        if parts:
            found = pa.concat_tables(part.rows for part in parts)
            assert found.schema == full.schema
            assert found.drop(["f"]).equals(wanted.drop(["f"])), text
            # as text, since NaN equals no NaN
            assert str(found["f"].to_pylist()) == str(wanted["f"].to_pylist()), text
        pruned += scan.report.row_groups_read < scan.report.row_groups
    assert pruned > CASES / 5


def test_positions_are_those_of_the_rows_in_the_file(data: bytes, table: pa.Table) -> None:
    with open_scan(BytesSource(data), "s = 'k0500' and b > 0", ["a", "s"]) as scan:
        for part in scan.found():
            assert table.select(["a", "s"]).take(part.positions).equals(part.rows)
            assert part.rows.num_rows


def test_stripes_that_do_not_survive_are_not_read(data: bytes) -> None:
    tail = read_tail(BytesSource(data))
    source = Tracked(data)
    found = sidecar.scan(source, "a = 10", ["a", "s"])
    assert set(found["a"].to_pylist()) == {10}
    for stripe in tail.stripes[1:-1]:  # the end of the last one comes with the tail
        assert not any(at < stripe.end and stripe.offset < end for at, end in source.ranges), stripe.ordinal


@pytest.mark.parametrize("lost", [0, 1, -1])
def test_statistics_of_fewer_stripes_than_there_are_say_nothing(data: bytes, table: pa.Table, lost: int) -> None:
    """Nothing says which stripes the statistics belong to."""
    tail = read_tail(BytesSource(data))
    metadata = decode(data[tail.metadata_offset : tail.footer_offset])
    stripes = metadata.all_bytes(1)
    assert len(stripes) == len(tail.stripes)
    del stripes[lost]
    metadata.set_all(1, stripes)
    shorter, postscript = encode(metadata), tail.postscript
    postscript.set(5, len(shorter))
    last = encode(postscript)
    footer = data[tail.footer_offset : tail.size - data[-1] - 1]
    changed = data[: tail.metadata_offset] + shorter + footer + last + bytes([len(last)])
    for number in range(0, 5_000, 250):
        with open_scan(BytesSource(changed), f"a = {number}") as scan:
            found = sum(len(part.positions) for part in scan.found())
        assert found == pc.sum(pc.equal(table["a"], number)).as_py()


def test_row_groups_are_decoded_from_their_positions() -> None:
    """Of a data stream only the surviving row group is read."""
    ends = pa.table({"a": np.arange(200_000), "s": [f"{k * 7919 % 1_000_003:07}" for k in range(200_000)]})
    data = written(ends, stripe_size=64 << 20, batch_size=200_000)
    (stripe,) = read_tail(BytesSource(data)).stripes
    assert stripe.num_row_groups == 200
    with open_scan(BytesSource(data), "a = 100000") as scan:
        assert scan.to_table()["s"].to_pylist() == [f"{100_000 * 7919 % 1_000_003:07}"]
    assert scan.report.row_groups_read == 1
    assert scan.report.data_bytes < 0.1 * stripe.data_length


def test_filters_are_asked_after_bounds(data: bytes) -> None:
    absent = "k0500z"
    with open_scan(BytesSource(data), f"s = '{absent}'") as scan:
        assert scan.to_table().num_rows == 0
    assert scan.report.row_groups_read <= 1
    assert scan.report.dropped["filter"] >= scan.report.row_groups - 1
    with open_scan(BytesSource(data), "s = 'zzz'") as scan:
        assert scan.to_table().num_rows == 0
    assert scan.report.dropped["statistics"] == scan.report.row_groups
    assert scan.report.data_reads <= 1  # pyarrow's look at the schema


def test_what_no_index_can_help_reads_none(data: bytes) -> None:
    with open_scan(BytesSource(data), "a != 5", ["a"]) as scan:
        scan.to_table()
    footers = sum(stripe.footer_length for stripe in read_tail(BytesSource(data)).stripes)
    assert scan.report.index_bytes == footers


def test_limit_and_columns(data: bytes, table: pa.Table) -> None:
    found = sidecar.scan(BytesSource(data), "a >= 0", ["st.y", "a"], limit=7)
    assert found.schema.names == ["a", "st"]
    assert found["st"].type == pa.struct([("y", pa.string())])
    assert found.num_rows == 7
    assert found["a"].to_pylist() == table["a"][:7].to_pylist()
    assert sidecar.scan(BytesSource(data), "a >= 0", limit=0).num_rows == 0
    for column, error in {"nothing": UsageError, "l.element": UnsupportedFeatureError}.items():
        with pytest.raises(error):
            sidecar.scan(BytesSource(data), "a = 1", [column])


@pytest.mark.parametrize("name", ["java_zlib_utf8.orc", "java_none_utf8.orc", "java_zlib_2stripes_utf8.orc"])
def test_files_of_orc_java(name: str) -> None:
    """Every value is found where it stands; without timestamps, of which pyarrow is no oracle."""
    path = DATA / name
    full = orc.ORCFile(str(path)).read(
        columns=[f.name for f in orc.ORCFile(str(path)).schema if not pa.types.is_timestamp(f.type)]
    )
    draw = random.Random(name)
    for column in ("c_tiny", "c_int", "c_big", "c_sdict", "c_sdir", "c_vchar", "c_date"):
        values = [v for v in full[column].to_pylist() if v is not None]
        for value in draw.sample(values, 6):
            text = str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"
            found = sidecar.scan(str(path), f"{column} = {text}", full.schema.names)
            wanted = full.filter(pc.equal(full[column], pa.scalar(value, full[column].type)))
            assert str(found.to_pylist()) == str(wanted.to_pylist()), (column, value)


def test_nulls_of_a_union_take_no_value_of_a_member() -> None:
    """In one batch, as PyORC writes unions of several batches wrong."""
    pyorc = pytest.importorskip("pyorc")
    values = [None if n % 4 == 0 else f"s{n}" if n % 4 == 3 else n * 10 for n in range(200)]
    sink = io.BytesIO()
    with pyorc.Writer(sink, "struct<n:bigint,u:uniontype<bigint,string>>", batch_size=1_000) as writer:
        writer.writerows(enumerate(values))
    full = orc.ORCFile(pa.BufferReader(sink.getvalue())).read()
    assert full["u"].to_pylist() == values
    for first, end in ((0, 200), (2, 14), (100, 101)):
        found = sidecar.scan(BytesSource(sink.getvalue()), f"n >= {first} and n < {end}")
        assert found.schema == full.schema
        assert found["u"].to_pylist() == values[first:end]


def test_damage_gives_our_error_or_the_right_rows(data: bytes) -> None:
    draw = random.Random(3)
    tail = read_tail(BytesSource(data))
    wanted = set(range(100, 140))
    rows = sidecar.scan(BytesSource(data), "a >= 100 and a < 140", ["a"])["a"].to_pylist()
    assert set(rows) <= wanted
    for stripe in tail.stripes:
        for _ in range(60):
            at = draw.randrange(stripe.footer_offset, stripe.end)
            broken = bytearray(data)
            broken[at] ^= 1 << draw.randrange(8)
            try:
                found = sidecar.scan(BytesSource(bytes(broken)), "a >= 100 and a < 140", ["a"])
            except SidecarError:
                continue
            assert set(found["a"].to_pylist()) <= set(range(5_000))
    for end in range(0, len(data), len(data) // 60):
        with pytest.raises(SidecarError):
            sidecar.scan(BytesSource(data[:end]), "a = 5")


class Tracked(CountingSource):
    """Remembers which bytes were asked for."""

    def __init__(self, data: bytes) -> None:
        super().__init__(BytesSource(data))
        self.ranges: list[tuple[int, int]] = []

    def read(self, offset: int, length: int) -> bytes:
        self.ranges.append((offset, offset + length))
        return super().read(offset, length)
