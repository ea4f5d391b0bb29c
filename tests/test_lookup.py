"""The promise of the project, counted: 658 files of 20,000 random longs, and a key that none of them holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.access import Access
from sidecar.bundle.filters import filter_toc
from sidecar.bundle.filters.key_lookup import rate_of
from sidecar.filters.encoding import Encoding
from sidecar.filters.leaf import ComparedColumn
from sidecar.iceberg.listing import list_snapshot
from sidecar.planning.files.choose import ask_filters
from sidecar.planning.files.file_set import FileSet
from sidecar.planning.files.sources import PlannedFiles
from sidecar.planning.opened_sidecar import OpenedSidecar
from sidecar.questions.conditions import HoldsAny

FILES, ROWS, LOOKUPS = 658, 20_000, 1_000


@pytest.fixture(scope="module")
def table(catalog: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One snapshot of 658 files, built into one segment."""
    folder = tmp_path_factory.mktemp("longs")
    random = np.random.default_rng(11)
    schema = pa.schema([("k", pa.int64())])
    paths = []
    for number in range(FILES):
        # Even numbers only: every odd number is absent, and within the bounds of every file.
        keys = random.integers(-(2**62), 2**62, ROWS) * 2
        path = Path(folder) / f"{number:04}.parquet"
        pq.write_table(pa.table({"k": keys}, schema=schema), path, use_dictionary=False, compression="none")
        paths.append(f"file:{path}")
    table = catalog.create_table("db.longs", schema)
    table.add_files(paths)
    sidecar.build(table, ["k"], kinds=["bloom"], engine="local")
    return catalog.load_table("db.longs")


def test_an_absent_key_keeps_at_most_one_file_on_average_and_reads_little(table: Any) -> None:
    """Hundreds of keys against the index alone, as a plan asks it, each from a cold start."""
    random = np.random.default_rng(12)
    files = [file.known_as for file in list_snapshot(table).files]
    assert len(files) == FILES
    kept, most_bytes, most_reads = 0, 0, 0
    column = ComparedColumn(1, "long", Encoding.parse("int64"), "k")
    for key in random.integers(-(2**61), 2**61, LOOKUPS) * 2 + 1:
        opened = OpenedSidecar(table, table.current_snapshot(), HoldsAny(column, (int(key),)), Access(table.io))
        opened.open_for_question()
        kept += len(ask_filters(opened, FileSet.all(PlannedFiles([file.path for file in files], files))))
        assert opened.warnings == ()
        most_bytes = max(most_bytes, opened.index_bytes)
        most_reads = max(most_reads, opened.index_reads)
        opened.close()
    assert 0 < kept / LOOKUPS <= 1  # some false positives there are: a filter that denies everything is broken
    assert most_bytes <= 64 * 1024
    assert most_reads <= 4


def test_a_key_that_is_there_is_found_and_most_files_are_not_opened(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded, decode = list[bytes](), filter_toc.decode_field_toc
    monkeypatch.setattr(filter_toc, "decode_field_toc", lambda toc, *how: decoded.append(toc) or decode(toc, *how))
    held = pq.read_table(table.inspect.files()["file_path"][FILES // 2].as_py().removeprefix("file:"))["k"]
    for key in held[:5].to_pylist():
        plan = sidecar.plan(table, f"k = {key}")
        assert plan.files_total == plan.files_covered == FILES
        assert 1 <= plan.files_kept <= 10
        assert plan.index_bytes_read <= 64 * 1024
        assert plan.index_reads <= 4
        assert sidecar.scan(table, f"k = {key}").num_rows == 1
    assert len(decoded) <= 1  # the same table of contents for all


def test_a_thousand_random_keys_prune_as_theory_says(table: Any) -> None:
    """Absent keys: a file is kept with the chance that one of them passes its filter by mistake."""
    opened = sidecar.open_sidecar(table)
    rate = rate_of(opened.segments[0].bundles[1])
    opened.close()
    random, expected = np.random.default_rng(13), FILES * (1 - (1 - rate) ** LOOKUPS)
    kept = []
    for _ in range(5):
        keys = pa.array(random.integers(-(2**61), 2**61, LOOKUPS) * 2 + 1)
        planned = sidecar.plan(table, "k is not null", keys={"k": keys})
        assert planned.notes == ()
        assert planned.files_covered == FILES
        kept.append(planned.files_kept)
    assert abs(np.mean(kept) - expected) < 4 * (expected / len(kept)) ** 0.5
    many = sidecar.plan(table, "k is not null", keys={"k": pa.array(random.integers(-(2**61), 2**61, 100_000))})
    assert many.files_kept == FILES
    assert "filters of k are not asked" in many.notes[0]
