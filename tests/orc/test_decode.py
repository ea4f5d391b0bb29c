"""Single row groups from their positions alone: every type, encoding and compression, by Java, C++ and pyarrow."""

from __future__ import annotations

import io
import random
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc
import pytest

from sidecar.errors import UnsupportedFeatureError, UsageError
from sidecar.orc.decode import read_row_group
from sidecar.parquet.arrow_values import flatten
from sidecar.storage.local import LocalSource
from sidecar.storage.source import CountingSource
from tests.filters import orc_vectors
from tests.orc.decode_cases import OrcFile, orc_file, random_table

DATA = Path(__file__).parents[1] / "data/orc"
WRITTEN = [
    path
    for path in sorted(DATA.glob("*.orc"))
    if path.stem.startswith(("java_none", "java_z", "java_s", "java_l", "pyarrow"))
]


def bits(values: Any) -> Any:
    """Floats by their bits: NaN and both zeros are told apart."""
    if pa.types.is_floating(values.type):
        word = np.uint32 if values.type == pa.float32() else np.uint64
        numbers = values.fill_null(0).to_numpy(zero_copy_only=False).view(word)
        return pa.array(numbers, mask=np.asarray(values.is_null()))
    return values


# --- what the writers were given ----------------------------------------------------------------------------


@lru_cache(maxsize=4)
def java_instants(name: str, *, wall: bool) -> list[int | None]:
    """Nanoseconds, with the second that instants between -1 s and 0 gain."""
    out: list[int | None] = []
    for value in orc_vectors.column(name):
        if value is None:
            out.append(None)
            continue
        seconds, nanos = value
        seconds += seconds == -1 and nanos > 999_999
        out.append((orc_vectors.wall_clock(seconds * 1000) // 1000 if wall else seconds) * 10**9 + nanos)
    return out


@lru_cache(maxsize=4)
def pyarrow_instants(name: str) -> list[int | None]:
    return [None if v is None else int(v) for v in orc_vectors.pyarrow_timestamps(name).cast(pa.int64()).to_pylist()]


def quiet(values: Any) -> Any:
    """Signalling NaN as C++ stores them, by way of a double."""
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):
        numbers = numbers.astype(np.float64).astype(np.float32)
    return pa.array(numbers, mask=np.asarray(values.is_null()))


@lru_cache(maxsize=64)
def expected(name: str, writer: str) -> Any:
    if name == "c_bool":
        return pa.array(orc_vectors.column(name), pa.bool_())
    if name in ("c_char", "c_vchar"):
        length = 8 if name == "c_char" else 10
        text = [None if v is None else v[:length] for v in orc_vectors.strings(name).to_pylist()]
        return pa.array([v.ljust(8) if v is not None and name == "c_char" else v for v in text])
    if name == "c_double" and writer == "pyarrow":
        return orc_vectors.pyarrow_columns()[name][0]
    if name == "c_float" and writer == "pyarrow":
        return quiet(orc_vectors.pyarrow_columns()[name][0])
    return orc_vectors.java_columns()[name][0]


def assert_written(found: Any, name: str, writer: str, start: int) -> None:
    if name in ("c_ts", "c_tsi"):
        given = pyarrow_instants(name) if writer == "pyarrow" else java_instants(name, wall=name == "c_ts")
        wanted = given[start : start + len(found)]
        assert found.type.tz == ("UTC" if name == "c_tsi" else None)
        step = {"ns": 1, "us": 1000}[found.type.unit]
        far = any(v is not None and not -(2**63) <= v < 2**63 for v in wanted)
        assert found.type.unit == ("us" if far else "ns")
        assert found.cast(pa.int64()).to_pylist() == [None if v is None else v // step for v in wanted]
    else:
        wanted_array = expected(name, writer)[start : start + len(found)]
        assert found.type == wanted_array.type
        assert bits(found).equals(bits(wanted_array))


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_row_groups_have_the_values_that_were_written(path: Path) -> None:
    file = OrcFile(LocalSource(str(path)))
    writer = path.stem.partition("_")[0]
    seen = 0
    for stripe in file.tail.stripes:
        for column in file.leaves():
            whole = file.groups(stripe, column)
            assert len(whole) == len(stripe.row_groups)
            for group in stripe.row_groups:
                found = file.group(stripe, group.ordinal, column)
                assert len(found) == group.rows
                assert_written(found, column.path, writer, group.first_row)
                assert bits(found).equals(bits(whole[group.ordinal]))
                found.validate(full=True)
                seen += 1
    assert seen >= 17 * 3
    file.source.close()


@pytest.mark.parametrize("codec", ["uncompressed", "zstd", "zlib"])
@pytest.mark.parametrize("piece", [23, 5000])
def test_streams_that_are_read_in_pieces_have_the_values_of_row_groups(
    codec: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row groups are decoded from their positions, out of memory that has all of their bytes at once."""
    sink = io.BytesIO()
    options: Any = {"compression": codec, "row_index_stride": 1000}
    pyarrow.orc.write_table(random_table(random.Random(piece), 3000), sink, **options)
    file = orc_file(sink.getvalue())
    monkeypatch.setattr("sidecar.orc.streams._PIECE", piece)
    for stripe in file.tail.stripes:
        for column in file.leaves():
            wanted = [file.group(stripe, group.ordinal, column) for group in stripe.row_groups]
            assert list(map(bits, file.groups(stripe, column))) == list(map(bits, wanted)), column.path


def test_the_files_have_what_the_other_tests_rely_on() -> None:
    kinds: set[tuple[str, str]] = set()
    present, chunked, versions, codecs = set(), False, set(), set()
    for path in WRITTEN:
        file = OrcFile(LocalSource(str(path)))
        versions.add(file.tail.file_version)
        codecs.add(file.tail.compression)
        for stripe in file.tail.stripes:
            footer = file.footers[stripe.ordinal]
            for column in file.leaves():
                kinds.add((column.kind, footer.encodings[column.id].kind))
                present.add(footer.stream(column.id, "PRESENT") is not None)
                last = file.indexes(stripe)[column.id].entry(len(stripe.row_groups) - 1)
                chunked = chunked or bool(last.positions and last.positions[0])
        file.source.close()
    assert versions == {(0, 11), (0, 12), (1, 9999)}
    assert codecs == {"NONE", "ZLIB", "SNAPPY", "LZ4", "ZSTD"}
    assert {("STRING", e) for e in ("DICTIONARY", "DIRECT_V2", "DICTIONARY_V2")} | {("BINARY", "DIRECT")} <= kinds
    assert chunked
    assert True in present


@pytest.mark.parametrize("codec", ["uncompressed", "lz4"])
def test_one_row_group_is_a_small_part_of_the_file(codec: str) -> None:
    values = pa.array(np.random.default_rng(1).integers(-(2**62), 2**62, 100_000))
    sink = io.BytesIO()
    pyarrow.orc.write_table(
        pa.table({"a": values}), sink, row_index_stride=1000, compression=codec, compression_block_size=65_536
    )
    file = orc_file(sink.getvalue())
    (stripe,) = file.tail.stripes
    indexes, counting = file.indexes(stripe), CountingSource(file.source)
    found = read_row_group(counting, file.tail, stripe, file.footers[0], indexes, 50, file.tail.columns[1])
    assert found.equals(values[50_000:51_000])
    assert counting.reads == 1
    assert counting.bytes_read < (16_000 if codec == "uncompressed" else 3 * 65_536 + 100)


# --- structs, lists and maps --------------------------------------------------------------------------------


def test_leaves_below_structs_lists_and_maps() -> None:
    path = DATA / "spark_zstd_nested.orc"
    file, arrow = OrcFile(LocalSource(str(path))), pyarrow.orc.ORCFile(str(path))
    (stripe,) = file.tail.stripes
    checked = []
    for top in file.tail.columns[0].children:
        whole = arrow.read_stripe(0, [file.tail.columns[top].path]).column(0)
        leaves = [file.tail.columns[i] for i in file.tail.subtree(top) if not file.tail.columns[i].is_compound]
        for number, column in enumerate(leaves):
            together = file.groups(stripe, column)
            for group in stripe.row_groups:
                wanted = flatten(whole.slice(group.first_row, group.rows))[number].drop_null()
                found = file.group(stripe, group.ordinal, column)
                assert found.equals(together[group.ordinal])
                if column.kind != "TIMESTAMP":  # which pyarrow reads wrong: the next test
                    assert found.drop_null().equals(wanted)
                    checked.append(column.path)
    assert set(checked) == {"id", "st.a", "l.element", "m.key", "m.value.v", "n.x.y"}
    file.source.close()


def test_seconds_are_taken_off_by_the_instant_and_not_by_the_wall_clock() -> None:
    """Of instants from 1970-01-01 00:00:00.007 UTC on, in Los Angeles, where it was 1969 still."""
    file = OrcFile(LocalSource(str(DATA / "spark_zstd_nested.orc")))
    (stripe,) = file.tail.stripes
    (column,) = [c for c in file.leaves() if c.path == "st.t"]
    found = pa.concat_arrays(file.groups(stripe, column)).cast(pa.int64()).to_pylist()
    assert found == [(i - 8 * 3600) * 10**9 + 7_000_000 for i in range(5000)]
    file.source.close()


def test_row_indexes_of_all_columns_above_are_needed() -> None:
    file = OrcFile(LocalSource(str(DATA / "spark_zstd_nested.orc")))
    (stripe,) = file.tail.stripes
    (column,) = [c for c in file.leaves() if c.path == "n.x.y"]
    indexes = file.indexes(stripe)
    indexes.pop(column.parent)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"n\.x"):
        read_row_group(file.source, file.tail, stripe, file.footers[0], indexes, 0, column)
    with pytest.raises(UsageError, match="does not have this row group"):
        file.group(stripe, 5, column)
    with pytest.raises(UnsupportedFeatureError, match="compound, encrypted or inside a union"):
        file.groups(stripe, file.tail.columns[0])
    file.source.close()


CASES = [("uncompressed", 0.0), ("zlib", 1.0), ("snappy", 0.0), ("lz4", 1.0), ("zstd", 0.5)]


@pytest.mark.parametrize(("codec", "dictionary"), CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_row_groups_of_random_tables(codec: str, dictionary: float, seed: int) -> None:
    rng = random.Random(f"{codec}{seed}")
    table = random_table(rng, rng.randint(2_500, 4_000))
    sink = io.BytesIO()
    pyarrow.orc.write_table(
        table,
        sink,
        compression=codec,
        compression_block_size=rng.choice([65_536, 131_072]),
        row_index_stride=rng.choice([100, 700, 1000]),
        dictionary_key_size_threshold=dictionary,
        stripe_size=rng.choice([1 << 16, 1 << 26]),
    )
    file = orc_file(sink.getvalue())
    for stripe in file.tail.stripes:
        for column in file.leaves():
            together = file.groups(stripe, column)
            for group in stripe.row_groups:
                wanted = table.column(column.path).slice(group.first_row, group.rows).combine_chunks()
                found = file.group(stripe, group.ordinal, column)
                assert found.type == wanted.type
                assert bits(found).equals(bits(wanted)), (column.path, group)
                assert bits(together[group.ordinal]).equals(bits(wanted))


# --- timestamps ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [-9_223_372_036, -9_223_372_035, 0, 9_223_372_035, 9_223_372_036])
def test_nanoseconds_at_the_ends_of_their_range(seconds: int) -> None:
    nanos = min(max(seconds * 10**9 + 999_999_999, -(2**63)), 2**63 - 1)
    table = pa.table({"t": pa.array([nanos, None], pa.int64()).cast(pa.timestamp("ns"))})
    sink = io.BytesIO()
    pyarrow.orc.write_table(table, sink)
    file = orc_file(sink.getvalue())
    found = file.group(file.tail.stripes[0], 0, file.tail.columns[1])
    assert pc.equal(found.cast(pa.int64()), nanos if found.type.unit == "ns" else nanos // 1000)[0].as_py()
    assert found[1].as_py() is None
