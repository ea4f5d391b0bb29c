"""ORC files into sidecars and back, and filters of one kind as filters of the other: exact, and denying nothing."""

from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import sidecar
from sidecar.bundle.verify import verify_sidecar
from sidecar.errors import UnsupportedFeatureError, UsageError
from sidecar.orc.identity import data_fingerprint
from sidecar.orc.index_streams import read_indexes
from sidecar.orc.protobuf import encode
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.stripe import read_stripe_footer
from sidecar.orc.tail import read_tail
from sidecar.storage.local import LocalSource
from sidecar.storage.source import BytesSource
from tests.conversion.cases import foreign
from tests.conversion.orc_cases import (
    PARQUET_TYPES,
    STRIDE,
    TYPES,
    denied,
    field_of,
    is_asked,
    orc_file,
    orc_literals,
    parquet_literals,
    segment_of,
    streams,
)

EXACT = [
    "java_none_utf8",
    "java_zlib_2stripes_utf8",
    "java_zlib_chunk1k_utf8",
    "java_zstd_utf8",
    "pyarrow_zlib_utf8",
]
UNTRUSTED = {"java": {"c_bool"}, "pyarrow": {"c_bool", "c_tiny", "c_float", ""}}
ABSENT: dict[str, list[Any]] = {
    "int": [77_777_777 + i for i in range(9)],
    "long": [(1 << 50) + i for i in range(9)],
    "float": [2.0 ** (60 + i) for i in range(9)],
    "double": [1e90 + i * 1e80 for i in range(9)],
    "string": [f"nobody wrote {i}" for i in range(9)],
    "binary": [b"nobody wrote %d" % i for i in range(9)],
    "date": [40_000 + i for i in range(9)],
    "timestamptz": [1 << 51, 1 << 52],
    "decimal(10, 2)": [Decimal("7654321.01"), Decimal("7654321.03"), Decimal("7654321.07")],
    "decimal(18, 6)": [Decimal("7654321.000001"), Decimal("7654321.000003")],
    "decimal(38, 18)": [Decimal("7654321.000000000000000001"), Decimal("7654321.000000000000000003")],
}


@pytest.mark.parametrize("name", EXACT)
def test_there_and_back_to_the_byte(name: str, tmp_path: Path) -> None:
    puffin, bare, back = tmp_path / "x.puffin", tmp_path / "bare.orc", tmp_path / "back.orc"
    report = sidecar.extract([str(orc_file(name))], str(puffin))
    assert report.size == puffin.stat().st_size
    assert verify_sidecar(LocalSource(str(puffin))) == []
    sidecar.strip(str(orc_file(name)), str(bare))
    assert not any(kind.startswith("BLOOM") for _, kind, _ in streams(bare))
    restored = sidecar.embed(str(bare), into=str(back), from_=str(puffin)).only
    assert restored.ways()["bloom"]["exact"] >= 39
    lost = UNTRUSTED[name.partition("_")[0]]
    expected = {
        key: data
        for key, data in streams(orc_file(name)).items()
        if not (key[1].startswith("BLOOM") and key[2] in lost)
    }
    assert streams(back) == expected
    assert orc.read_table(back, columns=["c_int", "c_sdir"]) == orc.read_table(bare, columns=["c_int", "c_sdir"])


def test_row_indexes_are_carried_byte_for_byte(tmp_path: Path) -> None:
    path, puffin = orc_file("java_zlib_2stripes_utf8"), tmp_path / "x.puffin"
    report = sidecar.extract([str(path)], str(puffin), bloom=False)
    segment = segment_of(puffin)
    assert not segment.fields
    source = LocalSource(str(path))
    tail = read_tail(source)
    entries: list[bytes] = []
    column = tail.column("c_date")
    assert column is not None
    for stripe in tail.stripes:
        footer = read_stripe_footer(source, tail, stripe)
        index = read_indexes(source, tail, footer, [column.id], FileStatistics(source, tail))[column.id].row_index
        assert index is not None
        entries += index.parts
    stored = segment.row_indexes(report.fields["c_date"], range(9))
    assert [stored[unit].entry for unit in sorted(stored)] == entries
    assert len(entries) == 3
    assert stored[0].kind.type == "DATE"


