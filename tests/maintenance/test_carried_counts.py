"""A refresh after a build of other columns: it counts again what it can, and is current only then."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.filters.theta import ThetaSketch
from tests.iceberg.registering_cases import set_foreign
from tests.indexing.cases import sketches_of
from tests.maintenance.cases import register_others
from tests.tables import create_with_rows

serial = itertools.count()
LACKS, REMOVED = ["files-not-counted"], ["removed-files"]


def rows(number: int, count: int = 100) -> pa.Table:
    keys = [1000 * number + 2 * n for n in range(count)]
    return pa.table({"k": keys, "s": [f"s{key}" for key in keys]})


def where(number: int) -> str:
    """The rows of a file."""
    return f"k >= {1000 * number} and k < {1000 * (number + 1)}"


def build(table: Any, *columns: str, **options: Any) -> Any:
    return sidecar.build(table.refresh(), list(columns), engine="local", **options)


def refresh(table: Any, **options: Any) -> tuple[str, int]:
    report = sidecar.refresh(table.refresh(), engine="local", **options)
    return report.action, report.files_indexed


def counted(table: Any, column: str = "k") -> tuple[int | None, list[str] | None, list[str] | None]:
    """The distinct count of a column, and why it is an upper and a lower bound."""
    found = sidecar.status(table.refresh()).coverage[column]["theta"]
    return found.ndv, found.upper_bound, found.lower_bound


def made(catalog: Any, files: int, *columns: str) -> Any:
    """A table of so many files, one commit each, of which these columns are built and declared."""
    table = create_with_rows(catalog, f"db.carried_{next(serial)}", [rows(n) for n in range(files)])
    build(table, *columns, save=True)
    return table


@pytest.mark.parametrize("by_build", [False, True])
def test_a_count_that_was_left_out_is_made(catalog: Any, by_build: bool) -> None:
    table = made(catalog, 1, "k", "s")
    table.append(rows(1))
    build(table, "k", "s")
    table.delete(where(0))
    build(table, "s")  # the segment of the first file is not carried
    assert counted(table) == (None, None, None)
    if by_build:
        assert build(table, "k").units == 0
    else:
        assert refresh(table) == ("written", 0)
    assert counted(table) == (100, None, None)
    assert refresh(table) == ("current", 0)


def test_a_count_that_lacks_files_is_made_once_all_are_counted(catalog: Any) -> None:
    table = made(catalog, 3, "k", "s")
    for number in (3, 4):
        table.append(rows(number))
    assert refresh(table, max_new_files=1) == ("written", 1)
    table.delete(next(where(n) for n in (3, 4) if sidecar.plan(table, f"k = {1000 * n + 5}").files_kept))
    build(table, "s")
    assert counted(table) == (300, None, LACKS)
    assert refresh(table) == ("written", 0)
    assert counted(table) == (400, None, None)
    assert refresh(table) == ("current", 0)


def test_a_count_with_values_of_a_group_that_is_gone_is_made_anew(catalog: Any) -> None:
    table = made(catalog, 1, "k", "s")
    table.append(rows(1))
    build(table, "k", "s")
    refresh(table)  # one segment
    table.delete(where(1))
    build(table, "s")
    assert counted(table) == (200, REMOVED, None)
    assert refresh(table) == ("written", 0)
    assert counted(table) == (100, None, None)
    assert refresh(table) == ("current", 0)


def test_files_of_a_group_that_lost_rows_are_read_again(catalog: Any) -> None:
    table = made(catalog, 6, "k", "s")
    refresh(table)
    table.delete(where(1))
    build(table, "s", kinds=["bloom"])
    assert counted(table) == (600, REMOVED, None)
    assert refresh(table) == ("written", 2)
    assert counted(table) == (500, None, None)
    assert refresh(table) == ("current", 0)


def test_a_carried_count_of_a_limited_refresh_is_an_upper_bound(catalog: Any) -> None:
    table = made(catalog, 6, "k")
    table.delete(where(1))
    assert refresh(table, max_new_files=1) == ("written", 1)
    assert counted(table) == (600, REMOVED, None)


def test_the_count_of_another_writer_stays_and_nothing_is_counted_again(catalog: Any) -> None:
    table = made(catalog, 2, "k", "s")
    set_foreign(table, {1: "40"})
    assert [refresh(table), refresh(table)] == [("written", 0), ("current", 0)]
    register_others(table)  # the metadata does not name it
    assert [refresh(table), refresh(table)] == [("written", 0), ("current", 0)]
    table.delete(where(0))
    build(table, "s")
    assert [refresh(table), refresh(table)] == [("written", 0), ("current", 0)]
    assert counted(table) == (100, None, None)  # of this snapshot nobody else has one


MAPPINGS = [
    [{"field-id": n, "names": [name]} for n, name in enumerate(names, 1)]
    for names in (["a", "b", "c", "p"], ["b", "a", "c", "p"])
]


class History:
    """A table of files without field ids, and what happens to it: files come and go, and columns change places."""

    def __init__(self, catalog: Any, folder: Path, seed: int = 0) -> None:
        schema = pa.schema([(name, pa.int64()) for name in "abcp"])
        self.table = catalog.create_table(f"db.carried_{next(serial)}", schema)
        self.folder, self.chance = folder, random.Random(seed)
        self.files = 0
        self.live: list[int] = []
        self.is_swapped = False

    def append(self, count: int = 0) -> None:
        path, count = self.folder / f"{self.files}.parquet", count or self.chance.choice([1, 4, 20, 100])
        own = [1000 * self.files + n for n in range(count)]
        pq.write_table(pa.table({"a": own, "b": [-n % 7 - 7 for n in own], "c": own, "p": [self.files] * count}), path)
        self.table.refresh().add_files([f"file:{path}"], check_duplicate_files=False)
        self.live.append(self.files)
        self.files += 1

    def delete(self) -> None:
        if len(self.live) > 1:
            number = self.live.pop(self.chance.randrange(len(self.live)))
            self.table.refresh().delete(f"p = {number}")

    def swap(self) -> None:
        """The name mapping gives the values of two columns to each other."""
        self.is_swapped = not self.is_swapped
        with self.table.refresh().transaction() as change:
            change.set_properties({"schema.name-mapping.default": json.dumps(MAPPINGS[self.is_swapped])})

    def build(self) -> None:
        kinds: Any = self.chance.choice([["theta"], ["theta"], ["bloom"]])
        build(self.table, *self.chance.sample("abc", self.chance.choice([1, 1, 2])), kinds=kinds)
        self.check()

    def refresh(self) -> None:
        refresh(self.table, max_new_files=self.chance.choice([1, 2, None]))
        self.check()

    def check(self) -> dict[str, tuple[float, Any, Any]]:
        """The counts say in which way they may be wrong. Returns how high each is, and its marks."""
        found, rows_now = sketches_of(self.table.refresh()), self.table.scan().to_arrow()
        checked = {}
        for column, field_id in zip("abc", (1, 2, 3), strict=True):
            if field_id in found:
                true = ThetaSketch.from_arrow(rows_now[column].combine_chunks(), "long")
                stored = ThetaSketch.from_bytes(found[field_id])
                _, upper, lower = counted(self.table, column)
                assert upper or {*stored.retained} <= {*true.retained}, (column, "too high")
                assert lower or {*true.retained} <= {*stored.retained}, (column, "too low")
                checked[column] = stored.ndv / max(true.ndv, 1), upper, lower
        return checked


def test_a_count_of_another_columns_values_is_not_carried(catalog: Any, tmp_path: Path) -> None:
    """A build of another column, and refreshes of few files, left it as it was, without a mark."""
    one = History(catalog, tmp_path)
    for _ in range(2):
        one.append(100)
    build(one.table, "a", save=True)
    one.swap()
    build(one.table, "c", kinds=["bloom"])
    assert counted(one.table, "a") == (None, None, None)
    assert refresh(one.table, max_new_files=1) == ("written", 1)
    assert counted(one.table, "a") == (None, None, None)
    assert refresh(one.table, max_new_files=1) == ("written", 1)
    assert counted(one.table, "a") == (7, None, None)
    assert refresh(one.table) == ("current", 0)


def test_a_refresh_of_other_columns_leaves_out_a_count_of_other_values(catalog: Any, tmp_path: Path) -> None:
    one = History(catalog, tmp_path)
    one.append(100)
    build(one.table, "a")
    build(one.table, "c", save=True)
    refresh(one.table)
    one.swap()
    assert refresh(one.table) == ("written", 0)
    assert (counted(one.table, "a"), counted(one.table, "c")) == ((None, None, None), (100, None, None))
    assert refresh(one.table) == ("current", 0)


@pytest.mark.parametrize("seed", range(4))
def test_counts_say_what_they_are_and_refreshes_end_with_right_ones(catalog: Any, tmp_path: Path, seed: int) -> None:
    one = History(catalog, tmp_path, seed)
    table = one.table
    for act in (one.append, one.append, one.build):
        act()
    for act in one.chance.choices([one.append, one.delete, one.build, one.refresh, one.swap], [3, 2, 4, 3, 1], k=24):
        act()
    names = [name for name, kinds in sidecar.status(table.refresh()).coverage.items() if "theta" in kinds]
    for _ in range(3 * len(one.live)):
        if refresh(table, max_new_files=1)[0] == "current":
            break
    assert refresh(table)[0] == "current"
    for name, (height, upper, lower) in one.check().items():
        names.remove(name)
        assert lower is None, name
        assert height == 1 or (upper and height < 1.12), (name, height)
    assert not names, "each count that there was is there"
