"""inspect, verify and probe of many files: results like those of single files, and sums checked by other libraries."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.errors import DamagedFileError, StorageError, UsageError
from tests.conversion.cases import indexed

PUBLISHED = Path(__file__).resolve().parents[2] / "spec_vectors" / "published"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files with filters and page indexes, three without, an ORC file and a Puffin file."""
    made = tmp_path_factory.mktemp("files")
    folder = made / "data"
    for number in range(3):
        path = indexed(made, number, 900 + 300 * number)
        part = folder / f"day={number}"
        part.mkdir(parents=True)
        shutil.move(path, part / "part 0.parquet")
        shutil.move(made / f"plain-{number}.parquet", part / "plain.parquet")
    shutil.copy(PUBLISHED / "orc_java.orc", folder)
    sidecar.extract([str(folder / "day=0" / "part 0.parquet")], str(folder / "indexes.puffin"))
    return folder


@pytest.fixture
def damaged(folder: Path, tmp_path: Path) -> Path:
    """The same with bad files among the good ones: truncated, empty, foreign and missing."""
    copy = tmp_path / "data"
    shutil.copytree(folder, copy)
    whole = (folder / "day=1" / "plain.parquet").read_bytes()
    (copy / "day=0" / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    (copy / "day=1" / "empty.parquet").touch()
    (copy / "day=1" / "foreign.orc").write_bytes(b"not a table at all, but long enough")
    os.symlink("nowhere", copy / "day=2" / "missing.parquet")
    return copy


BAD = ["day=0/cut.parquet", "day=1/empty.parquet", "day=1/foreign.orc", "day=2/missing.parquet"]


def parquet_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.parquet"))


@pytest.mark.parametrize("threads", [1, 3, None])
def test_each_result_is_that_of_the_file_alone(folder: Path, threads: int | None) -> None:
    found = sidecar.inspect(str(folder), threads=threads)
    paths = sorted([*map(str, parquet_files(folder)), f"{folder}/indexes.puffin", f"{folder}/orc_java.orc"])
    assert [file.file for file in found.files] == paths
    assert list(found.files) == [sidecar.inspect(path).only for path in paths]
    assert (found.failed, found.others) == ({}, 0)
    verified = sidecar.verify(str(folder), threads=threads)
    assert [file.file for file in verified.files] == paths
    assert list(verified) == [sidecar.verify(path).only for path in paths]
    probed = sidecar.probe(f"{folder}/**/*.parquet", "k", 5, threads=threads)
    assert [file.units for file in probed] == [
        sidecar.probe(str(path), "k", 5).only.units for path in parquet_files(folder)
    ]


def test_the_summary_is_the_sum_of_what_pyarrow_and_duckdb_see(folder: Path) -> None:
    found = sidecar.inspect(f"{folder}/**/*.parquet")
    metadata = [pq.read_metadata(path) for path in parquet_files(folder)]
    summary = found.to_dict()
    assert len(summary["files"]) == 6
    assert summary["rows"] == sum(m.num_rows for m in metadata)
    assert summary["row_groups"] == sum(m.num_row_groups for m in metadata)
    assert summary["size"] == sum(path.stat().st_size for path in parquet_files(folder))
    chunks = duckdb.sql(
        f"select path_in_schema, file_name, bloom_filter_offset, bloom_filter_length "
        f"from parquet_metadata('{folder}/**/*.parquet')"
    ).fetchall()
    columns = {column.column: column for column in found.columns}
    assert set(columns) == {"k", "s", "n", "tags.list.element"}
    for name, column in columns.items():
        mine = [chunk for chunk in chunks if chunk[0].replace(", ", ".") == name]
        with_filter = [chunk for chunk in mine if chunk[2] is not None]
        assert (column.files, column.row_groups) == (6, len(mine))
        assert column.rows == summary["rows"]
        assert column.filters == len(with_filter)
        assert column.files_with_filter == len({chunk[1] for chunk in with_filter})
        at = [(m, g, c) for m in metadata for g in range(m.num_row_groups) for c in range(m.num_columns)]
        indexes = [m.row_group(g).column(c) for m, g, c in at if m.schema.column(c).path == name]
        assert column.files_with_page_index == 3
        assert sum(chunk.has_offset_index for chunk in indexes) == 9
        lengths = [filter_["length"] for filter_ in filters(found, name)]
        assert sorted(lengths) == sorted(chunk[3] for chunk in with_filter)
        assert_spread(column.filter_bytes, [filter_["bytes"] for filter_ in filters(found, name)])
        assert_spread(column.false_positives, [one["estimated_fpp"] for one in filters(found, name)])
    assert summary["filters"] == sum(column.filters for column in found.columns) == 27
    assert summary["filter_bytes"] == sum(c.filter_bytes.sum for c in found.columns if c.filter_bytes)
    assert [line.columns_with_filter for line in found.lines] == [3, 0] * 3
    assert [line.columns_with_page_index for line in found.lines] == [4, 0] * 3


def filters(found: Any, column: str) -> list[Any]:
    units = [unit for file in found.to_dict()["files"] for unit in file["units"]]
    return [one for unit in units if (one := unit["columns"][column]["bloom_filter"]) is not None]


def assert_spread(spread: Any, numbers: list[float]) -> None:
    if not numbers:
        assert spread is None
        return
    assert spread.sum == pytest.approx(sum(numbers))
    assert (spread.min, spread.max) == (min(numbers), max(numbers))


def test_row_indexes_of_a_stripe_count_once(folder: Path) -> None:
    found = sidecar.inspect(f"{folder}/*.orc")
    (data,) = found.to_dict()["files"]
    for column in found.columns:
        streams = {
            (unit["stripe"], unit["columns"][column.column]["row_index"]["length"])
            for unit in data["units"]
            if unit["columns"][column.column]["row_index"] is not None
        }
        assert_spread(column.page_index_bytes, [length for _, length in streams])


CALLS: list[Callable[..., Any]] = [
    lambda path, **options: sidecar.inspect(path, **options),
    lambda path, **options: sidecar.probe(path, "k", 5, **options),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_bad_file_raises_alone_and_fails_among_many(damaged: Path, folder: Path, call: Callable[..., Any]) -> None:
    with pytest.raises(DamagedFileError, match=r"day=0/cut\.parquet"):
        call(f"{damaged}/day=0/cut.parquet")
    found = call(str(damaged))
    assert [os.path.relpath(file, damaged) for file in found.failed] == BAD
    assert len(found.files) == len(call(str(folder)).files)
    plain = found.to_dict()["failed"]
    assert list(plain) == list(found.failed)
    assert "No such file" in plain[str(damaged / BAD[3])]["message"]
    with pytest.raises(StorageError, match="No such file"):
        call([f"{damaged}/{BAD[3]}"])


def test_the_only_result_of_many(damaged: Path) -> None:
    good = str(damaged / "day=0" / "plain.parquet")
    found = sidecar.inspect(f"{damaged}/day=0/pl*")
    assert found.only is found[0]
    assert found.only == sidecar.inspect(good).only
    with pytest.raises(DamagedFileError, match=r"cut\.parquet"):
        _ = sidecar.inspect(f"{damaged}/day=0/c*").only
    with pytest.raises(UsageError, match="there is not one file; found 3 files"):
        _ = sidecar.inspect(f"{damaged}/day=0").only
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(found)
    assert sidecar.verify(good).ok
    assert not sidecar.verify(f"{damaged}/day=2").ok  # one link leads nowhere


def test_results_are_tables_for_pandas_and_notebooks(damaged: Path) -> None:
    found = sidecar.inspect(str(damaged))
    frame = found.to_pandas()
    assert list(frame["file"]) == [file.file for file in found]
    assert frame["filters"].sum() == found.to_dict()["filters"]
    assert len(repr(found)) < 300
    probed = sidecar.probe([str(damaged / "day=0"), str(damaged / "day=1")], "k", 5)
    assert list(probed.to_pandas()["might_contain"]) == [file.might_contain for file in probed]
    shown = probed._repr_html_()
    assert shown.count("<tr>") > len(probed)
    assert "<script" not in shown


def test_damage_is_a_problem_and_a_missing_file_is_not_checked(damaged: Path) -> None:
    with pytest.raises(StorageError, match=r"missing\.parquet"):
        sidecar.verify(f"{damaged}/{BAD[3]}")
    found = sidecar.verify(str(damaged))
    assert [os.path.relpath(file, damaged) for file in found.failed] == BAD[3:]
    assert sorted({os.path.relpath(p.file or "", damaged) for p in found.problems}) == BAD[:3]
    assert len(found.problems) == sum(len(file.problems) for file in found.files) == 3


def test_values_are_looked_up_where_there_are_any(folder: Path) -> None:
    found = sidecar.verify(str(folder), data=True)
    assert found.problems == []
    single = [sidecar.verify(str(path), data=True).looked_up for path in parquet_files(folder)]
    single.append(sidecar.verify(f"{folder}/orc_java.orc", data=True).looked_up)
    looked_up = found.looked_up
    assert looked_up is not None
    assert looked_up.values == sum(one.values for one in single if one) > 0
    puffin = next(file for file in found.files if file.file.endswith(".puffin"))
    assert "structure only" in str(puffin.scope)


def test_a_probe_never_rules_out_a_file_that_has_the_value(folder: Path) -> None:
    for path in parquet_files(folder):
        value = pq.read_table(path, columns=["k"])["k"][17].as_py()
        found = sidecar.probe(f"{folder}/**/*.parquet", "k", value)
        assert str(path) in [file.file for file in found.kept]
        summary = found.to_dict()
        assert summary["cannot_hold"] + summary["may_hold"] + summary["unknown"] == len(summary["files"]) == 6
        assert summary["unknown"] == 3  # those without filters
        assert summary["kept_size"] == sum(os.path.getsize(file.file) for file in found.kept)
        assert summary["bytes_read"] == sum(file.bytes_read for file in found.files) > 0
        assert summary["reads"] >= 6


def test_a_file_that_cannot_be_asked_is_kept(folder: Path) -> None:
    found = sidecar.probe(str(folder), "n", 5)
    (orc,) = (file for file in found.files if file.file.endswith(".orc"))
    assert (orc.might_contain, orc in found.kept) == (None, True)
    assert orc.reason == "the file has no column 'n'"  # not each column of each file
    assert not any(file.file.endswith(".puffin") for file in found.files)
    with pytest.raises(UsageError, match="no column 'nosuch'"):
        sidecar.probe(str(folder), "nosuch", 5)


def test_progress_and_threads(folder: Path) -> None:
    seen: list[tuple[object, ...]] = []
    with sidecar.progress(lambda *step: seen.append(step)):
        sidecar.verify(str(folder), threads=2)
    assert seen == [("files", number, 8) for number in range(1, 9)]
    with pytest.raises(UsageError, match="at least 1"):
        sidecar.inspect(str(folder), threads=0)
