"""embed --from: no file gets the filters of another one, however alike they look; DuckDB, which believes filters, finds
every value in what is written."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.convert.collection import Collection
from sidecar.convert.extract import Extractor
from sidecar.convert.identity import identity_of_orc, identity_of_parquet
from sidecar.convert.match import BY_DIGEST, BY_TABLE, Match
from sidecar.convert.orc_witness import ask_row_groups
from sidecar.convert.witness import GivenIndexes, ask_pages
from sidecar.embedding.restorer import proof_of
from sidecar.errors import DamagedFileError, StorageError, UsageError
from sidecar.filters.orc_bloom import OrcBloomFilter, size_for
from sidecar.filters.orc_encoding import OrcEncoding
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.orc.stripe import read_stripe_footer
from sidecar.orc.tail import read_tail
from sidecar.orc.verify import verify_file as verify_orc
from sidecar.orc.verify_values import RowGroupSampler
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.page_index import read_page_indexes
from sidecar.parquet.verify.filters import ValueCheck
from sidecar.source import CountingSource, LocalSource, digest_ranges
from tests.embedding.cases import assert_sound, nested, opened
from tests.lost_values import duckdb_finds

ROWS = 3000
OPTIONS: dict[str, Any] = {
    "use_dictionary": False,
    "compression": "none",
    "data_page_size": 2048,
    "row_group_size": 1000,
    "write_batch_size": 100,
}


def keys_of(seed: int) -> list[int]:
    """Keys of one file: none is in two files but the bounds of each row group, which are in all."""
    keys = np.random.default_rng(seed).choice(2**40, ROWS, replace=False) * 8 + 16 + seed
    keys[::1000], keys[1::1000] = 1, 2**60
    return keys.tolist()


def write(path: Path, seed: int, **options: Any) -> Path:
    """A file whose size and footer are those of all others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    keys = keys_of(seed)
    table = pa.table({"k": pa.array(keys, pa.int64()), "s": [f"{key:020}" for key in keys]})
    pq.write_table(table, path, **{**OPTIONS, **options})
    return path


def asked(seed: int) -> list[int]:
    """100 keys of a file that no other file has."""
    return keys_of(seed)[2::30]


def assert_nothing_lost(path: Path, seed: int) -> None:
    found = duckdb_finds(path, "k", asked(seed))
    assert (found, len(asked(seed))) == (100, 100)
    assert duckdb_finds(path, "s", [f"{key:020}" for key in asked(seed)]) == 100
    assert_sound(path)


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    """A file with filters and page indexes; it lies in a folder of its own."""
    bare = write(tmp_path / "bare" / "a.parquet", 1)
    target = tmp_path / "one" / "a.parquet"
    target.parent.mkdir()
    sidecar.embed_file(str(bare), str(target), bloom=["k", "s"], page_index=True)
    return target


def extracted(path: Path, **options: Any) -> str:
    puffin = path.parent / "x.puffin"
    sidecar.extract_files([str(path)], str(puffin), **options)
    return str(puffin)


# --- plain files ----------------------------------------------------------------------------------------------


def test_two_files_of_one_size_and_footer_are_told_apart(indexed: Path, tmp_path: Path) -> None:
    """The case that all that follows is about: only the pages differ."""
    other = write(tmp_path / "other.parquet", 2)
    one, two = (identity_of_parquet(*opened(path)) for path in (tmp_path / "bare" / "a.parquet", other))
    assert (one.size, one.units, one.fingerprint) == (two.size, two.units, two.fingerprint)
    assert one.digest() != two.digest()
    assert identity_of_parquet(*opened(indexed)).digest() == one.digest(), "indexes change no page"


