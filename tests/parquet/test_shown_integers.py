"""Integers beyond the bits of their annotation, of which readers show other numbers: no row is lost by the stored ones.

Parquet stores INT_8 in 32 bits. A reader shows 44 for a stored 300.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.parquet.footer import read_footer
from sidecar.parquet.page_indexes.build import build_page_index
from sidecar.parquet.thrift import BINARY, BOOL, BYTE, STRUCT, Struct
from sidecar.parquet.trust import may_show_other_values
from sidecar.reading.file_scanning import open_scan
from sidecar.storage.local import LocalSource
from sidecar.storage.source import BytesSource
from tests.parquet.false_statements import restated, written


def annotated(path: Path, bits: int, signed: bool, *, most: int, statistics: bool, dictionary: bool) -> Path:
    """A file with the integers 0, 100, 200, ... below ``most`` (rounded), annotated with fewer bits than 32."""
    values = pa.array([100 * n % most for n in range(2000)], pa.int32() if signed else pa.uint32())

    def annotate(metadata: Struct) -> None:
        element = (metadata.structs(2) or [])[1]
        kind = Struct({1: (BYTE, bits), 2: (BOOL, signed)})
        element.fields.pop(6, None)
        element.fields[10] = (STRUCT, Struct({10: (STRUCT, kind)}))

    data = written(
        pa.table({"x": values}),
        row_group_size=500,
        use_dictionary=dictionary,
        write_statistics=statistics,
        write_page_index=statistics,
        bloom_filter_options={"x": {"ndv": 500, "fpp": 0.01}},
    )
    path.write_bytes(restated(data, annotate))
    return path


@pytest.mark.parametrize(("bits", "signed"), [(8, True), (8, False), (16, True), (16, False)])
@pytest.mark.parametrize(("statistics", "dictionary"), [(True, True), (False, True), (False, False)])
def test_what_readers_show_is_found(
    bits: int, signed: bool, statistics: bool, dictionary: bool, tmp_path: Path
) -> None:
    path = annotated(tmp_path / "a.parquet", bits, signed, most=1 << 20, statistics=statistics, dictionary=dictionary)
    shown = pq.read_table(path)["x"].to_pylist()
    indexed = tmp_path / "b.parquet"
    sidecar.embed(path, into=indexed, bloom=["x"], page_index=True, reuse="never")
    for number in {shown[3], shown[701], min(shown), max(shown)}:
        for file in (path, indexed):
            assert sidecar.scan(file, f"x = {number}").num_rows == shown.count(number)
            units = sidecar.probe(file, "x", str(number)).only.units
            groups = [shown[start : start + 500] for start in range(0, 2000, 500)]
            assert all(
                unit.might_contain is not False for unit, group in zip(units, groups, strict=True) if number in group
            )


def test_integers_within_their_bits_keep_their_indexes(tmp_path: Path) -> None:
    path = annotated(tmp_path / "a.parquet", 16, True, most=3000, statistics=True, dictionary=False)
    footer = read_footer(LocalSource(str(path)))
    assert not any(chunk.may_show_other_values for group in footer.row_groups for chunk in group.columns)
    with open_scan(path, "x = 150") as scan:
        assert scan.to_table().num_rows == 0
    assert scan.report.rows_may_match == 0
    assert scan.report.warnings == []


@pytest.mark.parametrize(("bounds", "may_show"), [((5, 6), False), ((5,), True), ((6,), True), ((), True)])
def test_both_bounds_rule_out_integers_beyond_the_annotation(
    tmp_path: Path, bounds: tuple[int, ...], may_show: bool
) -> None:
    path = annotated(tmp_path / "a.parquet", 16, True, most=300, statistics=True, dictionary=False)
    leaf = read_footer(LocalSource(str(path))).columns[0]
    statistics = Struct({field_id: (BINARY, (7).to_bytes(4, "little")) for field_id in bounds})
    assert may_show_other_values(leaf, statistics) is may_show


def test_no_bounds_are_written_of_numbers_that_no_reader_shows(tmp_path: Path) -> None:
    path = annotated(tmp_path / "a.parquet", 8, True, most=1 << 20, statistics=True, dictionary=False)
    source = BytesSource(path.read_bytes())
    footer = read_footer(source)
    built = build_page_index(source, footer, footer.row_groups[0].columns[0])
    assert built.column_index is None
    assert "8 bits" in built.reason
    assert any("8 bits" in problem.problem for problem in sidecar.verify(path).problems)
