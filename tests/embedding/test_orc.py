"""Embedding into ORC files: which filters go in, that they are right, what is refused, and what C++ makes of them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyorc
import pytest
from pyarrow import orc
from pyorc.enums import TypeKind

from sidecar.embedding.embed import embed
from sidecar.embedding.strip import strip
from sidecar.errors import UnsupportedFeatureError, UsageError
from sidecar.filters.orc.bloom import OrcBloomFilter
from sidecar.many_files.probe import probe
from sidecar.orc.embed import FILTER_STREAMS
from sidecar.orc.filter_mark import marked_columns
from sidecar.orc.identity import data_fingerprint
from sidecar.orc.tail import GO, PRESTO
from sidecar.orc.verify.verify import verify_file
from sidecar.storage.source import BytesSource
from tests.embedding.orc_cases import (
    BARE,
    COMPRESSIONS,
    DATA,
    NATIVE,
    NOT_BUILT,
    copied,
    embedded,
    found_filters,
    numbers,
    opened,
    outcomes,
    streams,
    ways,
    written,
)
from tests.embedding.orc_peers import OrcCpp
from tests.orc.lies import Statements

# --- what goes in -------------------------------------------------------------------------------------------


def test_a_native_file_comes_about(tmp_path: Path) -> None:
    """Filters that a native file has beside the same values: every stream, and why some are others."""
    target, report = embedded(copied(BARE, tmp_path))
    assert {column for column, found in ways(report).items() if found == {"none"}} == NOT_BUILT
    for theirs, ours in zip(streams(NATIVE), streams(target), strict=True):
        missing = theirs.keys() - ours.keys()
        different = {key for key in ours if ours[key] != theirs[key]}
        assert missing == {("BLOOM_FILTER_UTF8", column) for column in NOT_BUILT}
        # sums of statistics are other NaNs in the two files; old days are in ours by their number in either calendar
        assert different <= {
            ("ROW_INDEX", "c_float"),
            ("ROW_INDEX", "c_double"),
            ("BLOOM_FILTER_UTF8", "c_date"),
        }
        assert len(ours.keys() - different) >= 81
    reasons = {column: outcomes(report)[column][0].reason for column in NOT_BUILT}
    assert "BOOLEAN" in reasons["c_bool"]
    assert "America/Los_Angeles" in reasons["c_ts"]
    assert "would lose rows" in reasons["c_tsi"]
    for ours_found, theirs_found in zip(found_filters(target, "c_date"), found_filters(NATIVE, "c_date"), strict=True):
        assert ours_found.filter is not None
        assert theirs_found.filter is not None
        assert not (theirs_found.filter.words & ~ours_found.filter.words).any()


@COMPRESSIONS
def test_every_kind_of_column_in_every_compression(tmp_path: Path, compression: str) -> None:
    path = written(tmp_path / "flat.orc", numbers(), compression=compression)
    _, tail = opened(path)
    assert len(tail.stripes) > 1
    assert max(stripe.num_row_groups for stripe in tail.stripes) > 1
    target, report = embedded(path)
    left_out = {"flag": "BOOLEAN", "tags.element": "list or map"}
    assert {column for column, found in ways(report).items() if found == {"none"}} == left_out.keys()
    for column, reason in left_out.items():
        assert reason in outcomes(report)[column][0].reason
    assert report.ways()["bloom"]["values"] == tail.num_row_groups * 14
    assert orc.read_table(target).to_pylist().__repr__() == orc.read_table(path).to_pylist().__repr__()
    assert {one.row_group for one in report.outcomes} == set(range(tail.num_row_groups))
    assert not report.damaged
    k = outcomes(report)["k"]
    assert all(one.rate_after is not None and 0 < one.rate_after < 0.015 and one.bytes == 600 for one in k)


@COMPRESSIONS
def test_cpp_skips_row_groups_by_them(tmp_path: Path, compression: str) -> None:
    """Absent keys between the smallest and the largest: the statistics keep every row group, the filters few."""
    table = numbers()
    path = written(tmp_path / "flat.orc", table, compression=compression)
    target, _ = embedded(path, ["k", "s"])
    cpp = OrcCpp()
    assert cpp.rows(target) == len(table)
    keys = table["k"].to_pylist()
    for key in keys[17::2000]:
        assert 250 <= cpp.rows(target, "k", TypeKind.LONG, key) <= 1500
        assert 250 <= cpp.rows(target, "s", TypeKind.STRING, f"value-{key}") <= 1500
        assert cpp.rows(path, "k", TypeKind.LONG, key + 1) == len(table)
    left = sum(cpp.rows(target, "k", TypeKind.LONG, key + 1) for key in keys[:10])
    assert left <= len(table) // 2, "of ten lookups: more than 5 % false"


def test_writers_and_embedding_make_the_same_filters(tmp_path: Path) -> None:
    """What pyarrow's own writer puts in, stream by stream, where its rules are those of Java."""
    table = numbers().select(["k", "small", "s", "word", "b", "day", "dec"])
    native = written(tmp_path / "native.orc", table, bloom_filter_columns=list(range(1, 8)), bloom_filter_fpp=0.01)
    strip(str(native), str(tmp_path / "bare.orc"))
    target, _ = embedded(tmp_path / "bare.orc")
    assert streams(target) == streams(native)


def test_strip(tmp_path: Path) -> None:
    report = strip(str(NATIVE), str(tmp_path / "bare.orc")).only
    assert streams(tmp_path / "bare.orc") == [
        {k: v for k, v in one.items() if k[0] not in FILTER_STREAMS} for one in streams(NATIVE)
    ]
    assert report.ways() == {"bloom": {"none": 19 * 3}}
    assert verify_file(opened(tmp_path / "bare.orc")[0]) == []
    target, _ = embedded(tmp_path / "bare.orc", ["c_int"])
    assert streams(target)[1][("BLOOM_FILTER_UTF8", "c_int")] == streams(NATIVE)[1][("BLOOM_FILTER_UTF8", "c_int")]


