"""``extract`` for ORC files: copies the trusted Bloom filters and the row indexes of every row group, bit for bit.

Row groups are counted over all stripes. A filter that is not trusted (:mod:`sidecar.orc.trust`) is left out with a
reason; a damaged row index costs only itself. Values are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sidecar.bundle.indexes.row_indexes import row_index_kind
from sidecar.bundle.kinds.declared import BLOOM, PAGE_INDEX, IndexKind
from sidecar.bundle.model import StoredColumn
from sidecar.conversion.collection import Collection, Key, Taken, keys_of
from sidecar.conversion.matching.identity import file_entry, identity_of
from sidecar.conversion.outcome import EXACT, IndexPlace, Outcome
from sidecar.data_files.open_orc import OpenOrc, first_units
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.orc.embed import check_embeddable
from sidecar.orc.index_streams import StripeIndex, read_indexes
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics.contradictions import reason_of
from sidecar.orc.stripe import StripeFooter, read_stripe_footer
from sidecar.orc.tail import OrcTail


@dataclass(frozen=True)
class OrcWanted:
    """The indexes to take from a file: filters and row indexes of ``columns``."""

    columns: Sequence[OrcColumn]
    bloom: bool
    row_index: bool


def take_orc(file: OpenOrc, collection: Collection, what: OrcWanted, keys: Mapping[int, Key]) -> Taken:
    """Add the file and its indexes to ``collection``, and yield what became of each index.

    Raises :class:`sidecar.errors.UnsupportedFeatureError` for an encrypted file, :class:`DamagedFileError` for a
    stripe's footer that cannot be read, and :class:`sidecar.errors.StorageError`.
    """
    source, tail, statistics = file.source, file.tail, file.statistics
    check_embeddable(tail)
    first = collection.add_file(file_entry(identity_of(file)))
    firsts = first_units(tail)
    ids = [column.id for column in what.columns]
    statistics.compare(what.columns)
    for column in what.columns:
        name = StoredColumn(column.names, column.iceberg_type or "")
        collection.name_column(keys[column.id], None if column.encrypted else name)
    for stripe in tail.stripes:
        if not stripe.num_rows:
            continue
        footer = read_stripe_footer(source, tail, stripe)
        indexes = read_indexes(source, tail, footer, ids, statistics, bloom=what.bloom)
        for column in what.columns:
            stripe_column = _StripeColumn(tail, footer, indexes[column.id], keys[column.id], firsts[stripe.ordinal])
            if what.bloom:
                yield from _filters(stripe_column, collection, first)
            if what.row_index:
                yield from _row_indexes(stripe_column, collection, first)


def orc_keys(tail: OrcTail) -> dict[int, Key]:
    """Return the keys of the columns by column id."""
    return keys_of((column.id, column.field_id, column.path) for column in tail.columns)


@dataclass(frozen=True)
class _StripeColumn:
    """A column of a stripe. ``first`` is the number of row groups before the stripe."""

    tail: OrcTail
    footer: StripeFooter
    index: StripeIndex
    key: Key
    first: int

    def place(self, row_group: int, kind: IndexKind) -> IndexPlace:
        return self.tail.name, self.first + row_group, self.index.column.path, kind

    def lost(self, kind: IndexKind, problem: SidecarError) -> Iterator[Outcome]:
        """Yield an outcome for each row group of the stripe: one problem cost all of them their index."""
        damaged = isinstance(problem, DamagedFileError)
        for group in range(self.footer.stripe.num_row_groups):
            yield Outcome(*self.place(group, kind), reason=reason_of(problem), damaged=damaged)


def _filters(stripe_column: _StripeColumn, collection: Collection, first: int) -> Taken:
    if stripe_column.index.filters_problem is not None:
        for outcome in stripe_column.lost(BLOOM, stripe_column.index.filters_problem):
            yield first + outcome.row_group, stripe_column.key, outcome
        return
    for group, found in enumerate(stripe_column.index.filters or ()):
        unit, place = first + stripe_column.first + group, stripe_column.place(group, BLOOM)
        bits = found.filter
        rate = None if bits is None else bits.estimated_fpp()
        if bits is None or found.encoding is None or not found.trusted:
            yield unit, stripe_column.key, Outcome(*place, rate_before=rate, reason=found.reason)
            continue
        collection.add_filter(stripe_column.key, unit, found.encoding.name, bits)
        yield unit, stripe_column.key, Outcome(*place, EXACT, bits.num_bytes, rate, rate)


def _row_indexes(stripe_column: _StripeColumn, collection: Collection, first: int) -> Taken:
    index = stripe_column.index
    if index.row_index_problem is not None:
        for outcome in stripe_column.lost(PAGE_INDEX, index.row_index_problem):
            yield first + outcome.row_group, stripe_column.key, outcome
        return
    if index.row_index is None:
        return
    kind = row_index_kind(stripe_column.tail, stripe_column.footer, index.column, stripe_column.key.resolution)
    for group, entry in enumerate(index.row_index.parts):
        unit, place = first + stripe_column.first + group, stripe_column.place(group, PAGE_INDEX)
        if doubt := index.contradictions.of(group):
            yield unit, stripe_column.key, Outcome(*place, reason=doubt, damaged=True)
        elif entry:
            collection.add_row_index(stripe_column.key, unit, kind, entry)
            yield unit, stripe_column.key, Outcome(*place, EXACT, len(entry))
        else:
            yield unit, stripe_column.key, Outcome(*place, reason="its entry is empty")
