"""Write segments into a Puffin file. The build driver calls this.

    groups = plan_groups(members)                        positions.plan_groups, one call for each field
    entries = copy_segments(old, puffin, ...)            segments of an earlier sidecar, copied as bytes
    entries += write_segment(puffin, header, units, [FieldBundle(field_id, groups, pages), ...], ...)
    write_toc(puffin, entries, ...)                      last; only puffin.finish() may follow

Memory is bounded by the units table and one piece of pages. A page is written as soon as it arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from sidecar.bundle.checksum import BlobContext
from sidecar.bundle.encryption import ENCRYPTED_VERSION, FieldKey
from sidecar.bundle.envelope import FIELD_VERSION, header_for
from sidecar.bundle.filters.filter_toc import encode_filter_toc
from sidecar.bundle.filters.positions import BundleGroup
from sidecar.bundle.filters.rules import IndexRule
from sidecar.bundle.filters.slicing import own_blocks_piece
from sidecar.bundle.indexes.index_blob import FieldIndexes, index_pieces
from sidecar.bundle.indexes.index_toc import IndexGroup, encode_index_toc
from sidecar.bundle.model import SegmentHeader, UnitsTable
from sidecar.bundle.sidecar_file import Segment, SidecarFile
from sidecar.bundle.sketches.sketch_blob import FieldSketches, write_sketches
from sidecar.bundle.toc import TocEntry, write_toc
from sidecar.bundle.units.writer import UnitsBlob, encode_units_blob
from sidecar.errors import UsageError
from sidecar.puffin.metadata import BlobMetadata
from sidecar.puffin.types import UNITS
from sidecar.puffin.writer import PuffinWriter

__all__ = ["FieldBundle", "copy_segments", "write_segment", "write_toc"]


@dataclass
class FieldBundle:
    """The filters of one field for :func:`write_segment`.

    ``groups`` are in the order of :func:`plan_groups`. Split-block and ORC filters become one blob each. ``pages`` has,
    for each of ``groups`` in order, the results of ``slice_blocks`` for all its blocks in order, then ``tail_piece``
    if the group has tails. Pieces may have any length, but a piece must not have bytes of two groups. ``fpp`` and
    ``expected_false_units`` are the field's and recorded for people. With ``key``, the bundles are encrypted, and
    groups and pages must have been made for ``key.place``; all blobs of a segment and field share one key.
    ``properties`` are the blobs' in the Puffin footer.
    """

    field_id: int
    groups: Sequence[BundleGroup]
    pages: Iterable[bytes]
    fpp: float | None = None
    expected_false_units: float | None = None
    key: FieldKey | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def place(self, segment_id: bytes) -> BlobContext:
        """Return the context of the pieces, encrypted if there is a key."""
        return BlobContext(segment_id, self.field_id) if self.key is None else self.key.place


def write_segment(
    puffin: PuffinWriter,
    header: SegmentHeader,
    units: UnitsTable,
    fields: Iterable[FieldBundle],
    indexes: Iterable[FieldIndexes] = (),
    sketches: Iterable[FieldSketches] = (),
    *,
    snapshot_id: int,
    sequence_number: int,
) -> list[TocEntry]:
    """Write page and row indexes, the bundles and sketches of each field, and the units blob.

    ``snapshot_id`` and ``sequence_number`` are those of the snapshot that the file is registered for; ``header`` has
    the segment's own. Returns entries for :func:`write_toc`. Raises :class:`UsageError` if pages or units contradict
    the groups.
    """
    blob = encode_units_blob(header, units)
    entries = []

    def add(blob_type: str, own: FieldBundle | FieldIndexes, toc: bytes, pieces: Iterator[bytes]) -> None:
        written = puffin.add_blob(
            blob_type, [own.field_id], snapshot_id, sequence_number, pieces, properties=own.properties
        )
        entries.append(_entry(written, header.segment_id, toc))

    for given in indexes:
        toc, offset = encode_index_toc(
            given.form, header, given.field_id, given.groups, blob.num_units, blob.toc, given.key
        )
        _check_units(given.groups, blob)
        place = BlobContext(header.segment_id, given.field_id) if given.key is None else given.key.place
        pieces = index_pieces(given, place)
        add(given.form.blob_type, given, toc, _blob(given.form.magic, pieces, toc, offset, given.key))
    for bundle in fields:
        pages, place = iter(bundle.pages), bundle.place(header.segment_id)
        for rule, groups in _by_rule(bundle.groups):
            toc, offset = encode_filter_toc(
                rule,
                header,
                bundle.field_id,
                groups,
                blob.num_units,
                blob.toc,
                bundle.fpp,
                bundle.expected_false_units,
                bundle.key,
            )
            _check_units(groups, blob)
            pieces = _group_pieces(bundle, groups, pages, place)
            add(rule.blob_type, bundle, toc, _blob(rule.magic, pieces, toc, offset, bundle.key))
        if (piece := next(pages, None)) is not None:
            raise _wrong_pages(bundle, None, 0, piece)
    place_of = {"snapshot_id": snapshot_id, "sequence_number": sequence_number}
    for one in sketches:
        entries.append(write_sketches(puffin, header, one, len(units.files), blob.num_units, blob.toc, **place_of))
    written = puffin.add_blob(UNITS, [], snapshot_id, sequence_number, blob.pieces())
    return [*entries, _entry(written, header.segment_id, blob.toc)]


def _by_rule(groups: Sequence[BundleGroup]) -> list[tuple[type[IndexRule], list[BundleGroup]]]:
    """Return the groups by the class of their rule. Raises :class:`UsageError` unless they are in planned order."""
    by_rule = [(rule, list(members)) for rule, members in groupby(groups, key=lambda group: type(group.rule))]
    numbers = [[group.ordinal for group in members] for _, members in by_rule]
    if numbers != [list(range(len(members))) for _, members in by_rule] or len(by_rule) > len(dict(by_rule)):
        raise UsageError("the groups of a field are not in planned order", found=numbers)
    return by_rule


def copy_segments(
    sidecar: SidecarFile,
    puffin: PuffinWriter,
    *,
    snapshot_id: int,
    sequence_number: int,
    segments: Iterable[Segment] | None = None,
    keep: Callable[[TocEntry], bool] = lambda entry: True,
) -> list[TocEntry]:
    """Copy segments (default: all) of another sidecar as bytes. Returns entries for :func:`write_toc`.

    Offsets inside a blob count from its start, so nothing in it changes, and its properties stay. Encrypted blobs
    stay readable with their key, because no snapshot is bound into it. ``keep`` filters the blobs of fields; the units
    blob is always copied.
    """
    copied = []
    properties = {blob.offset: blob.properties for blob in sidecar.puffin.metadata.blobs}
    for entry in kept_entries(sidecar.segments if segments is None else segments, keep):
        kept = properties.get(entry.offset, {})
        blob = BlobMetadata(
            entry.blob_type, entry.fields, snapshot_id, sequence_number, entry.offset, entry.length, None, kept
        )
        copied.append(_entry(puffin.copy_blob(blob, sidecar.puffin), entry.segment_id, entry.toc))
    return copied


def kept_entries(segments: Iterable[Segment], keep: Callable[[TocEntry], bool]) -> Iterator[TocEntry]:
    """Yield the entries of the blobs that :func:`copy_segments` copies, in its order."""
    for segment in segments:
        # The units blob goes last, because readers need its end together with the file's tail.
        yield from (*filter(keep, segment.entries[1:]), segment.entry)


def _entry(blob: BlobMetadata, segment_id: bytes, toc: bytes) -> TocEntry:
    return TocEntry(blob.type, blob.fields, segment_id, blob.offset, blob.length, toc)


def _blob(magic: bytes, pieces: Iterable[bytes], toc: bytes, toc_offset: int, key: FieldKey | None) -> Iterator[bytes]:
    yield header_for(magic, toc, toc_offset, FIELD_VERSION if key is None else ENCRYPTED_VERSION).encode()
    yield from pieces
    yield toc


def _group_pieces(
    bundle: FieldBundle, groups: Sequence[BundleGroup], pages: Iterator[bytes], place: BlobContext
) -> Iterator[bytes]:
    """Yield each group's pages, check their total length, and append the own numbers of blocks."""
    for group in groups:
        left = group.layout.own_offset
        while left > 0:
            piece = next(pages, None)
            if piece is None or len(piece) > left:
                raise _wrong_pages(bundle, group, left, piece)
            left -= len(piece)
            yield piece
        yield own_blocks_piece(group, place)


def _check_units(groups: Sequence[BundleGroup] | Sequence[IndexGroup[Any]], units: UnitsBlob) -> None:
    for group in groups:
        if len(group.units) and not 0 <= group.units[-1] < units.num_units:
            raise UsageError("a group has units that are not in the segment", expected=units.num_units)


def _wrong_pages(bundle: FieldBundle, group: BundleGroup | None, left: int, piece: bytes | None) -> UsageError:
    return UsageError(
        "the pages of a field do not fill its groups",
        column=f"field {bundle.field_id}, group {group.ordinal if group else 'none'}",
        expected=f"{left} more bytes",
        found="the end" if piece is None else f"a piece of {len(piece)} bytes",
    )
