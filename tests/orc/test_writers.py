"""Files written on the spot by pyarrow and PyORC: every compression, several stripes and row groups, nested columns."""

from __future__ import annotations

import random
from datetime import date, datetime, timezone
from decimal import Decimal
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.orc as pa_orc
import pytest

from sidecar.filters.orc.bloom import size_for
from sidecar.filters.orc.key_hash import hash_long
from sidecar.orc.index_streams import index_streams_of, read_indexes
from sidecar.orc.inspect import ask_row_group, inspect_file, probe_file
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.stripe import read_stripe_footer
from sidecar.orc.tail import TAIL, read_tail
from sidecar.orc.verify.verify import verify_file
from sidecar.reading.scanning import scan
from sidecar.storage.source import BytesSource, CountingSource
from tests.orc.files import read_all
from tests.orc.files import source as fixture

ROWS = 30_000
STRIDE = 1_000
COMPRESSIONS = ["uncompressed", "zlib", "snappy", "lz4", "zstd"]


def arrow_file(compression: str = "zlib", rows: int = ROWS, **options: Any) -> tuple[bytes, pa.Table]:
    noise = random.Random(rows)
    table = pa.table(
        {
            "id": pa.array(range(0, 3 * rows, 3), pa.int64()),
            "number": pa.array([noise.randrange(-(2**31), 2**31) if i % 7 else None for i in range(rows)], pa.int32()),
            "text": pa.array([f"t{noise.randrange(10**6)}" for _ in range(rows)]),
            "price": pa.array(
                [Decimal(noise.randrange(-(10**6), 10**6)).scaleb(-2) for _ in range(rows)], pa.decimal128(9, 2)
            ),
            "day": pa.array([noise.randrange(20_000) for _ in range(rows)], pa.date32()),
            "tiny": pa.array([noise.randrange(-100, 100) for _ in range(rows)], pa.int8()),
        }
    )  # fmt: skip
    out = BytesIO()
    pa_orc.write_table(
        table,
        out,
        compression=compression,
        stripe_size=64 << 10,
        compression_block_size=64 << 10,
        row_index_stride=STRIDE,
        bloom_filter_columns=[1, 2, 3, 4, 5, 6],
        bloom_filter_fpp=0.01,
        **options,
    )
    return out.getvalue(), table


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_files_of_pyarrow(compression: str) -> None:
    """Several stripes of several row groups; filters of the size that the rate asks for, no value denied."""
    data, table = arrow_file(compression)
    tail, stripes = read_all(BytesSource(data))
    assert len(stripes) >= 2
    assert tail.num_row_groups >= ROWS // STRIDE
    assert sum(stripe.footer.stripe.num_rows for stripe in stripes) == ROWS
    noise, seen, wrong = random.Random(1), 0, 0
    for stripe in stripes:
        for group in stripe.footer.stripe.row_groups:
            part = table.slice(group.first_row, group.rows)
            for column in tail.columns[1:]:
                index = stripe.indexes[column.id]
                assert index.filters is not None
                found = index.filters[group.ordinal]
                assert found.filter is not None
                assert (found.filter.m, found.filter.k) == size_for(STRIDE, 0.01)
                assert found.trusted == (column.path != "tiny")
                values = part[column.path]
                literals = (values.cast(pa.int32()) if column.path == "day" else values).drop_null().to_pylist()
                for value in noise.sample(literals, 20):
                    might, reason = ask_row_group(index, group.ordinal, value)
                    assert might is (None if column.path == "tiny" else True), (column.path, value, reason)
            absent = part["id"][0].as_py() + 1  # between two values, inside the bounds
            might, _ = ask_row_group(stripe.indexes[1], group.ordinal, absent)
            wrong += might is not False
            seen += 1
    assert wrong <= max(3, seen // 10)
    assert {(p.column, p.problem.split(": ")[1]) for p in verify_file(BytesSource(data))} == {
        ("tiny", "BLOOM_FILTER_UTF8")
    }


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_probe_reads_tail_then_footer_and_index_of_each_stripe_that_statistics_leave(
    compression: str,
) -> None:
    data, table = arrow_file(compression)
    tail = read_tail(BytesSource(data))
    tail_reads = 1 if tail.size - tail.footer_offset <= TAIL else 2
    for row in (0, ROWS // 2, ROWS - 1):
        source = CountingSource(BytesSource(data))
        units = probe_file(source, "id", table["id"][row].as_py())
        assert [u.might_contain for u in units].count(True) == 1
        assert source.reads == tail_reads + 2
        assert any(u.reason.startswith("stripe: ") for u in units)
    source = CountingSource(BytesSource(data))
    assert not any(u.might_contain for u in probe_file(source, "id", -1))
    assert source.reads == tail_reads


def test_row_index_and_filter_of_a_column_are_one_read_and_neighbours_too() -> None:
    data, _ = arrow_file("uncompressed")
    source = CountingSource(BytesSource(data))
    tail = read_tail(source)
    stripe = tail.stripes[0]
    footer = read_stripe_footer(source, tail, stripe)
    for columns in ([3], [2, 3], [1, 2, 3, 4, 5, 6]):
        source.reads = source.bytes_read = 0
        read_indexes(source, tail, footer, columns, FileStatistics(BytesSource(data), tail))
        assert source.reads == 1
        wanted = [s for c in columns for s in index_streams_of(footer, c)]
        assert source.bytes_read == sum(s.length for s in wanted)


def test_columns_that_lie_far_apart_are_two_reads() -> None:
    source = CountingSource(fixture("java_none_original.orc"))
    tail = read_tail(source)
    footer = read_stripe_footer(source, tail, tail.stripes[0])
    source.reads = 0
    read_indexes(source, tail, footer, [1, 19], FileStatistics(source, tail))
    assert source.reads == 2


def test_a_long_footer_takes_two_reads() -> None:
    names = [f"column_{i}_{'x' * 40}" for i in range(900)]
    out = BytesIO()
    pa_orc.write_table(pa.table({name: [1] for name in names}), out, compression="uncompressed")
    source = CountingSource(BytesSource(out.getvalue()))
    tail = read_tail(source)
    assert tail.footer_length > TAIL
    assert source.reads == 2
    assert [column.path for column in tail.columns[1:]] == names


def test_nested_columns_have_paths_and_no_answers() -> None:
    table = pa.table(
        {
            "point": [{"x": i, "y": {"z": str(i)}} for i in range(10)],
            "list": [[i] for i in range(10)],
            "map": pa.array([[(str(i), i)] for i in range(10)], pa.map_(pa.string(), pa.int64())),
        }
    )
    out = BytesIO()
    pa_orc.write_table(table, out, bloom_filter_columns=list(range(1, 10)))
    tail, (stripe,) = read_all(BytesSource(out.getvalue()))
    assert [column.path for column in tail.columns] == [
        "", "point", "point.x", "point.y", "point.y.z", "list", "list.element", "map", "map.key", "map.value",
    ]  # fmt: skip
    repeated = {column.path for column in tail.columns if column.nested_in_repeated}
    assert repeated == {"list.element", "map.key", "map.value"}
    for column in tail.columns:
        trusted = {f.trusted for f in stripe.indexes[column.id].filters or ()}
        assert trusted <= ({True} if column.path in ("point.x", "point.y.z") else {False}), column.path
    answers = {path: probe_file(BytesSource(out.getvalue()), path, value)[0].might_contain
               for path, value in (("point.x", 5), ("point.y.z", "5"), ("point.x", 77))}  # fmt: skip
    assert answers == {"point.x": False, "point.y.z": True}


def test_fields_of_structs_in_lists_and_maps_are_not_one_value_a_row() -> None:
    """Each of 10 rows has 3 values of them; that is no problem of their statistics."""
    points = [[{"x": 3 * i + n, "y": {"z": str(i)}} for n in range(3)] for i in range(10)]
    named = [[(str(n), point) for n, point in enumerate(row)] for row in points]
    kind = pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.string())]))])
    table = pa.table({"list": pa.array(points, pa.list_(kind)), "map": pa.array(named, pa.map_(pa.string(), kind))})
    out = BytesIO()
    pa_orc.write_table(table, out, bloom_filter_columns=list(range(1, 12)))
    data = BytesSource(out.getvalue())
    assert verify_file(data) == []
    tail, (stripe,) = read_all(data)
    for path in ("list.element.x", "list.element.y.z", "map.value.x", "map.value.y.z"):
        column = tail.column(path)
        assert column is not None
        assert not any(found.trusted for found in stripe.indexes[column.id].filters or ())


