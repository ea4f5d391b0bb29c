"""Rewriting footers: what survives, what moves, what is refused; faults and damage at every place."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sidecar.errors import DamagedFileError, SidecarError, StorageError, UnsupportedFeatureError, UsageError
from sidecar.parquet.bloom import encode_header, read_bloom_filter
from sidecar.parquet.embed import GroupIndexes, WrittenParquet, embed
from sidecar.parquet.extents import Range, find_extents
from sidecar.parquet.footer import ColumnChunk, Footer, read_footer
from sidecar.parquet.page_index import read_offset_index
from sidecar.parquet.pages import walk_pages
from sidecar.parquet.thrift import BINARY, I32, STRUCT, Struct, encode_struct
from sidecar.source import BytesSource, LocalSource, Source
from sidecar.target import create_target

DATA = Path(__file__).resolve().parents[1] / "data" / "parquet"
PLAIN_FILES = sorted(
    path
    for path in (*DATA.glob("*.parquet"), *(DATA / "variants").glob("*.parquet"))
    if "_enc_" not in path.name and "filepath" not in path.name
)
FILTER = encode_header(64) + bytes(range(64))


class MemoryTarget:
    """A target in memory."""

    def __init__(self) -> None:
        self.name = "<memory>"
        self.data = bytearray()

    @property
    def position(self) -> int:
        return len(self.data)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.data += data

    def copy(self, source: Source, offset: int, length: int) -> None:
        self.data += source.read(offset, length)

    def flush(self) -> None:
        """Nothing waits anywhere."""


def chunks(footer: Footer) -> list[ColumnChunk]:
    return [chunk for group in footer.row_groups for chunk in group.columns]


def rewritten(
    source: Source, indexes: Callable[[Footer], Sequence[GroupIndexes]], placement: str = "end"
) -> tuple[BytesSource, Footer, WrittenParquet]:
    target, footer = MemoryTarget(), read_footer(source)
    done = embed(source, footer, target, indexes(footer), placement=placement)  # type: ignore[arg-type]
    assert done.size == len(target.data)
    result = BytesSource(bytes(target.data))
    return result, read_footer(result), done


def nothing(footer: Footer) -> list[GroupIndexes]:
    return [GroupIndexes() for _ in footer.row_groups]


def filters_everywhere(footer: Footer) -> list[GroupIndexes]:
    return [GroupIndexes({chunk.leaf.index: FILTER for chunk in group.columns}) for group in footer.row_groups]


def everything_kept(footer: Footer) -> list[GroupIndexes]:
    """All that the file has, by its own lengths."""

    def place(offset: int | None, length: int | None) -> Range | None:
        return Range(offset, length) if offset and length else None

    def group_indexes(columns: Sequence[ColumnChunk]) -> GroupIndexes:
        parts = [
            (
                chunk.leaf.index,
                place(chunk.bloom_filter_offset, chunk.bloom_filter_length),
                place(chunk.column_index_offset, chunk.column_index_length),
                place(chunk.offset_index_offset, chunk.offset_index_length),
            )
            for chunk in columns
        ]
        kinds = [{leaf: kind[k] for leaf, *kind in parts if kind[k] is not None} for k in range(3)]
        return GroupIndexes(*kinds)  # type: ignore[arg-type]

    return [group_indexes(group.columns) for group in footer.row_groups]


def written(rows: int = 1000, groups: int = 4, **options: object) -> BytesSource:
    table = pa.table({"a": np.arange(rows), "b": [f"text {n}" for n in range(rows)]})
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=rows // groups, **options)
    return BytesSource(out.getvalue())


def assert_same_pages(before: Source, old: Footer, after: Source, new: Footer) -> None:
    for one, other in zip(chunks(old), chunks(new), strict=True):
        length = one.total_compressed_size
        assert other.total_compressed_size == length
        if length:
            assert before.read(one.start, length) == after.read(other.start, length)


# --- what survives --------------------------------------------------------------------------------------------


def test_stripping_what_others_embedded_gives_the_original() -> None:
    for name in ("m01_ok", "m02_nolength", "m06_reverse", "p12_no_null_counts", "m08_hdr_unknown_long_nolen"):
        stripped, _, _ = rewritten(LocalSource(str(DATA / "variants" / f"{name}.parquet")), nothing)
        assert stripped.read(0, stripped.size) == (DATA / "variants" / "base.parquet").read_bytes(), name


@pytest.mark.parametrize("placement", ["end", "row-group"])
@pytest.mark.parametrize("path", PLAIN_FILES, ids=lambda path: path.stem)
def test_files_by_all_writers(path: Path, placement: str) -> None:
    source = LocalSource(str(path))
    old = read_footer(source)
    for indexes in (nothing, filters_everywhere):
        result, new, _ = rewritten(source, indexes, placement)
        assert_same_pages(source, old, result, new)
        assert new.key_value == old.key_value
        assert new.created_by == old.created_by
        assert new.metadata.fields.keys() == old.metadata.fields.keys()
        assert new.metadata.fields.get(7) == old.metadata.fields.get(7), "column orders"
        for one, other in zip(old.metadata.structs(4) or (), new.metadata.structs(4) or (), strict=True):
            assert one.fields.keys() == other.fields.keys(), "absent fields stay absent"
        if placement == "end":
            assert result.read(0, find_extents(source, old).cut) == source.read(0, find_extents(source, old).cut)
            assert [c.start for c in chunks(new)] == [c.start for c in chunks(old)]
        for chunk in chunks(new):
            if indexes is nothing:
                places = (chunk.bloom_filter_offset, chunk.offset_index_offset, chunk.column_index_offset)
                assert places == (None, None, None)
            else:
                found = read_bloom_filter(result, chunk)
                assert found is not None
                assert found.filter.to_bytes() == FILTER[-64:]
                assert found.length == chunk.bloom_filter_length == len(FILTER)


@pytest.mark.parametrize("placement", ["end", "row-group"])
@pytest.mark.parametrize(
    "name", ["j118_v1_none", "j118_v2_zstd", "pa26_v2_zstd_dict", "rs60_v1_none_afterrg", "variants/m01_ok"]
)
def test_what_is_kept_is_kept_to_the_byte(name: str, placement: str) -> None:
    source = LocalSource(str(DATA / f"{name}.parquet"))
    old = read_footer(source)
    result, new, done = rewritten(source, everything_kept, placement)
    for one, other in zip(chunks(old), chunks(new), strict=True):
        for was, now in (
            (
                (one.bloom_filter_offset, one.bloom_filter_length),
                (other.bloom_filter_offset, other.bloom_filter_length),
            ),
            (
                (one.column_index_offset, one.column_index_length),
                (other.column_index_offset, other.column_index_length),
            ),
        ):
            assert (was[0] is None) == (now[0] is None)
            if was[0] and was[1] and now[0] and now[1]:
                assert source.read(was[0], was[1]) == result.read(now[0], now[1])
        before, after = read_offset_index(source, old, one), read_offset_index(result, new, other)
        assert (before is None) == (after is None)
        if before is not None and after is not None:
            moved = other.start - one.start
            assert (after.offsets - before.offsets == moved).all()
            assert after.offsets.tolist() == [page.offset for page in walk_pages(result, other) if page.is_data]
            assert moved or before.raw == after.raw
    assert done.dead_bytes == 0
    assert_same_pages(source, old, result, new)


def test_unknown_fields_survive_everywhere() -> None:
    source = LocalSource(str(DATA / "variants" / "m09_unknown_fields.parquet"))
    old = read_footer(source)
    _, new, _ = rewritten(source, filters_everywhere, "row-group")

    def unknown(footer: Footer) -> list[dict[int, object]]:
        groups = footer.metadata.structs(4) or []
        parts = [footer.metadata, *groups, *(c for g in groups for c in g.structs(1) or ())]
        metas = [part.fields[3][1] for part in parts if part not in groups and 3 in part.fields]
        parts += [meta for meta in metas if isinstance(meta, Struct)]
        return [{i: f for i, f in part.fields.items() if i > 20} for part in parts]

    assert unknown(old) == unknown(new)
    assert sum(map(len, unknown(old))) > 3


def test_fields_stand_in_the_order_of_their_ids() -> None:
    _, new, _ = rewritten(written(), filters_everywhere)
    for group in new.metadata.structs(4) or ():
        for chunk in group.structs(1) or ():
            meta = chunk.struct(3)
            assert meta is not None
            assert list(chunk.fields) == sorted(chunk.fields)
            assert list(meta.fields) == sorted(meta.fields)


def test_a_former_footer_stays_as_it_was() -> None:
    """Bytes between pages and footer that nobody names may be named by an unknown field."""
    path = DATA / "variants" / "m01b_keep_old_footer.parquet"
    source = LocalSource(str(path))
    result, _, _ = rewritten(source, nothing)
    base = (DATA / "variants" / "base.parquet").read_bytes()
    assert result.read(0, len(base)) == base


# --- where it stands ------------------------------------------------------------------------------------------


def test_the_layout_at_the_end() -> None:
    source = written(write_page_index=True)

    def indexes(footer: Footer) -> list[GroupIndexes]:
        kept = everything_kept(footer)
        return [GroupIndexes({0: FILTER, 1: FILTER}, k.column_indexes, k.offset_indexes) for k in kept]

    _, new, done = rewritten(source, indexes)
    ranges = [
        [(c.bloom_filter_offset or 0, c.bloom_filter_length or 0) for c in chunks(new)],
        [(c.column_index_offset or 0, c.column_index_length or 0) for c in chunks(new)],
        [(c.offset_index_offset or 0, c.offset_index_length or 0) for c in chunks(new)],
    ]
    at = max(c.start + c.total_compressed_size for c in chunks(new))
    for offset, length in (place for kind in ranges for place in kind):
        assert offset == at
        at += length
    assert at == new.offset
    assert done.filter_bytes == 8 * len(FILTER)


def test_the_layout_after_row_groups() -> None:
    source = written()
    old = read_footer(source)
    _, new, _ = rewritten(source, filters_everywhere, "row-group")
    at = 4
    for before, group, tree in zip(old.row_groups, new.row_groups, new.metadata.structs(4) or (), strict=True):
        assert tree.integer(5) == at == group.columns[0].start
        at += sum(c.total_compressed_size for c in before.columns)
        for chunk in group.columns:
            assert chunk.bloom_filter_offset == at
            at += len(FILTER)
    assert at == new.offset


def test_row_groups_out_of_order_are_refused_only_where_that_matters() -> None:
    source = written()
    footer = read_footer(source)
    groups = footer.metadata.structs(4)
    assert groups is not None
    groups.reverse()
    data = encode_struct(footer.metadata)
    swapped = BytesSource(source.read(0, footer.offset) + data + len(data).to_bytes(4, "little") + b"PAR1", "swapped")
    with pytest.raises(UnsupportedFeatureError, match="begins before the end of"):
        rewritten(swapped, nothing, "row-group")
    result, new, _ = rewritten(swapped, filters_everywhere)
    assert_same_pages(swapped, read_footer(swapped), result, new)
    assert all(read_bloom_filter(result, chunk) for chunk in chunks(new))


def test_an_unknown_placement() -> None:
    with pytest.raises(UsageError, match="placement"):
        rewritten(written(), nothing, "front")


# --- faults and damage ----------------------------------------------------------------------------------------


class FailingSource:
    """Storage that fails at the ``number``-th read."""

    def __init__(self, inner: Source, number: int) -> None:
        self.name, self.inner, self.left = inner.name, inner, number

    @property
    def size(self) -> int:
        return self.inner.size

    def read(self, offset: int, length: int) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise StorageError("the network is down", file=self.name)
        return self.inner.read(offset, length)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("placement", ["end", "row-group"])
def test_storage_that_fails_at_any_read_leaves_nothing(tmp_path: Path, placement: str) -> None:
    source = written(write_page_index=True)
    footer = read_footer(source)
    number = 0
    while True:
        failing = FailingSource(source, number)
        try:
            with create_target(str(tmp_path / "file")) as target:
                embed(failing, footer, target, everything_kept(footer), placement=placement)
            break
        except StorageError:
            assert list(tmp_path.iterdir()) == []
        number += 1
    assert number > 5
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_indexes_that_fail_leave_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[GroupIndexes]:
        yield GroupIndexes({0: FILTER})
        raise DamagedFileError("no more")

    source = written()
    with pytest.raises(DamagedFileError, match="no more"), create_target(str(tmp_path / "file")) as target:
        embed(source, read_footer(source), target, broken())
    assert list(tmp_path.iterdir()) == []


def test_a_chunk_outside_the_file_is_damage() -> None:
    source = written()
    footer = read_footer(source)
    chunk = (footer.metadata.structs(4) or [])[1].structs(1) or []
    meta = chunk[0].struct(3)
    assert meta is not None
    meta.fields[7] = (meta.fields[7][0], footer.offset)
    data = encode_struct(footer.metadata)
    broken = BytesSource(source.read(0, footer.offset) + data + len(data).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(DamagedFileError, match="outside the file's body"):
        rewritten(broken, nothing)


def test_index_places_that_lie_do_no_harm() -> None:
    """Offsets of filters that point into pages, at each other or past the end: the pages stay what they are."""
    source = written(write_page_index=True)
    draw = random.Random(5)
    for _ in range(200):
        footer = read_footer(source)
        for group in footer.metadata.structs(4) or ():
            for chunk in group.structs(1) or ():
                meta = chunk.struct(3)
                assert meta is not None
                offset, length = draw.randrange(-10, source.size + 50), draw.randrange(-5, 4000)
                meta.fields[14], meta.fields[15] = (6, offset), (I32, length)
        data = encode_struct(footer.metadata)
        lying = BytesSource(source.read(0, footer.offset) + data + len(data).to_bytes(4, "little") + b"PAR1")
        for placement in ("end", "row-group"):
            result, new, _ = rewritten(lying, nothing, placement)
            assert_same_pages(lying, read_footer(lying), result, new)


def test_any_damage_of_the_footer_is_our_error_or_a_file() -> None:
    source = written(200, 2, write_page_index=True)
    whole = source.read(0, source.size)
    footer = read_footer(source)
    draw = random.Random(6)
    done = 0
    for _ in range(1500):
        data = bytearray(whole)
        data[draw.randrange(footer.offset, len(data) - 8)] = draw.randrange(256)
        broken = BytesSource(bytes(data))
        for placement in ("end", "row-group"):
            try:
                result, _, _ = rewritten(broken, nothing, placement)
            except SidecarError:
                continue
            assert result.size < 2 * len(whole)
            done += 1
    assert done > 500


def test_a_file_without_its_first_magic_is_refused() -> None:
    source = written()
    broken = BytesSource(b"XXXX" + source.read(4, source.size - 4))
    with pytest.raises(DamagedFileError, match="begins with the wrong magic"):
        rewritten(broken, nothing)


def test_chunks_of_other_files_and_encrypted_ones_are_refused() -> None:
    for where, field, found in (
        ("chunk", {1: (BINARY, b"")}, "file_path"),
        ("chunk", {8: (STRUCT, Struct({1: (STRUCT, Struct())}))}, "encrypted"),
        ("file", {8: (STRUCT, Struct({1: (STRUCT, Struct())}))}, "encrypted"),
        ("file", {9: (BINARY, b"key")}, "encrypted"),
    ):
        source = written()
        footer = read_footer(source)
        group = (footer.metadata.structs(4) or [])[0]
        place = footer.metadata if where == "file" else (group.structs(1) or [])[1]
        place.fields.update(field)  # type: ignore[arg-type]
        data = encode_struct(footer.metadata)
        changed = BytesSource(source.read(0, footer.offset) + data + len(data).to_bytes(4, "little") + b"PAR1")
        with pytest.raises(UnsupportedFeatureError, match=found):
            rewritten(changed, nothing)
