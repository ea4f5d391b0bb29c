"""Puffin files with filters that no rule reads: a probe keeps the row groups, as a probe of the data file does."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.errors import UsageError


def test_a_probe_keeps_row_groups_whose_encoding_has_no_rule(tmp_path: Path) -> None:
    indexed, puffin = (str(tmp_path / name) for name in ("b.parquet", "x.puffin"))
    table = pa.table({"t": pa.array(range(100), pa.time64("ns")), "k": range(100)})
    pq.write_table(table, indexed, bloom_filter_options={"t": True, "k": True})
    sidecar.extract([indexed], puffin)
    for path in (indexed, puffin):
        assert [unit.might_contain for unit in sidecar.probe(path, "t", "12:34").only.units] == [None], path


def test_against_takes_a_list_of_files(tmp_path: Path) -> None:
    source, puffin = str(tmp_path / "a.parquet"), str(tmp_path / "x.puffin")
    pq.write_table(pa.table({"k": [1, 2, 3]}), tmp_path / "plain.parquet")
    sidecar.embed(str(tmp_path / "plain.parquet"), into=source, bloom=["k"])
    sidecar.extract([source], puffin)
    with pytest.raises(UsageError, match="against is a list of texts, not one text"):
        sidecar.verify(puffin, against=source)
