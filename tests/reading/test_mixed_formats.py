"""Tables of ORC and Parquet files: one build, one sidecar, one plan, the rows of pyiceberg's own scan.

``SIDECAR_MIXED_CASES`` sets the number of random predicates (100 by default; 1,000 were run).
"""

from __future__ import annotations

import os
import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.types import LongType

import sidecar
from sidecar.access import Access
from sidecar.iceberg.statistics_files.find_sidecar import find_sidecar
from sidecar.indexing.report import BuildReport
from sidecar.planning.planner import plan
from sidecar.reading.scanning import read
from tests.iceberg.cases import INDEXED, append, comparable, predicate
from tests.iceberg.mixed_tables import UNREADABLE, append_orc, append_rows, create_mixed

COLUMNS = [name for name in INDEXED if name not in UNREADABLE]
FILES, COUNT = 4, 60
IDS = FILES * COUNT
CASES = int(os.environ.get("SIDECAR_MIXED_CASES", "100"))
BATCH = 25
FORMATS = ("auto", "orc", "parquet")


@pytest.fixture(scope="module")
def mixed(catalog: Any) -> Table:
    """All types; then appended to in both formats, then rows of a Parquet file deleted."""
    blooms = {"bloom_filter_columns": list(range(1, 18)), "bloom_filter_fpp": 0.01}
    made = create_mixed(catalog, "db.mixed", FILES, COUNT, **blooms)
    append_rows(made, IDS, 30, orc=True)
    append(made, IDS + 30, 30)
    made.delete("id in (61, 62, 63)")
    return made


def build(mixed: Table, **options: Any) -> BuildReport:
    """Index the snapshot before the appends and the delete."""
    first = mixed.history()[FILES - 1].snapshot_id
    report = sidecar.build(mixed, COLUMNS, engine="local", at=first, full=True, **options)
    assert (report.files_indexed, report.files_failed) == (FILES, {})
    mixed.refresh()
    return report


def groups_of(mixed: Table, column: str) -> list[tuple[str, str, int]]:
    """Rule, encoding and number of units of each group of a column in the last segment."""
    found = find_sidecar(mixed, Access())
    assert found is not None
    segment = found.sidecar.segments[-1]
    groups = segment.groups_of(mixed.schema().find_field(column).field_id)
    found.sidecar.close()
    return [(group.rule.name, group.encoding, len(group.ordinals())) for group in groups]


