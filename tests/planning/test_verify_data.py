"""verify of a table against its data: filters and page indexes that lie are named, whatever their checksums say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

import sidecar
from sidecar.access import Access
from sidecar.errors import UsageError
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.parquet.page_indexes import build as page_index_build
from tests.iceberg.cases import INDEXED, append, create, local

FILES = 4
KINDS = ["bloom", "page-index"]


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    """Every indexable column, NaN, zeros of both signs and nulls among the values; one more file is not indexed."""
    made = create(catalog, "db.verify_data", files=FILES, partitioned=False)
    sidecar.build(made, INDEXED, kinds=KINDS, engine="local")
    made.refresh()
    append(made, 900, 40)
    return made


def test_what_a_build_made_denies_no_value(table: Table) -> None:
    found = sidecar.verify(table, data=True)
    assert found.problems == []
    assert (found.looked_up.units, found.looked_up.units_total) == (FILES, FILES)
    rows = sum(task.file.record_count for task in table.scan().plan_files()) - 40
    assert found.looked_up.values > 0.2 * rows * len(INDEXED)  # entries of dictionaries count once
    assert "looked_up" not in sidecar.verify(table).to_dict()


def test_page_indexes_alone_are_something_that_is_looked_at(catalog: Any) -> None:
    made = create(catalog, "db.verify_pages_alone", files=1, partitioned=False)
    sidecar.build(made, ["i"], kinds=["page-index"], engine="local")
    found = sidecar.verify(made.refresh(), data=True)
    assert found.problems == []
    assert found.looked_up.values == 0 < found.looked_up.indexes


def test_a_sample_opens_that_many_files(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = Access.open

    def counting(access: Access, path: str, size: int | None = None) -> Any:
        if not path.endswith(".stats"):
            opened.append(path)
        return real(access, path, size)

    monkeypatch.setattr(Access, "open", counting)
    for sample, count in ((0.01, 1), (0.5, 2), (1.0, FILES)):
        opened.clear()
        found = sidecar.verify(table, sample=sample)
        assert found.problems == []
        assert found.looked_up.units == len(set(opened)) == len(opened) == count


def test_no_share_is_wrong_usage(table: Table) -> None:
    with pytest.raises(UsageError, match="share above 0"):
        sidecar.verify(table, sample=0.0)


def lying(
    catalog: Any, name: str, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[pytest.MonkeyPatch], None]
) -> list[dict[str, Any]]:
    """Problems of a sidecar that a spoiled builder made: its checksums are right."""
    made = create(catalog, name, files=2, partitioned=False)
    with monkeypatch.context() as patch:
        spoil(patch)
        sidecar.build(made, ["i", "s", "st.x"], kinds=KINDS, engine="local", reuse="never")
    made.refresh()
    assert sidecar.verify(made).problems == []
    return list(sidecar.verify(made, data=True).problems)


def test_filters_that_lack_values_are_named(catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = SplitBlockBloomFilter._insert

    def spoil(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(SplitBlockBloomFilter, "_insert", lambda self, hashes: real(self, hashes[::2].copy()))

    problems = lying(catalog, "db.verify_lacking", monkeypatch, spoil)
    assert {problem.column for problem in problems} == {"i", "s", "st.x"}
    assert all(p.problem.startswith("sidecar: Bloom filter: denies ") for p in problems)
    assert all(p.file.endswith(".parquet") and p.unit is not None for p in problems)


def test_page_bounds_that_leave_values_out_are_named(catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Any = page_index_build._bounds

    def narrow(*args: Any) -> tuple[list[bytes], list[bytes]]:
        lower, _ = real(*args)
        return lower, lower

    problems = lying(catalog, "db.verify_narrow", monkeypatch, lambda p: p.setattr(page_index_build, "_bounds", narrow))
    assert {problem.column for problem in problems} == {"i", "s", "st.x"}
    assert all("column index: page 0 has a value above its max_value" in p.problem for p in problems)


def test_a_data_file_that_was_written_anew_is_named(catalog: Any) -> None:
    made = create(catalog, "db.verify_anew", files=2, partitioned=False)
    sidecar.build(made, ["i"], engine="local")
    made.refresh()
    path = local(next(iter(made.scan().plan_files())).file.file_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-4] + b"XXXX")
    problems = sidecar.verify(made, data=True).problems
    assert [local(p.file) for p in problems] == [path]
    pq.write_table(pa.table({"i": pa.array([1], pa.int32())}), path)
    assert any("not the one that was indexed" in p.problem for p in sidecar.verify(made, data=True).problems)
    path.write_bytes(whole)
    assert sidecar.verify(made, data=True).problems == []
