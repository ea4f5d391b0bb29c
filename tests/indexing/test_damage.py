"""Damage costs what it hits, is reported, and nothing else: never an exception, never an entry that denies a
value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.errors import StorageError
from sidecar.indexing.stage_one.fault import DAMAGE
from sidecar.indexing.stage_one.tasks import FilePiece, StageResult, UnitsTask, index_units
from sidecar.storage.local import LocalSource
from sidecar.storage.source import Source
from tests.indexing.cases import columns_of, filter_of, misses, opened_by, plan_for, rng, stage_one
from tests.tables import iceberg_schema

SCHEMA = iceberg_schema("a long, b long, s string")
A = rng().integers(0, 2**60, 4000)
B = np.arange(4000) % 50
S = [f"text {i}" for i in range(4000)]


def _file(path: Path) -> Path:
    """Two row groups; ``a`` and ``s`` are plain, ``b`` is a dictionary; every page has a checksum."""
    table = pa.table({"a": A, "b": B, "s": S})
    pq.write_table(
        table,
        path,
        row_group_size=2000,
        use_dictionary=["b"],
        compression="none",
        write_page_checksum=True,
        data_page_size=4096,
    )
    return path


def _chunk(path: Path, group: int, column: int) -> pq.ColumnChunkMetaData:
    return pq.ParquetFile(path).metadata.row_group(group).column(column)


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def _check_others(records: list[StageResult], damaged: tuple[int, int]) -> None:
    """All chunks but the damaged one (row group, field id) are whole."""
    expected = {1: A.tolist(), 2: B.tolist(), 3: S}
    for field_id, values in expected.items():
        for record in columns_of(records, field_id):
            if (record.row_group, field_id) == damaged:
                continue
            assert record.filter.blocks
            assert not record.reason
            assert not record.theta_reason
            assert not record.fault
            mine = values[record.row_group * 2000 : (record.row_group + 1) * 2000]
            kind = "string" if field_id == 3 else "long"
            assert misses(filter_of(record), record.filter.encoding, kind, mine) == []


@pytest.mark.parametrize("field_id", [1, 3])
def test_a_flipped_bit_in_a_page_costs_its_column_chunk(tmp_path: Path, field_id: int) -> None:
    path = _file(tmp_path / "d.parquet")
    chunk = _chunk(path, 1, field_id - 1)
    _flip(path, chunk.data_page_offset + chunk.total_compressed_size - 5)
    records = stage_one([path], plan_for(SCHEMA))
    bad = columns_of(records, field_id)[1]
    assert bad.fault
    assert bad.data is None
    assert bad.filter.blocks == 0
    assert "pyarrow cannot decode" in bad.reason
    assert "pyarrow cannot decode" in bad.theta_reason
    _check_others(records, (1, field_id))


def test_a_flipped_bit_in_a_dictionary_page_costs_its_column_chunk(tmp_path: Path) -> None:
    path = _file(tmp_path / "d.parquet")
    chunk = _chunk(path, 0, 1)
    _flip(path, chunk.data_page_offset - 5)
    records = stage_one([path], plan_for(SCHEMA))
    bad = columns_of(records, 2)[0]
    assert bad.fault
    assert bad.filter.blocks == 0
    assert bad.reason
    assert bad.theta_reason
    _check_others(records, (0, 2))


def test_a_flipped_bit_in_indices_costs_the_sketch_only_where_the_dictionary_tells_all(
    tmp_path: Path,
) -> None:
    path = _file(tmp_path / "d.parquet")
    chunk = _chunk(path, 0, 1)
    _flip(path, chunk.dictionary_page_offset + chunk.total_compressed_size - 5)
    bad = columns_of(stage_one([path], plan_for(SCHEMA)), 2)[0]
    assert bad.fault
    assert bad.theta_reason
    (whole, _) = columns_of(stage_one([path], plan_for(SCHEMA, theta=False)), 2)
    assert whole.how == "dictionary"
    assert misses(filter_of(whole), "int64", "long", range(50)) == []


@pytest.mark.parametrize("field_id", [1, 2])
def test_a_broken_page_header_costs_its_column_chunk(tmp_path: Path, field_id: int) -> None:
    path = _file(tmp_path / "d.parquet")
    chunk = _chunk(path, 0, field_id - 1)
    start = chunk.dictionary_page_offset if field_id == 2 else chunk.data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + 8] = b"\xff" * 8
    path.write_bytes(data)
    records = stage_one([path], plan_for(SCHEMA))
    bad = columns_of(records, field_id)[0]
    assert bad.fault
    assert bad.filter.blocks == 0
    assert bad.reason
    _check_others(records, (0, field_id))


def test_a_bad_footer_costs_the_file_and_no_other(tmp_path: Path) -> None:
    good, bad, short = (_file(tmp_path / f"{name}.parquet") for name in ("good", "bad", "short"))
    data = bad.read_bytes()
    bad.write_bytes(data[:-4] + b"PARX")
    short.write_bytes(data[: len(data) // 2])
    records = stage_one([bad, good, short], plan_for(SCHEMA))
    failed = {r.file: r.reason for r in records if r.kind == "file"}
    assert failed.keys() == {0, 2}
    assert all("does not end as one" in reason for reason in failed.values())
    assert {r.file for r in records if r.kind == "column"} == {1}
    _check_others(records, (-1, -1))


@pytest.mark.parametrize("share", [0.5, 1.5])
def test_a_file_of_another_size_than_the_table_says_is_not_indexed(tmp_path: Path, share: float) -> None:
    """Its pieces are cut by the stated size: the second row group would belong to none of them."""
    path = _file(tmp_path / "longer.parquet")
    stated = int(path.stat().st_size * share)
    task = UnitsTask(0, (FilePiece(0, str(path), stated, 0, stated),))
    [record] = index_units(task, plan_for(SCHEMA))
    assert (record.kind, record.reason, record.fault) == (
        "file",
        "the file's size differs from the table's metadata",
        DAMAGE,
    )


def test_a_file_that_is_gone_costs_itself(tmp_path: Path) -> None:
    path = _file(tmp_path / "d.parquet")

    def opener(name: str) -> Source:
        raise StorageError("cannot open the file: no such file", file=name)

    (record,) = stage_one([path], opened_by(plan_for(SCHEMA), opener))
    assert (record.kind, record.reason) == ("file", "cannot open the file: no such file")


def test_storage_that_fails_while_reading_costs_itself(tmp_path: Path) -> None:
    """Whatever a source raises stays with the chunk or file at hand."""

    class Failing:
        def __init__(self, inner: Source, good_reads: int) -> None:
            self.name, self._inner, self._left = f"remote://{inner.name}", inner, good_reads

        @property
        def size(self) -> int:
            return self._inner.size

        def read(self, offset: int, length: int) -> bytes:
            self._left -= 1
            if self._left < 0:
                raise StorageError("the connection broke", file=self.name)
            return self._inner.read(offset, length)

        def close(self) -> None:
            self._inner.close()

    path = _file(tmp_path / "d.parquet")
    whole = stage_one([path], plan_for(SCHEMA))
    for good_reads in range(12):
        plan = opened_by(plan_for(SCHEMA), lambda name: Failing(LocalSource(name), good_reads))  # noqa: B023
        records = stage_one([path], plan)
        for record in records:
            if record.kind == "column" and record.data is not None:
                (same,) = [w for w in whole if w[:4] == record[:4]]
                assert record.data == same.data
        assert any(r.fault for r in records) or good_reads > 5


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return _file(tmp_path_factory.mktemp("sound") / "d.parquet").read_bytes()


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_flipped_byte_gives_records_and_no_exception(
    sound: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    footer = int.from_bytes(sound[-8:-4], "little")
    place = st.one_of(st.integers(0, len(sound) - 1), st.integers(len(sound) - footer - 8, len(sound) - 1))
    damaged = bytearray(sound)
    damaged[data.draw(place)] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("flip") / "d.parquet"
    path.write_bytes(damaged)
    for record in stage_one([path], plan_for(SCHEMA)):
        if record.kind == "column":
            assert (record.filter.blocks > 0) == (record.data is not None) == (not record.reason)
            assert record.data is None or len(record.data) == 32 * record.filter.blocks