@pytest.mark.parametrize("options", [{}, {"use_dictionary": True, "compression": "zstd"}])
def test_the_digest_is_that_of_the_specification(tmp_path: Path, options: dict[str, Any]) -> None:
    """Computed from pyarrow's view of the footer."""
    path = write(tmp_path / "a.parquet", 1, **options)
    data, metadata = path.read_bytes(), pq.read_metadata(path)
    expected = hashlib.sha256()
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            expected.update(struct.pack("<Q", chunk.total_compressed_size))
            expected.update(data[start : start + chunk.total_compressed_size])
    assert identity_of_parquet(*opened(path)).digest() == expected.digest()
    with closing(SidecarFile.open(LocalSource(extracted(_with_filters(path))))) as found:
        (entry,) = found.segments[0].files([0])
    assert entry is not None
    assert entry.entry[16:] == expected.digest()


def _with_filters(path: Path) -> Path:
    target = path.with_name(f"indexed-{path.name}")
    sidecar.embed_file(str(path), str(target), bloom=["k"], even_if_dictionary=True)
    return target


@pytest.mark.parametrize("where", ["at its path", "elsewhere"])
def test_a_file_with_other_pages_than_were_recorded_is_refused(
    indexed: Path, tmp_path: Path, where: str
) -> None:
    puffin = extracted(indexed)
    path = tmp_path / "bare" / "a.parquet" if where == "elsewhere" else indexed
    if where == "elsewhere":
        write(path, 2)
    else:
        path.unlink()
        sidecar.embed_file(
            str(write(tmp_path / "again.parquet", 2)), str(path), bloom=["k", "s"], page_index=True
        )
    with pytest.raises(UsageError, match="rewritten since it was indexed"):
        sidecar.embed_from(puffin, str(path), str(tmp_path / "out.parquet"))
    assert not (tmp_path / "out.parquet").exists()


def test_without_a_digest_all_values_are_looked_up(indexed: Path, tmp_path: Path) -> None:
    puffin, target = extracted(indexed, digest=False), tmp_path / "out.parquet"
    right = sidecar.embed_from(puffin, str(indexed), str(target), witness="none")
    assert right.ways() == {"bloom": {"exact": 6}, "page-index": {"exact": 6}}
    assert (right.witness.proof, right.witness.mode) == ("", "full")
    assert (right.witness.chunks, right.witness.values) == (6, 2 * ROWS)
    assert right.warnings() == []
    other = write(tmp_path / "bare" / "a.parquet", 2)
    wrong = sidecar.embed_from(puffin, str(other), str(tmp_path / "wrong.parquet"), witness="none")
    assert wrong.ways() == {"bloom": {"values": 6}, "page-index": {"values": 6}}
    assert any("they belong to another file" in text for text in wrong.warnings())
    assert wrong.to_dict()["witness"]["denials"]
    assert_nothing_lost(tmp_path / "wrong.parquet", 2)
    with pytest.raises(UsageError, match="belong to another file"):
        sidecar.embed_from(puffin, str(other), str(tmp_path / "no.parquet"), way="exact")
    (alone,) = sidecar.embed_all_from(puffin, str(tmp_path / "all"), [str(other)])
    assert alone.ways() == wrong.ways()
    assert_nothing_lost(Path(alone.target), 2)
    assert not (tmp_path / "no.parquet").exists()


@pytest.mark.parametrize("what", ["filters", "page indexes"])
def test_each_kind_of_index_is_looked_at_alone(indexed: Path, tmp_path: Path, what: str) -> None:
    puffin = extracted(indexed, digest=False)
    other = write(tmp_path / "bare" / "a.parquet", 2)
    only: dict[str, Any] = {"page_index": []} if what == "filters" else {"bloom": []}
    with pytest.raises(UsageError, match="belong to another file"):
        sidecar.embed_from(puffin, str(other), str(tmp_path / "no.parquet"), way="exact", **only)
    report = sidecar.embed_from(puffin, str(other), str(tmp_path / "out.parquet"), **only)
    assert [list(ways) for ways in report.ways().values() if ways] == [["values"]]
    assert_nothing_lost(tmp_path / "out.parquet", 2)


