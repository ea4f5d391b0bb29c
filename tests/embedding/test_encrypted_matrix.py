"""Every kind of encrypted file, embedded into, is read by parquet-java and pyarrow, and shows nothing in clear.

A covering subset runs by default, every kind with SIDECAR_ENCRYPTION_MATRIX=1 in the environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sidecar.embedding.embed import embed
from sidecar.embedding.strip import strip
from sidecar.filters.array_hash import hash_arrow
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.encrypted.plain_view import unlock
from sidecar.parquet.footer import ColumnChunk, Footer, read_footer
from sidecar.parquet.verify.file import verify_file
from sidecar.reading.scanning import scan
from sidecar.storage.local import LocalSource
from sidecar.storage.source import Source, SourceFile
from tests.embedding.cases import chunks
from tests.embedding.encryption_matrix import (
    ARROW_KINDS,
    COLUMNS,
    GROUP_ROWS,
    JAVA_KINDS,
    PAGE_ROWS,
    PREFIX,
    ROWS,
    EncryptingJava,
    Kind,
    arrow_can_open,
    chosen,
    read_by_arrow,
    rows,
    write_by_arrow,
)
from tests.parquet.single_indexes import read_column_index, read_offset_index

KINDS = [*chosen(JAVA_KINDS), *chosen(ARROW_KINDS)]
pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return rows()


@pytest.fixture(scope="module")
def java(spark: Any) -> EncryptingJava:
    return EncryptingJava(spark._jvm)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, java: EncryptingJava, table: pa.Table) -> dict[Kind, Path]:
    """One file of each kind."""
    folder = tmp_path_factory.mktemp("encrypted")
    paths = {kind: folder / f"{kind}.parquet" for kind in KINDS}
    java.write({kind: path for kind, path in paths.items() if kind.writer == "java"}, table)
    for kind, path in paths.items():
        if kind.writer == "arrow":
            write_by_arrow(kind, path, table)
    return paths


def view_of(kind: Kind, path: Path) -> tuple[Source, Footer]:
    view = unlock(LocalSource(str(path)), kind.ours())
    return view, read_footer(view)


def values_of(view: Source) -> list[dict[str, Any]]:
    """As pyarrow reads the plaintext view."""
    return pq.read_table(SourceFile(view)).to_pylist()  # type: ignore[arg-type]


def row_numbers(chunk: ColumnChunk) -> range:
    return range(chunk.row_group * GROUP_ROWS, min((chunk.row_group + 1) * GROUP_ROWS, ROWS))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_kind(kind: Kind, files: dict[Kind, Path], java: EncryptingJava, table: pa.Table) -> None:
    path, number = files[kind], KINDS.index(kind)
    expected = table.to_pylist()
    view, _ = view_of(kind, path)
    assert values_of(view) == expected
    target = path.with_name(f"embedded-{path.name}")
    report = embed(
        str(path),
        into=str(target),
        bloom=COLUMNS,
        page_index=True,
        placement=("end", "row-group")[number % 2],
        reuse=("good", "never")[number // 2 % 2],
        encryption_keys=kind.ours(),
    ).only
    assert not report.damaged
    assert any("DuckDB" in warning for warning in report.warnings())
    view, footer = view_of(kind, target)
    assert values_of(view) == expected
    assert verify_file(view) == []
    assert_same_ciphertext(view_of(kind, path), (view, footer))
    assert_finds_every_value(view, footer, table)
    assert_nothing_in_clear(kind, target, view, footer, table)
    found = scan(str(target), f"k = {expected[77]['k']}", encryption_keys=kind.ours())
    assert found.to_pylist() == [expected[77]]
    if arrow_can_open(kind) and arrow_reads(kind, path, expected):
        assert read_by_arrow(kind, target).to_pylist() == expected
    if kind.footer == "plaintext" and kind.layout == "mixed":
        assert pq.read_table(target, columns=["d", "p"]).to_pylist() == table.select(["d", "p"]).to_pylist()
    assert_java_uses(java, kind, target, (view, footer), table)
    bare = path.with_name(f"bare-{path.name}")
    strip(str(target), str(bare), encryption_keys=kind.ours())
    view, footer = view_of(kind, bare)
    assert values_of(view) == expected
    assert not any(chunk.bloom_filter_offset or chunk.offset_index_offset for chunk in chunks(footer))


def arrow_reads(kind: Kind, path: Path, expected: list[dict[str, Any]]) -> bool:
    """Not parquet-java's version 2 pages with levels, which it leaves in clear in front of the encrypted values."""
    if kind.writer == "java" and kind.key_bytes == 32 and kind.keys["d"] is not None:
        with pytest.raises(OSError, match="ciphertext"):
            read_by_arrow(kind, path)
        return False
    assert read_by_arrow(kind, path).to_pylist() == expected
    return True