@pytest.mark.parametrize("compression", [0, 1, 2, 4, 5])
def test_files_of_pyorc(compression: int) -> None:
    """ORC C++ 2.3.1 with types that pyarrow does not write: char, varchar, instants; nothing written is denied."""
    pyorc = pytest.importorskip("pyorc")
    schema = (
        "struct<id:bigint,tiny:tinyint,flag:boolean,c:char(8),v:varchar(5),f:float,d:double,"
        "t:timestamp,i:timestamp with local time zone,b:binary,day:date,dec:decimal(20,4)>"
    )
    noise = random.Random(compression)
    rows = [
        (
            i,
            noise.randrange(-100, 100),
            bool(i % 3),
            f"c{i % 50}",
            f"v{i % 1000}",
            noise.random(),
            noise.random(),
            datetime(2020, 1, 1 + i % 28, 3, 4, 5, i % 1000 * 1000, tzinfo=timezone.utc),
            datetime(2021, 1, 1 + i % 28, 3, 4, 5, i % 1000 * 1000, tzinfo=timezone.utc),
            noise.randbytes(4),
            date(2000, 1, 1 + i % 28),
            Decimal(i).scaleb(-2),
        )
        for i in range(5000)
    ]
    out = BytesIO()
    with pyorc.Writer(
        out,
        schema,
        compression=pyorc.CompressionKind(compression),
        bloom_filter_columns=list(schema_names(schema)),
        row_index_stride=500,
        stripe_size=16 << 10,
    ) as writer:
        writer.writerows(rows)
    data = BytesSource(out.getvalue())
    tail, stripes = read_all(data)
    assert tail.created_by == "ORC C++ 2.3.1"
    untrusted = {
        column.path
        for stripe in stripes
        for column in tail.columns[1:]
        if any(not f.trusted for f in stripe.indexes[column.id].filters or ())
    }
    assert {"tiny", "flag", "c", "f"} <= untrusted <= {"tiny", "flag", "c", "f"}
    for stripe in stripes:
        for group in stripe.footer.stripe.row_groups:
            for row in rows[group.first_row : group.first_row + group.rows : 23]:
                for column, value in zip(tail.columns[1:], row, strict=True):
                    literal = literal_of(value)
                    if column.kind == "FLOAT":
                        literal = pa.scalar(value, pa.float32()).as_py()
                    index = stripe.indexes[column.id]
                    answer = ask_row_group(index, group.ordinal, literal)
                    assert answer[0] is not False, (column.path, value, answer)
    named = {p.column for p in verify_file(data)}
    assert named == {"tiny", "flag", "c", "f"}


