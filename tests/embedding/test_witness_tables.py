"""Filters out of a table's sidecar go to its live files alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.conversion.matching.match import BY_TABLE, Match
from sidecar.data_files.chunk_check import ChunkCheck
from sidecar.embedding.restore_plan import proof_of
from sidecar.errors import UsageError
from tests.embedding.witness_cases import asked, assert_nothing_lost, write
from tests.lost_values import duckdb_finds


@pytest.fixture
def table(catalog: Any, request: Any, tmp_path: Path) -> Iterator[Any]:
    """A table of one file, ``dt=1/part-0.parquet``, with a sidecar."""
    name = f"db.witness_{abs(hash(request.node.name))}"
    created = catalog.create_table(name, pa.schema([("k", pa.int64()), ("s", pa.string())]))
    created.add_files([f"file:{write(tmp_path / 'dt=1' / 'part-0.parquet', 1)}"])
    sidecar.build(created, ["k", "s"], kinds=["bloom", "page-index"], engine="local")
    yield created.refresh()
    catalog.drop_table(name)


@pytest.mark.parametrize("way", ["auto", "all"])
def test_a_file_of_the_same_name_in_another_folder_gets_its_own_values(table: Any, tmp_path: Path, way: str) -> None:
    other = write(tmp_path / "dt=2" / "part-0.parquet", 2)
    if way == "all":
        (report,) = sidecar.embed([str(other)], into=str(tmp_path / "out"), from_=table)
    else:
        report = sidecar.embed(str(other), into=str(tmp_path / "out.parquet"), from_=table).only
    assert report.witness.proof == ""
    assert "exact" not in report.ways()["bloom"]
    assert_nothing_lost(Path(report.target), 2)


@pytest.mark.parametrize("given", [True, False], ids=["with the table", "without"])
def test_the_live_entry_of_the_table_is_a_proof(table: Any, tmp_path: Path, given: bool) -> None:
    path = str(tmp_path / "dt=1" / "part-0.parquet")
    with closing(sidecar.open_sidecar(table)) as found:
        (report,) = sidecar.embed([path], into=str(tmp_path / "out"), from_=table if given else found)
    assert report.ways() == {"bloom": {"exact": 6}, "page-index": {"exact": 6}}
    assert report.witness.proof == (BY_TABLE if given else "")
    assert (report.witness.pages == 6) == given
    assert_nothing_lost(Path(report.target), 1)


def test_one_proven_segment_proves_nothing_of_another(table: Any) -> None:
    with closing(sidecar.open_sidecar(table)) as found:
        (entry,) = found.entries([0])
        assert entry is not None
        proven, other = Match(found, entry, (0, 1, 2), 0, BY_TABLE), Match(found, entry, (0, 1, 2), 0)
    assert proof_of([proven, proven]) == BY_TABLE
    assert proof_of([proven, other]) == proof_of([other, proven]) == ""


def test_a_path_that_stands_twice_in_the_table_proves_nothing(table: Any, tmp_path: Path) -> None:
    """One of the two entries is the file that was indexed, but the path has what came last."""
    path = write(tmp_path / "dt=1" / "part-0.parquet", 2)
    table.add_files([f"file:{path}"], check_duplicate_files=False)
    table.refresh()
    report = sidecar.embed(str(path), into=str(tmp_path / "out.parquet"), from_=table).only
    assert report.witness.proof == ""
    assert_nothing_lost(tmp_path / "out.parquet", 2)


@pytest.mark.parametrize("way", ["auto", "all"])
def test_a_file_that_was_added_again_under_its_path_is_another_one(table: Any, tmp_path: Path, way: str) -> None:
    """It left the table, was rewritten and came back: path, size and record count are those of the indexed file."""
    path = tmp_path / "dt=1" / "part-0.parquet"
    table.delete()
    write(path, 2)
    table.add_files([f"file:{path}"])
    table.refresh()
    if way == "all":
        (report,) = sidecar.embed(into=str(tmp_path / "out"), from_=table)
    else:
        report = sidecar.embed(str(path), into=str(tmp_path / "out.parquet"), from_=table).only
    assert report.witness.proof == ""
    assert "exact" not in {way for ways in report.ways().values() for way in ways}
    assert_nothing_lost(Path(report.target), 2)


def test_one_page_tells_of_a_file_that_was_overwritten_in_place(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No commit tells of it, so the table's entry still proves what is no longer so."""
    write(tmp_path / "dt=1" / "part-0.parquet", 2)
    report, *_ = sidecar.embed(into=str(tmp_path / "out"), from_=table)
    with monkeypatch.context() as patched:
        patched.setattr("sidecar.embedding.restorer.ask_pages", lambda *args, **options: ChunkCheck())
        blind, *_ = sidecar.embed(into=str(tmp_path / "blind"), from_=table)
    assert report.witness.proof == BY_TABLE
    assert report.witness.contradictions
    assert "exact" not in {way for ways in report.ways().values() for way in ways}
    assert_nothing_lost(Path(report.target), 2)
    assert duckdb_finds(Path(blind.target), "k", asked(2)) < 10, "what the page is looked at for"


@pytest.mark.parametrize("what", ["size", "row groups"])
def test_a_live_file_of_another_size_or_with_other_row_groups_is_refused(table: Any, tmp_path: Path, what: str) -> None:
    """It was overwritten in place; either alone tells, and no value has to be looked at."""
    path = tmp_path / "dt=1" / "part-0.parquet"
    size = path.stat().st_size
    write(path, 2, **({"compression": "zstd"} if what == "size" else {"row_group_size": 1500}))
    if what == "row groups":  # zeros in front of the footer bring the size back
        data = path.read_bytes()
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        path.write_bytes(data[:footer] + bytes(size - len(data)) + data[footer:])
    assert (path.stat().st_size == size) == (what == "row groups")
    assert pq.read_metadata(path).num_row_groups == (3 if what == "size" else 2)
    with pytest.raises(UsageError, match="not the one that was indexed"):
        sidecar.embed(str(path), into=str(tmp_path / "no.parquet"), from_=table)
    with pytest.raises(UsageError, match="not the one that was indexed"):
        sidecar.embed([str(path)], into=str(tmp_path / "no"), from_=table)
    assert not [path for path in tmp_path.rglob("no*") if path.is_file()]