@pytest.mark.parametrize("batch", range(-(-CASES // BATCH)))
def test_rows_are_those_of_pyiceberg(mixed: Table, batch: int) -> None:
    """Whole rows in one case of ten, else their ids: reading is what takes the time."""
    dropped = 0
    build(mixed, as_=FORMATS[batch % 3], kinds=("bloom", "page-index")[: 1 + batch % 2])
    for seed in range(batch * BATCH, min((batch + 1) * BATCH, CASES)):
        rng = random.Random(seed)
        text = predicate(rng, COLUMNS, IDS + 60)
        planned = plan(mixed, text)
        assert not planned.warnings, text
        columns = None if seed % 10 == 0 else ["id"]
        wanted = mixed.scan(planned.row_filter, selected_fields=tuple(columns or ["*"])).to_arrow()
        assert comparable(read(planned, columns)) == comparable(wanted), (seed, text)
        dropped += planned.funnel.dropped_by_filter
    assert dropped > BATCH / 4


def test_filters_of_one_kind_stand_in_one_group(mixed: Table) -> None:
    """``parquet``: the encodings of Parquet for both formats, so that one region is read."""
    report = build(mixed, as_="parquet", kinds=["bloom"])
    assert groups_of(mixed, "s") == [("sbbf", "byte_array", report.units)]
    planned = plan(mixed, "s = 'absent'")
    assert planned.funnel.dropped_by_filter == FILES - 1  # the delete rewrote one file
    assert {task.file.file_format for task in planned.tasks} == {FileFormat.ORC, FileFormat.PARQUET}


def test_filters_of_orc_units_stand_in_a_bundle_of_their_own(mixed: Table) -> None:
    report = build(mixed, as_="orc", kinds=["bloom"])
    half = report.units // 2
    assert groups_of(mixed, "s") == [("sbbf", "byte_array", half), ("orc-bloom", "orc/bytes", half)]
    assert {how for column in report.columns for how in column.filters} == {
        "dictionary",
        "scanned",
        "reused",
    }
    assert plan(mixed, "s = 'absent'").funnel.dropped_by_filter == FILES - 1


def test_keys_are_looked_up_in_the_filters_of_both_kinds(mixed: Table) -> None:
    """An absent key drops the files of either bundle; a value of a file finds its rows, whatever its format is."""
    build(mixed, as_="orc", kinds=["bloom"])
    absent = plan(mixed, AlwaysTrue(), keys={"s": pa.array(["absent"])})
    assert absent.funnel.dropped_by_filter == FILES - 1  # the delete rewrote one file
    rows = mixed.scan(selected_fields=("id", "s")).to_arrow().filter(pc.is_valid(pc.field("s")))
    for start in range(0, IDS, COUNT):
        own = rows.filter((pc.field("id") >= start) & (pc.field("id") < start + COUNT))["s"][0].as_py()
        planned = plan(mixed, AlwaysTrue(), keys={"s": pa.array([own, "absent"])})
        wanted = rows.filter(pc.field("s") == own)
        assert comparable(read(planned, ["id", "s"])) == comparable(wanted)


def test_trusted_filters_of_the_files_are_taken(mixed: Table) -> None:
    """C++ filters of a float are not to be trusted: those are built of values."""
    columns = {column.name: column.filters for column in build(mixed, kinds=["bloom"]).columns}
    half = sum(columns["f"].values()) // 2
    assert columns["f"] == {"dictionary": half, "scanned": half}
    assert columns["l"] == {"dictionary": half, "reused": half}
    assert groups_of(mixed, "l") == [("sbbf", "int64", half), ("orc-bloom", "orc/long", half)]


def test_another_format_is_built_anew_for_orc_files_alone(mixed: Table) -> None:
    build(mixed, as_="parquet", kinds=["bloom"])
    first = mixed.history()[FILES - 1].snapshot_id
    options: dict[str, Any] = {"kinds": ["bloom"], "engine": "local", "at": first}
    assert sidecar.build(mixed, COLUMNS, **options).files_carried == FILES
    report = sidecar.build(mixed, COLUMNS, as_="orc", **options)
    mixed.refresh()
    assert report.files_carried == FILES // 2
    assert sidecar.build(mixed, COLUMNS, as_="orc", **options).files_carried == FILES
    assert plan(mixed, "s = 'absent'").funnel.dropped_by_filter == FILES - 1


def test_columns_of_files_without_ids_are_found_by_the_name_mapping(catalog: Any) -> None:
    """Until the mapping has another name for a column: that might fit another one of the file."""
    schema = pa.schema([("k", pa.int64()), ("old", pa.int64())])
    made = catalog.create_table("db.mixed_names", schema)
    mapping = create_mapping_from_schema(made.schema()).model_dump_json()
    with made.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": mapping})
    for start in (0, 1000):
        numbers = pa.array(range(start, start + 100), pa.int64())
        append_orc(made, pa.table([numbers, numbers], schema=schema), ids=False)
    sidecar.build(made, ["k", "old"], kinds=["bloom"], engine="local")
    made.refresh()
    assert plan(made, "k = 1050").funnel.dropped_by_filter == 1
    assert read(plan(made, "k = 1050"), ["k"])["k"].to_pylist() == [1050]
    with made.update_schema() as update:
        update.rename_column("k", "key")
    assert plan(made, "key = 1050").funnel.dropped_by_filter == 0
    assert read(plan(made, "key = 1050"), ["key"])["key"].to_pylist() == [1050]
    with made.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("old")
    with made.update_schema() as update:
        update.add_column("old", LongType())
    planned = plan(made, "old = 1050")
    assert planned.funnel.dropped_by_filter == 0
    wanted = made.scan(planned.row_filter).to_arrow()
    assert comparable(read(planned)) == comparable(wanted)