def test_with_a_proof_one_page_a_chunk_is_decoded_or_all_or_none(indexed: Path, tmp_path: Path) -> None:
    puffin, source = extracted(indexed), str(tmp_path / "bare" / "a.parquet")
    pages = {}
    for look in ("page", "full", "none"):
        report = sidecar.embed_from(puffin, source, str(tmp_path / f"{look}.parquet"), witness=look)
        assert report.ways() == {"bloom": {"exact": 6}, "page-index": {"exact": 6}}
        assert (report.witness.proof, report.witness.mode) == (BY_DIGEST, look)
        pages[look] = (report.witness.chunks, report.witness.pages)
        assert (tmp_path / f"{look}.parquet").read_bytes() == (tmp_path / "page.parquet").read_bytes()
    assert pages["page"] == (6, 6)
    assert pages["none"] == (0, 0)
    assert pages["full"][1] > 6 * 4
    with pytest.raises(UsageError, match="unknown witness"):
        sidecar.embed_from(puffin, source, str(tmp_path / "x.parquet"), witness="some")


def test_copies_in_several_folders_are_told_apart_by_their_pages(tmp_path: Path) -> None:
    """Two files of one name, size and footer; each is found again where it was moved to."""
    paths, moved = [], []
    for seed in (1, 2):
        bare = write(tmp_path / f"bare={seed}" / "a.parquet", seed)
        paths.append(tmp_path / f"dt={seed}" / "a.parquet")
        paths[-1].parent.mkdir()
        sidecar.embed_file(str(bare), str(paths[-1]), bloom=["k", "s"], page_index=True)
        moved.append(write(tmp_path / f"moved={seed}" / "a.parquet", seed))
    puffin = str(tmp_path / "x.puffin")
    sidecar.extract_files([str(path) for path in paths], puffin)
    for seed, path in enumerate(moved, 1):
        report = sidecar.embed_from(puffin, str(path), str(tmp_path / f"out-{seed}.parquet"), way="exact")
        assert report.witness.proof == BY_DIGEST
        assert_nothing_lost(tmp_path / f"out-{seed}.parquet", seed)
    unsure = str(tmp_path / "y.puffin")
    sidecar.extract_files([str(path) for path in paths], unsure, digest=False)
    with pytest.raises(UsageError, match="several files"):
        sidecar.embed_from(unsure, str(moved[0]), str(tmp_path / "no.parquet"))


def test_two_pasts_of_one_path_are_gathered_as_two_files(tmp_path: Path) -> None:
    """The filters of one column are of the file as it was, those of the other of the file that came to its path."""
    path, parts = tmp_path / "a.parquet", []
    for seed, column in ((1, "k"), (2, "s")):
        path.unlink(missing_ok=True)
        bare = write(tmp_path / f"bare-{seed}.parquet", seed)
        sidecar.embed_file(str(bare), str(path), bloom=["k", "s"], page_index=True)
        parts.append(str(tmp_path / f"{column}.puffin"))
        sidecar.extract_files([str(path)], parts[-1], columns=[column])
    gathered = str(tmp_path / "both.puffin")
    sidecar.convert_files(parts, gathered)
    for seed, column in ((1, "k"), (2, "s")):
        target = tmp_path / f"out-{seed}.parquet"
        report = sidecar.embed_from(
            gathered, str(tmp_path / f"bare-{seed}.parquet"), str(target), witness="none"
        )
        filters = {(o.column, o.way) for o in report.outcomes if o.kind == "bloom" and o.way != "none"}
        assert filters == {(column, "exact")}
        assert_nothing_lost(target, seed)


# --- a table's files ------------------------------------------------------------------------------------------


@pytest.fixture
def table(catalog: Any, request: Any, tmp_path: Path) -> Iterator[Any]:
    """A table of one file, ``dt=1/part-0.parquet``, with a sidecar."""
    name = f"db.witness_{abs(hash(request.node.name))}"
    created = catalog.create_table(name, pa.schema([("k", pa.int64()), ("s", pa.string())]))
    created.add_files([f"file:{write(tmp_path / 'dt=1' / 'part-0.parquet', 1)}"])
    sidecar.build(created, ["k", "s"], kinds=["bloom", "page-index"], engine="local")
    yield created.refresh()
    catalog.drop_table(name)


