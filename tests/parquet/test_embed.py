"""Rewriting footers: what survives, what moves, what is refused; faults and damage at every place."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.errors import UnsupportedFeatureError, UsageError
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.embed import GroupIndexes
from sidecar.parquet.footer import Footer, read_footer
from sidecar.parquet.page_indexes.extents import find_extents
from sidecar.parquet.pages import walk_pages
from sidecar.parquet.thrift import Struct, encode_struct
from sidecar.storage.local import LocalSource
from sidecar.storage.source import BytesSource
from tests.parquet.embed_cases import FILTER, assert_same_pages, chunks, everything_kept, nothing, rewritten, written
from tests.parquet.single_indexes import read_offset_index

DATA = Path(__file__).resolve().parents[1] / "data" / "parquet"
PLAIN_FILES = sorted(
    path
    for path in (*DATA.glob("*.parquet"), *(DATA / "variants").glob("*.parquet"))
    if not any(part in path.name for part in ("_enc_", "filepath", "corrupt-checksum"))
)


def filters_everywhere(footer: Footer) -> list[GroupIndexes]:
    return [GroupIndexes({chunk.leaf.index: FILTER for chunk in group.columns}) for group in footer.row_groups]


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
