"""Tables with files by which Arrow is misled: it skips row groups by false statistics, and decodes old levels wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.parquet.thrift import I32, LIST, Items, Struct
from sidecar.reading.arrow_reader import SMALL
from sidecar.reading.arrow_statistics import may_mislead
from tests.parquet.bit_packed_files import old_file, rows
from tests.parquet.false_statements import WRONG, by, chunk_meta, restated, statistic, table, written

EXPECTED = json.loads((WRONG / "expected.json").read_text())


@pytest.fixture(params=[0, SMALL], ids=["scanned", "small"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Arrow reads small files at once, and others with its scanner, which asks statistics."""
    size: int = request.param
    monkeypatch.setattr("sidecar.reading.arrow_reader.SMALL", size)
    monkeypatch.setattr("sidecar.reading.table_files.SMALL", size)
    return size


def table_of(catalog: Any, name: str, path: Path) -> Any:
    """A table with one file. Its manifest has no bounds, because those would be the file's."""
    schema = pa.schema([pa.field(field.name, field.type) for field in pq.read_schema(path)])
    made = catalog.create_table(f"db.{name}", schema, properties={"write.metadata.metrics.default": "none"})
    made.add_files([str(path)])
    return made


@pytest.mark.parametrize("name", EXPECTED)
def test_a_table_has_the_rows_of_files_of_wrong_writers(catalog: Any, tmp_path: Path, name: str, small: int) -> None:
    path = Path(shutil.copy(WRONG / name, tmp_path / name))
    made = table_of(catalog, f"wrong_{path.stem}_{small}", path)
    for predicate, count in EXPECTED[name]["rows"].items():
        assert sidecar.scan(made, predicate).num_rows == count, predicate
    columns = list(made.schema().column_names)
    sidecar.build(made, columns, kinds=["bloom", "page-index"], engine="local")
    made.refresh()
    for predicate, count in EXPECTED[name]["rows"].items():
        assert sidecar.scan(made, predicate).num_rows == count, predicate


def test_a_table_with_bit_packed_levels_has_its_rows(catalog: Any, tmp_path: Path, small: int) -> None:
    def encodings(metadata: Struct) -> None:
        for group in range(len(metadata.structs(4) or [])):
            for column in range(len(((metadata.structs(4) or [])[0]).structs(1) or [])):
                chunk_meta(metadata, group, column).fields[2] = (LIST, Items(I32, [0, 4, 8]))

    path = tmp_path / "old.parquet"
    path.write_bytes(restated(old_file(), encodings))
    schema = rows().schema
    made = catalog.create_table(f"db.bit_packed_{small}", schema)
    made.add_files([str(path)])
    assert sidecar.scan(made, "true").num_rows == rows().num_rows
    assert sidecar.scan(made, "a is null").num_rows == rows()["a"].null_count
    assert sidecar.scan(made, "s = 'word 7'").num_rows == pc.sum(pc.equal(rows()["s"], "word 7")).as_py()


@pytest.mark.parametrize(
    ("change", "column", "misleads"),
    [
        (lambda metadata: None, "i", False),
        (by("DuckDB"), "i", True),
        (by("Polars"), "i", True),
        (by("parquet-mr version 1.2.5"), "i", False),
        (statistic(2, 0, null_count=101), "i", True),
        (statistic(2, 0, null_count=100), "i", True),
        (statistic(2, 0, null_count=100, min_value=None), "i", True),
        (statistic(2, 0, null_count=101), "s", False),
        (statistic(2, 0, min_value=(300).to_bytes(8, "little"), max_value=(200).to_bytes(8, "little")), "i", True),
        (statistic(2, 3, null_count=4), "r", True),
    ],
)
def test_statistics_that_arrow_must_not_ask(change: Any, column: str, misleads: bool) -> None:
    """The footer is judged by the same rules as in our own scan, on the columns of the filter alone."""
    data = restated(written(), change)
    assert may_mislead(pq.read_metadata(pa.BufferReader(data)), [(column,)]) == misleads


@pytest.mark.parametrize("change", [statistic(2, 0, null_count=100, min_value=None), by("DuckDB")])
def test_arrow_skips_no_row_group_by_false_statistics(catalog: Any, tmp_path: Path, change: Any, small: int) -> None:
    path = tmp_path / "false.parquet"
    path.write_bytes(restated(written(), change))
    made = table_of(catalog, f"false_{small}_{change is not None}_{len(str(change))}_{id(change)}", path)
    want = table()
    assert sidecar.scan(made, "i is not null").num_rows == len(want) - want["i"].null_count
    assert sidecar.scan(made, "i = 250")["r"].to_pylist() == [250]