@pytest.mark.parametrize("way", ["auto", "all"])
def test_a_file_of_the_same_name_in_another_folder_gets_its_own_values(
    table: Any, tmp_path: Path, way: str
) -> None:
    other = write(tmp_path / "dt=2" / "part-0.parquet", 2)
    with closing(sidecar.open_sidecar(table)) as found:
        if way == "all":
            (report,) = sidecar.embed_all_from(found, str(tmp_path / "out"), [str(other)], table=table)
        else:
            report = sidecar.embed_from(found, str(other), str(tmp_path / "out.parquet"), table=table)
        assert report.witness.proof == ""
        with pytest.raises(UsageError, match="belong to another file"):
            sidecar.embed_from(found, str(other), str(tmp_path / "no.parquet"), way="exact", table=table)
    assert "exact" not in report.ways()["bloom"]
    assert_nothing_lost(Path(report.target), 2)


@pytest.mark.parametrize("given", [True, False], ids=["with the table", "without"])
def test_the_live_entry_of_the_table_is_a_proof(table: Any, tmp_path: Path, given: bool) -> None:
    path = str(tmp_path / "dt=1" / "part-0.parquet")
    with closing(sidecar.open_sidecar(table)) as found:
        report = sidecar.embed_from(
            found, path, str(tmp_path / "out.parquet"), way="exact", table=table if given else None
        )
    assert report.ways() == {"bloom": {"exact": 6}, "page-index": {"exact": 6}}
    assert report.witness.proof == (BY_TABLE if given else "")
    assert report.witness.mode == ("page" if given else "full")
    assert_nothing_lost(tmp_path / "out.parquet", 1)


def test_one_proven_segment_proves_nothing_of_another(table: Any) -> None:
    with closing(sidecar.open_sidecar(table)) as found:
        (segment,) = found.segments
        (entry,) = segment.files([0])
        assert entry is not None
        proven, other = Match(segment, entry, (0, 1, 2), BY_TABLE), Match(segment, entry, (0, 1, 2))
    assert proof_of([proven, proven]) == BY_TABLE
    assert proof_of([proven, other]) == proof_of([other, proven]) == ""


def test_a_path_that_stands_twice_in_the_table_proves_nothing(table: Any, tmp_path: Path) -> None:
    """One of the two entries is the file that was indexed, but the path has what came last."""
    path = write(tmp_path / "dt=1" / "part-0.parquet", 2)
    table.add_files([f"file:{path}"], check_duplicate_files=False)
    table.refresh()
    with closing(sidecar.open_sidecar(table)) as found:
        report = sidecar.embed_from(found, str(path), str(tmp_path / "out.parquet"), table=table)
    assert (report.witness.proof, report.witness.mode) == ("", "full")
    assert_nothing_lost(tmp_path / "out.parquet", 2)


@pytest.mark.parametrize("way", ["auto", "all"])
def test_a_file_that_was_added_again_under_its_path_is_another_one(
    table: Any, tmp_path: Path, way: str
) -> None:
    """It left the table, was rewritten and came back: path, size and record count are those of the indexed file."""
    path = tmp_path / "dt=1" / "part-0.parquet"
    with closing(sidecar.open_sidecar(table)) as found:
        table.delete()
        write(path, 2)
        table.add_files([f"file:{path}"])
        table.refresh()
        if way == "all":
            (report,) = sidecar.embed_all_from(found, str(tmp_path / "out"), table=table)
        else:
            report = sidecar.embed_from(found, str(path), str(tmp_path / "out.parquet"), table=table)
    assert report.witness.proof == ""
    assert "exact" not in {way for ways in report.ways().values() for way in ways}
    assert_nothing_lost(Path(report.target), 2)


