"""Stage 1: where filters come from, what sketches count, which row groups a piece owns."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from sidecar.filters.array_hash import hash_arrow, theta_hashes
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.indexing.stage_one.tasks import StageResult
from sidecar.parquet import value_bounds
from sidecar.storage.remote import FileIOSource
from tests.indexing.cases import (
    LONG,
    bound_value,
    columns_of,
    filter_of,
    ints_file,
    misses,
    opened_by,
    plan_for,
    rng,
    schema_of,
    sketch_of,
    stage_one,
    write_parquet,
)
from tests.tables import iceberg_schema

TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int32(), [0, -1, 7, 2**31 - 1, -(2**31), None]),
    "long": (pa.int64(), [0, -1, 7, 2**63 - 1, -(2**63), None]),
    "float": (pa.float32(), [0.0, -0.0, 1.5, -2.25, float("inf"), None]),
    "double": (pa.float64(), [0.0, 1.5, 1e300, -1e-300, None, 5.0]),
    "string": (pa.string(), ["", "a", "grün", "x" * 100, None, "tail"]),
    "binary": (pa.binary(), [b"", b"a", b"\x00\xff", b"x" * 70, None, b"z"]),
    "date": (pa.date32(), [dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(1, 1, 1), None] * 1),
    "time": (pa.time64("us"), [dt.time(0), dt.time(23, 59, 59, 999999), None]),
    "timestamp": (pa.timestamp("us"), [dt.datetime(1970, 1, 1), dt.datetime(2024, 1, 1, 1, 2, 3, 4), None]),
    "timestamptz": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc), None],
    ),
    "decimal(9, 2)": (pa.decimal128(9, 2), [Decimal("1.00"), Decimal("-9999999.99"), None, Decimal("0.00")]),
    "decimal(18, 3)": (pa.decimal128(18, 3), [Decimal("1.000"), Decimal("-999999999999999.999"), None]),
    "decimal(38, 4)": (pa.decimal128(38, 4), [Decimal("1.0000"), Decimal("-1234567890123456789.1234"), None]),
    "fixed[5]": (pa.binary(5), [b"abcde", b"\x00" * 5, None]),
    "uuid": (pa.uuid(), [uuid.UUID(int=1), uuid.UUID(int=2**127 + 5), None]),
    "boolean": (pa.bool_(), [True, False, None]),
}


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("name", TYPES)
def test_every_value_of_every_type_is_kept(tmp_path: Path, name: str, version: str, dictionary: bool) -> None:
    kind, values = TYPES[name]
    table = pa.table({"k": pa.array(values * 3, kind)})
    options = {"use_dictionary": dictionary, "data_page_version": version, "store_schema": False}
    path = write_parquet(tmp_path / "t.parquet", table, **options)
    schema = schema_of(table.schema)
    assert str(schema.find_type(1)) == name
    (record,) = columns_of(records := stage_one([path], plan_for(schema)), 1)
    oracle = len({v for v in values if v is not None and v not in ("", b"")})
    signed_zeros = name == "float"  # equal, but two bit patterns
    assert sketch_of(records, 1).estimate == oracle + signed_zeros
    if name == "boolean":
        assert (record.filter.blocks, record.theta_reason) == (0, "")
        assert record.reason
        return
    assert record.how == ("dictionary" if dictionary else "scanned")
    present = [bound_value(v, name) for v in values if v is not None]
    assert misses(filter_of(record), record.filter.encoding, name, present) == []


def test_the_filter_is_the_one_built_from_all_values(tmp_path: Path) -> None:
    keys = rng().integers(0, 2**60, 5000)
    for dictionary in (True, False):
        path = ints_file(tmp_path / "k.parquet", keys, use_dictionary=dictionary)
        (record,) = columns_of(stage_one([path], plan_for(LONG)), 1)
        from sidecar.filters.encoding import Encoding

        hashes = hash_arrow(pa.array(keys), Encoding.parse("int64"))
        assert filter_of(record) == SplitBlockBloomFilter.from_hashes(hashes, record.filter.blocks)
        assert 0 < record.rate <= 0.01


def test_filters_are_folded_to_what_the_values_need(tmp_path: Path) -> None:
    """20,000 rows of ten values that are no dictionary need one small filter."""
    path = ints_file(tmp_path / "k.parquet", np.arange(20_000) % 10, use_dictionary=False)
    (record,) = columns_of(stage_one([path], plan_for(LONG)), 1)
    assert (record.how, record.filter.blocks) == ("scanned", 1)


def test_a_limit_of_bits_a_value_holds_the_size(tmp_path: Path) -> None:
    path = ints_file(tmp_path / "k.parquet", rng().integers(0, 2**60, 8192), use_dictionary=False)
    (record,) = columns_of(stage_one([path], plan_for(LONG, fpp=1e-9, max_bits=32)), 1)
    assert record.filter.blocks * 256 <= 32 * 8192


# --- dictionaries -------------------------------------------------------------------------------------------


def test_unused_dictionary_entries_are_not_in_a_sketch(tmp_path: Path) -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([1, 3, 1, None]), pa.array(["no", "yes", "never", "also"]))
    path = write_parquet(tmp_path / "d.parquet", pa.table({"k": values}), store_schema=False)
    schema = schema_of(pa.schema([("k", pa.string())]))
    (record,) = columns_of(records := stage_one([path], plan_for(schema)), 1)
    assert record.how == "dictionary"
    sketch = sketch_of(records, 1)
    expected = np.sort(theta_hashes(pa.array(["yes", "also"]), "string"))
    assert sketch.retained.tolist() == expected.tolist()
    assert misses(filter_of(record), "byte_array", "string", ["yes", "also"]) == []


def test_a_chunk_that_fell_back_to_plain_pages_is_scanned(tmp_path: Path) -> None:
    keys = rng().integers(0, 2**60, 30_000)
    path = ints_file(tmp_path / "k.parquet", keys, dictionary_pagesize_limit=20_000, data_page_size=4096)
    encodings = pq.ParquetFile(path).metadata.row_group(0).column(0).encodings
    assert {"RLE_DICTIONARY", "PLAIN"} <= set(encodings)
    (record,) = columns_of(records := stage_one([path], plan_for(LONG)), 1)
    assert record.how == "scanned"
    assert misses(filter_of(record), "int64", "long", keys.tolist()) == []
    assert sketch_of(records, 1).estimate == pytest.approx(len(np.unique(keys)), rel=0.06)


@pytest.mark.parametrize("known", [(0,), (2, 8)])
def test_a_chunk_of_which_some_pages_are_not_understood_is_read_by_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: tuple[int, ...]
) -> None:
    """What was taken of the others is no filter of the chunk."""
    keys = rng().integers(0, 2**60, 30_000)
    path = ints_file(tmp_path / "k.parquet", keys, dictionary_pagesize_limit=20_000, data_page_size=4096)
    monkeypatch.setattr(value_bounds, "KNOWN_ENCODINGS", known)
    (record,) = columns_of(records := stage_one([path], plan_for(LONG)), 1)
    assert misses(filter_of(record), "int64", "long", keys.tolist()) == []
    assert sketch_of(records, 1).estimate == pytest.approx(len(np.unique(keys)), rel=0.06)


def test_an_arrow_dictionary_column_is_read_as_its_values(tmp_path: Path) -> None:
    """With the Arrow schema in the file pyarrow gives dictionary arrays, here of a chunk that is not wholly
    one."""
    words = [f"word {i}" for i in range(5000)]
    table = pa.table({"k": pa.array(words).dictionary_encode()})
    path = write_parquet(tmp_path / "d.parquet", table, dictionary_pagesize_limit=1000, data_page_size=500)
    schema = schema_of(pa.schema([("k", pa.string())]))
    (record,) = columns_of(records := stage_one([path], plan_for(schema)), 1)
    assert misses(filter_of(record), "byte_array", "string", words) == []
    assert sketch_of(records, 1).estimate == pytest.approx(5000, rel=0.06)


def test_a_dictionary_without_theta_reads_one_page(tmp_path: Path) -> None:
    path = ints_file(tmp_path / "k.parquet", rng().integers(0, 1000, 200_000), compression="none")
    (record,) = columns_of(stage_one([path], plan_for(LONG, theta=False)), 1)
    assert record.how == "dictionary"
    assert record.bytes_read < 100_000 < path.stat().st_size


# --- sketches -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, 3000, 50_000])
def test_theta_equals_datasketches(tmp_path: Path, count: int) -> None:
    datasketches = pytest.importorskip("datasketches", reason="datasketches has no wheel for this Python")
    keys = np.unique(rng().integers(-(2**62), 2**62, count))
    oracle = datasketches.update_theta_sketch(12)
    for key in keys.tolist():
        oracle.update(key)
    path = ints_file(tmp_path / "k.parquet", keys, row_group_size=7000, use_dictionary=False)
    sketch = sketch_of(stage_one([path], plan_for(LONG)), 1)
    theirs = np.sort(np.array(list(oracle), np.uint64))
    below = min(sketch.theta, int(oracle.theta * 2**63))
    ours = sketch.retained
    assert ours[ours < below - 2**20].tolist() == theirs[theirs < below - 2**20].tolist()
    assert sketch.lower_bound(3) <= len(keys) <= sketch.upper_bound(3)
    readable = datasketches.compact_theta_sketch.deserialize(sketch.to_bytes())
    assert readable.get_estimate() == pytest.approx(sketch.estimate)


def test_theta_is_the_same_however_the_file_is_cut(tmp_path: Path) -> None:
    keys = rng().integers(0, 2**60, 40_000)
    path = ints_file(tmp_path / "k.parquet", keys, row_group_size=3000)
    whole = sketch_of(stage_one([path], plan_for(LONG)), 1)
    parts = sketch_of(stage_one([path], plan_for(LONG), cuts=(0.2, 0.5, 0.51, 0.9)), 1)
    assert whole.to_bytes() == parts.to_bytes()


def test_promoted_columns_hash_as_the_column_and_filter_as_the_file(tmp_path: Path) -> None:
    schema = iceberg_schema("i long, f double, d decimal(38, 2), t timestamp")
    old = pa.table(
        {
            "i": pa.array([1, 2, -5], pa.int32()),
            "f": pa.array([1.5, -2.5, 0.25], pa.float32()),
            "d": pa.array([Decimal("1.25"), None, Decimal("-7.00")], pa.decimal128(9, 2)),
            "t": pa.array([0, 1, 2], pa.timestamp("ms")),
        }
    )
    path = write_parquet(tmp_path / "old.parquet", old, store_decimal_as_integer=True)
    records = stage_one([path], plan_for(schema))
    encodings = [columns_of(records, i)[0].filter.encoding for i in (1, 2, 3, 4)]
    assert encodings == ["int32", "float", "int32/decimal:2", "int64/timestamp-ms"]
    for i, name, kind in (
        (1, "long", pa.int64()),
        (2, "double", pa.float64()),
        (3, "decimal(38, 2)", pa.decimal128(38, 2)),
        (4, "timestamp", pa.timestamp("us")),
    ):
        wide = old.column(i - 1).combine_chunks().cast(kind)
        assert sketch_of(records, i).retained.tolist() == sorted(theta_hashes(wide, name).tolist())
        (record,) = columns_of(records, i)
        values = [bound_value(v, name) for v in wide.to_pylist() if v is not None]
        assert misses(filter_of(record), record.filter.encoding, name, values) == []


def test_a_finer_unit_than_the_column_has_no_sketch(tmp_path: Path) -> None:
    """Engines cut nanoseconds in different ways."""
    path = write_parquet(tmp_path / "ns.parquet", pa.table({"t": pa.array([1, 2], pa.timestamp("ns"))}))
    schema = iceberg_schema("t timestamp")
    (record,) = columns_of(records := stage_one([path], plan_for(schema)), 1)
    assert record.theta_reason
    assert not [r for r in records if r.kind == "sketch"]
    assert record.filter.encoding == "int64/timestamp-ns"


# --- shapes -------------------------------------------------------------------------------------------------


def test_nested_leaves(tmp_path: Path) -> None:
    table = pa.table(
        {
            "s": pa.array(
                [{"x": 1, "y": [1, 2]}, None, {"x": None, "y": None}, {"x": 4, "y": [None, 7]}] * 4,
                pa.struct([("x", pa.int64()), ("y", pa.list_(pa.int64()))]),
            ),
            "m": pa.array([[("a", 1)], None, [], [("c", 3)]] * 4, pa.map_(pa.string(), pa.int64())),
        }
    )
    expected = {"s.x": {1, 4}, "s.y.element": {1, 2, 7}, "m.key": {"a", "c"}, "m.value": {1, 3}}
    for dictionary in (True, False):
        path = write_parquet(tmp_path / "n.parquet", table, use_dictionary=dictionary)
        schema = schema_of(table.schema)
        plan = plan_for(schema, list(expected))
        records = stage_one([path], plan)
        for column in plan.columns:
            (record,) = columns_of(records, column.field_id)
            kind = "string" if column.path == "m.key" else "long"
            assert record.how == ("dictionary" if dictionary else "scanned")
            assert misses(filter_of(record), record.filter.encoding, kind, expected[column.path]) == []
            assert sketch_of(records, column.field_id).estimate == len(expected[column.path])


def test_a_column_without_a_single_value_has_an_empty_filter(tmp_path: Path) -> None:
    path = ints_file(tmp_path / "k.parquet", [None, None, None])
    (record,) = columns_of(stage_one([path], plan_for(LONG)), 1)
    assert filter_of(record).fill() == 0.0


def test_an_absent_column_is_no_entry_and_no_reason_against_a_sketch(tmp_path: Path) -> None:
    schema = iceberg_schema("k long, later long")
    path = ints_file(tmp_path / "k.parquet", [1, 2])
    (record,) = columns_of(stage_one([path], plan_for(schema)), 2)
    assert (record.filter.blocks, record.data, record.reason) == (0, None, "column absent from the file")
    assert record.theta_reason == ""
    given_default = Schema(
        NestedField(1, "k", LongType()), NestedField(2, "later", LongType(), required=True, initial_default=5)
    )
    (record,) = columns_of(stage_one([path], plan_for(given_default)), 2)
    assert record.reason
    assert record.theta_reason


@pytest.fixture(scope="module")
def many_groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ints_file(tmp_path_factory.mktemp("cut") / "k.parquet", range(1000), row_group_size=37)


@pytest.fixture(scope="module")
def whole(many_groups: Path) -> dict[int, StageResult]:
    """Records of the file in one piece, by row group."""
    return {r.row_group: r for r in stage_one([many_groups], plan_for(LONG)) if r.kind == "column"}


@given(cuts=st.lists(st.floats(0, 1), max_size=6).map(sorted))
@settings(max_examples=40, deadline=None)
def test_pieces_own_every_row_group_once(many_groups: Path, whole: dict[int, StageResult], cuts: list[float]) -> None:
    records = stage_one([many_groups], plan_for(LONG), cuts=cuts)
    units = [r.entry for r in records if r.kind == "unit"]
    assert sorted(units) == [(g, g * 37, min(37, 1000 - g * 37)) for g in range(28)]
    assert {r.row_group: r for r in records if r.kind == "column"} == whole


def test_any_source_gives_the_same_records(tmp_path: Path) -> None:
    """A FileIO whose paths are no local ones: pyarrow reads through our source, not by itself."""
    keys = rng().integers(0, 2**60, 3000)
    path = ints_file(tmp_path / "k.parquet", keys, use_dictionary=False)

    class Remote(PyArrowFileIO):
        def new_input(self, location: str) -> Any:
            return super().new_input(location.removeprefix("remote://"))

    plan = opened_by(plan_for(LONG), lambda name: FileIOSource(Remote(), f"remote://{name}", path.stat().st_size))
    assert stage_one([path], plan) == stage_one([path], plan_for(LONG))


def test_foreign_files_lose_no_value(shared_data: Path) -> None:
    """Every writer at hand, scanned and reused: each integer and string of each row group is found."""
    for name in (
        "j118_v1_snappy_dict",
        "j118_v2_zstd",
        "pa26_v2_zstd_dict",
        "pa26_v1_none",
        "rs60_v1_none_afterrg",
    ):
        path = shared_data / "parquet" / f"{name}.parquet"
        file = pq.ParquetFile(path)
        wanted = {pa.int32(): "int", pa.int64(): "long", pa.string(): "string", pa.float64(): "double"}
        fields = [f for f in file.schema_arrow if f.type in wanted]
        assert len(fields) >= 4
        schema = schema_of(pa.schema(fields))
        for reuse in ("always", "never"):
            records = stage_one([path], plan_for(schema, reuse=reuse))
            for number, arrow in enumerate(fields, 1):
                for record in columns_of(records, number):
                    assert record.filter.blocks, (name, arrow.name, record.reason)
                    column = file.read_row_group(record.row_group, columns=[arrow.name])[0]
                    values = pc.unique(column).drop_null().to_pylist()
                    found = filter_of(record)
                    if reuse == "never" or arrow.type != pa.float64():  # foreign filters lack zeros' twins
                        assert misses(found, record.filter.encoding, wanted[arrow.type], values) == []