def schema_names(schema: str) -> list[str]:
    return [part.partition(":")[0] for part in schema.removeprefix("struct<").split(",") if ":" in part]


def literal_of(value: Any) -> Any:
    if isinstance(value, datetime):
        return round(value.timestamp() * 1_000_000)
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value


def test_a_file_without_rows() -> None:
    out = BytesIO()
    pa_orc.write_table(pa.table({"a": pa.array([], pa.int32())}), out)
    data = BytesSource(out.getvalue())
    assert inspect_file(data).units == []
    assert probe_file(data, "a", 1) == []
    assert verify_file(data) == []


def test_the_hash_in_the_filter_is_the_one_of_the_value() -> None:
    data, table = arrow_file("zstd", rows=500)
    _, (stripe,) = read_all(BytesSource(data))
    (found,) = stripe.indexes[1].filters or ()
    assert found.filter is not None
    assert all(found.filter.might_contain_hash(hash_long(value)) for value in table["id"].to_pylist())


@pytest.mark.parametrize("filters", [[], ["a"]])
def test_a_short_of_16_unsigned_bits_is_negative(filters: list[str]) -> None:
    """Old Hive wrote such, and counted and hashed them as they are stored; ORC Java and pyarrow read -3073."""
    pyorc = pytest.importorskip("pyorc")
    out = BytesIO()
    with pyorc.Writer(out, "struct<a:smallint>", bloom_filter_columns=filters) as writer:
        writer.writerows([(62463,), (5,), (None,), (65535,)])
    data = BytesSource(out.getvalue())
    values = [-3073, 5, None, -1]
    assert scan(data, "true")["a"].to_pylist() == values == pa_orc.ORCFile(out).read()["a"].to_pylist()
    for value in (-3073, 5, -1):
        assert scan(data, f"a = {value}")["a"].to_pylist() == [value]
    assert scan(data, "a < 0")["a"].to_pylist() == [-3073, -1]
