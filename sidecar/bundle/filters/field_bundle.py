"""Writes the filters of one field: its groups, as they were planned, and the pages that they were sliced into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.envelopes.encryption import FieldKey
from sidecar.bundle.field_parts import NewBlob, SegmentUnits, blob_pieces, check_units
from sidecar.bundle.filters.filter_toc import encode_filter_toc
from sidecar.bundle.filters.positions import BundleGroup
from sidecar.bundle.filters.rules import IndexRule
from sidecar.bundle.filters.slicing import own_blocks_piece
from sidecar.bundle.model import SegmentHeader
from sidecar.errors import UsageError


@dataclass
class FieldBundle:
    """The filters of one field for :func:`sidecar.bundle.writer.write_segment`.

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

    @property
    def size(self) -> int:
        """See :class:`sidecar.bundle.field_parts.FieldPart`."""
        return sum(group.layout.length for group in self.groups)

    def place(self, segment_id: bytes) -> BlobContext:
        """Return the context of the pieces, encrypted if there is a key."""
        return BlobContext(segment_id, self.field_id) if self.key is None else self.key.place

    def blobs(self, header: SegmentHeader, units: SegmentUnits) -> Iterator[NewBlob]:
        """Yield a blob for each class of rules: see :meth:`sidecar.bundle.field_parts.FieldPart.blobs`."""
        pages, place = iter(self.pages), self.place(header.segment_id)
        for rule, groups in _by_rule(self.groups):
            rates = self.fpp, self.expected_false_units
            toc, offset = encode_filter_toc(
                rule, header, self.field_id, groups, units.num_units, units.toc, *rates, self.key
            )
            check_units((group.units for group in groups), units)
            pieces = _group_pieces(self, groups, pages, place)
            yield NewBlob(rule.blob_type, toc, blob_pieces(rule.magic, pieces, toc, offset, self.key))
        if (piece := next(pages, None)) is not None:
            raise _wrong_pages(self, None, 0, piece)


def _by_rule(groups: Sequence[BundleGroup]) -> list[tuple[type[IndexRule], list[BundleGroup]]]:
    """Return the groups by the class of their rule. Raises :class:`UsageError` unless they are in planned order."""
    by_rule = [(rule, list(members)) for rule, members in groupby(groups, key=lambda group: type(group.rule))]
    numbers = [[group.ordinal for group in members] for _, members in by_rule]
    if numbers != [list(range(len(members))) for _, members in by_rule] or len(by_rule) > len(dict(by_rule)):
        raise UsageError("the groups of a field are not in planned order", found=numbers)
    return by_rule


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


def _wrong_pages(bundle: FieldBundle, group: BundleGroup | None, left: int, piece: bytes | None) -> UsageError:
    return UsageError(
        "the pages of a field do not fill its groups",
        column=f"field {bundle.field_id}, group {group.ordinal if group else 'none'}",
        expected=f"{left} more bytes",
        found="the end" if piece is None else f"a piece of {len(piece)} bytes",
    )