def test_one_page_tells_of_a_file_that_was_overwritten_in_place(table: Any, tmp_path: Path) -> None:
    """No commit tells of it, so the table's entry still proves what is no longer so."""
    path = write(tmp_path / "dt=1" / "part-0.parquet", 2)
    with closing(sidecar.open_sidecar(table)) as found:
        report, *_ = sidecar.embed_all_from(found, str(tmp_path / "out"), table=table)
        with pytest.raises(UsageError, match="belong to another file"):
            sidecar.embed_from(found, str(path), str(tmp_path / "no.parquet"), way="exact", table=table)
        blind = sidecar.embed_from(
            found, str(path), str(tmp_path / "blind.parquet"), way="exact", table=table, witness="none"
        )
    assert (blind.witness.mode, blind.witness.chunks) == ("none", 0)
    assert (report.witness.proof, report.witness.mode) == (BY_TABLE, "page")
    assert report.witness.denials
    assert "exact" not in {way for ways in report.ways().values() for way in ways}
    assert_nothing_lost(Path(report.target), 2)
    assert duckdb_finds(Path(blind.target), "k", asked(2)) < 10, "what the page is looked at for"


@pytest.mark.parametrize("what", ["size", "row groups"])
def test_a_live_file_of_another_size_or_with_other_row_groups_is_refused(
    table: Any, tmp_path: Path, what: str
) -> None:
    """It was overwritten in place; either alone tells, and no value has to be looked at."""
    path = tmp_path / "dt=1" / "part-0.parquet"
    size = path.stat().st_size
    write(path, 2, **({"compression": "zstd"} if what == "size" else {"row_group_size": 1500}))
    if what == "row groups":  # zeros in front of the footer bring the size back
        data = path.read_bytes()
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        path.write_bytes(data[:footer] + bytes(size - len(data)) + data[footer:])
    assert (path.stat().st_size == size) == (what == "row groups")
    assert pq.read_metadata(path).num_row_groups == (3 if what == "size" else 2)
    with closing(sidecar.open_sidecar(table)) as found:
        for way in ("auto", "exact"):
            with pytest.raises(UsageError, match="not the one that was indexed"):
                sidecar.embed_from(
                    found, str(path), str(tmp_path / "no.parquet"), way=way, table=table, witness="none"
                )
    assert not (tmp_path / "no.parquet").exists()


# --- what is looked at ----------------------------------------------------------------------------------------


def _chunks(path: Path) -> Iterator[tuple[Any, Any, Any, GivenIndexes]]:
    """Each chunk of a file, and the indexes that the file has of it."""
    source, footer = opened(path)
    for group in footer.row_groups:
        columns, offsets = read_page_indexes(source, footer, group.columns, group.columns)
        for chunk, column, offset in zip(group.columns, columns, offsets, strict=True):
            found = read_bloom_filter(source, chunk) if chunk.bloom_filter_offset else None
            yield source, footer, chunk, GivenIndexes(found and found.filter, column, offset)


VARIANTS = {
    "dictionaries": {"use_dictionary": True},
    "v2 pages": {"data_page_version": "2.0", "compression": "zstd"},
    "delta": {"use_dictionary": False, "column_encoding": {"id": "DELTA_BINARY_PACKED"}},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_nested_columns_nulls_and_floats_deny_nothing_of_their_own(tmp_path: Path, variant: str) -> None:
    """Values are looked up: each chunk that has a value denies an empty filter."""
    table = nested()
    numbers = [None] * 900 + [float(n % 50) if n % 7 else float("nan") for n in range(2100)]
    table = table.append_column("f", pa.array(numbers, pa.float64()))
    bare, path = tmp_path / "bare.parquet", tmp_path / "a.parquet"
    pq.write_table(table, bare, data_page_size=1500, **VARIANTS[variant])
    leaves = [leaf.path for leaf in opened(bare)[1].columns]
    sidecar.embed_file(str(bare), str(path), bloom=leaves, page_index=True, even_if_dictionary=True)
    for whole in (False, True):
        for source, footer, chunk, given in _chunks(path):
            said = ask_pages(source, footer, chunk, given, whole=whole)
            assert (said.denial, said.unseen) == ("", ""), chunk.leaf.path
            assert said.values > 0
            empty = GivenIndexes(SplitBlockBloomFilter.empty(8))
            assert "denies" in ask_pages(source, footer, chunk, empty, whole=whole).denial, chunk.leaf.path


def test_pages_of_nulls_are_passed_over_up_to_one_with_values(tmp_path: Path) -> None:
    values = pa.array([None] * 100_000 + list(range(100_000)), pa.int64())
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"k": values}), path, use_dictionary=False, data_page_size=4096, write_page_index=True
    )
    ((source, footer, chunk, _),) = _chunks(path)
    given = GivenIndexes(SplitBlockBloomFilter.empty(8))
    assert ask_pages(source, footer, chunk, given, whole=False).denial


