"""Merges segments of sidecars into one segment, without any data file.

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

Memory: the units tables, and what the filters of one group need (``merged_filters``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from secrets import token_bytes

import numpy as np
import numpy.typing as npt

from sidecar.bundle.envelopes.encryption import FieldKey
from sidecar.bundle.envelopes.envelope import SEGMENT_BYTES
from sidecar.bundle.kinds.declared import KINDS
from sidecar.bundle.merging.checking import MERGES
from sidecar.bundle.merging.kind_merge import SegmentMerge
from sidecar.bundle.merging.merged_units import MergedFile, MergedUnits, merge_coverage, merge_units
from sidecar.bundle.merging.source_segment import CheckedSegment, SourceSegment
from sidecar.bundle.model import ListedManifest, SegmentHeader, UnitsTable
from sidecar.bundle.segment import named_columns
from sidecar.bundle.toc import TocEntry
from sidecar.bundle.writer import write_segment
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import UsageError
from sidecar.puffin.writer import PuffinWriter


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
    header, units = _header(sources), merge_units(sources, files)
    metadata = _key_metadata(sources)
    owners = {
        (field_id, name): MERGES[name].owners(sources, units, field_id)
        for name, kind in KINDS.items()
        if kind.merges == "newest"
        for field_id in sorted(metadata)
    }
    field_keys = {i: _field_key(keys, i, found, header) for i, found in metadata.items() if found is not None}
    damaged = {key: _damaged(sources, units, *key) for key in owners}
    coverage = merge_coverage(sources, units, owners, damaged, live_fields)
    merge = SegmentMerge(sources, units, header, field_keys, owners)
    parts = (part for kind in MERGES.values() for part in kind.parts(merge))
    table = UnitsTable(units.files, manifests, schemas, coverage)
    return write_segment(puffin, header, table, parts, snapshot_id=snapshot_id, sequence_number=sequence_number)


def _header(sources: Sequence[CheckedSegment]) -> SegmentHeader:
    newest = max(sources, key=lambda source: source.source.age)
    columns = named_columns(source.segment for source in sources)
    return replace(newest.segment.header, segment_id=token_bytes(SEGMENT_BYTES), columns=columns)


def _key_metadata(sources: Sequence[CheckedSegment]) -> dict[int, bytes | None]:
    """Return the metadata of the key of each field's blobs, ``None`` for plaintext."""
    metadata = dict(sources[0].source.key_metadata)
    for source in sources[1:]:
        if not may_merge(metadata, source.source.key_metadata):
            raise UsageError("segments with different keys cannot be merged")
        metadata |= source.source.key_metadata
    return metadata


def _field_key(keys: EncryptionKeys | None, field_id: int, metadata: bytes, header: SegmentHeader) -> FieldKey:
    master = None if keys is None else keys.for_bundle(metadata)
    if master is None:
        raise UsageError(f"the key of field {field_id} is not among the given keys")
    return FieldKey(master, metadata, header.table_uuid, header.segment_id, field_id)


def _damaged(sources: Sequence[CheckedSegment], units: MergedUnits, field_id: int, kind: str) -> npt.NDArray[np.bool_]:
    """bool[merged units]: which had a damaged index of a field and kind in some segment."""
    damaged = np.zeros(units.num_units, np.bool_)
    for number, source in enumerate(sources):
        for blob_type in KINDS[kind].blob_types:
            lost = source.damaged.get((blob_type, field_id))
            if lost is not None:
                at = units.new_units[number][lost]
                damaged[at[at >= 0]] = True
    return damaged


__all__ = ["MergedFile", "SourceSegment", "may_merge", "merge_segments"]
