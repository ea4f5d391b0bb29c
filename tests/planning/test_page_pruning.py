"""Bounds of manifest entries as pages, and what makes a plan distrust page indexes of a sidecar."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.types import DecimalType

import sidecar
from sidecar.bundle.indexes.page_indexes import PageIndexKind, leaf_of
from sidecar.bundle.model import UnitEntry
from sidecar.bundle.segment import Segment
from sidecar.iceberg.predicates.predicate import parse_predicate
from sidecar.parquet.page_indexes import page_bounds
from sidecar.planning.file_bounds import FileBounds
from sidecar.planning.file_question import FileQuestion
from sidecar.planning.planner import plan
from sidecar.questions.bounds import Bounds, Unknown
from sidecar.reading.scanning import read
from tests.iceberg.cases import comparable, file_in_manifest, oracle
from tests.tables import create_with_rows, iceberg_schema

SCHEMA = iceberg_schema("k long, x double, s string, dec decimal(20, 2), ts timestamp")


def data_file(**more: Any) -> DataFile:
    return file_in_manifest("f", 100, 10, **more)


def bounded(field_id: int, lower: bytes, upper: bytes, nulls: int = 0, nans: int | None = None) -> DataFile:
    return data_file(
        lower_bounds={field_id: lower},
        upper_bounds={field_id: upper},
        value_counts={field_id: 100},
        null_value_counts={field_id: nulls},
        nan_value_counts={} if nans is None else {field_id: nans},
    )


def helped(file: DataFile, text: str) -> set[int]:
    return FileQuestion(parse_predicate(text, SCHEMA), SCHEMA).helpful_fields(file)


def test_bounds_in_every_form_that_manifests_have_them() -> None:
    bounds = FileBounds({1: "long", 2: "double", 3: "string", 4: "decimal(20, 2)", 5: "timestamp"})
    for width in (4, 8):  # an int that became a long keeps four bytes
        found = bounds.of(bounded(1, (-5).to_bytes(width, "little", signed=True), b"\x07" + bytes(width - 1)), 1)
        assert (found.lower, found.upper) == ([-5], [7])
    for kind in ("<f", "<d"):
        found = bounds.of(bounded(2, struct.pack(kind, -0.5), struct.pack(kind, 2.0), nans=0), 2)
        assert (found.lower, found.upper, found.may_have_nan) == ([-0.5], [2.0], [False])
    found = bounds.of(bounded(2, struct.pack("<d", float("nan")), b"", nans=None), 2)
    assert (found.lower, found.upper, found.may_have_nan) == ([None], [None], [True])
    low, high = (to_bytes(DecimalType(20, 2), number) for number in _decimals())
    assert bounds.of(bounded(4, low, high), 4).lower == [-150]
    assert bounds.of(bounded(4, low, high), 4).upper == [10**15]
    assert bounds.of(data_file(), 3).lower == [None]
    assert bounds.of(bounded(3, b"a", b"b", nulls=100), 3).all_null == [True]


def _decimals() -> list[Any]:
    from decimal import Decimal

    return [Decimal("-1.50"), Decimal("10000000000000.00")]


def test_page_indexes_are_asked_only_where_bounds_leave_something_open() -> None:
    number = lambda n: n.to_bytes(8, "little", signed=True)  # noqa: E731
    file = bounded(1, number(10), number(20))
    assert helped(file, "k > 15") == {1}
    assert helped(file, "k = 15") == {1}
    assert helped(file, "k > 5") == set(), "every row matches"
    assert helped(file, "k is not null") == set()
    assert helped(file, "k != 15") == set()
    assert helped(file, "k > 15 and s != 'a'") == {1}
    assert helped(file, "k > 15 or s != 'a'") == set(), "s decides"
    assert helped(file, "k > 15 or s = 'a'") == {1, 3}
    assert helped(bounded(1, number(10), number(20), nulls=1), "k > 5") == {1}
    assert helped(data_file(), "k > 5") == {1}, "nothing is known"


def test_bounds_are_compared_with_pages_in_the_same_unit_alone() -> None:
    bounds = FileBounds({1: "long", 4: "decimal(20, 2)", 5: "timestamp"})
    file = bounded(5, (1).to_bytes(8, "little"), (2).to_bytes(8, "little"))
    micros, millis = (leaf_of(PageIndexKind(f"int64/timestamp-{u}", "id"), 5, "timestamp") for u in ("us", "ms"))
    assert bounds.in_terms_of(file, 5, micros).lower == [1]
    assert bounds.in_terms_of(file, 5, millis).lower == [None]
    file = bounded(4, b"\x01", b"\x02")
    assert bounds.in_terms_of(file, 4, leaf_of(PageIndexKind("int32/decimal:2", "id"), 4, "decimal(20, 2)")).lower == [
        1
    ]
    assert bounds.in_terms_of(file, 4, leaf_of(PageIndexKind("int32/decimal:3", "id"), 4, "decimal(20, 2)")).lower == [
        None
    ]
    file = bounded(1, bytes(8), bytes(8))
    assert bounds.in_terms_of(file, 1, leaf_of(PageIndexKind("int32", "id"), 1, "long")).lower == [0]


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    properties = {
        "write.parquet.row-group-limit": "1000",
        "write.parquet.page-size-bytes": "512",
        "write.parquet.page-row-limit": "100",
    }
    rows = pa.table({"k": np.arange(3000), "v": [str(n) for n in range(3000)]})
    kinds = ["bloom", "page-index"]
    return create_with_rows(catalog, "db.page_pruning", [rows], columns=["k"], kinds=kinds, **properties)


def test_row_groups_that_are_not_told_apart_are_all_kept(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Segment.files
    text = "k >= 1500 and k < 1510"
    assert plan(table, text).funnel.row_groups_kept == 1

    def wrong(self: Segment, wanted: Any) -> Any:
        changed = {
            "rows": lambda u: UnitEntry(u.row_group, u.first_row, u.rows - 1),
            "places": lambda u: UnitEntry(u.row_group, u.first_row + 1, u.rows),
            "ordinals": lambda u: UnitEntry(u.row_group + 1, u.first_row, u.rows),
            "end": lambda u: UnitEntry(u.row_group, u.first_row, u.rows - 1),
        }[what]
        cut = 2 if what == "end" else 0  # of the last row group alone
        return [f and replace(f, units=(*f.units[:cut], *map(changed, f.units[cut:]))) for f in right(self, wanted)]

    monkeypatch.setattr(Segment, "files", wrong)
    for what in ("rows", "places", "ordinals", "end"):  # noqa: B007  (a closure reads it)
        planned = plan(table, text)
        assert planned.funnel.row_groups_kept == 3
        assert "are not pruned" in planned.warnings[0]
        assert comparable(read(planned)) == comparable(oracle(table, planned.row_filter))


@pytest.mark.parametrize(
    ("text", "proven", "left"),
    [
        ("k >= 5", 0, 3),  # rules out no page
        ("k >= 5 and v != '7'", 0, 3),
        ("k >= 5 or k < 3", 0, 3),
        ("k >= 1500", 2, 2),  # all pages of one row group and some of another
        ("k >= 1500 or k < 50", 2, 3),  # some pages of two row groups
        ("k >= 1500 and k < 1600", 3, 1),
    ],
)
def test_page_indexes_are_proven_if_they_rule_something_out(
    table: Table, monkeypatch: pytest.MonkeyPatch, text: str, proven: int, left: int
) -> None:
    right, asked = page_bounds.proven_bounds, []
    monkeypatch.setattr(page_bounds, "proven_bounds", lambda *args: asked.append(1) or right(*args))
    planned = plan(table, text)
    assert (len(asked), planned.funnel.row_groups_kept, planned.warnings) == (proven, left, ())
    monkeypatch.setattr(page_bounds, "proven_bounds", lambda *_: Unknown("it contradicts itself"))
    doubted = plan(table, text)
    assert (doubted.funnel.row_groups_kept, len(doubted.warnings)) == (3, proven)
    assert comparable(read(doubted)) == comparable(oracle(table, planned.row_filter))


@pytest.mark.parametrize("pages", [[1], [1, 2], [0]])
def test_a_page_is_ruled_out_wherever_it_is(table: Table, monkeypatch: pytest.MonkeyPatch, pages: list[int]) -> None:
    """If the claim of one page alone says that it cannot match, the index is proven and used."""
    right = page_bounds.claimed_bounds

    def claimed(*args: Any) -> Any:
        bounds = right(*args)
        assert isinstance(bounds, Bounds)
        return replace(bounds, upper=[-1 if at in pages else upper for at, upper in enumerate(bounds.upper)])

    monkeypatch.setattr(page_bounds, "claimed_bounds", claimed)
    asked: list[int] = []
    proven = page_bounds.proven_bounds
    monkeypatch.setattr(page_bounds, "proven_bounds", lambda *args: asked.append(1) or proven(*args))
    planned = plan(table, "k >= 5")
    assert len(asked) == 3
    assert [kept.may_match for kept in planned.row_groups.values()] == [3000], "what is claimed drops no row"


def test_a_page_index_outside_of_the_bounds_of_the_file_keeps_its_rows(catalog: Any, tmp_path: Path) -> None:
    """While the table is indexed, another file of the same size and with as many rows is in the place of one."""
    path = tmp_path / "k.parquet"
    versions = []
    for first in (1 << 40, 1 << 41):
        rows = pa.table({"k": pa.array(range(first, first + 100), pa.int64())})
        pq.write_table(rows, path, use_dictionary=False, compression="none", write_page_index=True)
        versions.append(path.read_bytes())
    assert len(versions[0]) == len(versions[1])
    path.write_bytes(versions[0])
    table = catalog.create_table("db.page_pruning_outside", rows.schema)
    table.add_files([f"file:{path}"])
    path.write_bytes(versions[1])
    sidecar.build(table, ["k"], kinds=["page-index"], engine="local")
    path.write_bytes(versions[0])
    planned = plan(table.refresh(), f"k = {(1 << 40) + 50}")
    assert read(planned).num_rows == 1
    assert any("bounds of a page are outside those of the whole" in warning for warning in planned.warnings)


def test_segments_that_tell_the_row_groups_of_a_file_differently_keep_them_all(
    catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either could be right, and each is in itself."""
    made: Table = catalog.create_table(
        "db.page_pruning_twice",
        pa.schema([("k", pa.int64()), ("v", pa.int64())]),
        properties={"write.parquet.row-group-limit": "1000", "write.parquet.page-row-limit": "100"},
    )
    made.append(pa.table({"k": np.arange(3000), "v": np.arange(3000)}))
    for column in ("k", "v"):
        sidecar.build(made, [column], kinds=["bloom", "page-index"], engine="local")
        made = catalog.load_table("db.page_pruning_twice")
    text = "k >= 1500 and k < 1510 and v >= 1505"
    assert plan(made, text).funnel.row_groups_kept == 1
    right, first = Segment.files, set[str]()
    monkeypatch.setattr(Segment, "files", lambda self, wanted: (first.add(self.id), right(self, wanted))[1])
    plan(made, text)
    assert len(first) == 2
    for changed in sorted(first):
        units = (UnitEntry(0, 0, 1500), UnitEntry(1, 1500, 500), UnitEntry(2, 2000, 1000))

        def files(self: Segment, wanted: Any, only: str = changed, units: Any = units) -> Any:
            found = right(self, wanted)
            return [f and replace(f, units=units) for f in found] if self.id == only else found

        monkeypatch.setattr(Segment, "files", files)
        planned = plan(made, text)
        assert planned.funnel.row_groups_kept == 3
        assert "segments record different row groups" in planned.warnings[0]
        assert comparable(read(planned)) == comparable(oracle(made, planned.row_filter))


