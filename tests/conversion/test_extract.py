"""extract and embed --from move indexes out of Parquet files and back, byte for byte; reads are counted."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.verify import verify_sidecar
from sidecar.embedding.target_folder import targets_in
from sidecar.errors import SidecarError, UnsupportedFeatureError, UsageError
from sidecar.parquet.embed import GroupIndexes, embed
from sidecar.parquet.footer import read_footer
from sidecar.parquet.page_indexes.extents import Range
from sidecar.parquet.verify.file import verify_file
from sidecar.storage.local import LocalSource
from sidecar.storage.target import create_target
from tests.conversion.cases import FOREIGN, foreign, indexed, indexes, plain_of, rows

NAN_UNCOUNTED = {"pa26_v1_none": [(0, "f32_nan", "column"), (0, "f64_nan", "column")]}
"""ColumnIndexes of pages with NaN that do not count them. Spark loses rows by these, so no file gets them back."""


@pytest.mark.parametrize("name", FOREIGN)
def test_there_and_back_to_the_byte(name: str, tmp_path: Path) -> None:
    puffin, bare, back = tmp_path / "x.puffin", tmp_path / "bare.parquet", tmp_path / "back.parquet"
    report = sidecar.extract([str(foreign(name))], str(puffin))
    assert report.size == puffin.stat().st_size
    assert verify_sidecar(LocalSource(str(puffin))) == []
    sidecar.strip(str(foreign(name)), str(bare))
    assert indexes(bare) == {}
    sidecar.embed(str(bare), into=str(back), from_=str(puffin))
    before = indexes(foreign(name))
    assert len(before) > 30
    assert indexes(back) == {
        place: index
        for place, index in before.items()
        if place not in NAN_UNCOUNTED.get(name, ()) and place[1:] != ("f16", "bloom")
    }, "filters of 2-byte floats do not come back, because DuckDB loses rows by them"
    assert repr(pq.read_table(back).to_pylist()) == repr(pq.read_table(foreign(name)).to_pylist())


def test_a_filter_of_1000_bytes_keeps_its_odd_bytes(tmp_path: Path) -> None:
    puffin = tmp_path / "x.puffin"
    report = sidecar.extract([str(foreign("j118_maxbytes1000"))], str(puffin), page_index=False)
    assert {unit.bytes for unit in report.units if unit.way == "exact"} == {1000, 256}
    (segment,) = SidecarFile.open(LocalSource(str(puffin)), strict=True).segments
    assert {group.layout.tail for groups in segment.fields.values() for group in groups} == {8, 0}
    assert not segment.page_index_blobs


@pytest.mark.parametrize("having", [{0}, {1}, {0, 2}])
def test_row_groups_without_a_filter_beside_others_with_one_stay_without(having: set[int], tmp_path: Path) -> None:
    full, some = indexed(tmp_path, 1), tmp_path / "some.parquet"
    source = LocalSource(str(full))
    footer = read_footer(source)
    groups = [
        GroupIndexes(
            {
                chunk.leaf.index: Range(chunk.bloom_filter_offset, chunk.bloom_filter_length or 0)
                for chunk in group.columns
                if chunk.bloom_filter_offset and group.ordinal in having
            }
        )
        for group in footer.row_groups
    ]
    with create_target(str(some)) as target:
        embed(source, footer, target, iter(groups))
    source.close()
    wanted = indexes(some)
    assert {row_group for row_group, _, _ in wanted} == having
    puffin, bare, back = tmp_path / "x.puffin", tmp_path / "bare.parquet", tmp_path / "back.parquet"
    sidecar.extract([str(some)], str(puffin))
    sidecar.strip(str(some), str(bare))
    sidecar.embed(str(bare), into=str(back), from_=str(puffin))
    assert indexes(back) == wanted


def test_untrusted_filters_are_not_taken_and_say_why(tmp_path: Path) -> None:
    puffin = tmp_path / "x.puffin"
    report = sidecar.extract([str(foreign("j118_v1_none"))], str(puffin))
    refused = [unit for unit in report.units if unit.kind == "bloom" and unit.way == "none"]
    assert {unit.column for unit in refused} == {"bool_opt"}
    assert all("BOOLEAN" in unit.reason for unit in refused)
    (segment,) = SidecarFile.open(LocalSource(str(puffin)), strict=True).segments
    coverage = segment.coverage(report.fields["bool_opt"], "bloom")
    assert coverage is not None
    assert list(coverage.counts().values()) == [3]
    assert not coverage.indexed.any()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("m03_len_minus10", "bloom"), ("p06_ci_one_page_less", "page-index"), ("p17_bad_hist", "page-index")],
)
def test_defective_indexes_stay_behind(name: str, kind: str, shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "parquet" / "variants" / f"{name}.parquet"
    report = sidecar.extract([str(path)], str(tmp_path / "x.puffin"))
    assert [unit for unit in report.units if unit.kind == kind and unit.reason]


def test_columns_and_kinds_can_be_chosen(tmp_path: Path) -> None:
    path = indexed(tmp_path, 1)
    report = sidecar.extract([str(path)], str(tmp_path / "a.puffin"), columns=["s", "k"], page_index=False)
    assert {(unit.column, unit.kind) for unit in report.units} == {("s", "bloom"), ("k", "bloom")}
    report = sidecar.extract([str(path)], str(tmp_path / "b.puffin"), bloom=False)
    assert {unit.kind for unit in report.units} == {"page-index"}
    assert len(report.fields) == 4


def test_field_ids_are_kept_and_paths_get_numbers_above_them(tmp_path: Path) -> None:
    with_ids, without = tmp_path / "ids.parquet", tmp_path / "names.parquet"
    schema = pa.schema(
        [pa.field(n, pa.int64(), metadata={"PARQUET:field_id": str(i)}) for n, i in (("a", 7), ("b", 3))]
    )
    pq.write_table(pa.table({"a": [1], "b": [2]}, schema=schema), with_ids, write_page_index=True)
    pq.write_table(pa.table({"b": [1], "a": [2]}), without, write_page_index=True)
    report = sidecar.extract([str(without), str(with_ids)], str(tmp_path / "x.puffin"))
    (segment,) = SidecarFile.open(LocalSource(report.target), strict=True).segments
    kinds = {
        field_id: {group.kind.resolution for group in blob.toc.groups}
        for field_id, blob in segment.page_index_blobs.items()
    }
    assert kinds == {3: {"id"}, 7: {"id"}, 8: {"name:b"}, 9: {"name:a"}}
    for path in (with_ids, without):
        back = path.with_suffix(".back")
        bare = path.with_suffix(".bare")
        sidecar.strip(str(path), str(bare))
        sidecar.embed(str(path), into=str(back), from_=report.target)
        assert indexes(back) == indexes(path)


def test_nothing_to_extract_is_said(tmp_path: Path) -> None:
    plain = tmp_path / "plain.parquet"
    pq.write_table(rows(1), plain)
    with pytest.raises(UsageError, match="no index to extract"):
        sidecar.extract([str(plain)], str(tmp_path / "x.puffin"))
    with pytest.raises(UsageError, match="no file has a column"):
        sidecar.extract([str(indexed(tmp_path, 2))], str(tmp_path / "x.puffin"), columns=["nope"])
    with pytest.raises(UnsupportedFeatureError):
        sidecar.extract([str(foreign("j118_enc_gcm_encfooter"))], str(tmp_path / "x.puffin"))
    assert not (tmp_path / "x.puffin").exists()


def test_page_indexes_of_some_columns_alone_are_left_out(tmp_path: Path) -> None:
    path = indexed(tmp_path, 1)
    puffin, back = str(tmp_path / "x.puffin"), tmp_path / "back.parquet"
    sidecar.extract([str(path)], puffin, columns=["s"])
    report = sidecar.embed(str(plain_of(path)), into=str(back), from_=puffin).only
    assert {key[1:] for key in indexes(back)} == {("s", "bloom")}
    assert {o.reason for o in report.outcomes if o.kind == "page-index"} == {"k of the row group has no page index"}


def test_what_is_wanted_can_be_chosen(tmp_path: Path) -> None:
    path = indexed(tmp_path, 1)
    puffin = str(tmp_path / "x.puffin")
    sidecar.extract([str(path)], puffin)
    back = tmp_path / "a.parquet"
    sidecar.embed(str(plain_of(path)), into=str(back), from_=puffin, bloom=["k"])
    assert {key[1:] for key in indexes(back)} == {("k", "bloom")}
    back = tmp_path / "b.parquet"
    sidecar.embed(str(plain_of(path)), into=str(back), from_=puffin, page_index=True, placement="row-group")
    assert {key[2] for key in indexes(back)} == {"column", "offset"}


def test_all_files_in_one_pass(tmp_path: Path) -> None:
    paths = [indexed(tmp_path, number) for number in range(5)]
    puffin, folder = str(tmp_path / "x.puffin"), tmp_path / "out"
    sidecar.extract([str(path) for path in paths], puffin)
    plain = [str(plain_of(path)) for path in paths]
    reports = sidecar.embed(plain, into=str(folder), from_=puffin)
    assert len(reports) == 5
    for path, source in zip(paths, plain, strict=True):
        assert indexes(folder / Path(source).name) == indexes(path)
    again = sidecar.embed(into=str(tmp_path / "again"), from_=puffin)
    assert again.sidecar_bytes <= 1.1 * Path(puffin).stat().st_size
    some = sidecar.embed(plain[:1], into=str(tmp_path / "some"), from_=puffin)
    assert indexes(tmp_path / "some" / Path(plain[0]).name) == indexes(paths[0])
    assert len(some) == 1
    few = sidecar.embed(plain[1:3], into=str(tmp_path / "few"), from_=puffin)  # of one group, and not all of it
    assert {way for report in few for way in report.ways()["bloom"]} == {"exact"}
    for path, source in zip(paths[1:3], plain[1:3], strict=True):
        assert indexes(tmp_path / "few" / Path(source).name) == indexes(path)


def test_filters_beyond_memory_go_through_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [indexed(tmp_path, number, 300) for number in range(3)] + [foreign("j118_maxbytes1000")]
    puffin = str(tmp_path / "x.puffin")
    sidecar.extract([str(path) for path in paths], puffin)
    monkeypatch.setattr("sidecar.conversion.filter_pool.IN_MEMORY", 3000)
    sidecar.embed([str(path) for path in paths], into=str(tmp_path / "out"), from_=puffin)
    for path in paths:
        (written,) = (tmp_path / "out").rglob(path.name)
        assert indexes(written) == indexes(path)


def test_one_file_that_fails_leaves_the_others_and_no_half(tmp_path: Path) -> None:
    paths = [indexed(tmp_path, number, 300) for number in range(4)]
    puffin, folder = str(tmp_path / "x.puffin"), tmp_path / "out"
    sidecar.extract([str(path) for path in paths], puffin)
    folder.mkdir()
    (folder / paths[2].name).write_bytes(b"mine")
    with pytest.raises(UsageError, match="exists"):
        sidecar.embed([str(path) for path in paths], into=str(folder), from_=puffin)
    assert (folder / paths[2].name).read_bytes() == b"mine"
    for path in folder.glob("*.parquet"):
        assert path.name == paths[2].name or indexes(path) == indexes(paths[int(path.stem[-1])])
    assert not list(folder.glob("*.sidecar-tmp"))


def test_targets_keep_what_tells_files_apart() -> None:
    paths = ["s3://b/t/a=1/x.parquet", "s3://b/t/a=2/x.parquet"]
    assert targets_in("out/", paths) == ["out/a=1/x.parquet", "out/a=2/x.parquet"]
    assert targets_in("out", ["/d/x.parquet"]) == ["out/x.parquet"]
    assert targets_in("out", ["x.parquet", "d/x.parquet"]) == ["out/x.parquet", "out/d/x.parquet"]
    with pytest.raises(UsageError, match="twice"):
        targets_in("out", ["x", "x"])


def test_listed_paths_with_two_dots_do_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    paths = [indexed(tmp_path, number, 300) for number in range(2)]
    (tmp_path / "x").mkdir()
    listed = [str(paths[0]), f"{tmp_path}/x/../{paths[1].name}"]
    puffin, folder = str(tmp_path / "x.puffin"), tmp_path / "a" / "out"
    sidecar.extract(listed, puffin)
    with pytest.raises(UsageError, match=r"has '\.\.' or a zero byte"):
        sidecar.embed(into=str(folder), from_=puffin)
    with pytest.raises(UsageError, match="zero byte"):
        sidecar.embed([f"{tmp_path}/x\0/y.parquet"], into=str(folder), from_=puffin)
    assert not (tmp_path / "a").exists()
    for listed in (["x/../a", "x/b"], ["x/y/../a", "x/y/b"], ["x/a/..", "x/b"]):
        with pytest.raises(UsageError, match=r"has '\.\.' or a zero byte"):
            targets_in("out", listed)
    assert targets_in("out", ["../x/a", "../y/a"]) == ["out/x/a", "out/y/a"]  # these are inside


@pytest.mark.parametrize("url", [False, True])
def test_a_symbolic_link_does_not_lead_out_of_the_folder(tmp_path: Path, url: bool) -> None:
    paths = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        paths.append(indexed(tmp_path / name, 1, 300))
    puffin, folder, outside = str(tmp_path / "x.puffin"), tmp_path / "out", tmp_path / "outside"
    sidecar.extract([str(path) for path in paths], puffin)
    outside.mkdir()
    folder.mkdir()
    (folder / "two").symlink_to(outside)
    target = f"file://{folder}" if url else str(folder)
    with pytest.raises(UsageError, match="leads out of the folder"):
        sidecar.embed(into=target, from_=puffin)
    assert [path.name for path in folder.iterdir()] == ["two"]
    assert not list(outside.iterdir())
    linked = tmp_path / "linked"
    (folder / "two").unlink()
    linked.symlink_to(folder)  # the folder itself may be one: the caller named it
    (folder / "real").mkdir()
    (folder / "two").symlink_to(folder / "real")
    sidecar.embed(into=str(linked), from_=puffin)
    assert indexes(folder / "real" / paths[1].name) == indexes(paths[1])


def test_of_many_plain_files_one_is_taken_exactly_until_that_costs_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [indexed(tmp_path, number, 300) for number in range(20)]
    puffin = str(tmp_path / "x.puffin")
    sidecar.extract([str(path) for path in paths], puffin)
    report = sidecar.embed(str(plain_of(paths[3])), into=str(tmp_path / "a.parquet"), from_=puffin).only
    assert report.ways()["bloom"] == {"exact": 9}
    monkeypatch.setattr("sidecar.embedding.restore_plan.LARGE_BUNDLE", 0)
    report = sidecar.embed(str(plain_of(paths[3])), into=str(tmp_path / "b.parquet"), from_=puffin).only
    assert set(report.ways()["bloom"]) == {"values", "dictionary"}
    assert all("bytes of values cost less than" in o.reason for o in report.outcomes if o.kind == "bloom")
    assert verify_file(LocalSource(str(tmp_path / "b.parquet"))) == []
    (report,) = sidecar.embed([str(plain_of(paths[3]))], into=str(tmp_path / "c"), from_=puffin)
    assert indexes(Path(report.target)) == indexes(paths[3])


def test_filters_of_values_lose_no_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.embedding.restore_plan.allowed_bytes", lambda parts, values: 0)
    path = indexed(tmp_path, 1)
    puffin, back = str(tmp_path / "x.puffin"), tmp_path / "back.parquet"
    sidecar.extract([str(path)], puffin)
    report = sidecar.embed(str(plain_of(path)), into=str(back), from_=puffin).only
    assert report.ways()["bloom"].keys() <= {"values", "dictionary"}
    for name in ("k", "s", "n"):
        for value in pq.read_table(path)[name].to_pylist()[::50]:
            if value is not None:
                units = sidecar.probe(str(back), name, value).only.units
                assert any(unit.might_contain for unit in units)


def test_duckdb_reads_filters_out_of_a_sidecar(tmp_path: Path) -> None:
    path = indexed(tmp_path, 1)
    puffin, back = str(tmp_path / "x.puffin"), tmp_path / "back.parquet"
    sidecar.extract([str(path)], puffin)
    sidecar.embed(str(plain_of(path)), into=str(back), from_=puffin)
    keys = pq.read_table(path)["k"].to_pylist()
    query = f"select bloom_filter_excludes from parquet_bloom_probe('{back}', 'k', $1)"
    for place in (0, 1500, 2999):
        excluded = [row[0] for row in duckdb.execute(query, [keys[place]]).fetchall()]
        assert not excluded[place // 1000]
        assert excluded.count(True) >= 1
    assert all(row[0] for row in duckdb.execute(query, [-5]).fetchall())
    assert duckdb.execute(f"select count(*) from '{back}' where k = {keys[7]}").fetchone() == (1,)


def test_a_damaged_sidecar_gives_no_wrong_index(tmp_path: Path) -> None:
    """Single-byte changes: an index as it was, none, or our error; never other bytes."""
    path = indexed(tmp_path, 1, 300)
    puffin = tmp_path / "x.puffin"
    sidecar.extract([str(path)], str(puffin))
    good, data, right = puffin.read_bytes(), bytearray(puffin.read_bytes()), indexes(path)
    chance = random.Random(3)
    for number in range(120):
        at = chance.randrange(len(good))
        data[at] ^= 1 << chance.randrange(8)
        damaged, back = tmp_path / f"{number}.puffin", tmp_path / f"{number}.parquet"
        damaged.write_bytes(data)
        data[at] = good[at]
        try:
            sidecar.embed(str(plain_of(path)), into=str(back), from_=str(damaged))
        except SidecarError:
            assert not back.exists()
            continue
        assert indexes(back).items() <= right.items(), at
        back.unlink()
