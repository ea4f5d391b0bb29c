"""``extract`` of ORC files: trusted Bloom filters and row indexes of every row group, the bits as they are.

Row groups are counted over all stripes. A filter that is not trusted (:mod:`sidecar.orc.trust`) stays behind with its
reason; a row index costs nothing but itself where it is damaged. Values are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sidecar.bundle.row_indexes import row_index_kind
from sidecar.convert.collection import Collection, Key, key_of
from sidecar.convert.identity import file_entry, first_units, identity_of_orc
from sidecar.convert.outcome import BLOOM, EXACT, PAGE_INDEX, IndexPlace, Outcome
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.orc.embed import check_embeddable
from sidecar.orc.index_streams import StripeIndex, read_indexes
from sidecar.orc.inspect import reason_of
from sidecar.orc.schema import OrcColumn
from sidecar.orc.stripe import StripeFooter, read_stripe_footer
from sidecar.orc.tail import OrcTail
from sidecar.source import Source

Taken = Iterator[tuple[int, Key, Outcome]]
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
            one = _StripeColumn(tail, footer, indexes[column.id], keys[column.id], firsts[stripe.ordinal])
            if what.bloom:
                yield from _filters(one, collection, first)
            if what.row_index:
                yield from _row_indexes(one, collection, first)


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

    def place(self, row_group: int, kind: str) -> IndexPlace:
        return self.tail.name, self.first + row_group, self.index.column.path, kind

    def lost(self, kind: str, problem: SidecarError) -> Iterator[Outcome]:
        """All row groups lack an index because of one problem."""
        damaged = isinstance(problem, DamagedFileError)
        for group in range(self.footer.stripe.num_row_groups):
            yield Outcome(*self.place(group, kind), reason=reason_of(problem), damaged=damaged)


def _filters(one: _StripeColumn, collection: Collection, first: int) -> Taken:
    if one.index.filters_problem is not None:
        for outcome in one.lost(BLOOM, one.index.filters_problem):
            yield first + outcome.row_group, one.key, outcome
        return
    for group, found in enumerate(one.index.filters or ()):
        unit, place = first + one.first + group, one.place(group, BLOOM)
        bits = found.filter
        rate = None if bits is None else bits.estimated_fpp()
        if bits is None or found.encoding is None or not found.trusted:
            yield unit, one.key, Outcome(*place, rate_before=rate, reason=found.reason)
            continue
        collection.add_filter(one.key, unit, found.encoding.name, bits)
        yield unit, one.key, Outcome(*place, EXACT, bits.num_bytes, rate, rate)


def _row_indexes(one: _StripeColumn, collection: Collection, first: int) -> Taken:
    index = one.index
    if index.row_index_problem is not None:
        for outcome in one.lost(PAGE_INDEX, index.row_index_problem):
            yield first + outcome.row_group, one.key, outcome
        return
    if index.row_index is None:
        return
    kind = row_index_kind(one.tail, one.footer, index.column, one.key.resolution)
    for group, entry in enumerate(index.row_index.parts):
        unit, place = first + one.first + group, one.place(group, PAGE_INDEX)
        if entry:
            collection.add_row_index(one.key, unit, kind, entry)
            yield unit, one.key, Outcome(*place, EXACT, len(entry))
        else:
            yield unit, one.key, Outcome(*place, reason="its entry is empty")