@pytest.mark.parametrize(
    "units",
    [
        (UnitEntry(0, 0, 1500), UnitEntry(1, 1500, 1500)),
        (UnitEntry(0, 0, 1500), UnitEntry(1, 1500, 500), UnitEntry(2, 2000, 1000)),
        (UnitEntry(0, 0, 1000), UnitEntry(2, 1000, 1000), UnitEntry(1, 2000, 1000)),
    ],
)
def test_a_file_with_other_row_groups_than_the_plan_says_is_read_by_its_own_indexes(
    table: Table, units: tuple[UnitEntry, ...]
) -> None:
    planned = plan(table, "k >= 1500 and k < 1510")
    [(path, kept)] = planned.row_groups.items()
    lying = replace(kept, units=units, rows=kept.rows[:1] * len(units))
    changed = replace(planned, row_groups={path: lying})
    report = sidecar.results.TableScanReport()
    assert comparable(read(changed, report=report)) == comparable(oracle(table, planned.row_filter))
    assert "row groups of the file differ" in report.warnings[0]


def test_a_column_that_would_be_found_otherwise_is_not_asked(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    from sidecar.iceberg import resolve

    monkeypatch.setattr(resolve, "resolution_holds", lambda *_: False)
    planned = plan(table, "k >= 1500 and k < 1510")
    assert planned.funnel.row_groups_kept == 3
    assert read(planned).num_rows == 10
