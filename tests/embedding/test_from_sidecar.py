"""embed --from a table's sidecar: its data files get what was built for them; the cheaper way is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.errors import DamagedFileError, UsageError
from sidecar.iceberg.listing import list_snapshot
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.footer import read_footer
from sidecar.parquet.page_indexes.page_index import read_page_indexes
from sidecar.parquet.verify.file import verify_file
from sidecar.questions.value_check import ValueCheck
from sidecar.storage.local import LocalSource
from sidecar.storage.locations import local_path
from tests.bundle.cases import extract_filter

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


def test_a_file_that_cannot_be_read_does_not_end_the_others(table: Any, tmp_path: Path) -> None:
    """The second file fails while the first one's pages are copied, and before its indexes are read."""
    paths = _paths(table)
    foreign = tmp_path / "foreign.parquet"
    foreign.write_bytes(b"PAR1, and nothing more")
    opened = sidecar.open_sidecar(table)
    named = [paths[0], str(foreign), *paths[1:]]
    report = sidecar.embed(named, into=str(tmp_path / "out"), from_=opened, io=table.io)
    assert {path: type(error) for path, error in report.failed.items()} == {str(foreign): DamagedFileError}
    assert [file.source for file in report] == paths
    assert all(file.ways() == {"bloom": {"exact": 2}, "page-index": {"exact": 2}} for file in report)
    assert len([path for path in (tmp_path / "out").rglob("*") if path.is_file()]) == len(paths)
    opened.close()


def test_all_files_get_what_was_built(table: Any, tmp_path: Path) -> None:
    opened = sidecar.open_sidecar(table)
    reports = sidecar.embed(into=str(tmp_path / "out"), from_=opened, io=table.io)
    assert len(reports) == 12
    (segment,) = opened.segments
    live = {file.path: file.known_as for file in list_snapshot(table).files}
    for report in reports:
        assert report.ways() == {"bloom": {"exact": 2}, "page-index": {"exact": 2}}
        unit = segment.unit_ranges[segment.file_ordinal(live[report.source])]
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
    one = sidecar.embed(path, into=str(tmp_path / "a.parquet"), from_=opened, io=table.io)
    report = one.only
    size = sum(group.layout.length for group in opened.segments[0].fields[1])
    (k,) = [o for o in report.outcomes if (o.column, o.kind) == ("k", "bloom")]
    assert k.way in ("values", "dictionary")
    assert f"less than {size:,} bytes of the bundle" in k.reason
    shared = sidecar.embed([path], into=str(tmp_path / "all"), from_=opened, io=table.io)
    exact = shared.only
    assert exact.ways()["bloom"] == {"exact": 2}
    assert shared.sidecar_bytes > one.sidecar_bytes
    assert _filters(str(tmp_path / "a.parquet")) == _filters(exact.target)
    opened.close()


def test_a_copy_of_a_data_file_is_known_by_its_name(table: Any, tmp_path: Path) -> None:
    path = local_path(_paths(table)[0]) or ""
    copy, other = tmp_path / Path(path).name, tmp_path / "other.parquet"
    for place in (copy, other):
        place.write_bytes(Path(path).read_bytes())
    opened = sidecar.open_sidecar(table)
    (report,) = sidecar.embed([str(copy)], into=str(tmp_path / "all"), from_=opened)
    assert report.ways()["bloom"] == {"exact": 2}
    assert len(_filters(report.target)) == 2
    with pytest.raises(UsageError, match="does not list this file"):
        sidecar.embed(str(other), into=str(tmp_path / "b.parquet"), from_=opened)
    bare = tmp_path / "bare" / copy.name
    bare.parent.mkdir()
    sidecar.embed(path, into=str(bare), page_index=True)
    with pytest.raises(UsageError, match="not the one that was indexed"):
        sidecar.embed(str(bare), into=str(tmp_path / "b.parquet"), from_=opened)
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
    with pytest.raises(UsageError, match="not a sidecar"):
        sidecar.embed(str(tmp_path / "x.parquet"), into=str(tmp_path / "y.parquet"), from_=str(path))


def test_a_tables_sidecar_becomes_one_of_plain_files(table: Any, tmp_path: Path) -> None:
    statistics = local_path(table.metadata.statistics[0].statistics_path)
    target = str(tmp_path / "plain.puffin")
    report = sidecar.convert([statistics], target)
    assert {unit.way for unit in report.units} == {"exact"}
    path = local_path(_paths(table)[5]) or ""
    sidecar.embed(path, into=str(tmp_path / "a.parquet"), from_=target)
    opened = sidecar.open_sidecar(table)
    (report,) = sidecar.embed([path], into=str(tmp_path / "all"), from_=opened)
    opened.close()
    assert (tmp_path / "a.parquet").read_bytes() == Path(report.target).read_bytes()