@pytest.mark.parametrize(
    ("low", "high", "nulls", "problem"),
    [(5, 100, 0, "below its min_value"), (0, 50, 0, "above its max_value"), (0, 100, 3, "nulls")],
)
def test_a_page_is_held_against_its_bounds_and_nulls(
    tmp_path: Path, low: int, high: int, nulls: int, problem: str
) -> None:
    """The page index is that of another file, whose values do not reach as far, or that has nulls."""
    paths = []
    for name, numbers in (("a", [0, 100, *range(1, 99)]), ("b", [low, high, *range(low, low + 98)])):
        values: list[int | None] = list(numbers)
        if name == "b":
            values = [*values[:2], *[None] * nulls, *(min(v, high) for v in numbers[2 + nulls :])]
        paths.append(tmp_path / f"{name}.parquet")
        pq.write_table(pa.table({"k": pa.array(values, pa.int64())}), paths[-1], write_page_index=True)
    ((source, footer, chunk, _),) = _chunks(paths[0])
    ((_, _, _, other),) = _chunks(paths[1])
    for whole in (False, True):
        given = GivenIndexes(None, other.column_index)
        assert problem in ask_pages(source, footer, chunk, given, whole=whole).denial


def test_cut_bounds_are_outer_bounds(tmp_path: Path) -> None:
    """Long strings are cut; what lies between the cut bound and the value is no denial."""
    path = tmp_path / "a.parquet"
    bare = tmp_path / "bare.parquet"
    pq.write_table(pa.table({"s": ["ä" * 200 + str(n) for n in range(500)]}), bare, use_dictionary=False)
    sidecar.embed_file(str(bare), str(path), bloom=["s"], page_index=True)
    ((source, footer, chunk, given),) = _chunks(path)
    assert len(given.column_index.max_values[0]) < 100  # type: ignore[union-attr]
    assert ask_pages(source, footer, chunk, given, whole=True).denial == ""


def test_one_page_costs_few_reads(tmp_path: Path) -> None:
    """A witness reads the dictionary and one page of a chunk of 2 MB, not the chunk."""
    path = tmp_path / "a.parquet"
    values = np.random.default_rng(1).integers(0, 3000, 1_000_000)
    pq.write_table(
        pa.table({"k": values, "r": values * 2**40}),
        path,
        use_dictionary=["k"],
        compression="none",
        data_page_size=20_000,
        write_page_index=True,
    )
    for source, footer, chunk, given in _chunks(path):
        counted = CountingSource(source)
        given = GivenIndexes(
            SplitBlockBloomFilter(np.full((8, 8), 2**32 - 1, np.uint32)), None, given.offset_index
        )
        said = ask_pages(counted, footer, chunk, given, whole=False)
        assert (said.pages, said.denial) == (1, "")
        assert counted.reads <= 4
        assert counted.bytes_read <= 100_000 < chunk.total_compressed_size