def test_untrusted_filters_stay_behind_with_their_reason(tmp_path: Path) -> None:
    puffin = tmp_path / "x.puffin"
    report = sidecar.extract([str(orc_file("pyarrow_zlib_utf8"))], str(puffin))
    refused = {unit.column: unit.reason for unit in report.units if unit.kind == "bloom" and unit.way == "none"}
    assert refused.keys() == {"c_bool", "c_tiny", "c_float"}
    assert "packed bytes for tinyint" in refused["c_tiny"]
    coverage = segment_of(puffin).coverage(report.fields["c_tiny"], "bloom")
    assert coverage is not None
    assert set(coverage.counts()) == {refused["c_tiny"]}
    with pytest.raises(UnsupportedFeatureError, match="encrypted"):
        sidecar.extract([str(orc_file("java_encrypted"))], str(tmp_path / "no.puffin"))
    assert not (tmp_path / "no.puffin").exists()


def test_parquet_and_orc_in_one_sidecar_gathered_and_given_back(tmp_path: Path) -> None:
    native, other = orc_file("java_zlib_utf8"), foreign("j118_v2_zstd")
    one, all_of_it, folder = tmp_path / "one.puffin", tmp_path / "all.puffin", tmp_path / "back"
    copied = shutil.copy(native, tmp_path / "a.orc"), shutil.copy(other, tmp_path / "b.parquet")
    sidecar.extract([str(copied[0])], str(one))
    two = tmp_path / "two.puffin"
    sidecar.extract([str(path) for path in copied], str(two))
    sidecar.convert([str(one), str(two)], str(all_of_it))
    assert verify_sidecar(LocalSource(str(all_of_it))) == []
    reports = sidecar.embed(into=str(folder), from_=str(all_of_it))
    assert {report.placement for report in reports} == {"stripe", "end"}
    kept = {key: data for key, data in streams(native).items() if key[1:] != ("BLOOM_FILTER_UTF8", "c_bool")}
    assert streams(folder / "a.orc") == kept
    assert pq.read_metadata(folder / "b.parquet").row_group(0).column(1).statistics is not None


def test_another_file_gets_nothing(tmp_path: Path) -> None:
    puffin = tmp_path / "x.puffin"
    sidecar.extract([str(orc_file("java_zlib_utf8"))], str(puffin))
    with pytest.raises(UsageError, match="does not list"):
        sidecar.embed(str(orc_file("pyarrow_zlib_utf8")), into=str(tmp_path / "no.orc"), from_=str(puffin))
    assert not (tmp_path / "no.orc").exists()


def test_a_tail_is_known_whatever_its_filters_are(tmp_path: Path) -> None:
    bare, fresh = tmp_path / "bare.orc", tmp_path / "fresh.orc"
    path = orc_file("java_zlib_2stripes_utf8")
    sidecar.strip(str(path), str(bare))
    sidecar.embed(str(bare), into=str(fresh), bloom=["c_int"])
    prints = set()
    for one in (path, bare, fresh):
        source = LocalSource(str(one))
        prints.add(data_fingerprint(source, read_tail(source)))
    assert len(prints) == 1
    source = LocalSource(str(orc_file("java_zlib_utf8")))
    assert data_fingerprint(source, read_tail(source)) not in prints


