"""Tables of ORC and Parquet files: one build, one sidecar, one plan, the rows of pyiceberg's own scan.

``SIDECAR_MIXED_CASES`` sets the number of random predicates (100 by default; 1,000 were run).
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from iceberg_cases import INDEXED, append, comparable, predicate
from mixed_tables import UNREADABLE, append_rows, create_mixed
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table

import sidecar
from sidecar.iceberg.planning import plan
from sidecar.iceberg.scanning import read
from sidecar.iceberg.statistics import find_sidecar

COLUMNS = [name for name in INDEXED if name not in UNREADABLE]
FILES, COUNT = 4, 60
IDS = FILES * COUNT
CASES = int(os.environ.get("SIDECAR_MIXED_CASES", "100"))
BATCH = 25


@pytest.fixture(scope="module")
def mixed(catalog: Any) -> Table:
    """All types; built, then appended to in both formats, then rows of a Parquet file deleted."""
    made = create_mixed(catalog, "db.mixed", FILES, COUNT)
    report = sidecar.build(made, COLUMNS, kinds=["bloom"], engine="local")
    assert (report.files_indexed, report.files_failed) == (FILES, {})
    made.refresh()
    append_rows(made, IDS, 30, orc=True)
    append(made, IDS + 30, 30)
    made.delete("id in (61, 62, 63)")
    return made


@pytest.mark.parametrize("batch", range(-(-CASES // BATCH)))
def test_rows_are_those_of_pyiceberg(mixed: Table, batch: int) -> None:
    """Whole rows in one case of ten, else their ids: reading is what takes the time."""
    dropped = 0
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


def test_one_lookup_serves_both_formats(mixed: Table) -> None:
    """Both have the encodings of Parquet, so their filters stand in one group, of which one region is read."""
    found = find_sidecar(mixed)
    assert found is not None
    (segment,) = found.sidecar.segments
    groups = segment.fields[mixed.schema().find_field("s").field_id]
    assert [len(group.units) for group in groups] == [segment.num_units]
    found.sidecar.close()
    planned = plan(mixed, "s = 'absent'")
    assert planned.funnel.dropped_by_filter == FILES - 1  # the delete rewrote one file
    assert {task.file.file_format for task in planned.tasks} == {FileFormat.ORC, FileFormat.PARQUET}
