"""Levels in BIT_PACKED, an old encoding that pyarrow decodes wrong: scans find the rows that are stored."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.parquet.arrow_values import check_pages
from sidecar.parquet.footer import read_footer
from sidecar.parquet.pages import has_bit_packed_levels, walk_pages
from sidecar.parquet.thrift import Struct
from sidecar.reading.file_scanning import open_scan
from sidecar.storage.source import BytesSource
from tests.parquet.bit_packed_files import bit_packed, old_file, rows
from tests.parquet.false_statements import written
from tests.parquet.page_files import rewrite


def test_the_files_of_these_tests_have_such_levels() -> None:
    source = BytesSource(old_file())
    chunks = [chunk for group in read_footer(source).row_groups for chunk in group.columns]
    pages = [(chunk.leaf, page) for chunk in chunks for page in walk_pages(source, chunk) if page.is_data]
    assert all(has_bit_packed_levels(leaf, page) for leaf, page in pages)
    read = pq.read_table(pa.BufferReader(source.read(0, source.size)), columns=["a"])
    assert read["a"].null_count != rows()["a"].null_count  # else pyarrow has learnt it


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_a_scan_finds_the_stored_rows(codec: str) -> None:
    data = bit_packed(written(rows(), row_group_size=400, use_dictionary=["s"], write_page_index=False), codec)
    everything = rows()
    assert sidecar.scan(BytesSource(data), "true").equals(everything)
    for predicate, mask in (
        ("a is null", pc.is_null(everything["a"])),
        ("a = 1111", pc.equal(everything["a"], 1111)),
        ("s = 'word 7'", pc.equal(everything["s"], "word 7")),
        ("t.x > 1400", pc.greater(pc.struct_field(everything["t"], "x"), 1400)),
        ("t is null", pc.is_null(everything["t"])),
    ):
        found = sidecar.scan(BytesSource(data), predicate)
        assert found.equals(everything.filter(mask)), predicate


def test_parts_of_such_pages_are_read_with_a_page_index_of_ours(tmp_path: Path) -> None:
    old, indexed = tmp_path / "old.parquet", tmp_path / "indexed.parquet"
    old.write_bytes(old_file())
    sidecar.embed(old, into=indexed, bloom=["a", "s"], page_index=True)
    assert sidecar.verify(indexed, data=True).problems == []
    with open_scan(indexed, "a > 390 and a < 410") as scan:
        found = scan.to_table()
    want = rows().filter(pc.and_(pc.greater(rows()["a"], 390), pc.less(rows()["a"], 410)))
    assert found.equals(want)
    assert 0 < scan.report.rows_may_match < 100


def test_pyarrow_gets_no_such_pages_of_a_whole_chunk() -> None:
    source = BytesSource(old_file())
    with pytest.raises(UnsupportedFeatureError, match="BIT_PACKED"):
        check_pages(source, read_footer(source).row_groups[0].columns[0])


def test_levels_that_are_longer_than_their_page_are_damage() -> None:
    def cut(header: Struct, body: bytes) -> tuple[Struct, bytes]:
        return header, body[:1] if 5 in header.fields else body

    data = rewrite(old_file(), change=cut)
    with pytest.raises(DamagedFileError):
        sidecar.scan(BytesSource(data), "true", ["a"])
