"""embed --from a table's sidecar: its data files get what was built for them; the cheaper way is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.bundle.extract import extract_filter
from sidecar.errors import UsageError
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.footer import read_footer
from sidecar.parquet.verify import verify_file
from sidecar.source import LocalSource, local_path

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])


@pytest.fixture
def table(catalog: Any, request: Any) -> Any:
    created = catalog.create_table(f"db.from_{abs(hash(request.node.name))}", SCHEMA)
    for number in range(12):
        keys = np.random.default_rng(number).integers(0, 2**60, 2000)
        created.append(pa.table({"k": keys, "s": [f"row {k}" for k in keys.tolist()]}, schema=SCHEMA))
    sidecar.build(created, ["k", "s"], kinds=["bloom", "page-index"], engine="local")
    return created.refresh()


def _paths(table: Any) -> list[str]:
    return sorted(task.file.file_path for task in table.scan().plan_files())


def _filters(path: str) -> dict[tuple[int, str], bytes]:
    source = LocalSource(path)
    return {
        (group.ordinal, chunk.leaf.path): found.filter.to_bytes()
        for group in read_footer(source).row_groups
        for chunk in group.columns
        if (found := read_bloom_filter(source, chunk))
    }


def test_all_files_get_what_was_built(table: Any, tmp_path: Path) -> None:
    opened = sidecar.open_sidecar(table)
    reports = sidecar.embed_all_from(opened, str(tmp_path / "out"), io=table.io)
    assert len(reports) == 12
    (segment,) = opened.segments
    for report in reports:
        assert report.ways() == {"bloom": {"exact": 2}, "page-index": {"exact": 2}}
        entry = table.inspect.files().filter(pa.compute.field("file_path") == report.source)
        unit = segment.unit_ranges[
            segment.file_ordinal(
                report.source, entry["file_size_in_bytes"][0].as_py(), entry["record_count"][0].as_py()
            )
        ]
        assert _filters(report.target) == {
            (0, "k"): extract_filter(segment, 1, int(unit)),
            (0, "s"): extract_filter(segment, 2, int(unit)),
        }
        assert verify_file(LocalSource(report.target)) == []
        assert pq.read_table(report.target).equals(pq.read_table(local_path(report.source)))
    opened.close()


def test_for_one_file_out_of_many_its_values_are_cheaper_and_named(table: Any, tmp_path: Path) -> None:
    path = _paths(table)[3]
    opened = sidecar.open_sidecar(table)
    report = sidecar.embed_from(opened, path, str(tmp_path / "a.parquet"), io=table.io)
    size = sum(group.layout.length for group in opened.segments[0].fields[1])
    (k,) = [o for o in report.outcomes if (o.column, o.kind) == ("k", "bloom")]
    assert k.way in ("values", "dictionary")
    assert f"less than {size:,} bytes of the bundle" in k.reason
    exact = sidecar.embed_from(opened, path, str(tmp_path / "b.parquet"), io=table.io, way="exact")
    assert exact.ways()["bloom"] == {"exact": 2}
    assert exact.sidecar_bytes > report.sidecar_bytes
    assert _filters(str(tmp_path / "a.parquet")) == _filters(str(tmp_path / "b.parquet"))
    opened.close()


def test_a_copy_of_a_data_file_is_known_by_its_name(table: Any, tmp_path: Path) -> None:
    path = local_path(_paths(table)[0]) or ""
    copy, other = tmp_path / Path(path).name, tmp_path / "other.parquet"
    for place in (copy, other):
        place.write_bytes(Path(path).read_bytes())
    opened = sidecar.open_sidecar(table)
    sidecar.embed_from(opened, str(copy), str(tmp_path / "a.parquet"), way="exact")
    assert len(_filters(str(tmp_path / "a.parquet"))) == 2
    with pytest.raises(UsageError, match="does not speak of this file"):
        sidecar.embed_from(opened, str(other), str(tmp_path / "b.parquet"))
    bare = tmp_path / "bare" / copy.name
    bare.parent.mkdir()
    sidecar.embed_file(path, str(bare), page_index=True)
    with pytest.raises(UsageError, match="not the one that was indexed"):
        sidecar.embed_from(opened, str(bare), str(tmp_path / "b.parquet"))
    opened.close()


def test_a_table_without_a_sidecar(catalog: Any, tmp_path: Path) -> None:
    table = catalog.create_table("db.from_nothing", SCHEMA)
    with pytest.raises(UsageError, match="has no sidecar"):
        sidecar.open_sidecar(table)
    path = tmp_path / "no.puffin"
    from sidecar.puffin.writer import PuffinWriter

    with path.open("wb") as file:
        PuffinWriter(file).finish()
    pq.write_table(pa.table({"k": [1]}), tmp_path / "x.parquet")
    with pytest.raises(UsageError, match="no sidecar"):
        sidecar.embed_from(str(path), str(tmp_path / "x.parquet"), str(tmp_path / "y.parquet"))


def test_a_tables_sidecar_becomes_one_of_plain_files(table: Any, tmp_path: Path) -> None:
    statistics = local_path(table.metadata.statistics[0].statistics_path)
    target = str(tmp_path / "plain.puffin")
    report = sidecar.convert_files([statistics], target)
    assert {unit.way for unit in report.units} == {"exact"}
    path = local_path(_paths(table)[5]) or ""
    sidecar.embed_from(target, path, str(tmp_path / "a.parquet"))
    opened = sidecar.open_sidecar(table)
    sidecar.embed_from(opened, path, str(tmp_path / "b.parquet"), way="exact")
    opened.close()
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
