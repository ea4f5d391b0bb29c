"""``extract`` for Parquet files: copies the trusted Bloom filters and sound page indexes of every row group.

Indexes of encrypted columns are left out unless they stay encrypted or the caller allows plaintext
(:mod:`sidecar.conversion.protection`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from sidecar.bundle.indexes.page_indexes import page_index_kind
from sidecar.bundle.kinds.declared import BLOOM, PAGE_INDEX
from sidecar.bundle.model import StoredColumn, UnitState
from sidecar.conversion.collection import Collection, Key, Taken, keys_of
from sidecar.conversion.matching.identity import file_entry, identity_of
from sidecar.conversion.matching.witness import FileWitness, GivenIndexes, Witness
from sidecar.conversion.outcome import EXACT, IndexPlace, Outcome
from sidecar.conversion.protection import refusal
from sidecar.conversion.sound_page_index import sound_page_index
from sidecar.data_files.open_parquet import OpenParquet
from sidecar.errors import DamagedFileError, SidecarError, StorageError, reason_of
from sidecar.filters.leaf import Leaf
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.parquet.bloom import FoundFilter, read_bloom_filters
from sidecar.parquet.footer import ColumnChunk, Footer, RowGroup
from sidecar.parquet.page_indexes.page_index import read_indexes_by_leaf
from sidecar.storage.source import Source

AMBIGUOUS = "another column of the file has the same path, and neither has a field id"

ChunkOutcomes = Iterator[tuple[int, Outcome]]
"""Leaf index of a column chunk, and what became of one of its indexes."""


@dataclass(frozen=True)
class ParquetWanted:
    """The indexes to take from a file: filters and page indexes of ``leaves``.

    ``by_name``: the caller named the columns. ``witness`` counts the pages that are compared with the indexes.
    """

    leaves: Sequence[Leaf]
    bloom: bool
    page_index: bool
    by_name: bool
    witness: Witness


def take_parquet(file: OpenParquet, collection: Collection, what: ParquetWanted, keys: Mapping[int, Key]) -> Taken:
    """Add the file and its indexes to ``collection``, and yield what became of each index.

    Raises :class:`sidecar.errors.UsageError` if the caller names an encrypted column that may be kept neither encrypted
    nor in plaintext, and :class:`StorageError`.
    """
    source, footer = file.source, file.footer
    first = collection.add_file(file_entry(identity_of(file)))
    left_out = _left_out(footer, collection, what, keys)
    for leaf in what.leaves:
        name = None if file.is_encrypted(leaf) else StoredColumn(leaf.parts, leaf.iceberg_type)
        collection.name_column(keys[leaf.index], name)
    witness = FileWitness(source, footer, what.witness)
    for group in footer.row_groups:
        unit = first + group.ordinal
        chunks = [group.columns[leaf.index] for leaf in what.leaves if leaf.index not in left_out]
        outcomes = [_left(group, left_out, what, source.name)]
        if what.bloom:
            outcomes.append(_filters(source, chunks, collection, keys, unit, witness))
        if what.page_index:
            outcomes.append(_page_indexes(source, footer, group, chunks, collection, keys, unit, witness))
        for leaf_index, outcome in chain.from_iterable(outcomes):
            yield unit, keys[leaf_index], outcome


def parquet_keys(footer: Footer) -> dict[int, Key]:
    """Return the keys of the leaves by leaf index."""
    return keys_of((leaf.index, leaf.field_id, leaf.path) for leaf in footer.columns)


def _left_out(footer: Footer, collection: Collection, what: ParquetWanted, keys: Mapping[int, Key]) -> dict[int, str]:
    """Return the leaves whose indexes must not be taken: the reason by leaf index."""
    found: dict[int, str] = {}
    protection = collection.protection
    for leaf in what.leaves:
        if footer.is_ambiguous(leaf) and not keys[leaf.index].field_id:
            found[leaf.index] = AMBIGUOUS
            continue
        if leaf.index not in footer.encrypted:
            continue
        if leaf.index in footer.locked:
            found[leaf.index] = UnitState.ENCRYPTED
        elif protection.seals(leaf.path):
            pass
        elif protection.allow_plaintext:
            collection.plaintext.add(keys[leaf.index])
        elif what.by_name:
            raise refusal([leaf.path])
        else:
            found[leaf.index] = UnitState.REFUSED
    return found


def _left(group: RowGroup, left_out: Mapping[int, str], what: ParquetWanted, name: str) -> ChunkOutcomes:
    """Yield an outcome for each index of a column that is left out."""
    for leaf, reason in left_out.items():
        chunk = group.columns.get(leaf)
        place = name, group.ordinal, group.columns.stored[leaf].leaf.path
        if what.bloom and (chunk is None or chunk.bloom_filter_offset):
            yield leaf, Outcome(*place, BLOOM, reason=reason)
        if what.page_index and (chunk is None or chunk.offset_index_offset):
            yield leaf, Outcome(*place, PAGE_INDEX, reason=reason)


def _filters(
    source: Source,
    chunks: Sequence[ColumnChunk],
    collection: Collection,
    keys: Mapping[int, Key],
    unit: int,
    witness: FileWitness,
) -> ChunkOutcomes:
    having = [chunk for chunk in chunks if chunk.bloom_filter_offset]
    for chunk, found in read_bloom_filters(source, having):
        place: IndexPlace = (source.name, chunk.row_group, chunk.leaf.path, BLOOM)
        if isinstance(found, StorageError):
            raise found
        if isinstance(found, SidecarError):
            damaged = isinstance(found, DamagedFileError)
            yield chunk.leaf.index, Outcome(*place, reason=reason_of(found), damaged=damaged)
            continue
        if found is None:
            continue
        reason = _not_taken(found) or witness.contradiction(chunk, GivenIndexes(found.filter))
        rate = found.filter.estimated_fpp()
        if reason or not isinstance(found.filter, SplitBlockBloomFilter):
            yield chunk.leaf.index, Outcome(*place, rate_before=rate, reason=reason)
            continue
        key = keys[chunk.leaf.index]
        collection.add_filter(key, unit, chunk.leaf.encoding.name, found.filter)
        yield chunk.leaf.index, Outcome(*place, EXACT, found.bitset_length, rate, rate)


def _page_indexes(
    source: Source,
    footer: Footer,
    group: RowGroup,
    chunks: Sequence[ColumnChunk],
    collection: Collection,
    keys: Mapping[int, Key],
    unit: int,
    witness: FileWitness,
) -> ChunkOutcomes:
    columns, offsets = read_indexes_by_leaf(source, footer, chunks)
    for leaf in sorted(columns.keys() | offsets.keys()):
        chunk = group.columns[leaf]
        sound = sound_page_index(footer, chunk, columns.get(leaf), offsets.get(leaf))
        place: IndexPlace = (source.name, group.ordinal, chunk.leaf.path, PAGE_INDEX)
        if sound.offset_index is None:
            yield leaf, Outcome(*place, reason=sound.reason, damaged=sound.damaged)
            continue
        if contradiction := witness.contradiction(chunk, GivenIndexes(None, sound.column_index, sound.offset_index)):
            yield leaf, Outcome(*place, reason=contradiction)
            continue
        column = b"" if sound.column_index is None else sound.column_index.raw
        offset = sound.offset_index.raw
        kind = page_index_kind(footer, chunk.leaf, keys[leaf].resolution)
        collection.add_page_index(keys[leaf], unit, kind, column, offset)
        yield (
            leaf,
            Outcome(*place, EXACT, len(column) + len(offset), reason=sound.reason, damaged=sound.damaged),
        )


def _not_taken(found: FoundFilter) -> str:
    return "" if found.trusted else found.reason
