"""convert: folded and merged filters deny nothing; sidecars of sidecars have the same bits."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.bundle.sidecar_file import Segment, SidecarFile
from sidecar.bundle.verify import verify_sidecar
from sidecar.errors import UsageError
from sidecar.filters.array_hash import hash_arrow
from sidecar.filters.encoding import Encoding
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.parquet.verify.file import verify_file
from sidecar.storage.local import LocalSource
from tests.bundle.cases import extract_filter
from tests.conversion.cases import foreign, indexed, indexes, plain_of
from tests.lost_values import change_filters, duckdb_finds, empty_filters

ENCODINGS = {"k": "int64", "s": "byte_array", "n": "int32"}


def opened(path: str | Path) -> Segment:
    (segment,) = SidecarFile.open(LocalSource(str(path)), strict=True).segments
    assert verify_sidecar(LocalSource(str(path))) == []
    return segment


def number_of(segment: Segment, column: str) -> int:
    return next(i for i, groups in segment.fields.items() if groups[0].resolution == f"name:{column}")


def filter_of(segment: Segment, column: str, unit: int) -> SplitBlockBloomFilter:
    return SplitBlockBloomFilter.from_bytes(extract_filter(segment, number_of(segment, column), unit))


def hashes(paths: list[Path], column: str) -> Any:
    values = pa.concat_tables([pq.read_table(path, columns=[column]) for path in paths])[column]
    return hash_arrow(values.drop_null(), Encoding.parse(ENCODINGS[column]))


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [indexed(tmp_path, number, 1500, fpp=0.001) for number in range(3)]


def test_merged_row_groups_deny_no_value(paths: list[Path], tmp_path: Path) -> None:
    target = str(tmp_path / "m.puffin")
    report = sidecar.convert([str(path) for path in paths], target, merge=True)
    segment = opened(target)
    assert segment.num_units == segment.num_files == 3
    for column in ENCODINGS:
        for unit, path in enumerate(paths):
            found = filter_of(segment, column, unit)
            assert found.check(hashes([path], column)).all()
            (told,) = [u for u in report.units if (u.kind, u.column, u.file) == ("bloom", column, str(path))]
            assert (told.way, told.row_group) == ("merged", -1)
            assert told.rate_after == found.estimated_fpp()
            assert told.rate_before is not None
            assert told.rate_before <= told.rate_after
    assert report.damaged is False
    assert {unit.reason for unit in report.units if unit.kind == "page-index"} == {
        "page indexes of several row groups do not merge"
    }
    verified = sidecar.verify(target, against=paths)
    assert not verified.problems
    sidecar.extract(paths, tmp_path / "x.puffin", page_index=False)
    apart = sidecar.verify(tmp_path / "x.puffin", against=paths)
    assert verified.looked_up == apart.looked_up, "each row group is looked up in the merged filter"


@pytest.mark.parametrize("shape", [{"merge": True}, {"fpp": 0.5}], ids=["merged", "folded"])
def test_reshaped_columns_keep_their_names_and_types(shape: dict[str, Any], tmp_path: Path) -> None:
    """A file with field ids: without names, only its ids could be asked for."""
    path, taken, target = tmp_path / "a.parquet", tmp_path / "x.puffin", tmp_path / "m.puffin"
    schema = pa.schema([pa.field("k", pa.int64(), metadata={"PARQUET:field_id": "7"})])
    pq.write_table(
        pa.table([range(100)], schema), path, row_group_size=50, bloom_filter_options={"k": {"ndv": 50, "fpp": 0.01}}
    )
    sidecar.extract(path, taken)
    for source in (path, taken):
        target.unlink(missing_ok=True)
        assert {unit.column for unit in sidecar.convert(source, target, **shape).units} == {"k"}
        probed = sidecar.probe(target, "k", 3).only
        assert (probed.might_contain, probed.fields, probed.types) == (True, [7], ["long"])
        assert {sidecar.probe(target, "k", value).only.might_contain for value in range(-9, 0)} == {True, False}


def test_merging_equals_building_over_all_values(paths: list[Path], tmp_path: Path) -> None:
    target = str(tmp_path / "m.puffin")
    sidecar.convert(paths[0], target, merge=True, columns=["k"])
    segment = opened(target)
    assert (segment.num_files, segment.num_units) == (1, 1)
    (entry,) = segment.files([0])
    assert entry is not None
    assert (entry.path, entry.identity.record_count) == (str(paths[0]), 1500)
    found = filter_of(segment, "k", 0)
    built = SplitBlockBloomFilter.from_hashes(hashes(paths[:1], "k"), found.z)
    assert (found.blocks == built.blocks).all()


def test_what_has_no_filter_cannot_be_merged(tmp_path: Path) -> None:
    path = indexed(tmp_path, 1)
    at = count()
    change_filters(path, "n", lambda bits: bytes(len(bits)) if next(at) == 1 else bits)
    report = sidecar.convert([str(path)], str(tmp_path / "m.puffin"), merge=True, columns=["n"])
    reasons = {u.reason for u in report.units if u.kind == "bloom"}
    assert all(f"no filter of row group 1 of {path}" in reason for reason in reasons)
    assert not opened(tmp_path / "m.puffin").bundles


@pytest.mark.parametrize("fpp", [0.01, 0.2])
def test_folding_meets_the_rate_and_denies_nothing(paths: list[Path], tmp_path: Path, fpp: float) -> None:
    target = str(tmp_path / "f.puffin")
    report = sidecar.convert([str(path) for path in paths], target, fpp=fpp)
    segment = opened(target)
    ways = set()
    for unit in [u for u in report.units if u.kind == "bloom"]:
        ways.add(unit.way)
        assert unit.rate_after is not None
        assert unit.rate_before is not None
        assert unit.rate_after <= max(fpp, unit.rate_before)
        assert (unit.way == "folded") == (unit.rate_after > unit.rate_before)
    assert "folded" in ways
    for column in ENCODINGS:
        for unit in range(9):
            path, row_group = paths[unit // 3], unit % 3
            values = pq.ParquetFile(path).read_row_group(row_group, [column])[column].drop_null()
            mine = hash_arrow(values, Encoding.parse(ENCODINGS[column]))
            assert filter_of(segment, column, unit).check(mine).all()
    assert {u.way for u in report.units if u.kind == "page-index"} == {"exact"}


def test_sidecars_into_one_and_back_are_exact(paths: list[Path], tmp_path: Path) -> None:
    parts = []
    for number, path in enumerate(paths):
        parts.append(str(tmp_path / f"{number}.puffin"))
        sidecar.extract([str(path)], parts[-1])
    target = str(tmp_path / "all.puffin")
    report = sidecar.convert(parts, target)
    assert report.conversion == "puffin to puffin"
    assert {unit.way for unit in report.units} == {"exact"}
    assert opened(target).num_units == 9
    for number, path in enumerate(paths):
        back = tmp_path / f"back-{number}.parquet"
        sidecar.convert([target], str(back), onto=str(plain_of(path)))
        assert indexes(back) == indexes(path)


def test_odd_sizes_survive_slicing_anew(tmp_path: Path) -> None:
    one, two, back = tmp_path / "1.puffin", tmp_path / "2.puffin", tmp_path / "back.parquet"
    path = foreign("j118_maxbytes1000")
    sidecar.extract([str(path)], str(one))
    sidecar.convert([str(one)], str(two))
    sidecar.embed(str(path), into=str(back), from_=str(two))
    assert indexes(back) == indexes(path)


def test_a_parquet_file_is_refolded(paths: list[Path], tmp_path: Path) -> None:
    back = tmp_path / "small.parquet"
    report = sidecar.convert([str(paths[0])], str(back), fpp=0.1, columns=["k", "s"])
    assert report.conversion == "parquet to parquet"
    assert verify_file(LocalSource(str(back))) == []
    before, after = indexes(paths[0]), indexes(back)
    assert before.keys() == after.keys()
    changed = {key[1:] for key in before if before[key] != after[key]}
    assert changed == {("k", "bloom"), ("s", "bloom")}
    for name in ENCODINGS:
        for value in pq.read_table(paths[0])[name].drop_null().to_pylist()[::97]:
            units = sidecar.probe(str(back), name, value).only.units
            assert any(unit.might_contain for unit in units)


def test_an_emptied_filter_of_another_column_is_left_out(tmp_path: Path) -> None:
    path, target = indexed(tmp_path, 1), tmp_path / "small.parquet"
    empty_filters(path, "n")
    asked = pq.read_table(path)["n"].unique().to_pylist()[:100]
    assert duckdb_finds(path, "n", asked) == 0
    report = sidecar.convert([str(path)], str(target), fpp=0.1, columns=["k"])
    told = {(unit.column, unit.way) for unit in report.units if unit.kind == "bloom"}
    assert told == {("k", "folded"), ("s", "exact"), ("n", "none")}
    assert all("the filter is empty" in unit.reason for unit in report.units if unit.way == "none")
    assert duckdb_finds(target, "n", asked) == len(asked) == 100


def test_what_does_not_go_together(paths: list[Path], tmp_path: Path) -> None:
    puffin, path, new = str(tmp_path / "x.puffin"), str(paths[0]), str(tmp_path / "new.parquet")
    sidecar.extract([path], puffin)
    bare = str(foreign("apache_bloom_filter").with_suffix(".bin"))
    for sources, target, options, match in (
        ([], "x.puffin", {}, "no file was named"),
        ([path], str(tmp_path / "x.txt"), {}, "not end with a known format.* embed FILES --into"),
        ([path, puffin], str(tmp_path / "y.puffin"), {}, "different formats"),
        ([path], new, {}, "nothing to convert"),
        ([path], new, {"merge": True}, "each row group"),
        ([path], new, {"fpp": 0.1, "onto": path}, "data file"),
        ([puffin], new, {}, "--onto"),
        ([puffin], new, {"onto": path, "fpp": 0.1}, "as they are"),
        ([path, str(paths[1])], new, {"fpp": 0.1}, "one source"),
        ([path], str(tmp_path / "y.puffin"), {"fpp": 2.0}, "rate"),
        ([path], str(tmp_path / "y.puffin"), {"columns": ["nope"]}, "no file has a column"),
        ([bare], str(tmp_path / "y.puffin"), {}, "--onto FILE --column NAME"),
        ([path], str(tmp_path / "y.puffin"), {"column": "k"}, "needs its column"),
        ([path], puffin, {}, "exists"),
    ):
        with pytest.raises(UsageError, match=match):
            sidecar.convert(sources, target, **options)
    assert not Path(new).exists()
    assert not (tmp_path / "y.puffin").exists()


def test_a_merged_sidecar_is_not_embedded(paths: list[Path], tmp_path: Path) -> None:
    target = str(tmp_path / "m.puffin")
    sidecar.convert([str(paths[0])], target, merge=True)
    with pytest.raises(UsageError, match="merged filters, one for all row groups"):
        sidecar.embed(str(paths[0]), into=str(tmp_path / "y.parquet"), from_=target)