def test_a_file_that_was_read_at_the_second_build_keeps_its_filters(catalog: Any, tmp_path: Path) -> None:
    """The first segment lists it without row groups; its filters must not become those of the file behind it."""
    table = catalog.create_table("db.read_later", SCHEMA)
    for number in range(3):
        keys = np.random.default_rng(number).integers(0, 2**60, 100)
        table.append(pa.table({"k": keys, "s": list(map(str, keys.tolist()))}, schema=SCHEMA))
    late = Path(local_path(next(iter(table.scan().plan_files())).file.file_path) or "")
    data = late.read_bytes()
    late.write_bytes(b"x" * len(data))
    sidecar.build(table, ["k"], engine="local")
    late.write_bytes(data)
    sidecar.build(table.refresh(), ["k"], engine="local")
    statistics = local_path(table.refresh().metadata.statistics[0].statistics_path)
    plain = str(tmp_path / "plain.puffin")
    sidecar.convert([statistics], plain)
    for path in map(local_path, _paths(table)):
        report = sidecar.embed(path or "", into=str(tmp_path / Path(path or "").name), from_=plain).only
        assert report.ways() == {"bloom": {"exact": 1}}
        assert report.witness.values == 100


@pytest.fixture
def two_columns(tmp_path: Path) -> tuple[Path, Path]:
    """A Parquet file of three row groups, and a Puffin file with what was embedded into it."""
    bare, whole, puffin = (tmp_path / name for name in ("bare.parquet", "whole.parquet", "x.puffin"))
    keys = np.random.default_rng(3).integers(0, 2**60, 900)
    table = pa.table({"k": keys, "s": [f"row {k}" for k in keys.tolist()]})
    pq.write_table(table, bare, row_group_size=300, use_dictionary=False)
    sidecar.embed(str(bare), into=str(whole), bloom=["k", "s"], page_index=True)
    sidecar.extract([str(whole)], str(puffin))
    return bare, puffin


def _place_of(puffin: Path, column: int, what: str) -> int:
    """An offset in the Puffin file: in the filters of a column, or in its page indexes."""
    opened = SidecarFile.open(LocalSource(str(puffin)))
    (segment,) = opened.segments
    entries = {entry.blob_type: entry for entry in segment.entries if entry.fields == (column,)}
    kind = "sidecar-page-index-v1" if what == "page index" else "sidecar-sbbf-v1"
    entry = entries[kind]
    opened.close()
    return entry.offset + 100


@pytest.mark.parametrize("way", ["one", "all"])
@pytest.mark.parametrize("what", ["filters", "page index"])
def test_what_is_damaged_is_built_from_the_values(
    two_columns: tuple[Path, Path], tmp_path: Path, what: str, way: str
) -> None:
    bare, puffin = two_columns
    data = bytearray(puffin.read_bytes())
    data[_place_of(puffin, 1, what)] ^= 16
    puffin.write_bytes(data)
    if way == "one":
        report = sidecar.embed(str(bare), into=str(tmp_path / "back.parquet"), from_=str(puffin)).only
    else:
        (report,) = sidecar.embed([str(bare)], into=str(tmp_path / "out"), from_=str(puffin))
    kind = {"filters": "bloom", "page index": "page-index"}[what]
    rebuilt = [o for o in report.outcomes if o.way == "values"]
    assert {(o.column, o.kind) for o in rebuilt} == {("k", kind)}
    assert all("the sidecar's index for it cannot be read" in o.reason for o in rebuilt)
    assert any("checksum" in text or "damaged" in text for text in report.warnings())
    assert report.ways()["bloom"].keys() | report.ways()["page-index"].keys() == {"exact", "values"}
    assert not report.damaged
    back = LocalSource(report.target)
    assert verify_file(back, ValueCheck()) == []
    footer = read_footer(back)
    assert len(_filters(report.target)) == 6
    for group in footer.row_groups:
        assert None not in read_page_indexes(back, footer, group.columns, group.columns)[1]
    assert pq.read_table(report.target).equals(pq.read_table(bare))


def test_a_bundle_that_cannot_be_opened_is_built_from_the_values(
    two_columns: tuple[Path, Path], tmp_path: Path
) -> None:
    """Its table of contents is damaged, in the blob and in the directory's copy: no group of it is known."""
    bare, puffin = two_columns
    data = puffin.read_bytes()
    toc = b'"kind":"sbbf"'
    assert data.count(toc) == 4  # two columns, each in the blob and in the directory
    spoiled = data.replace(toc, b'"kind":"sbbg"')
    puffin.write_bytes(spoiled)
    report = sidecar.embed(str(bare), into=str(tmp_path / "back.parquet"), from_=str(puffin)).only
    assert report.ways() == {"bloom": {"values": 6}, "page-index": {"exact": 6}}
    assert report.warnings()
    assert verify_file(LocalSource(report.target), ValueCheck()) == []
