"""Two leaves with one dotted path: naming it is an error, and everything else works."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.conversion.outcome import EXACT, NONE
from sidecar.errors import UsageError
from sidecar.parquet.footer import read_footer
from sidecar.storage.local import LocalSource


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A column ``a.b`` beside a field ``b`` in ``a``, two columns ``x``, and a column ``k``; four row groups."""
    numbers = range(40)
    names = ["x", "x", "a", "a.b", "k"]
    structs = pa.array([{"b": n + 1000, "c": n} for n in numbers])
    columns = [pa.array(numbers), pa.array([n + 100 for n in numbers]), structs]
    columns += [pa.array([n + 2000 for n in numbers]), pa.array(numbers)]
    filters = {name: {"ndv": 10, "fpp": 0.01} for name in ("k", "a.b", "a.c")}
    made = tmp_path / "twice.parquet"
    pq.write_table(
        pa.table(columns, names=names), made, row_group_size=10, write_page_index=True, bloom_filter_options=filters
    )
    assert pq.ParquetFile(made).metadata.num_row_groups == 4
    return made


@pytest.mark.parametrize("column", ["x", "a.b"])
def test_an_ambiguous_path_is_an_error(path: Path, column: str, tmp_path: Path) -> None:
    target = tmp_path / "target.parquet"
    for call in (
        lambda: sidecar.probe(path, column, "5").only,
        lambda: sidecar.embed(path, into=target, bloom=[column]).only,
        lambda: sidecar.scan(path, f"{column} = 5"),
        lambda: sidecar.scan(path, f"k = 5 and {column} is not null"),
        lambda: sidecar.scan(path, "k = 5", [column]),
    ):
        with pytest.raises(UsageError, match=f"more than one column '{column}'"):
            call()
    assert not target.exists()


def test_other_columns_are_scanned_probed_and_indexed(path: Path, tmp_path: Path) -> None:
    found = sidecar.scan(path, "k = 25 or a.c = 7", ["k"])
    assert found["k"].to_pylist() == [7, 25]
    everything = sidecar.scan(path, "k = 25")
    assert everything.column_names == ["x", "x", "a", "a.b", "k"]
    assert [column.to_pylist() for column in everything.columns] == [[25], [125], [{"b": 1025, "c": 25}], [2025], [25]]
    assert [unit.might_contain for unit in sidecar.probe(path, "k", "25").only.units] == [False, False, True, False]
    target = tmp_path / "target.parquet"
    sidecar.embed(path, into=target, bloom=["k", "a.c"], page_index=True, reuse="never")
    assert sidecar.scan(target, "k = 25").equals(everything)


def test_inspect_shows_each_leaf(path: Path) -> None:
    columns = sidecar.inspect(path).only.units[0].columns
    assert list(columns) == ["x (leaf 0)", "x (leaf 1)", "a.b (leaf 2)", "a.c", "a.b (leaf 4)", "k"]
    assert [name for name, column in columns.items() if column.bloom_filter] == [
        name for name in columns if name.startswith(("a.", "k"))
    ]


def test_indexes_of_ambiguous_columns_are_left_out_of_a_sidecar(path: Path, tmp_path: Path) -> None:
    """Else the filter of one would answer for the other."""
    report = sidecar.extract([path], tmp_path / "t.puffin")
    ways = {(unit.column, unit.way) for unit in report.units}
    assert ways == {("x", NONE), ("a.b", NONE), ("a.c", EXACT), ("k", EXACT)}
    assert sorted(report.fields) == ["a.c", "k"]
    assert all("same path" in unit.reason for unit in report.units if unit.way == NONE)


def test_a_leaf_is_found_by_its_path_only_if_it_is_the_only_one(path: Path) -> None:
    footer = read_footer(LocalSource(str(path)))
    assert footer.leaf("a.b") is None
    assert footer.leaf("x") is None
    leaf = footer.leaf("a.c")
    assert leaf is not None
    assert (leaf.index, footer.label(leaf), footer.is_ambiguous(leaf)) == (3, "a.c", False)
    with pytest.raises(UsageError, match="leaves 2, 4"):
        sidecar.probe(path, "a.b", "5")