def assert_same_ciphertext(before: tuple[Source, Footer], after: tuple[Source, Footer]) -> None:
    """The pages are the bytes that they were."""
    for one, other in zip(chunks(before[1]), chunks(after[1]), strict=True):
        assert stored(before[0], one) == stored(after[0], other)


def stored(view: Source, chunk: ColumnChunk) -> bytes:
    source: Source = view.inner  # type: ignore[attr-defined]
    return source.read(chunk.start, chunk.total_compressed_size)


def assert_finds_every_value(view: Source, footer: Footer, table: pa.Table) -> None:
    for chunk in chunks(footer):
        part, found = row_numbers(chunk), read_bloom_filter(view, chunk)
        values = table[chunk.leaf.path].slice(part.start, len(part)).combine_chunks().drop_null()
        assert found is not None
        assert found.filter.check(hash_arrow(values, chunk.leaf.encoding)).all()


def assert_nothing_in_clear(kind: Kind, path: Path, view: Source, footer: Footer, table: pa.Table) -> None:
    """No bits, no bounds, no page index and no value of an encrypted column stands anywhere in the file."""
    data = path.read_bytes()
    assert (PREFIX in data) == (kind.aad == "stored")
    for name in ("kf", "kc1", "kc2"):
        assert kind.key(name) not in data
    assert b"secret-" not in data
    assert b"category-" not in data
    for chunk in chunks(footer):
        filter_, index = read_bloom_filter(view, chunk), read_column_index(view, footer, chunk)
        assert filter_ is not None
        assert index is not None
        bits = filter_.filter.to_bytes()
        known = [bits[at : at + 32] for at in range(0, len(bits), 32) if bits[at : at + 32].count(0) < 28]
        known += [*index.min_values, *index.max_values]
        if chunk.leaf.path != "c":  # a filter of seven values has few bits
            assert len(known) > 2 * index.num_pages
        is_clear = kind.keys[chunk.leaf.path] is None
        for piece in known:
            assert (piece in data) == is_clear
        for at, length in (
            (chunk.column_index_offset, chunk.column_index_length),
            (chunk.offset_index_offset, chunk.offset_index_length),
        ):
            assert at is not None
            assert length is not None
            is_module = int.from_bytes(data[at : at + 4], "little") == length - 4
            assert is_module != is_clear


def assert_java_uses(
    java: EncryptingJava, kind: Kind, path: Path, ours: tuple[Source, Footer], table: pa.Table
) -> None:
    view, footer = ours
    keys = java.decryption(kind, footer)
    reader = java.open(path, keys=keys)
    try:
        theirs = [column for block in reader.getFooter().getBlocks() for column in block.getColumns()]
        for chunk, column in zip(chunks(footer), theirs, strict=True):
            ours_, bloom = read_bloom_filter(view, chunk), reader.readBloomFilter(column)
            assert ours_ is not None
            assert java.bitset(bloom) == ours_.filter.to_bytes()
            if chunk.leaf.path in ("k", "p"):
                values = table[chunk.leaf.path].to_pylist()[row_numbers(chunk).start : row_numbers(chunk).stop]
                assert java.finds_all(bloom, values)
                assert not java.finds_all(bloom, [value + 1 for value in values])
            offsets, index = reader.readOffsetIndex(column), reader.readColumnIndex(column)
            expected = read_offset_index(view, footer, chunk)
            assert expected is not None
            pages = expected.num_pages
            assert offsets.getPageCount() == pages
            assert offsets.getOffset(pages - 1) == expected.offsets[-1]
            assert len(list(index.getNullPages())) == pages
    finally:
        reader.close()
    row = table.slice(234, 1).to_pylist()[0]
    for column in ("k", "s", "p"):
        present = java.equals(column, row[column])
        assert java.row_groups(path, present, keys, useBloomFilter=True) >= 1
        other = f"{row[column]}!" if isinstance(row[column], str) else row[column] + 1
        assert java.row_groups(path, java.equals(column, other), keys, useBloomFilter=True) <= 1
    sorted_column = java.equals("n", row["n"])
    assert 1 <= java.rows(path, sorted_column, keys) <= PAGE_ROWS
    assert f"s: {row['s']}\n" in java.record(path, sorted_column, keys)