def test_what_cannot_be_looked_at_is_not_taken_without_a_proof(tmp_path: Path) -> None:
    """A page whose checksum is wrong: with the table's word for it the filter stays, without it nobody knows."""
    bare, path = write(tmp_path / "bare" / "a.parquet", 1, write_page_checksum=True), tmp_path / "a.parquet"
    sidecar.embed_file(str(bare), str(path), bloom=["k", "s"], page_index=True)
    puffin = extracted(path, digest=False)
    data = bytearray(bare.read_bytes())
    data[opened(bare)[1].row_groups[1].columns[0].data_page_offset + 200] ^= 1
    bare.write_bytes(data)
    with pytest.raises(UsageError, match="nothing proves"):
        sidecar.embed_from(puffin, str(bare), str(tmp_path / "no.parquet"), way="exact")
    report = sidecar.embed_from(puffin, str(bare), str(tmp_path / "out.parquet"))
    assert [text[:24] for text in report.witness.unseen] == ["column k, row group 1: t"]
    ways = {(o.column, o.row_group, o.way) for o in report.outcomes if o.kind == "bloom"}
    assert ways == {(c, g, "exact") for c in "s" for g in range(3)} | {
        ("k", 0, "values"),
        ("k", 1, "none"),
        ("k", 2, "values"),
    }


def test_overlapping_chunks_are_not_read_again_and_again(indexed: Path) -> None:
    source = LocalSource(str(indexed))
    with pytest.raises(DamagedFileError, match="longer than the file"):
        digest_ranges(source, [(4, source.size - 4)] * 1000)


# --- ORC ------------------------------------------------------------------------------------------------------


def write_orc(path: Path, seed: int) -> Path:
    """Texts of one length: of numbers the tail has the sum, which would tell the files apart."""
    path.parent.mkdir(parents=True, exist_ok=True)
    keys = keys_of(seed)
    table = pa.table({"s": [f"{key:020}" for key in keys], "b": [f"{key:030}".encode() for key in keys]})
    pyarrow.orc.write_table(table, path, compression="uncompressed", dictionary_key_size_threshold=0)
    return path


@pytest.fixture
def orc(tmp_path: Path) -> Path:
    target = tmp_path / "one" / "a.orc"
    target.parent.mkdir()
    bare = write_orc(tmp_path / "bare" / "a.orc", 1)
    sidecar.embed_file(str(bare), str(target), bloom=["s", "b"])
    return target


def _sound(path: str) -> bool:
    source = LocalSource(path)
    check: RowGroupSampler = ValueCheck()
    return verify_orc(source, check) == []


def test_orc_data_is_known_by_its_digest(orc: Path, tmp_path: Path) -> None:
    puffin, bare = extracted(orc), tmp_path / "bare" / "a.orc"
    sources = [LocalSource(str(path)) for path in (orc, bare)]
    digests = [identity_of_orc(source, read_tail(source)).digest() for source in sources]
    assert digests[0] == digests[1]
    report = sidecar.embed_from(puffin, str(bare), str(tmp_path / "out.orc"))
    assert report.ways()["bloom"].keys() == {"exact"}
    assert report.witness.proof == BY_DIGEST
    assert (report.witness.chunks, report.witness.pages) == (2, 2)
    write_orc(bare, 2)
    with pytest.raises(UsageError, match="rewritten since it was indexed"):
        sidecar.embed_from(puffin, str(bare), str(tmp_path / "no.orc"))


def test_orc_values_that_are_denied_are_those_of_another_file(orc: Path, tmp_path: Path) -> None:
    puffin = extracted(orc, digest=False)
    right = sidecar.embed_from(puffin, str(tmp_path / "bare" / "a.orc"), str(tmp_path / "right.orc"))
    assert right.ways()["bloom"].keys() == {"exact"}
    assert (right.witness.proof, right.witness.values) == ("", 2 * ROWS)
    other = write_orc(tmp_path / "bare" / "a.orc", 2)
    wrong = sidecar.embed_from(puffin, str(other), str(tmp_path / "wrong.orc"))
    assert wrong.ways()["bloom"].keys() == {"values"}
    assert any("they belong to another file" in text for text in wrong.warnings())
    assert _sound(wrong.target)
    with pytest.raises(UsageError, match="belong to another file"):
        sidecar.embed_from(puffin, str(other), str(tmp_path / "no.orc"), way="exact")
    assert not (tmp_path / "no.orc").exists()


