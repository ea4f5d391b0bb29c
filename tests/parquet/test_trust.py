"""What a Parquet file states of its values and can be seen to be false is not used, not carried, and named."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.access import Access
from sidecar.bundle.kinds.declared import PAGE_INDEX
from sidecar.conversion.outcome import EXACT, VALUES
from sidecar.embedding.file import IndexedFileWriter, NewIndexes
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.parquet.bloom import FoundFilter, encode_header, read_bloom_filter
from sidecar.parquet.chunk_statistics import chunk_bounds, footer_findings
from sidecar.parquet.dictionary import read_dictionary
from sidecar.parquet.footer import read_footer
from sidecar.parquet.inspect import inspect_file
from sidecar.parquet.page_indexes.build import build_page_index
from sidecar.parquet.page_indexes.page_bounds import column_index_problems, offset_index_problems
from sidecar.parquet.page_indexes.page_index import (
    ColumnIndex,
    OffsetIndex,
    encode_column_index,
    encode_offset_index,
    read_page_indexes,
)
from sidecar.parquet.thrift import encode_struct
from sidecar.parquet.trust import WRONG_WRITERS, why_not_believed, wrong_writers
from sidecar.parquet.verify.file import verify_file
from sidecar.questions.value_check import ValueCheck
from sidecar.reading.file_scanning import open_scan
from sidecar.storage.local import LocalSource
from sidecar.storage.source import BytesSource
from tests.parquet.false_statements import (
    WRONG,
    by,
    chunk_meta,
    index_of,
    restated,
    statistic,
    table,
    with_index,
    written,
)
from tests.parquet.foreign import DATA
from tests.parquet.page_files import attach

EXPECTED = json.loads((WRONG / "expected.json").read_text())
SOUND = written()


def i64(value: int) -> bytes:
    return struct.pack("<q", value)


# --- the table of writers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("created_by", "parts"),
    [
        ("DuckDB", {"null_count"}),
        ("DuckDB version v0.10.3 (build abc)", set()),
        ("DuckDB version v1.5.5 (build abc)", set()),
        ("parquet-cpp version 1.5.1-SNAPSHOT", {"null_count"}),
        ("parquet-cpp-arrow version 4.0.1", {"null_count"}),
        ("parquet-cpp-arrow version 5.0.0", set()),
        ("parquet-cpp-arrow version 21.0.0", set()),
        ("parquet-cpp-arrow version 26.0.1", set()),
        ("parquet-cpp-velox version 0.0.0", set()),
        ("GDAL 3.9.0, using parquet-cpp-arrow version 16.1.0", set()),
        ("Polars", {"bounds", "column index"}),
        ("Polars (python) version 2.0.0 (build abc)", {"bounds", "column index"}),
        ("Polars (python) version 2.1.0 (build abc)", set()),
        ("github.com/segmentio/parquet-go version 0.0.0(build 5337127538e5)", {"column index", "offset index"}),
        ("github.com/parquet-go/parquet-go version 0.30.1(build )", set()),
        ("parquet-mr version 1.2.8", {"total_compressed_size"}),
        ("parquet-mr", {"total_compressed_size"}),
        ("parquet-mr version 1.16.0 (build abc)", set()),
        ("parquet-rs version 60.1.0", set()),
        ("fastparquet-python version 1.0.0 (build 111)", {"total_compressed_size"}),
        ("fastparquet-python version 2024.5.0 (build 0)", set()),
        ("", set()),
        (None, set()),
    ],
)
def test_writers_are_known_by_name_and_version(created_by: str | None, parts: set[str]) -> None:
    assert {part for writer in wrong_writers(created_by) for part in writer.parts} == parts


def test_polars_2_0_is_wrong_about_floats_and_right_about_decimals() -> None:
    leaves = {leaf.path: leaf for leaf in read_footer(BytesSource(_typed())).columns}
    for created_by, wrong in (("Polars", ["d", "f"]), ("Polars (python) version 2.0.0 (build a)", ["f"])):
        found = [path for path, leaf in leaves.items() if why_not_believed(created_by, "bounds", leaf, ())]
        assert found == wrong
    assert why_not_believed("Polars", "column index", leaves["f"], ())
    assert not why_not_believed("Polars", "column index", leaves["d"], ())


def _typed() -> bytes:
    decimals = pa.array([1, 2], pa.decimal128(20, 2))
    return written(pa.table({"d": decimals, "f": [1.5, 2.5], "i": [1, 2], "s": ["a", "b"]}))


def test_every_entry_names_its_source_or_what_was_seen() -> None:
    assert all(len(writer.why) > 30 and writer.parts for writer in WRONG_WRITERS)


# --- files of these writers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "predicate", "rows"),
    [
        *((name, predicate, rows) for name, file in EXPECTED.items() for predicate, rows in file["rows"].items()),
        ("ci_max.parquet", "s = 'LseKuzjbGLJeDgJMbwPWiwCz'", 99),
        ("null_count.parquet", "id1 is null", 57),
        ("num_rows_zero.parquet", "true", 57),
        ("p816.parquet", "true", 12),
    ],
)
def test_a_scan_finds_the_rows_that_are_stored(name: str, predicate: str, rows: int) -> None:
    assert sidecar.scan(WRONG / name, predicate).num_rows == rows


@pytest.mark.parametrize("name", [*EXPECTED, "ci_max.parquet", "null_count.parquet", "num_rows_zero.parquet"])
def test_verify_names_what_is_not_believed_without_the_values(name: str) -> None:
    assert sidecar.verify(WRONG / name).problems


@pytest.mark.parametrize("name", [*EXPECTED, "null_count.parquet", "num_rows_zero.parquet", "p816.parquet"])
def test_inspect_names_what_verify_names(name: str) -> None:
    named = {problem.problem for problem in inspect_file(LocalSource(str(WRONG / name))).not_believed}
    assert named
    assert named <= {problem.problem for problem in sidecar.verify(WRONG / name).problems}


def test_statistics_that_the_values_confirm_are_no_problem_of_a_wrong_writer() -> None:
    source = BytesSource(restated(written(write_page_index=False), by("Polars")))
    assert [(p.column, p.unit) for p in verify_file(source)] == [("f", None)]
    assert verify_file(source, ValueCheck()) == []


# --- what is sound stays in use -----------------------------------------------------------------------------


def _sound_files() -> list[Path]:
    files = (path for path in sorted(DATA.glob("*.parquet")) if path.read_bytes()[-4:] == b"PAR1")
    return [path for path in files if "corrupt" not in path.name and "_enc_" not in path.name]


@pytest.mark.parametrize("path", _sound_files(), ids=lambda path: path.stem)
def test_files_of_other_writers_lose_no_statistics_and_no_page_index(path: Path) -> None:
    assert _distrusted(LocalSource(str(path))) == []


@pytest.mark.parametrize("writer", ["pyarrow", "pyarrow v2", "duckdb", "polars"])
def test_files_of_present_writers_lose_no_statistics_and_no_page_index(writer: str, tmp_path: Path) -> None:
    rows, path = _many_types(), tmp_path / "f.parquet"
    if writer.startswith("pyarrow"):
        version = "2.0" if writer.endswith("v2") else "1.0"
        options: Any = {"write_page_index": True, "data_page_size": 2000, "data_page_version": version}
        pq.write_table(rows, path, row_group_size=700, **options)
    elif writer == "duckdb":
        import duckdb

        with duckdb.connect() as connection:
            connection.register("rows", rows)
            connection.execute(f"copy rows to '{path}' (format parquet, row_group_size 2048)")
    else:
        import polars as pl

        pl.DataFrame(rows).write_parquet(path, row_group_size=700, data_page_size=2000)
    assert _distrusted(LocalSource(str(path))) == []


def _many_types() -> pa.Table:
    count = 5000
    kinds: dict[str, Any] = {
        "i": pa.array([None if n % 9 == 0 else n * 7919 % 1000 - 500 for n in range(count)], pa.int64()),
        "i8": pa.array([n % 256 - 128 for n in range(count)], pa.int8()),
        "u": pa.array([n * 2654435761 % 2**32 for n in range(count)], pa.uint32()),
        "f": pa.array([float("nan") if n % 500 == 7 else n / 3 - 800 for n in range(count)]),
        "z": pa.array([(-0.0, 0.0, 1.5)[n % 3] for n in range(count)]),
        "s": pa.array([None if n % 7 == 0 else "long " * (n % 30) + chr(0x10FFFF) * (n % 3) for n in range(count)]),
        "b": pa.array([bytes([255]) * (n % 80) + n.to_bytes(2, "big") for n in range(count)]),
        "n": pa.nulls(count, pa.int32()),
        "t": pa.array(range(count), pa.timestamp("us")),
        "d": pa.array([n - 2500 for n in range(count)], pa.decimal128(20, 0)),
        "l": pa.array([None if n % 5 == 0 else list(range(n % 4)) for n in range(count)]),
    }
    return pa.table(kinds)


def _distrusted(source: Any) -> list[str]:
    """What is not believed of a file whose statistics and page indexes are right."""
    footer = read_footer(source)
    found = [problem.problem for problem in footer_findings(footer)]
    for group in footer.row_groups:
        columns, offsets = read_page_indexes(source, footer, group.columns, group.columns)
        for chunk, column, offset in zip(group.columns, columns, offsets, strict=True):
            if isinstance(offset, OffsetIndex):
                found += offset_index_problems(footer, chunk, offset)
            if isinstance(column, ColumnIndex):
                assert isinstance(offset, OffsetIndex)
                found += column_index_problems(footer, chunk, column, offset)
    return found


def test_pages_and_row_groups_of_a_sound_file_are_skipped() -> None:
    with open_scan(BytesSource(SOUND), "i = 250") as scan:
        assert scan.to_table()["r"].to_pylist() == [250]
    assert scan.report.dropped["statistics"] == 5
    assert scan.report.rows_may_match < 30
    assert scan.report.warnings == []


# --- statistics that contradict each other ------------------------------------------------------------------

PREDICATES = {
    "i = 250": lambda t: pc.equal(t["i"], 250),
    "i is null": lambda t: pc.is_null(t["i"]),
    "i is not null": lambda t: pc.is_valid(t["i"]),
    "i < 20 or i > 580": lambda t: pc.or_(pc.less(t["i"], 20), pc.greater(t["i"], 580)),
    "s = 'text 00250'": lambda t: pc.equal(t["s"], "text 00250"),
    "s >= 'text 00590'": lambda t: pc.greater_equal(t["s"], "text 00590"),
    "r = 250": lambda t: pc.equal(t["r"], 250),
    "r is null": lambda t: pc.is_null(t["r"]),
    "f > 140": lambda t: pc.greater(t["f"], 140),
}


def assert_right_rows(data: bytes) -> None:
    """Each predicate finds the rows of :func:`table`."""
    rows = table()
    for predicate, mask in PREDICATES.items():
        want = rows.filter(mask(rows))
        assert sidecar.scan(BytesSource(data), predicate).equals(want), predicate


def _bounds_of_the_older_kind(metadata: Any) -> None:
    """A maximum of the older kind that is right, beside one of the present kind that is too low."""
    statistics = chunk_meta(metadata, 2, 0).struct(12)
    assert statistics is not None
    statistics.fields |= {1: statistics.fields[5], 2: statistics.fields[6]}
    statistics.fields[5] = (statistics.fields[5][0], i64(220))
    statistics.fields = dict(sorted(statistics.fields.items()))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (statistic(2, 0, null_count=101), "null_count is 101, the chunk has 100 values"),
        (statistic(2, 0, null_count=-1), "null_count is -1, the chunk has 100 values"),
        (statistic(2, 0, null_count=100), "all values are null, but the chunk has bounds"),
        (statistic(2, 3, null_count=5), "null_count is 5 in a column without nulls"),
        (statistic(2, 0, min_value=i64(300), max_value=i64(200)), "min_value is greater than its max_value"),
        (statistic(2, 0, max_value=b"\x01"), "a bound has the wrong length"),
        (statistic(2, 0, null_count=0), "the definition levels in size_statistics have 10 nulls"),
        (
            statistic(2, 1, null_count=100, min_value=None, max_value=None),
            "the definition levels in size_statistics have 10 nulls",
        ),
        (_bounds_of_the_older_kind, "max and max_value differ"),
    ],
)
def test_false_statistics_are_not_used_and_named(change: Any, text: str) -> None:
    data = restated(SOUND, change)
    assert_right_rows(data)
    problems = [problem for problem in verify_file(BytesSource(data)) if text in problem.problem]
    assert [problem.unit for problem in problems] == [2]
    assert problems[0] in inspect_file(BytesSource(data)).not_believed


def test_a_scan_warns_of_statistics_that_it_does_not_use() -> None:
    data = restated(SOUND, statistic(2, 0, null_count=101))
    with open_scan(BytesSource(data), "i is null") as scan:
        scan.to_table()
    assert [text for text in scan.report.warnings if "null_count is 101" in text and "row group 2" in text]
    with open_scan(BytesSource(restated(SOUND, by("Polars"))), "f = 5") as scan:
        scan.to_table()
    assert len([text for text in scan.report.warnings if "bounds: not believed" in text]) == 1


def test_counts_against_the_rows_of_the_row_group_take_the_statistics_along() -> None:
    def fewer(metadata: Any) -> None:
        meta = chunk_meta(metadata, 2, 0)
        meta.fields[5] = (meta.fields[5][0], 90)
        meta.fields.pop(12)
        statistic(2, 0, null_count=90)(metadata)

    footer = read_footer(BytesSource(restated(SOUND, fewer)))
    bounds = chunk_bounds(footer, footer.row_groups[2].columns[0])
    assert (bounds.all_null, bounds.null_counts, bounds.lower) == ([False], [None], [None])
    assert any("num_values is 90" in problem.problem for problem in footer_findings(footer))


def test_a_file_has_the_rows_of_its_row_groups() -> None:
    data = restated(SOUND, lambda metadata: metadata.fields.update({3: (metadata.fields[3][0], 0)}))
    footer = read_footer(BytesSource(data))
    assert (footer.num_rows, footer.stated_num_rows) == (600, 0)
    assert_right_rows(data)


def test_an_empty_filter_is_not_believed_where_the_null_count_is_not() -> None:
    """A null count of DuckDB may say that there are no values, so that the filter is rightly empty."""
    data = written(table().select(["i"]), write_page_index=False)
    footer = read_footer(BytesSource(data))
    empty = encode_header(32) + bytes(32)

    def with_filter(metadata: Any) -> None:
        meta = chunk_meta(metadata, 0, 0)
        meta.fields |= {14: (meta.fields[5][0], footer.offset), 15: (meta.fields[5][0], len(empty))}
        statistic(0, 0, null_count=100, min_value=None, max_value=None)(metadata)
        by("DuckDB")(metadata)

    changed = restated(data, with_filter)
    place = len(changed) - len(empty)
    end = changed[footer.offset :]
    source = BytesSource(changed[: footer.offset] + empty + end)
    assert place
    chunk = read_footer(source).row_groups[0].columns[0]
    found = read_bloom_filter(source, chunk)
    assert isinstance(found, FoundFilter)
    assert not found.trusted


# --- page indexes that contradict their chunk ---------------------------------------------------------------


def _maxima(group: int, column: int, last: bytes) -> list[bytes]:
    return [*index_of(SOUND, group, column)[0].max_values[:-1], last]


def _minima(group: int, column: int, first: bytes) -> list[bytes]:
    return [first, *index_of(SOUND, group, column)[0].min_values[1:]]


FALSE_INDEXES: dict[str, tuple[int, dict[str, Any], str]] = {
    "a maximum too low": (0, {"max_values": _maxima(2, 0, i64(280))}, "max_value of every page is less"),
    "a minimum too high": (0, {"min_values": _minima(2, 0, i64(215))}, "min_value of every page is greater"),
    "bounds that were cut and not raised": (
        1,
        {
            "max_values": _maxima(2, 1, b"text 0029"),
            "min_values": [*index_of(SOUND, 2, 1)[0].min_values[:-1], b"text 0029"],
        },
        "max_value of every page is less",
    ),
    "a page above the chunk": (0, {"max_values": _maxima(2, 0, i64(900))}, "outside those of the whole"),
    "a page below the chunk": (0, {"min_values": _minima(2, 0, i64(-900))}, "outside those of the whole"),
    "other nulls than the chunk": (0, {"null_counts": [0] * 5}, "null_counts add up to 0"),
    "a null page without a null": (
        0,
        {"null_pages": [True, *[False] * 4], "null_counts": [0, 4, 2, 2, 2]},
        "a null page without a null",
    ),
    "a null page of more rows than the chunk has nulls": (
        0,
        {
            "null_pages": [False, False, True, False, False],
            "null_counts": None,
            "min_values": [b"" if n == 2 else v for n, v in enumerate(index_of(SOUND, 2, 0)[0].min_values)],
            "max_values": [b"" if n == 2 else v for n, v in enumerate(index_of(SOUND, 2, 0)[0].max_values)],
        },
        "the pages have at least 20 nulls, the chunk's statistics say 10",
    ),
    "levels of more nulls than the chunk has": (
        0,
        {
            "null_pages": [False, False, True, False, False],
            "null_counts": None,
            "min_values": [b"" if n == 2 else v for n, v in enumerate(index_of(SOUND, 2, 0)[0].min_values)],
            "max_values": [b"" if n == 2 else v for n, v in enumerate(index_of(SOUND, 2, 0)[0].max_values)],
            "definition_level_histograms": [2, 18, 2, 18, 20, 0, 2, 18, 2, 18],
        },
        "the pages have at least 28 nulls, the chunk's statistics say 10",
    ),
    "more nulls than rows": (0, {"null_counts": [21, 0, 0, 0, 0]}, "greater than the number of entries"),
    "an order that is not there": (0, {"boundary_order": 2}, "boundary_order is descending"),
    "a minimum above its maximum": (
        0,
        {"min_values": _minima(2, 0, i64(230)), "max_values": _maxima(2, 0, i64(299))},
        "min_value is greater than its max_value",
    ),
}


@pytest.mark.parametrize("name", FALSE_INDEXES)
def test_a_false_page_index_is_not_used_not_carried_and_built_anew(name: str, tmp_path: Path) -> None:
    column, lists, text = FALSE_INDEXES[name]
    data = with_index(SOUND, 2, column, **lists)
    assert_right_rows(data)
    path = {0: "i", 1: "s"}[column]
    named = [p for p in verify_file(BytesSource(data)) if text in p.problem]
    assert [(problem.unit, problem.column) for problem in named] == [(2, path)]
    source, target = tmp_path / "source.parquet", tmp_path / "target.parquet"
    source.write_bytes(data)
    ways = {}
    for build in (False, True):
        report = IndexedFileWriter(NewIndexes((), build))(Access(), str(source), str(target))
        ways[build] = next(o for o in report.outcomes if (o.row_group, o.column, o.kind) == (2, path, PAGE_INDEX))
        assert_right_rows(target.read_bytes())
        assert not any(text in p.problem for p in verify_file(BytesSource(target.read_bytes())))
        target.unlink()
    assert text in ways[False].reason
    assert ways[False].dropped
    assert (ways[True].way, ways[True].reason) == (VALUES, "")
    taken = sidecar.extract([source], tmp_path / "t.puffin", bloom=False)
    unit = next(u for u in taken.units if (u.row_group, u.column) == (2, path))
    assert text in unit.reason
    assert unit.way == EXACT  # its offset index alone


def test_statistics_that_a_page_index_contradicts_are_not_used_either() -> None:
    """The first part of the condition leaves the row group; its statistics must not rule out the second one."""
    data = restated(SOUND, statistic(2, 0, null_count=0))
    want = table().filter(pc.is_null(table()["i"])).slice(20, 10)
    found = sidecar.scan(BytesSource(data), "r >= 200 and r < 300 and (i is null or i = 299 and i = 200)")
    assert found.equals(want)


# --- page indexes of ours -----------------------------------------------------------------------------------


@pytest.mark.parametrize("created_by", ["Polars", "github.com/segmentio/parquet-go version 0.0.0(build 1)"])
def test_indexes_of_a_wrong_writer_are_built_anew_and_then_believed(created_by: str, tmp_path: Path) -> None:
    data = restated(SOUND, by(created_by))
    source, target = tmp_path / "source.parquet", tmp_path / "target.parquet"
    source.write_bytes(data)
    column, path, predicate = (2, "f", "f = 5") if created_by == "Polars" else (1, "s", "s = 'text 00020'")
    with open_scan(BytesSource(data), predicate) as scan:
        assert scan.to_table().num_rows == 1
    assert scan.report.rows_may_match == (600 if created_by == "Polars" else 100)
    sidecar.embed(source, into=target, page_index=True)
    built, offsets = index_of(target.read_bytes(), 0, column)
    assert built.is_ours
    assert offsets.is_ours == (created_by != "Polars")
    with open_scan(target, predicate) as scan:
        assert scan.to_table().num_rows == 1
    assert scan.report.rows_may_match == (20 if created_by == "Polars" else 10)
    again = tmp_path / "again.parquet"
    report = sidecar.embed(target, into=again, page_index=True).only
    assert {o.way for o in report.outcomes if o.column == path} == {EXACT}
    assert pq.read_table(target).equals(pq.read_table(source))


def test_an_index_says_that_it_is_ours_only_where_the_file_contradicts_it() -> None:
    for data, ours in ((SOUND, False), (restated(SOUND, statistic(2, 1, max_value=b"text 00250")), True)):
        source = BytesSource(data)
        footer = read_footer(source)
        built = build_page_index(source, footer, footer.row_groups[2].columns[1])
        assert built.column_index is not None
        assert built.offset_index is not None
        assert built.column_index.is_ours == ours
        assert not built.offset_index.is_ours
        assert not list(column_index_problems(footer, footer.row_groups[2].columns[1], built[0], built[1]))


# --- encodings ----------------------------------------------------------------------------------------------


def _fallen_back() -> bytes:
    """A chunk that falls back from its dictionary to plain pages."""
    rows = pa.table({"s": [f"value {n:06}" for n in range(6000)]})
    return written(rows, row_group_size=6000, use_dictionary=True, dictionary_pagesize_limit=4000)


def test_encoding_stats_that_leave_pages_out_are_named_and_not_used() -> None:
    """A dictionary that has all values by these statistics would deny the values of the plain pages."""
    data = _fallen_back()
    footer = read_footer(BytesSource(data))
    stats = footer.row_groups[0].columns[0].encoding_stats
    assert stats is not None
    assert {0, 8} <= {entry.encoding for entry in stats}

    def only_dictionary(metadata: Any) -> None:
        entries = chunk_meta(metadata, 0, 0).structs(13) or []
        entries[:] = [entry for entry in entries if entry.integer(1) == 2 or entry.integer(2) == 8]

    false = restated(data, only_dictionary)
    assert any("encoding_stats lack the encoding 0" in p.problem for p in verify_file(BytesSource(false)))
    for predicate in ("s = 'value 005000'", "s in ('value 000001', 'value 005999')"):
        with open_scan(BytesSource(false), predicate) as scan:
            assert scan.to_table().equals(sidecar.scan(BytesSource(data), predicate))
        assert scan.report.rows_found > 0


# --- page indexes without a page ----------------------------------------------------------------------------


def test_a_page_that_both_indexes_leave_out_is_missed_by_encoding_stats() -> None:
    """Its rows would count to the page before, whose bounds do not have them."""
    index, offsets = index_of(SOUND, 2, 0)
    places = zip(offsets.offsets, offsets.compressed_page_sizes, offsets.first_row_indexes, strict=True)
    fewer = encode_offset_index([(int(a), int(b), int(c)) for n, (a, b, c) in enumerate(places) if n != 2])
    lists = {
        name: [one for n, one in enumerate(getattr(index, name)) if n != 2]
        for name in ("null_pages", "min_values", "max_values")
    }
    column = encode_column_index(**lists, boundary_order=index.boundary_order, null_counts=[])
    del column.tree.fields[5]
    data = attach(SOUND, {(2, 0): (encode_struct(column.tree), fewer.raw)})
    assert any("4 pages, encoding_stats has 5 data pages" in p.problem for p in verify_file(BytesSource(data)))
    assert_right_rows(data)


# --- offset indexes that only pages contradict --------------------------------------------------------------


@pytest.mark.parametrize("shift", [-1, 1, 5])
@pytest.mark.parametrize("page", [1, 2, 4])
def test_rows_that_a_false_offset_index_ruled_out_are_read(page: int, shift: int) -> None:
    """A row at the edge of a page counts to its neighbour; the first page that is read shows it."""
    index, offsets = index_of(SOUND, 2, 0)
    places = [offsets.offsets, offsets.compressed_page_sizes, offsets.first_row_indexes.copy()]
    edge = 200 + int(places[2][page])
    places[2][page] += shift
    moved = encode_offset_index([(int(a), int(b), int(c)) for a, b, c in zip(*places, strict=True)])
    data = BytesSource(attach(SOUND, {(2, 0): (index.raw, moved.raw)}))
    for number in range(edge - 6, edge + 7):
        with open_scan(data, f"i = {number}") as scan:
            found = scan.to_table()
        assert found["r"].to_pylist() == ([] if number % 10 == 3 else [number])
        assert found["s"].to_pylist() == ([] if number % 10 == 3 else [f"text {number:05}"])
    assert_right_rows(data.read(0, data.size))


@pytest.mark.parametrize("is_first", [True, False])
def test_the_dictionary_of_another_column_denies_nothing(is_first: bool) -> None:
    rows = pa.table({"a": [f"one {n % 7}" for n in range(2000)], "b": [f"two {n % 7}" for n in range(2000)]})
    data = written(rows, row_group_size=2000, use_dictionary=True, write_page_index=False)
    footer = read_footer(BytesSource(data))
    mine, other = footer.row_groups[0].columns[is_first], footer.row_groups[0].columns[not is_first]

    def swap(metadata: Any) -> None:
        meta = chunk_meta(metadata, 0, mine.leaf.index)
        meta.fields[11] = (meta.fields[9][0], other.start)

    false = BytesSource(restated(data, swap))
    if is_first:  # the other dictionary is before it, so that readers take it
        assert any("the dictionary page ends at" in p.problem for p in verify_file(false))
    chunk = read_footer(false).row_groups[0].columns[mine.leaf.index]
    with open_scan(false, f"{mine.leaf.path} = 'none of them'") as scan:
        try:
            assert scan.to_table().num_rows == 0
        except SidecarError:
            assert chunk.start == other.start
    if chunk.start == other.start:
        with pytest.raises(DamagedFileError, match="does not end where the data pages begin"):
            read_dictionary(false, chunk)
        with pytest.raises(SidecarError):  # and no empty answer
            sidecar.scan(false, f"{mine.leaf.path} = '{'two' if is_first else 'one'} 3'")
