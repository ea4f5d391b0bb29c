"""Every door gives a value or our error for hostile files, soon and in little memory; see data/hostile/README.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import sidecar
from sidecar.errors import UnsupportedFeatureError
from tests import hostile_doors
from tests.iceberg.cases import create

ROOT = Path(__file__).parents[1]
HOSTILE = Path(__file__).parent / "data" / "hostile"
COST = 150
"""CPU time of one call, in units of a fixed piece of work that the same process measures after it."""

BYTES = 256 << 20
OURS = ("value", "DamagedFileError", "UnsupportedFeatureError", "UsageError", "StorageError")


def answers_of(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """What every door answers, each in a child of one warm process."""
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", hostile_doors.__name__, *map(str, paths)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_harmless(found: Sequence[dict[str, Any]]) -> None:
    for one in found:
        assert one["answer"] in OURS, one
        assert one["cost"] < COST, one
        assert one["bytes"] < BYTES, one


@pytest.fixture(scope="module")
def answers() -> list[dict[str, Any]]:
    return answers_of(sorted(path for path in HOSTILE.iterdir() if path.suffix != ".md"))


def test_every_hostile_file_through_every_door(answers: list[dict[str, Any]]) -> None:
    assert len({one["file"] for one in answers}) == len(list(HOSTILE.iterdir())) - 1
    assert_harmless(answers)


@pytest.mark.parametrize(
    ("file", "door", "answer"),
    [
        ("orc_1e8_zeros.orc", "scan k", "value"),
        ("orc_1e8_zeros.orc", "scan all", "value"),
        ("orc_1e9_zeros.orc", "scan k", "UnsupportedFeatureError"),
        ("parquet_delta_1e8.parquet", "scan k", "value"),
        ("parquet_delta_1e8.parquet", "scan all", "value"),
        ("parquet_rle_2e8.parquet", "scan k null", "value"),
        ("parquet_rle_2e8.parquet", "scan all", "value"),
        ("parquet_brotli_1GiB.parquet", "scan all", "UnsupportedFeatureError"),
        ("parquet_delta_block_2e31.parquet", "scan all", "UnsupportedFeatureError"),
        ("fuzz_orc_101233_segfault_in_pyarrow.orc", "scan all", "DamagedFileError"),
        ("orc_decimal_precision_39.orc", "scan all", "UnsupportedFeatureError"),
    ],
)
def test_what_can_be_read_is_read_and_limits_are_named(
    answers: list[dict[str, Any]], file: str, door: str, answer: str
) -> None:
    (found,) = (one for one in answers if (one["file"], one["door"]) == (file, door))
    assert found["answer"] == answer, found
    if answer == "UnsupportedFeatureError":
        assert "expected" in found["detail"]


def test_a_filter_from_pages_beyond_the_limit_is_not_built(tmp_path: Path) -> None:
    """The limit of pages is one for all doors: what a scan refuses is not inflated to be indexed."""
    path = str(HOSTILE / "parquet_brotli_1GiB.parquet")
    with pytest.raises(UnsupportedFeatureError, match="a page is too large"):
        sidecar.scan(path, "k = 1")
    report = sidecar.embed(path, into=str(tmp_path / "a.parquet"), bloom=["k"]).only
    assert {one.way for one in report.outcomes} == {"none"}
    assert all("a page is too large" in one.reason for one in report.outcomes)


@pytest.mark.parametrize("name", sorted(path.name for path in HOSTILE.glob("*.stats")))
def test_a_hostile_sidecar_of_a_table_keeps_every_file(catalog: Any, name: str) -> None:
    """The bytes are those that the table's statistics entry leads to, whatever lengths the entry states."""
    table = create(catalog, f"db.hostile_{name.split('_')[2]}", files=2, partitioned=False)
    sidecar.build(table, ["i"], engine="local")
    table.refresh()
    (entry,) = table.metadata.statistics
    data = (HOSTILE / name).read_bytes()
    Path(entry.statistics_path.removeprefix("file:")).write_bytes(data)
    footer = int.from_bytes(data[-12:-8], "little") + 16
    for lengths in ((entry.file_size_in_bytes, entry.file_footer_size_in_bytes), (len(data), footer)):
        stated = dict(zip(("file_size_in_bytes", "file_footer_size_in_bytes"), lengths, strict=True))
        table.metadata.statistics[0] = entry.model_copy(update=stated)
        plan = sidecar.plan(table, "i = 3")
        assert plan.to_arrow().num_rows == table.scan("i = 3").to_arrow().num_rows
        assert plan.files_kept == len(list(table.scan("i = 3").plan_files()))
        sidecar.status(table)
        assert sidecar.verify(table).problems


def test_row_group_statistics_that_lie_are_named() -> None:
    path = str(HOSTILE / "parquet_statistics_lie.parquet")
    found = [p.problem for p in sidecar.verify(path, data=True).problems if p.column == "k"]
    assert found == ["statistics: the pages have a value above max_value"]
    assert not any("statistics" in p.problem for p in sidecar.verify(path).problems)