def test_row_groups_of_nulls_are_passed_over_up_to_one_with_values(tmp_path: Path) -> None:
    path = tmp_path / "nulls.orc"
    values = pa.array([None] * 3000 + [f"{n:05}" for n in range(3000)])
    pyarrow.orc.write_table(pa.table({"s": values}), path, row_index_stride=1000, compression="uncompressed")
    source = LocalSource(str(path))
    tail = read_tail(source)
    (stripe,) = tail.stripes
    column = tail.column("s")
    assert column is not None
    footer = read_stripe_footer(source, tail, stripe)
    empty = OrcBloomFilter.empty(*size_for(1000, 0.01)), OrcEncoding.parse("orc/bytes")
    for whole in (False, True):
        said = ask_row_groups(source, tail, footer, column, [empty] * stripe.num_row_groups, whole=whole)
        assert (said.pages, said.denial) == (4, "the filter denies 1000 of 1000 values")


def _rewrite(path: Path, seed: int) -> None:
    """Write other values of equal size into the very file that is open."""
    inode = path.stat().st_ino
    path.write_bytes(write(path.with_name("other"), seed).read_bytes())
    assert path.stat().st_ino == inode


@pytest.mark.parametrize("way", ["embed", "embed --from"])
def test_a_file_that_is_written_to_meanwhile_is_not_published(tmp_path: Path, way: str) -> None:
    """Its pages are copied first; filters would be of the values that came later, or those that were there before."""
    path, target = write(tmp_path / "a.parquet", 1), tmp_path / "out.parquet"
    indexed, puffin = tmp_path / "whole" / "a.parquet", tmp_path / "x.puffin"
    indexed.parent.mkdir()
    sidecar.embed_file(str(path), str(indexed), bloom=["k"])
    sidecar.extract_files([str(indexed)], str(puffin))
    state = path.stat().st_mtime_ns

    def progress(what: str, number: int, count: int) -> None:
        if what == "row groups" and path.stat().st_mtime_ns == state:
            _rewrite(path, 2)

    def run() -> None:
        if way == "embed":
            sidecar.embed_file(str(path), str(target), bloom=["k"], progress=progress)
        else:
            sidecar.embed_from(str(puffin), str(path), str(target), progress=progress)

    with pytest.raises(StorageError, match="written to while it was read"):
        run()
    assert path.stat().st_mtime_ns != state
    assert not target.exists()
    sidecar.embed_file(str(path), str(target), bloom=["k"])
    assert_sound(target)


class _RewrittenBehind(LocalSource):
    """A file into which somebody writes other values once its first bytes were read."""

    def read(self, offset: int, length: int) -> bytes:
        data = super().read(offset, length)
        path = Path(self.name)
        path.write_bytes(path.with_name("other").read_bytes())
        return data


def test_nothing_is_extracted_of_a_file_that_is_written_to_meanwhile(tmp_path: Path) -> None:
    """The digest would prove pages that the filters are not of."""
    for name, seed in (("a.parquet", 1), ("other", 2)):
        sidecar.embed_file(
            str(write(tmp_path / str(seed) / name, seed)), str(tmp_path / name), bloom=["k"], ndv={"k": ROWS}
        )
    with (
        closing(Collection()) as collection,
        closing(_RewrittenBehind(str(tmp_path / "a.parquet"))) as source,
    ):
        taker = Extractor(collection, bloom=True, page_index=True, columns=None, witness=False)
        with pytest.raises(StorageError, match="written to while it was read"):
            taker.take(source)


def test_an_orc_file_that_is_written_to_meanwhile_is_not_published(tmp_path: Path) -> None:
    path, target = tmp_path / "a.orc", tmp_path / "out.orc"
    pyarrow.orc.write_table(pa.table({"k": keys_of(1)}), path)
    state = path.stat().st_mtime_ns

    def progress(what: str, number: int, count: int) -> None:
        if path.stat().st_mtime_ns == state:
            path.write_bytes(path.read_bytes())

    with pytest.raises(StorageError, match="written to while it was read"):
        sidecar.embed_file(str(path), str(target), bloom=["k"], progress=progress)
    assert not target.exists()