# --- refusals -------------------------------------------------------------------------------------------------


def test_files_in_which_no_filter_is_asked(tmp_path: Path) -> None:
    target = tmp_path / "x.orc"
    bad = DATA / "apache_bad_bloom_filter_1.6.11.orc"
    with pytest.raises(UnsupportedFeatureError, match=r"ORC-1024.*1\.6\.11"):
        embed(str(bad), into=str(target), bloom=["id"])
    no_index = tmp_path / "no_index.orc"
    with no_index.open("wb") as file, pyorc.Writer(file, "struct<k:bigint>", row_index_stride=0) as writer:
        writer.writerows([(1,), (2,)])
    with pytest.raises(UnsupportedFeatureError, match="no row index"):
        embed(str(no_index), into=str(target), bloom=["k"])
    old = written(tmp_path / "old.orc", numbers(), file_version="0.11", row_index_stride=500)
    with pytest.raises(UnsupportedFeatureError, match=r"0\.11"):
        embed(str(old), into=str(target), bloom=["k"])
    assert not target.exists()
    strip(str(bad), str(target))
    assert not any(kind in FILTER_STREAMS for kind, _ in streams(target)[0])


def test_options_of_parquet_are_refused(tmp_path: Path) -> None:
    for options, what in (
        ({"page_index": True}, "always has its row index"),
        ({"placement": "row-group"}, "no placement"),
    ):
        with pytest.raises(UsageError, match=what):
            embed(str(BARE), into=str(tmp_path / "x.orc"), bloom=["c_int"], **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"no column 'c_in'.*c_int"):
        embed(str(BARE), into=str(tmp_path / "x.orc"), bloom=["c_in"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("writer", [PRESTO, GO])
def test_filters_in_a_file_whose_writer_is_doubted_are_proven_by_values(tmp_path: Path, writer: int) -> None:
    """Its own filters of such columns are not compared with others, so nobody asks them; the mark has ours asked."""
    rows = pa.table({"d": [n / 3 for n in range(3_000)], "dec": [Decimal(n).scaleb(-2) for n in range(3_000)]})
    orc.write_table(rows, tmp_path / "a.orc", row_index_stride=1_000)
    statements = Statements((tmp_path / "a.orc").read_bytes())
    statements.tail.footer.set(9, writer)
    (tmp_path / "b.orc").write_bytes(statements.file())
    embed(tmp_path / "b.orc", into=tmp_path / "c.orc", bloom=["d", "dec"])
    assert verify_file(BytesSource((tmp_path / "c.orc").read_bytes())) == []
    assert all(found.trusted for column in ("d", "dec") for found in found_filters(tmp_path / "c.orc", column))
    assert probe(tmp_path / "c.orc", "d", 0.5).only.might_contain is False
    again = embed(tmp_path / "c.orc", into=tmp_path / "again.orc", bloom=["d"]).only
    assert ways(again) == {"d": {"exact"}, "dec": {"exact"}}
    assert (tmp_path / "again.orc").read_bytes() == (tmp_path / "c.orc").read_bytes()
    embed(tmp_path / "c.orc", into=tmp_path / "other.orc", bloom=["d"], reuse="never")
    strip(tmp_path / "c.orc", tmp_path / "stripped.orc")
    fingerprints = {data_fingerprint(*opened(tmp_path / f"{name}.orc")) for name in ("b", "c", "stripped")}
    assert len(fingerprints) == 1, "the mark is no data"
    assert (tmp_path / "stripped.orc").read_bytes() == (tmp_path / "b.orc").read_bytes()
    merged = Statements((tmp_path / "c.orc").read_bytes())
    merged.tail.footer.set_all(3, merged.tail.footer.messages(3) * 2)
    assert marked_columns(merged.tail.footer) == set(), "a mark that Java copied with the stripes of two files"
    false = Statements((tmp_path / "c.orc").read_bytes())
    false.filter(0, 1, 1, lambda message: message.set(3, bytes(len(message.bytes_(3) or b""))))
    assert {problem.column for problem in verify_file(BytesSource(false.file()))} == {"d"}


def test_zones(tmp_path: Path) -> None:
    """A TIMESTAMP of a writer in UTC gets filters by its wall clock; nothing says so of another zone."""
    path = written(tmp_path / "t.orc", numbers().select(["t"]))
    target, report = embedded(path)
    assert ways(report) == {"t": {"values"}}
    (encoding,) = {str(found.encoding) for found in found_filters(target, "t")}
    assert encoding == "orc/timestamp:c++:UTC"
    cpp_left = [one.filter for one in found_filters(target, "t")]
    assert all(isinstance(one, OrcBloomFilter) and one.fill() > 0.3 for one in cpp_left)


def test_filters_that_could_not_be_read_back_are_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "plain.orc", numbers(), row_index_stride=1000)
    one = found_filters(embedded(path, ["k"])[0], "k")[0].filter
    assert one is not None
    message = one.num_bytes + 32  # with the fields around the bits, and room for a few more bytes
    most = max(len(stripe.row_groups) for stripe in opened(path)[1].stripes) * message
    for limit, way in ((most, "values"), (most - 1, "none")):
        monkeypatch.setattr("sidecar.embedding.orc_filters.MAX_STREAM", limit)
        target = tmp_path / f"{limit}.orc"
        report = embed(str(path), into=str(target), bloom=["k"]).only
        assert ways(report)["k"] == {way}
        reasons = {found.reason for found in outcomes(report)["k"]}
        assert any("too large to be read back" in reason for reason in reasons) == (way == "none")
