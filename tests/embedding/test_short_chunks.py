"""Files whose column chunks are longer than the footer says, as parquet-mr wrote them up to 1.2.8 (PARQUET-816)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.parquet.bloom import FoundFilter, read_bloom_filters
from sidecar.parquet.footer import Footer, read_footer
from sidecar.parquet.pages import walk_pages
from sidecar.parquet.thrift import I64
from sidecar.storage.local import LocalSource
from tests.parquet.false_statements import by, chunk_meta, restated, written

OLD, UNKNOWN = "parquet-mr version 1.2.5 (build)", "a writer that nobody knows version 1.0"
GROUPS, COLUMNS = 5, 2


def rows() -> pa.Table:
    words = [None if n % 11 == 0 else f"word {n % 37}" for n in range(5000)]
    return pa.table({"a": words, "b": [f"{n * 7919:08}" for n in range(5000)]})


def short_file(path: Path, created_by: str, **options: Any) -> Path:
    """A file of five row groups, each of whose chunks is 14 bytes longer than the footer says."""

    def shorten(metadata: Any) -> None:
        by(created_by)(metadata)
        for group in range(GROUPS):
            for column in range(COLUMNS):
                meta = chunk_meta(metadata, group, column)
                meta.fields[7] = (I64, (meta.integer(7) or 0) - 14)

    defaults: dict[str, Any] = {"row_group_size": 1000, "use_dictionary": True, "write_page_index": False}
    path.write_bytes(restated(written(rows(), **(defaults | options)), shorten))
    return path


def pages_of(path: Path) -> tuple[LocalSource, Footer]:
    source = LocalSource(str(path))
    return source, read_footer(source)


@pytest.mark.parametrize("created_by", [OLD, "parquet-mr", "fastparquet-python version 1.0.0 (build 111)"])
def test_all_values_of_such_a_file_are_read(created_by: str, tmp_path: Path) -> None:
    path = short_file(tmp_path / "short.parquet", created_by)
    assert sidecar.scan(path, "true").equals(rows())
    assert sidecar.scan(path, "a is null").num_rows == rows()["a"].null_count
    source, footer = pages_of(path)
    for group in footer.row_groups:
        for chunk in group.columns:
            pages = [page for page in walk_pages(source, chunk) if page.is_data]
            assert sum(page.num_values for page in pages) == chunk.num_values
    found = sidecar.verify(path, data=True).problems
    assert [problem.column for problem in found] == ["a", "b"]
    assert all("total_compressed_size: not believed" in problem.problem for problem in found)


@pytest.mark.parametrize("placement", ["end", "row-group"])
@pytest.mark.parametrize("created_by", [OLD, UNKNOWN])
@pytest.mark.parametrize("page_index", [False, True])
def test_filters_are_not_put_into_the_last_page(
    created_by: str, placement: Any, page_index: bool, tmp_path: Path
) -> None:
    """Also of a file that no name gives away: readers go on to the last value, wherever the footer ends a chunk."""
    before, after = short_file(tmp_path / "before.parquet", created_by), tmp_path / "after.parquet"
    original = before.read_bytes()
    sidecar.embed(before, into=after, bloom=["a", "b"], page_index=page_index, placement=placement)
    source, footer = pages_of(after)
    end = pages_of(before)[1].offset
    body = after.read_bytes()
    if placement == "end":
        assert body[:end] == original[:end]
    starts = [min(chunk.start for chunk in group.columns) for group in footer.row_groups]
    old_starts = [min(chunk.start for chunk in group.columns) for group in pages_of(before)[1].row_groups]
    for at, old, until in zip(starts, old_starts, [*old_starts[1:], end], strict=True):
        assert body[at : at + until - old] == original[old:until]
    if created_by == OLD:
        assert sidecar.scan(after, "true").equals(rows())
        assert pq.read_table(after).equals(rows())
        assert duckdb.sql(f"from '{after}'").to_arrow_table().equals(rows())
        for group in footer.row_groups:
            for _, found in read_bloom_filters(source, group.columns):
                assert isinstance(found, FoundFilter)
        assert sidecar.scan(after, "b = '00007919'").num_rows == 1


def test_a_file_with_such_filters_is_embedded_again_and_stripped(tmp_path: Path) -> None:
    before, first, second, bare = (tmp_path / f"{name}.parquet" for name in ("0", "1", "2", "3"))
    short_file(before, OLD)
    sidecar.embed(before, into=first, bloom=["a"], placement="row-group")
    sidecar.embed(first, into=second, bloom=["b"], page_index=True, placement="row-group")
    sidecar.strip(second, bare)
    for path in (first, second, bare):
        assert sidecar.scan(path, "true").equals(rows())
        assert pq.read_table(path).equals(rows())


def test_indexes_of_a_sidecar_are_put_back_without_harm(tmp_path: Path) -> None:
    before, indexed, restored = (tmp_path / f"{name}.parquet" for name in ("0", "1", "2"))
    short_file(before, OLD)
    sidecar.embed(before, into=indexed, bloom=["a", "b"], page_index=True)
    sidecar.extract([indexed], tmp_path / "i.puffin")
    sidecar.embed(before, into=restored, from_=tmp_path / "i.puffin", placement="row-group")
    assert sidecar.scan(restored, "true").equals(rows())
    assert pq.read_table(restored).equals(rows())
    assert duckdb.sql(f"from '{restored}'").to_arrow_table().equals(rows())
