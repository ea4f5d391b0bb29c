"""Filters of files by every writer at hand: no value that a row group has is denied, and untrusted ones are named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sidecar.filters.orc.values import probe_orc
from sidecar.orc.decode import read_row_groups
from sidecar.orc.index_streams import FoundOrcFilter, read_indexes
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.stripe import read_stripe_footer
from sidecar.orc.tail import CPP, OrcTail, read_tail
from sidecar.storage.local import LocalSource
from tests.filters.made_filters import orc_filter

DATA = Path(__file__).parents[1] / "data/orc"
FILES = [
    "java_none_original",
    "java_zlib_2stripes_utf8",
    "java_zstd_unstable",
    "pyarrow_zlib_utf8",
    "pyorc_zlib_utc",
    "pyorc_zlib_tokyo",
]
KEPT_BY_PYORC = {
    "small",
    "int",
    "big",
    "double",
    "text",
    "varchar",
    "bin",
    "day",
    "ts",
    "tsi",
    "dec",
    "dec38",
}


def filters_of(path: Path, *, legacy: bool = False) -> Iterator[tuple[OrcTail, OrcColumn, FoundOrcFilter, Any]]:
    """(tail, column, filter, values) of every column and row group."""
    source = LocalSource(str(path))
    tail = read_tail(source)
    for stripe in tail.stripes:
        footer = read_stripe_footer(source, tail, stripe)
        ids = [column.id for column in tail.columns if not column.is_compound]
        indexes = read_indexes(source, tail, footer, ids, FileStatistics(source, tail), legacy=legacy)
        for column in map(tail.columns.__getitem__, ids):
            index = indexes[column.id]
            found = index.legacy_filters if legacy else index.filters
            if found:
                values = read_row_groups(source, tail, stripe, footer, column)
                for filter_, group in zip(found, values, strict=True):
                    yield tail, column, filter_, group
    source.close()


def literals(values: Any) -> list[Any]:
    """Distinct values as pyiceberg binds them: nanoseconds are rounded down to microseconds."""
    if pa.types.is_timestamp(values.type):
        unit = {"ns": 1000, "us": 1}[values.type.unit]
        return sorted({v // unit for v in values.cast(pa.int64()).drop_null().to_pylist()})
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    return values.drop_null().unique().to_pylist()  # type: ignore[no-any-return]


def denied(column: OrcColumn, found: FoundOrcFilter, values: Any) -> tuple[int, int]:
    """Values that the filter denies, and values that it may be asked for."""
    assert column.iceberg_type is not None
    assert found.filter is not None
    assert found.encoding is not None
    lost = asked = 0
    for value in literals(values):
        probe = probe_orc(value, column.iceberg_type, found.encoding)
        assert probe.verdict != "cannot-exist"
        if probe.verdict == "probe":
            asked += 1
            lost += not any(found.filter.might_contain_hash(h) for h in probe.hashes)
    return lost, asked


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_no_value_is_denied_by_a_trusted_filter(name: str, legacy: bool) -> None:
    asked: dict[str, int] = {}
    for _, column, found, values in filters_of(DATA / f"{name}.orc", legacy=legacy):
        if found.trusted:
            lost, count = denied(column, found, values)
            assert lost == 0, column.path
            asked[column.path] = asked.get(column.path, 0) + count
    if name.startswith("pyorc") and not legacy:
        assert set(asked) == KEPT_BY_PYORC
    if legacy and name != "java_none_original":
        assert not asked
    else:
        assert all(count > 0 for path, count in asked.items() if path != "c_null")
        assert asked


def test_legacy_filters_of_text_are_asked_for_ascii_and_those_of_timestamps_never() -> None:
    seen = set()
    for _, column, found, _ in filters_of(DATA / "java_none_original.orc", legacy=True):
        if column.kind == "STRING":
            assert found.trusted
            assert found.encoding is not None
            assert found.encoding.name == "orc/ascii"
            assert probe_orc("é", "string", found.encoding).verdict == "unknown"
        elif column.kind in ("CHAR", "VARCHAR", "TIMESTAMP", "TIMESTAMP_INSTANT", "DECIMAL", "BOOLEAN"):
            assert not found.trusted
            assert found.reason
        seen.add(column.kind)
    assert {"STRING", "CHAR", "VARCHAR", "TIMESTAMP", "TIMESTAMP_INSTANT", "DECIMAL", "BOOLEAN"} <= seen


@pytest.mark.parametrize("name", ["pyarrow_zlib_utf8", "pyorc_zlib_utc", "pyorc_zlib_tokyo"])
def test_filters_that_cpp_writes_wrong_are_named_and_do_deny_values(name: str) -> None:
    corrupt: dict[str, int] = {}
    for tail, column, found, values in filters_of(DATA / f"{name}.orc"):
        assert tail.writer == CPP
        if column.kind in ("BYTE", "CHAR", "FLOAT"):
            assert not found.trusted
            assert "C++" in found.reason
            corrupt[column.kind] = corrupt.get(column.kind, 0) + denied(column, found, values)[0]
    assert corrupt["BYTE"] > 0
    assert corrupt.get("CHAR", 1) > 0
    assert (corrupt["FLOAT"] > 0) == ("pyorc" in name), "pyarrow feeds floats, PyORC doubles that are then rounded"


@pytest.mark.parametrize("name", FILES)
def test_filters_are_rebuilt_from_what_the_file_gives_back(name: str) -> None:
    """Timestamps of Java in year 1 of Los Angeles and of PyORC before 1970 aside: other rules made those keys."""
    equal = 0
    for tail, column, found, values in filters_of(DATA / f"{name}.orc"):
        if not found.trusted or column.path == "c_ts" or (column.path in ("ts", "tsi") and "pyorc" in name):
            continue
        assert found.encoding is not None
        made = orc_filter(values, found.encoding, tail.row_index_stride, 0.01, strict=True)
        assert made == found.filter, column.path
        equal += 1
    assert equal >= 9
