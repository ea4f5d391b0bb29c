"""``extract`` of ORC files: trusted Bloom filters and row indexes of every row group, the bits as they are.

Row groups are counted over all stripes. A filter that is not trusted (:mod:`sidecar.orc.trust`) stays behind with its
reason; a row index costs nothing but itself where it is damaged. Values are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sidecar.bundle.row_index_use import row_index_kind
from sidecar.convert.collection import Collection, Key, key_of
from sidecar.convert.identity import file_entry, first_units, identity_of_orc
from sidecar.convert.outcome import BLOOM, EXACT, NONE, PAGE_INDEX, Moved
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.orc.embed import check_embeddable
from sidecar.orc.index_streams import StripeIndex, read_indexes
from sidecar.orc.inspect import reason_of
from sidecar.orc.schema import OrcColumn
from sidecar.orc.stripe import StripeFooter, read_stripe_footer
from sidecar.orc.tail import OrcTail
from sidecar.source import Source

Taken = Iterator[tuple[int, Key, Moved]]
"""Unit in the collection, column, and what became of an index."""


@dataclass(frozen=True)
class OrcWanted:
    """What to take of a file: leaf columns, their filters, their row indexes.

    ``digest``: record that of all stored data too.
    """

    columns: Sequence[OrcColumn]
    bloom: bool
    row_index: bool
    digest: bool


def take_orc(
    source: Source, tail: OrcTail, collection: Collection, what: OrcWanted, keys: Mapping[int, Key]
) -> Taken:
    """Add the file and its indexes to ``collection``; what became of each.

    Raises :class:`sidecar.errors.UnsupportedFeatureError` for an encrypted file, :class:`DamagedFileError` for a
    stripe's footer that cannot be read, and :class:`sidecar.errors.StorageError`.
    """
    check_embeddable(tail)
    first = collection.add_file(file_entry(identity_of_orc(source, tail), digest=what.digest))
    firsts = first_units(tail)
    ids = [column.id for column in what.columns]
    for stripe in tail.stripes:
        if not stripe.num_rows:
            continue
        footer = read_stripe_footer(source, tail, stripe)
        indexes = read_indexes(source, tail, stripe, footer, ids, bloom=what.bloom)
        for column in what.columns:
            place = _StripeColumn(tail, footer, indexes[column.id], keys[column.id], firsts[stripe.ordinal])
            if what.bloom:
                yield from _filters(place, collection, first)
            if what.row_index:
                yield from _row_indexes(place, collection, first)


def orc_keys(tail: OrcTail) -> dict[int, Key]:
    """The key of each leaf column: by field id where that is the column's alone and above 0, else by path."""
    ids = [column.field_id for column in tail.columns if column.field_id is not None]
    keys = {}
    for column in tail.columns:
        own = column.field_id
        certain = own is not None and own > 0 and ids.count(own) == 1
        keys[column.id] = key_of(own if certain else None, column.path)
    return keys


@dataclass(frozen=True)
class _StripeColumn:
    """A column of a stripe; ``first`` counts the row groups in front of the stripe."""

    tail: OrcTail
    footer: StripeFooter
    index: StripeIndex
    key: Key
    first: int

    def moved(
        self, row_group: int, kind: str, way: str, size: int = 0, rate: float | None = None, reason: str = ""
    ) -> Moved:
        path, unit = self.index.column.path, self.first + row_group
        after = rate if way == EXACT else None
        return Moved(self.tail.name, unit, path, kind, way, size, rate, after, reason=reason)

    def lost(self, kind: str, problem: SidecarError) -> Iterator[Moved]:
        """All row groups lack an index because of one problem."""
        damaged = isinstance(problem, DamagedFileError)
        for group in range(self.footer.stripe.num_row_groups):
            place = (self.tail.name, self.first + group, self.index.column.path, kind)
            yield Moved(*place, NONE, reason=reason_of(problem), damaged=damaged)


def _filters(place: _StripeColumn, collection: Collection, first: int) -> Taken:
    if place.index.filters_problem is not None:
        for moved in place.lost(BLOOM, place.index.filters_problem):
            yield first + moved.row_group, place.key, moved
        return
    for group, found in enumerate(place.index.filters or ()):
        unit = first + place.first + group
        bits = found.filter
        rate = None if bits is None else bits.estimated_fpp()
        if bits is None or found.encoding is None or not found.trusted:
            yield unit, place.key, place.moved(group, BLOOM, NONE, rate=rate, reason=found.reason)
            continue
        collection.add_filter(place.key, unit, found.encoding.name, bits)
        yield unit, place.key, place.moved(group, BLOOM, EXACT, bits.num_bytes, rate)


def _row_indexes(place: _StripeColumn, collection: Collection, first: int) -> Taken:
    index = place.index
    if index.row_index_problem is not None:
        for moved in place.lost(PAGE_INDEX, index.row_index_problem):
            yield first + moved.row_group, place.key, moved
        return
    if index.row_index is None:
        return
    kind = row_index_kind(place.tail, place.footer, index.column, place.key.resolution)
    for group, entry in enumerate(index.row_index.parts):
        unit = first + place.first + group
        if entry:
            collection.add_row_index(place.key, unit, kind, entry)
            yield unit, place.key, place.moved(group, PAGE_INDEX, EXACT, len(entry))
        else:
            yield unit, place.key, place.moved(group, PAGE_INDEX, NONE, reason="its entry is empty")