def test_a_damaged_bundle_is_replaced_by_filters_of_the_values(tmp_path: Path) -> None:
    path, puffin, back = orc_file("java_none_utf8"), tmp_path / "x.puffin", tmp_path / "back.orc"
    sidecar.extract([str(path)], str(puffin), columns=["c_int"])
    data = bytearray(puffin.read_bytes())
    entry = next(one for one in segment_of(puffin).entries if "bloom" in one.blob_type)
    data[entry.offset + 600] ^= 1
    puffin.write_bytes(data)
    report = sidecar.embed(str(path), into=str(back), from_=str(puffin), bloom=["c_int"]).only
    assert report.ways() == {"bloom": {"values": 3, "exact": 51, "none": 3}}
    assert report.damage
    key = (0, "BLOOM_FILTER_UTF8", "c_int")
    assert streams(back)[key] == streams(path)[key]


@pytest.mark.parametrize("name", ["java_zlib_utf8", "pyarrow_zlib_utf8"])
def test_split_block_filters_of_orc_deny_nothing(name: str, tmp_path: Path) -> None:
    puffin = tmp_path / "x.puffin"
    report = sidecar.convert([str(orc_file(name))], str(puffin), as_="parquet")
    segment = segment_of(puffin)
    assert verify_sidecar(LocalSource(str(puffin))) == []
    assert not segment.orc_bundles
    units = [i // STRIDE for i in range(2300)]
    made = {unit.column for unit in report.units if unit.kind == "bloom" and unit.way == "values"}
    assert len(made) >= 12
    for column in made & TYPES.keys():
        field = field_of(segment, column)
        assert denied(segment, field, TYPES[column], orc_literals(column), units) == [], column
        assert is_asked(segment, field, TYPES[column], ABSENT[TYPES[column]]), column


@pytest.mark.parametrize("name", ["j118_v2_zstd", "pa26_v2_zstd_dict"])
def test_orc_filters_of_parquet_deny_nothing(name: str, tmp_path: Path) -> None:
    puffin = tmp_path / "x.puffin"
    report = sidecar.convert([str(foreign(name))], str(puffin), as_="orc")
    segment = segment_of(puffin)
    assert verify_sidecar(LocalSource(str(puffin))) == []
    assert not segment.bundles
    assert segment.page_index_blobs
    units = [min(i // 250, 2) for i in range(600)]
    made = {unit.column for unit in report.units if unit.kind == "bloom" and unit.way != "none"}
    ways = {unit.way for unit in report.units if unit.column in made and unit.kind == "bloom"}
    assert ways <= {"dictionary", "values"}
    for column in made & PARQUET_TYPES.keys():
        kind, field = PARQUET_TYPES[column][0], field_of(segment, column)
        assert denied(segment, field, kind, parquet_literals(column), units, 3) == [], column
        assert is_asked(segment, field, kind, ABSENT[kind]), column
    refused = {unit.column: unit.reason for unit in report.units if unit.kind == "bloom" and unit.way == "none"}
    assert "ts_ns" in refused


def test_filters_of_the_other_kind_go_back_as_those_of_the_values(tmp_path: Path) -> None:
    path, puffin, back = orc_file("java_zlib_utf8"), tmp_path / "x.puffin", tmp_path / "back.orc"
    sidecar.convert([str(path)], str(puffin), as_="parquet")
    bare = tmp_path / "bare.orc"
    sidecar.strip(str(path), str(bare))
    report = sidecar.embed(str(bare), into=str(back), from_=str(puffin), bloom=["c_int", "c_sdir"]).only
    assert report.ways() == {"bloom": {"values": 6}}
    assert {unit.reason for unit in report.outcomes} == {
        "the sidecar has a split-block filter for it, which an ORC file cannot hold"
    }
    for column in ("c_int", "c_sdir"):
        key = (0, "BLOOM_FILTER_UTF8", column)
        assert streams(back)[key] == streams(path)[key]


def test_filters_of_columns_with_one_path_are_not_rebuilt(tmp_path: Path) -> None:
    path, puffin = tmp_path / "x.orc", tmp_path / "x.puffin"
    table = pa.table([pa.array([1, 2]), pa.array([7, 8]), pa.array([5, 6])], names=["x", "x", "y"])
    orc.write_table(table, path, bloom_filter_columns=[1, 2, 3])
    report = sidecar.convert(path, puffin, as_="parquet")
    of_filters = {(unit.column, unit.way): unit.reason for unit in report.units if unit.kind == "bloom"}
    assert of_filters.pop(("y", "values")) == ""
    assert of_filters == {("x", "none"): "another column of the file has the same path, and neither has a field id"}


def test_orc_filters_go_back_into_parquet_as_those_of_the_values(tmp_path: Path) -> None:
    puffin, bare, back = tmp_path / "x.puffin", tmp_path / "bare.parquet", tmp_path / "back.parquet"
    path = str(foreign("pa26_v1_none"))
    sidecar.convert([path], str(puffin), as_="orc", columns=["str"])
    sidecar.strip(path, str(bare))
    report = sidecar.embed(str(bare), into=str(back), from_=str(puffin), bloom=["str"], page_index=[]).only
    assert [(one.column, one.way, one.reason) for one in report.outcomes if one.kind == "bloom"] == [
        ("str", "values", "the sidecar has an ORC filter for it, which a Parquet file cannot hold")
    ] * 3
    problems = sidecar.verify(str(back), data=True).problems
    assert [problem for problem in problems if problem.column == "str"] == []


def test_a_data_file_gets_filters_like_one_of_the_other_format(tmp_path: Path) -> None:
    table = pa.table(
        {"k": pa.array(range(0, 9000, 3), pa.int64()), "s": [f"v{i}" for i in range(3000)], "x": [1.5] * 3000}
    )
    other = pa.table({"k": pa.array(range(1, 9001, 3), pa.int64()), "s": [f"w{i}" for i in range(3000)]})
    bare, plain = tmp_path / "bare.parquet", tmp_path / "plain.orc"
    pq.write_table(table, bare)
    orc.write_table(other, plain, row_index_stride=1000)
    filled, target, again = tmp_path / "a.parquet", tmp_path / "b.orc", tmp_path / "c.parquet"
    sidecar.embed(str(bare), into=str(filled), bloom=["k", "s", "x"], fpp=0.05)
    report = sidecar.convert([str(filled)], str(target), onto=str(plain))
    assert report.to_dict()["ways"] == {"bloom": {"values": 6, "none": 1}}
    assert "no such column" in next(unit.reason for unit in report.units if unit.way == "none")
    # The rows of plain.orc, not those of a.parquet: every value is found, and those of the other file are denied.
    for value, expected in ((1, True), (8998, True), (3, False), (8997, False)):
        answers = {unit.might_contain for unit in sidecar.probe(str(target), "k", str(value)).only.units}
        assert (True in answers) == expected, value
    assert sidecar.verify(str(target), data=True).problems == []
    report = sidecar.convert([str(target)], str(again), onto=str(bare), columns=["s"])
    assert {(unit.column, unit.way) for unit in report.units if unit.kind == "bloom"} == {("s", "dictionary")}
    assert sidecar.verify(str(again), data=True).problems == []
    assert pq.read_table(again) == table
    with pytest.raises(UsageError, match="--onto"):
        sidecar.convert([str(filled)], str(tmp_path / "no.orc"))
    with pytest.raises(UsageError, match="have different formats"):
        sidecar.convert([str(filled)], str(tmp_path / "no.orc"), onto=str(bare))


def legacy_only(path: Path) -> Path:
    """The file with both streams, its UTF-8 ones renamed to a kind of index stream that nobody reads."""
    data = bytearray(orc_file("java_none_original").read_bytes())
    source = BytesSource(bytes(data), "x.orc")
    tail = read_tail(source)
    for stripe in tail.stripes:
        raw = read_stripe_footer(source, tail, stripe).raw
        messages = raw.messages(1)
        for message in messages:
            if message.varint(1) == 8:
                message.set(1, 4)
        raw.set_all(1, messages)
        content = encode(raw)
        assert len(content) == stripe.footer_length
        data[stripe.footer_offset : stripe.footer_offset + stripe.footer_length] = content
    path.write_bytes(data)
    return path


def test_the_legacy_stream_becomes_the_one_that_all_readers_ask(tmp_path: Path) -> None:
    source, target = legacy_only(tmp_path / "legacy.orc"), tmp_path / "utf8.orc"
    report = sidecar.convert([str(source)], str(target))
    ways = {unit.column: unit.way for unit in report.units}
    kept = {"c_tiny", "c_small", "c_int", "c_big", "c_float", "c_double", "c_bin", "c_date", "c_null"}
    assert {column for column, way in ways.items() if way == "converted"} == kept
    assert {ways[column] for column in ("c_sdict", "c_sdir", "c_char", "c_vchar", "c_dec10", "c_dec38")} == {"values"}
    assert {ways[column] for column in ("c_bool", "c_ts", "c_tsi")} == {"none"}
    native, made = streams(orc_file("java_none_original")), streams(target)
    for column in kept | {"c_sdict", "c_sdir", "c_char", "c_vchar", "c_dec10", "c_dec18", "c_dec38"}:
        if column != "c_date":  # that one also has the proleptic days of old dates
            key = (0, "BLOOM_FILTER_UTF8", column)
            assert made[key] == native[key], column
        assert (0, "BLOOM_FILTER", column) not in made
    assert sidecar.verify(str(target), data=True).problems == []
    with pytest.raises(UsageError, match="nothing to convert"):
        sidecar.convert([str(target)], str(tmp_path / "no.orc"))


def test_kinds_and_formats_that_do_not_go_together(tmp_path: Path) -> None:
    path, target = str(orc_file("java_none_utf8")), str(tmp_path / "x.puffin")
    with pytest.raises(UsageError, match="another kind"):
        sidecar.convert([path], str(tmp_path / "x.orc"), as_="parquet")
    with pytest.raises(UsageError, match="another kind"):
        sidecar.convert([path], target, as_="avro")
    with pytest.raises(UsageError, match="no file has a column"):
        sidecar.convert([path], target, as_="parquet", columns=["nope"])
    with pytest.raises(UsageError, match="cannot be resized"):
        sidecar.convert([path], str(tmp_path / "x.orc"), fpp=0.1)
    assert list(tmp_path.iterdir()) == []


def test_orc_filters_merge_and_do_not_fold(tmp_path: Path) -> None:
    path, puffin = str(orc_file("java_none_utf8")), tmp_path / "x.puffin"
    report = sidecar.convert([path], str(puffin), merge=True, columns=["c_int"])
    assert [unit.way for unit in report.units if unit.kind == "bloom"] == ["merged"]
    segment = segment_of(puffin)
    field = next(iter(segment.orc_bundles))
    assert denied(segment, field, "int", orc_literals("c_int"), [0] * 2300) == []
    folded = sidecar.convert([path], str(tmp_path / "y.puffin"), fpp=0.2, columns=["c_int"])
    assert {(unit.way, unit.reason) for unit in folded.units if unit.kind == "bloom"} == {
        ("exact", "ORC filters cannot be resized")
    }


def test_columns_of_one_path_are_left_out_of_a_sidecar(tmp_path: Path) -> None:
    """Else the filter of one would answer for the other. Of the third column there is nothing to confuse."""
    path, puffin = str(tmp_path / "a.orc"), str(tmp_path / "a.puffin")
    columns = [pa.array(range(first, first + 100)) for first in (0, 1000, 2000)]
    orc.write_table(pa.Table.from_arrays(columns, names=["a", "a", "b"]), path, bloom_filter_columns=[1, 2, 3])
    report = sidecar.extract([path], puffin)
    assert {(unit.column, unit.way) for unit in report.units} == {("a", "none"), ("b", "exact")}
    assert all("same path" in unit.reason for unit in report.units if unit.way == "none")
    assert sidecar.probe(puffin, "b", 2050).only.units[0].might_contain
    with pytest.raises(UsageError):
        sidecar.probe(puffin, "a", 1050)
