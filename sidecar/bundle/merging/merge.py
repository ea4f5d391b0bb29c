"""Merge segments of sidecars into one segment, without any data file.

    parts = [check_segment(source) for source in sources]      everything is read and verified, oldest first
    merge_segments(puffin, parts, files, ...)                   read again in batches and written

The caller says which files the merged segment lists, in which order and in which manifests
(:class:`MergedFile`): the live files of a snapshot, as its manifests have them today. So a manifest is listed only if
all its live files are in the merged segment, whatever the merged segments listed.

The merged segment answers as the merged ones did together: for a file that one of them lists, every filter has the
same bits. Only a column that was built again loses the filter of the older segment. Of files that are not in ``files``
nothing is kept. The header is that of the newest segment with a new id. The newest
name of a column wins; a name that one segment withholds is withheld.

Encrypted blobs are decrypted and encrypted under a fresh data key, wrapped by the same master key. Writing them
vouches for the units table of all merged segments, so a segment without an encrypted blob, which anybody could have
written, is never merged with one that has some (:func:`may_merge`).

Memory: the units tables, and what the filters of one group need (:meth:`MergedFilters.pages`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from secrets import token_bytes
from typing import Any

import numpy as np
import numpy.typing as npt

from sidecar.bundle.checksum import BlobContext
from sidecar.bundle.encryption import FieldKey
from sidecar.bundle.envelope import SEGMENT_BYTES
from sidecar.bundle.filters.field_bundle import FieldBundle
from sidecar.bundle.filters.rules import RULES
from sidecar.bundle.indexes.index_blob import FieldIndexes
from sidecar.bundle.indexes.page_indexes import FieldPageIndexes
from sidecar.bundle.indexes.row_indexes import FieldRowIndexes
from sidecar.bundle.merging.merged_filters import merge_filters, merged_rates, owners_of
from sidecar.bundle.merging.merged_indexes import MergedIndexes, index_owners, merge_indexes
from sidecar.bundle.merging.merged_sketches import merge_sketches
from sidecar.bundle.merging.merged_units import MergedFile, MergedUnits, Owners, merge_coverage, merge_units
from sidecar.bundle.merging.source_segment import INDEX_TYPES, CheckedSegment, FieldBlob, SourceSegment
from sidecar.bundle.model import ListedManifest, SegmentHeader, UnitsTable
from sidecar.bundle.segment import named_columns
from sidecar.bundle.toc import TocEntry
from sidecar.bundle.writer import write_segment
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import UsageError
from sidecar.puffin.writer import PuffinWriter

FILTERS, PAGES = "bloom", "page-index"
"""The kinds of coverage whose indexes are filters, and page or row indexes."""
FILTER_TYPES = tuple(rule.blob_type for rule in RULES)


def may_merge(first: Mapping[int, bytes | None], second: Mapping[int, bytes | None]) -> bool:
    """Return whether two segments may be merged, given the metadata of the keys of their fields (``None``: plaintext).

    Either both or none have encrypted blobs, and blobs of one field are encrypted with one master key.
    """
    if any(first.values()) != any(second.values()):
        return False
    return all(first[field_id] == second[field_id] for field_id in first.keys() & second.keys())


def merge_segments(
    puffin: PuffinWriter,
    sources: Sequence[CheckedSegment],
    files: Sequence[MergedFile],
    manifests: Sequence[ListedManifest],
    schemas: Sequence[str],
    *,
    snapshot_id: int,
    sequence_number: int,
    keys: EncryptionKeys | None = None,
    live_fields: Collection[int] | None = None,
) -> list[TocEntry]:
    """Write one segment with the indexes of several. Returns entries for :func:`sidecar.bundle.writer.write_toc`.

    ``sources`` are oldest first. ``files`` are the files to list, those of ``manifests`` first and in their order;
    ``schemas`` are the Avro schemas of their entries. ``snapshot_id`` and ``sequence_number`` are those of the snapshot
    that the file is registered for. ``keys`` encrypt blobs that were encrypted. Coverage of fields that are not in
    ``live_fields`` is left out (``None``: of none). Sketches of small groups are united.

    Raises :class:`UsageError` for segments that may not be merged, and the errors of writing.
    """
    header = _header(sources)
    merge = _Merge(sources, merge_units(sources, files), header, keys)
    table = UnitsTable(merge.units.files, manifests, schemas, merge.coverage(live_fields))
    place = {"snapshot_id": snapshot_id, "sequence_number": sequence_number}
    sketches = merge_sketches(sources, merge.units)
    return write_segment(puffin, header, table, chain(merge.indexes(), merge.bundles(), sketches), **place)


def _header(sources: Sequence[CheckedSegment]) -> SegmentHeader:
    newest = max(sources, key=lambda source: source.source.age)
    columns = named_columns(source.segment for source in sources)
    return replace(newest.segment.header, segment_id=token_bytes(SEGMENT_BYTES), columns=columns)


class _Merge:
    """One merge: owners of all indexes, and the keys of the merged segment."""

    def __init__(
        self,
        sources: Sequence[CheckedSegment],
        units: MergedUnits,
        header: SegmentHeader,
        keys: EncryptionKeys | None,
    ) -> None:
        self.units = units
        self._sources = sources
        self._header = header
        metadata = dict(sources[0].source.key_metadata)
        for source in sources[1:]:
            if not may_merge(metadata, source.source.key_metadata):
                raise UsageError("segments with different keys cannot be merged")
            metadata |= source.source.key_metadata
        self._keys = {i: self._field_key(keys, i, found) for i, found in metadata.items() if found is not None}
        self._fields = sorted(metadata)
        self._filters = {i: owners_of(sources, units, i) for i in self._fields}
        self._indexes = {i: index_owners(sources, units, [(t, i) for t in INDEX_TYPES]) for i in self._fields}

    def _field_key(self, keys: EncryptionKeys | None, field_id: int, metadata: bytes) -> FieldKey:
        master = None if keys is None else keys.for_bundle(metadata)
        if master is None:
            raise UsageError(f"the key of field {field_id} is not among the given keys")
        return FieldKey(master, metadata, self._header.table_uuid, self._header.segment_id, field_id)

    def coverage(self, live_fields: Collection[int] | None) -> list[Any]:
        """Return the states of the merged units."""
        owners: dict[tuple[int, str], Owners] = {(i, FILTERS): found for i, found in self._filters.items()}
        owners |= {(i, PAGES): found for i, found in self._indexes.items()}
        damaged = {(i, FILTERS): self._damaged(i, FILTER_TYPES) for i in self._fields}
        damaged |= {(i, PAGES): self._damaged(i, INDEX_TYPES) for i in self._fields}
        return merge_coverage(self._sources, self.units, owners, damaged, live_fields)

    def _damaged(self, field_id: int, types: Sequence[str]) -> npt.NDArray[np.bool_]:
        damaged = np.zeros(self.units.num_units, np.bool_)
        for number, source in enumerate(self._sources):
            for blob_type in types:
                units = source.damaged.get((blob_type, field_id))
                if units is not None:
                    at = self.units.new_units[number][units]
                    damaged[at[at >= 0]] = True
        return damaged

    def bundles(self) -> Iterator[FieldBundle]:
        """Yield the merged filters of each field that has some."""
        for field_id, owners in self._filters.items():
            key = self._keys.get(field_id)
            place = BlobContext(self._header.segment_id, field_id) if key is None else key.place
            merged = merge_filters(self._sources, self.units, field_id, owners, place.sealing)
            if merged.groups:
                rates = merged_rates(self._sources, field_id, merged.contributions)
                properties = self._properties([(blob_type, field_id) for blob_type in FILTER_TYPES])
                yield FieldBundle(field_id, merged.groups, merged.pages(place), *rates, key, properties)

    def indexes(self) -> Iterator[FieldIndexes]:
        """Yield the merged page indexes and row indexes of each field that has some."""
        for field_id, owners in self._indexes.items():
            for written in (FieldPageIndexes, FieldRowIndexes):
                merged: MergedIndexes = merge_indexes(self._sources, self.units, written.form, field_id, owners)
                if merged.groups:
                    entries: Any = merged.entries(self._sources)
                    key, properties = self._keys.get(field_id), self._properties([merged.key])
                    yield written(field_id, merged.groups, entries, key, properties)

    def _properties(self, keys: Sequence[FieldBlob]) -> dict[str, str]:
        """Return the properties of all merged blobs: a mark of one of them holds for the merged blob."""
        found: dict[str, str] = {}
        for source in self._sources:
            stored = source.source.properties
            for key in keys:
                found |= stored.get(key, {})
        return found


__all__ = ["MergedFile", "SourceSegment", "may_merge", "merge_segments"]
