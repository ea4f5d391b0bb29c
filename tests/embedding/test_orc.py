"""Embedding into ORC files: which filters go in, that they are right, what is refused, and what C++ makes of them."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyorc
import pytest
from pyarrow import orc
from pyorc.enums import TypeKind

from sidecar.convert.outcome import Outcome
from sidecar.embedding.file import embed_file, strip_file
from sidecar.embedding.orc_filters import new_encoding
from sidecar.embedding.report import EmbedReport
from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, UsageError
from sidecar.filters.orc_array_hash import hash_orc
from sidecar.filters.orc_bloom import OrcBloomFilter
from sidecar.orc.decode import read_row_groups
from sidecar.orc.embed import FILTER_STREAMS
from sidecar.orc.index_streams import FoundOrcFilter, read_indexes
from sidecar.orc.protobuf import encode
from sidecar.orc.stripe import StripeFooter, read_stripe_footer
from sidecar.orc.tail import OrcTail, read_tail
from sidecar.orc.verify import verify_file
from sidecar.source import BytesSource, Source
from tests.embedding.orc_peers import OrcCpp

DATA = Path(__file__).resolve().parents[1] / "data" / "orc"
BARE, NATIVE = DATA / "java_zlib_2stripes_nofilters.orc", DATA / "java_zlib_2stripes_utf8.orc"
PYARROW = DATA / "pyarrow_zlib_utf8.orc"
COMPRESSIONS = pytest.mark.parametrize("compression", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
NOT_BUILT = {"c_bool", "c_ts", "c_tsi"}


def opened(path: Path) -> tuple[Source, OrcTail]:
    source = BytesSource(path.read_bytes(), str(path))
    return source, read_tail(source)


def leaves(tail: OrcTail) -> list[str]:
    return [column.path for column in tail.columns if not column.is_compound]


def embedded(path: Path, columns: Sequence[str] | None = None, **options: Any) -> tuple[Path, EmbedReport]:
    """The file with filters (on all leaves by default), checked in every general respect."""
    target = path_beside(path, **options)
    names = leaves(opened(path)[1]) if columns is None else columns
    report = embed_file(str(path), str(target), bloom=names, **options)
    assert report.written.size == target.stat().st_size
    assert_same_streams(path, target)
    assert_nothing_denied(target)
    return target, report


def path_beside(path: Path, **options: Any) -> Path:
    return path.with_name(f"{path.stem}-{'-'.join(map(str, options.values()))}.orc")


def streams(path: Path) -> list[dict[tuple[str, str], bytes]]:
    source, tail = opened(path)
    footers = (read_stripe_footer(source, tail, stripe) for stripe in tail.stripes)
    return [
        {(s.kind, tail.columns[s.column].path): source.read(s.offset, s.length) for s in footer.streams}
        for footer in footers
    ]


def assert_same_streams(before: Path, after: Path) -> None:
    """All but the filters, in the same order."""
    for one, other in zip(streams(before), streams(after), strict=True):
        assert [(k, v) for k, v in one.items() if k[0] not in FILTER_STREAMS] == [
            (k, v) for k, v in other.items() if k[0] not in FILTER_STREAMS
        ]


def found_filters(path: Path, column: str, only: int | None = None) -> list[FoundOrcFilter]:
    """Those of all stripes, or of one."""
    source, tail = opened(path)
    out: list[FoundOrcFilter] = []
    for stripe in tail.stripes if only is None else tail.stripes[only : only + 1]:
        footer = read_stripe_footer(source, tail, stripe)
        found = tail.column(column)
        assert found is not None
        out += read_indexes(source, tail, stripe, footer, [found.id])[found.id].filters or []
    return out


def assert_nothing_denied(path: Path) -> None:
    """Nothing is wrong with the file, and each filter holds each value of its row group."""
    source, tail = opened(path)
    assert [p for p in verify_file(source) if p.column not in NOT_BUILT] == []
    for stripe in tail.stripes:
        footer = read_stripe_footer(source, tail, stripe)
        for column in tail.columns[1:]:
            found = read_indexes(source, tail, stripe, footer, [column.id])[column.id].filters
            if found is None or column.path in NOT_BUILT:
                continue
            encoding = new_encoding(tail, column, footer.writer_timezone)
            if True:
                for one, values in zip(found, read_row_groups(source, tail, stripe, footer, column), strict=True):
                    assert one.filter is not None
                    assert one.filter.check(hash_orc(values, encoding, twins=False)).all(), column.path


def outcomes(report: EmbedReport) -> dict[str, list[Outcome]]:
    by_column: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in report.outcomes:
        by_column[outcome.column].append(outcome)
    return by_column


def ways(report: EmbedReport) -> dict[str, set[str]]:
    return {column: {one.way for one in found} for column, found in outcomes(report).items()}


def copied(path: Path, folder: Path) -> Path:
    return Path(shutil.copyfile(path, folder / path.name))


def numbers(rows: int = 6000) -> pa.Table:
    """Even keys beyond 32 bits, unsorted, and every kind of column that gets filters."""
    rng = np.random.default_rng(3)
    keys = rng.integers(2**32, 2**40, rows) * 2
    doubles = rng.normal(size=rows)
    doubles[:3] = (0.0, -0.0, np.nan)
    return pa.table(
        {
            "k": keys,
            "tiny": pa.array((keys % 200 - 100).astype(np.int8)),
            "small": pa.array((keys % 30_011).astype(np.int16), mask=rng.random(rows) < 0.2),
            "s": [f"value-{key}" for key in keys],
            "word": [f"x{key % 7}" for key in keys],
            "b": pa.array([int(key).to_bytes(8, "big") for key in keys], pa.binary()),
            "d": doubles,
            "f": pa.array(doubles.astype(np.float32)),
            "t": pa.array(keys * 1000 - 2**50, pa.timestamp("us")),
            "day": pa.array((keys % 20_000).astype(np.int32)).cast(pa.date32()),
            "dec": pa.array((keys % 1_000_000).tolist(), pa.int64()).cast(pa.decimal128(19, 0)),
            "flag": pa.array((keys % 4 == 0).astype(bool)),
            "none": pa.nulls(rows, pa.int64()),
            "pair": pa.array(
                [None if n % 5 == 0 else {"x": n * 2**33, "y": f"y{n}"} for n in range(rows)],
                pa.struct([("x", pa.int64()), ("y", pa.string())]),
            ),
            "tags": [[f"t{n}"] * (n % 3) for n in range(rows)],
        }
    )


def written(path: Path, table: pa.Table, **options: Any) -> Path:
    settings = {
        "stripe_size": 20_000,
        "row_index_stride": 500,
        "batch_size": 1250,
        "compression_block_size": 65536,
        **options,
    }
    orc.write_table(table, path, **settings)
    return path


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
    strip_file(str(native), str(tmp_path / "bare.orc"))
    target, _ = embedded(tmp_path / "bare.orc")
    assert streams(target) == streams(native)


# --- what happens to old ones ---------------------------------------------------------------------------------


def test_corrupt_filters_are_named_and_replaced(tmp_path: Path) -> None:
    before = {p.column for p in verify_file(opened(PYARROW)[0])}
    assert before == {"c_bool", "c_tiny"}
    target, report = embedded(copied(PYARROW, tmp_path), ["c_tiny"])
    assert verify_file(opened(target)[0]) == []
    found = ways(report)
    assert found["c_tiny"] == {"values"}
    assert found["c_bool"] == {"none"}, "nobody asked for it, and it is corrupt"
    assert "hold no values" in outcomes(report)["c_bool"][0].reason
    assert found["c_int"] == found["c_sdir"] == found["c_dec38"] == {"exact"}
    assert outcomes(report)["c_tiny"][0].rate_before is not None
    for one, other in zip(streams(PYARROW), streams(target), strict=True):
        for column in ("c_int", "c_ts", "c_dec18"):
            assert other[("BLOOM_FILTER_UTF8", column)] == one[("BLOOM_FILTER_UTF8", column)]
    cpp = OrcCpp()
    assert cpp.rows(PYARROW, "c_tiny", TypeKind.BYTE, 87) == 0, "what is wrong with the old one"
    assert cpp.rows(target, "c_tiny", TypeKind.BYTE, 87) > 0


@pytest.mark.parametrize(
    ("harvest", "fpp", "way"),
    [
        ("good", 0.01, "exact"),
        ("good", 0.0001, "values"),
        ("always", 0.0001, "exact"),
        ("never", 0.01, "values"),
    ],
)
def test_harvest(tmp_path: Path, harvest: str, fpp: float, way: str) -> None:
    target, report = embedded(copied(NATIVE, tmp_path), ["c_int"], harvest=harvest, fpp=fpp)
    assert ways(report)["c_int"] == {way}
    assert ways(report)["c_big"] == {"exact"}, "not asked for"
    same = streams(target)[0][("BLOOM_FILTER_UTF8", "c_int")] == streams(NATIVE)[0][("BLOOM_FILTER_UTF8", "c_int")]
    assert same == (way == "exact" or fpp == 0.01)


def with_stripe_footers(path: Path, change: Any) -> bytes:
    """An uncompressed file whose stripe footers were changed (their lengths may not)."""
    source, tail = opened(path)
    assert tail.compression == "NONE"
    data = bytearray(path.read_bytes())
    for stripe in tail.stripes:
        footer = read_stripe_footer(source, tail, stripe)
        change(footer)
        raw = encode(footer.raw)
        assert len(raw) == stripe.footer_length
        data[stripe.footer_offset : stripe.footer_offset + len(raw)] = raw
    return bytes(data)


def test_filters_that_only_java_asks_are_made_anew(tmp_path: Path) -> None:
    """BLOOM_FILTER_UTF8 in a column that does not say bloomEncoding 1: C++ passes over it."""

    def unsaid(footer: StripeFooter) -> None:
        messages = footer.raw.messages(2)
        for message in messages:
            if message.has(3):
                message.set(3, 0)
        footer.raw.set_all(2, messages)

    old, target = tmp_path / "old.orc", tmp_path / "new.orc"
    old.write_bytes(with_stripe_footers(DATA / "java_none_utf8.orc", unsaid))
    assert ways(embed_file(str(DATA / "java_none_utf8.orc"), str(tmp_path / "x.orc"), bloom=["c_int"]))["c_int"] == {
        "exact"
    }
    assert "exact" not in ways(embed_file(str(old), str(target), bloom=["c_int"]))["c_int"]
    source, tail = opened(target)
    column = tail.column("c_int")
    assert column is not None
    for stripe in tail.stripes:
        assert read_stripe_footer(source, tail, stripe).encodings[column.id].bloom_encoding == 1


def test_older_forms_become_the_new_one(tmp_path: Path) -> None:
    """BLOOM_FILTER of numbers has the bits of BLOOM_FILTER_UTF8: no value is read."""

    def without_utf8(footer: StripeFooter) -> None:
        """Name the UTF-8 streams what no reader knows: stream kind 9 has a number of one byte, too."""
        messages = footer.raw.messages(1)
        for message in messages:
            if message.varint(1) == 8:
                message.set(1, 4)
        footer.raw.set_all(1, messages)

    old = tmp_path / "old.orc"
    old.write_bytes(with_stripe_footers(DATA / "java_none_original.orc", without_utf8))
    target = tmp_path / "new.orc"
    names = ["c_int", "c_double", "c_date", "c_bin", "c_sdir"]
    report = embed_file(str(old), str(target), bloom=names)
    found = ways(report)
    assert {name: found[name] for name in names[:4]} == {name: {"converted"} for name in names[:4]}
    assert found["c_sdir"] == {"values"}, "its charset is unknown"
    new, native = streams(target)[0], streams(DATA / "java_none_utf8.orc")[0]
    for name in names:
        assert new[("BLOOM_FILTER_UTF8", name)] == native[("BLOOM_FILTER_UTF8", name)] or name == "c_date"
        assert ("BLOOM_FILTER", name) not in new


def test_strip(tmp_path: Path) -> None:
    report = strip_file(str(NATIVE), str(tmp_path / "bare.orc"))
    assert streams(tmp_path / "bare.orc") == [
        {k: v for k, v in one.items() if k[0] not in FILTER_STREAMS} for one in streams(NATIVE)
    ]
    assert report.ways() == {"bloom": {"none": 19 * 3}}
    assert verify_file(opened(tmp_path / "bare.orc")[0]) == []
    target, _ = embedded(tmp_path / "bare.orc", ["c_int"])
    assert streams(target)[1][("BLOOM_FILTER_UTF8", "c_int")] == streams(NATIVE)[1][("BLOOM_FILTER_UTF8", "c_int")]


# --- damage ---------------------------------------------------------------------------------------------------


def data_stream(path: Path, stripe: int, column: str) -> tuple[int, int]:
    source, tail = opened(path)
    found = tail.column(column)
    assert found is not None
    stream = read_stripe_footer(source, tail, tail.stripes[stripe]).stream(found.id, "DATA")
    assert stream is not None
    return stream.offset, stream.length


def test_damage_in_one_stripe_costs_the_column_in_all(tmp_path: Path) -> None:
    path = written(tmp_path / "flat.orc", numbers(), compression="zstd")
    offset, _ = data_stream(path, 1, "s")
    data = bytearray(path.read_bytes())
    data[offset + 3 : offset + 7] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    target = tmp_path / "target.orc"
    report = embed_file(str(path), str(target), bloom=["k", "s"])
    assert report.damaged
    assert ways(report) == {"k": {"values"}, "s": {"none"}}
    reasons = [one.reason for one in outcomes(report)["s"]]
    assert reasons[0].startswith("dropped: stripe 1 has no filters: ")
    assert not any(("BLOOM_FILTER_UTF8", "s") in one for one in streams(target))
    assert all(("BLOOM_FILTER_UTF8", "k") in one for one in streams(target))
    assert verify_file(opened(target)[0])


def test_no_half_written_file(tmp_path: Path) -> None:
    """Truncated and changed files: our error and nothing at the target, or a file with every row."""
    path = written(tmp_path / "flat.orc", numbers(1500).select(["k", "s", "d"]), compression="zlib")
    data = path.read_bytes()
    rng = random.Random(5)
    broken, target = tmp_path / "broken.orc", tmp_path / "target.orc"
    failed = 0
    for case in range(120):
        bad = bytearray(data)
        if case % 3 == 0:
            del bad[rng.randrange(len(bad)) :]
        else:
            bad[rng.randrange(len(bad) - 400 if case % 3 == 1 else 3, len(bad))] ^= 1 << rng.randrange(8)
        broken.write_bytes(bad)
        try:
            embed_file(str(broken), str(target), bloom=["k", "s"], threads=1)
        except SidecarError:
            failed += 1
            assert [p.name for p in tmp_path.iterdir() if p.name not in ("flat.orc", "broken.orc")] == []
        else:
            assert target.exists()
            target.unlink()
    assert failed > 40


def test_a_stripe_footer_that_cannot_be_read_leaves_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "flat.orc", numbers(), compression="uncompressed")
    last = opened(path)[1].stripes[-1]
    data = bytearray(path.read_bytes())
    data[last.footer_offset : last.footer_offset + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    with pytest.raises(DamagedFileError):
        embed_file(str(path), str(tmp_path / "x.orc"), bloom=["k"])
    with pytest.raises(DamagedFileError):
        strip_file(str(path), str(tmp_path / "x.orc"))
    assert [p.name for p in tmp_path.iterdir()] == ["flat.orc"]


# --- refusals -------------------------------------------------------------------------------------------------


def test_files_in_which_no_filter_is_asked(tmp_path: Path) -> None:
    target = tmp_path / "x.orc"
    bad = DATA / "apache_bad_bloom_filter_1.6.11.orc"
    with pytest.raises(UnsupportedFeatureError, match=r"ORC-1024.*1\.6\.11"):
        embed_file(str(bad), str(target), bloom=["id"])
    no_index = tmp_path / "no_index.orc"
    with no_index.open("wb") as file, pyorc.Writer(file, "struct<k:bigint>", row_index_stride=0) as writer:
        writer.writerows([(1,), (2,)])
    with pytest.raises(UnsupportedFeatureError, match="no row index"):
        embed_file(str(no_index), str(target), bloom=["k"])
    old = written(tmp_path / "old.orc", numbers(), file_version="0.11", row_index_stride=500)
    with pytest.raises(UnsupportedFeatureError, match=r"0\.11"):
        embed_file(str(old), str(target), bloom=["k"])
    assert not target.exists()
    strip_file(str(bad), str(target))
    assert not any(kind in FILTER_STREAMS for kind, _ in streams(target)[0])


def test_options_of_parquet_are_refused(tmp_path: Path) -> None:
    for options, what in (
        ({"page_index": True}, "always has its row index"),
        ({"ndv": {"c_int": 5}}, "sized by rows"),
        ({"placement": "row-group"}, "no placement"),
        ({"even_if_dictionary": True}, "dictionary"),
    ):
        with pytest.raises(UsageError, match=what):
            embed_file(str(BARE), str(tmp_path / "x.orc"), bloom=["c_int"], **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"no column 'c_in'.*c_int"):
        embed_file(str(BARE), str(tmp_path / "x.orc"), bloom=["c_in"])
    assert not list(tmp_path.iterdir())


def test_zones(tmp_path: Path) -> None:
    """A TIMESTAMP of a writer in UTC gets filters by its wall clock; nothing says so of another zone."""
    path = written(tmp_path / "t.orc", numbers().select(["t"]))
    target, report = embedded(path)
    assert ways(report) == {"t": {"values"}}
    (encoding,) = {str(found.encoding) for found in found_filters(target, "t")}
    assert encoding == "orc/timestamp:c++:UTC"
    cpp_left = [one.filter for one in found_filters(target, "t")]
    assert all(isinstance(one, OrcBloomFilter) and one.fill() > 0.3 for one in cpp_left)
