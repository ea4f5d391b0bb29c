"""Decides which Bloom filters the stripes of a rewritten ORC file get: old ones as they are, or new ones from values.

Trusted old filters (:mod:`sidecar.orc.trust`) keep their bytes. Readers in Java and C++ also believe filters that lose
rows, so a filter that is not trusted is dropped or, if its column is requested, built anew.

A new filter has the size that ORC writers choose. It has every key by which a reader may look up a value that equals
one of the row group: both zeros, the canonical NaN, and for days before 1582-10-15 in a hybrid calendar also the day
with the same date in the proleptic calendar, because ORC Java looks that day up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from sidecar.bundle.kinds.declared import BLOOM
from sidecar.conversion.outcome import CONVERTED, EXACT, NONE, VALUES, Outcome, Way
from sidecar.conversion.reuse import NEVER, FilterRules
from sidecar.errors import DamagedFileError, SidecarError, StorageError, UnsupportedFeatureError, UsageError, reason_at
from sidecar.filters.orc.array_hash import hash_orc
from sidecar.filters.orc.bloom import OrcBloomFilter, insert_groups, size_for
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.orc.decode import LeafCursor
from sidecar.orc.embed import FILTER_STREAMS, encode_filters
from sidecar.orc.index_streams import MAX_STREAM, StripeIndex, read_indexes
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.stripe import ColumnEncoding, StripeFooter, read_stripe_footer
from sidecar.orc.tail import CPP, JAVA, OrcTail, Stripe
from sidecar.orc.times import old_days_in_proleptic
from sidecar.orc.trust import LEGACY, UTF8, UTF8_UTC, encoding_of, hashes_wrongly
from sidecar.questions.bounds import Unknown
from sidecar.storage.source import Source

_ORC_135 = 6
"""The version of the Java writer from which on filters on timestamps hash UTC, which readers require."""
_MESSAGE_BYTES = 32
"""Bytes that the message of a filter takes at most beside its bits."""
_MOST_ROWS = 1 << 15
"""Rows of row groups that are decoded together, if they are several: their values stay in the second-level cache."""
_ONE_KEY_EACH = frozenset({"long", "bytes", "char", "varchar", "decimal", "decimal64"})
"""Families of encodings in which each value that is not null has one key, in the order of the values."""


@dataclass
class StripeWork:
    """The filters of one stripe: ``new`` streams by column id, in parts, and column ids whose streams are ``kept``."""

    new: dict[int, list[bytes | memoryview]] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)
    without_legacy: set[int] = field(default_factory=set)
    """The columns of ``kept`` whose BLOOM_FILTER may not be asked, while their BLOOM_FILTER_UTF8 may."""
    outcomes: dict[int, list[Outcome]] = field(default_factory=dict)
    """The outcomes of a column's filters, one for each row group, by column id."""

    @property
    def size(self) -> int:
        """Bytes of the new streams."""
        return sum(len(part) for parts in self.new.values() for part in parts)


@dataclass(frozen=True)
class _OldFilters:
    """The old filters and row index of a column in a stripe."""

    stripe: Stripe
    footer: StripeFooter
    index: StripeIndex

    @property
    def column(self) -> OrcColumn:
        return self.index.column

    @property
    def bits(self) -> list[OrcBloomFilter]:
        return [found.filter for found in self.index.filters or () if found.filter is not None]

    @property
    def rate(self) -> float:
        """The worst rate of the row groups' filters."""
        return max((bits.estimated_fpp() for bits in self.bits), default=0.0)

    @property
    def defect(self) -> str:
        """Why the filters may not stay; empty if they may."""
        reason = reason_at(self.index.filters_problem)
        return reason or next((found.reason for found in self.index.filters or () if not found.trusted), "")

    @property
    def stream_kind(self) -> str:
        """The kind of the stream that has the filters; empty without filters."""
        return self.index.filters[0].stream_kind if self.index.filters else ""

    @property
    def asked_by_all(self) -> bool:
        """Whether both Java and C++ readers use these filters."""
        return self.stream_kind == UTF8 and self.footer.encodings[self.column.id].bloom_encoding == UTF8_UTC


def check_filterable(tail: OrcTail) -> None:
    """Raise :class:`UnsupportedFeatureError` for a file that cannot hold filters or whose filters no reader uses."""
    reason = ""
    if tail.row_index_stride == 0:
        reason = "the file has no row index, which filters need"
    elif tail.file_version == (0, 11):
        reason = "files of version 0.11 have no filters"
    elif tail.writer == CPP and hashes_wrongly(tail):
        reason = "readers use no filters of files by this version of the C++ writer (ORC-1024)"
    if reason:
        raise UnsupportedFeatureError(reason, file=tail.name, found=tail.created_by)


def new_encoding(tail: OrcTail, column: OrcColumn, zone: str | None) -> OrcEncoding:
    """Return the encoding (the keys) of a new filter on ``column`` in a stripe with the writer's time zone ``zone``.

    Raises :class:`UnsupportedFeatureError` if no reader would use the filter, or if some reader would look up other
    keys and so lose rows.
    """
    encoding, _, _ = encoding_of(tail, column, ColumnEncoding("DIRECT", 0, UTF8_UTC), UTF8, zone)
    reason = ""
    if column.is_compound or column.kind == "BOOLEAN":
        reason = f"readers use no filters on {column.kind}"
    elif column.nested_in_repeated:
        reason = "it is inside a list or map, so it does not have one value per row"
    elif column.kind == "TIMESTAMP" and (encoding is None or encoding.zone != "UTC"):
        reason = f"wall clocks of the writer's zone {zone or '(unknown)'}, whose rules readers may not share"
    elif column.kind == "TIMESTAMP_INSTANT":
        reason = "ORC Java looks an instant up by a key of its own time zone, and would lose rows"
    elif column.kind == "TIMESTAMP" and tail.writer == JAVA and tail.writer_version < _ORC_135:
        reason = "readers use no filters on timestamps by a writer before ORC-135"
    elif encoding is None:
        reason = f"no keys are known for {column.kind}"
    if reason or encoding is None:
        raise UnsupportedFeatureError(reason)
    return encoding


class GivenFilters(Protocol):
    """Filters from another place, such as a sidecar, which go into the file as they are."""

    @property
    def columns(self) -> AbstractSet[int]:
        """Ids of the columns that may have such filters."""

    def filters(self, footer: StripeFooter, column: OrcColumn) -> list[OrcBloomFilter] | Unknown | None:
        """Return a column's filters by row group of the stripe, or why it gets filters from its values instead.

        ``None`` means that there are none, and the file's own rules apply.
        """


class OrcFilterMaker:
    """Makes the filters of one open file, stripe by stripe. Threads may share it."""

    def __init__(self, source: Source, tail: OrcTail, rules: FilterRules, given: GivenFilters | None = None) -> None:
        self._source = source
        self._tail = tail
        self._statistics = FileStatistics(source, tail)
        self._rules = rules
        self._wanted = frozenset(rules.columns)
        self._given = given
        self._first = list(accumulate((stripe.num_row_groups for stripe in tail.stripes), initial=0))

    def make(self, ordinal: int) -> StripeWork:
        """Make all filters of a stripe.

        Damage of a column costs only that column. Raises :class:`DamagedFileError` for a broken stripe footer, and
        :class:`StorageError`.
        """
        stripe = self._tail.stripes[ordinal]
        work = StripeWork()
        if not stripe.num_rows:
            return work
        footer = read_stripe_footer(self._source, self._tail, stripe)
        ids = {stream.column for stream in footer.streams if stream.kind in FILTER_STREAMS} | self._wanted
        ids |= set() if self._given is None else self._given.columns
        for index in read_indexes(self._source, self._tail, footer, sorted(ids), self._statistics).values():
            old = _OldFilters(stripe, footer, index)
            # Given filters go first, then old ones that may stay. Where no new ones can be built, sound old ones do.
            if self._given is not None and index.column.id in self._given.columns and self._take_given(work, old):
                continue
            self._keep_old(work, old)
            if index.column.id in self._wanted and index.column.id not in work.kept:
                self._build_anew(work, old)
                self._keep_if_sound(work, old)
        return work

    def _take_given(self, work: StripeWork, old: _OldFilters) -> bool:
        """Give a column the given filters or their replacement. Return False if its own filters are to be looked at."""
        assert self._given is not None
        found = self._given.filters(old.footer, old.column)
        if found is None:
            return False
        if isinstance(found, list):
            work.new[old.column.id] = encode_filters(found, self._tail)
            self._record_outcomes(work, old, EXACT, found)
        else:
            self._build_anew(work, old)
            outcomes = work.outcomes[old.column.id]
            work.outcomes[old.column.id] = [
                replace(outcome, reason=outcome.reason or found.reason) for outcome in outcomes
            ]
        return True

    def _keep_old(self, work: StripeWork, old: _OldFilters) -> None:
        """Keep the old filters of a column, or note why they are dropped."""
        if old.index.filters is None and old.index.filters_problem is None:
            return
        reason = old.defect
        if not reason and old.column.id in self._wanted:
            reason = self._not_reused(old)
        if reason:
            self._record_outcomes(work, old, reason=f"dropped: {reason}", dropped=True)
        else:
            self._take_over(work, old)

    def _take_over(self, work: StripeWork, old: _OldFilters, reason: str = "", damaged: bool = False) -> None:
        work.kept.add(old.column.id)
        if old.stream_kind == UTF8 and self._doubts_legacy(old):
            work.without_legacy.add(old.column.id)
        self._record_outcomes(work, old, EXACT, old.bits, reason, damaged)

    def _keep_if_sound(self, work: StripeWork, old: _OldFilters) -> None:
        """Keep sound old filters if no new ones could be built."""
        if old.column.id not in work.new and old.bits and not old.defect:
            failed = work.outcomes[old.column.id][0]
            reason = f"{self._not_reused(old)}, but no others can be built: {failed.reason}"
            self._take_over(work, old, reason, failed.damaged)

    def _doubts_legacy(self, old: _OldFilters) -> bool:
        encodings, zone = old.footer.encodings[old.column.id], old.footer.writer_timezone
        return not encoding_of(self._tail, old.column, encodings, LEGACY, zone)[1]

    def _not_reused(self, old: _OldFilters) -> str:
        if self._rules.reuse != NEVER and not old.asked_by_all:
            return "only Java readers use it"
        return self._rules.why_not_reused(old.column.id, old.rate)

    def _build_anew(self, work: StripeWork, old: _OldFilters) -> None:
        """Give a column new filters, or note why it gets none."""
        try:
            encoding = new_encoding(self._tail, old.column, old.footer.writer_timezone)
            if old.index.row_index is None:
                raise old.index.row_index_problem or UnsupportedFeatureError("the column has no row index")
            same = self._has_same_bits(old, encoding)
            filters = old.bits if same else self._from_values(old, encoding)
        except StorageError:
            raise
        except SidecarError as error:
            self._record_outcomes(work, old, reason=reason_at(error), damaged=isinstance(error, DamagedFileError))
            return
        work.new[old.column.id] = encode_filters(filters, self._tail)
        self._record_outcomes(work, old, CONVERTED if same else VALUES, filters)

    def _has_same_bits(self, old: _OldFilters, encoding: OrcEncoding) -> bool:
        """Return whether a new stream for all readers would have the same bits as the old stream."""
        found = old.index.filters or ()
        same = bool(found) and all(old_filter.trusted and old_filter.encoding == encoding for old_filter in found)
        return same and not old.asked_by_all and not self._rules.why_not_reused(old.column.id, old.rate)

    def _from_values(self, old: _OldFilters, encoding: OrcEncoding) -> list[OrcBloomFilter]:
        m, k = size_for(self._tail.row_index_stride, self._rules.rate_of(old.column.id))
        groups = old.stripe.num_row_groups
        size = groups * (m // 8 + _MESSAGE_BYTES)
        if size > MAX_STREAM:
            raise UnsupportedFeatureError(
                "the filters of a stripe are too large to be read back",
                expected=f"at most {MAX_STREAM} bytes",
                found=size,
            )
        table = np.zeros((groups, m // 64), np.uint64)  # one piece of memory, which the system gives in large pages
        filters = OrcBloomFilter.rows_of(table, k)
        first = 0
        try:
            cursor = LeafCursor(self._source, self._tail, old.footer, old.column)
            for counts in _taken_together(old, encoding, cursor.step):
                values = cursor.take(sum(counts))
                taken = slice(first, first + len(counts))
                if encoding.family in _ONE_KEY_EACH and not values.null_count:
                    insert_groups(table[taken], k, hash_orc(values, encoding), counts)
                else:
                    parts = [values] if len(counts) == 1 else _cut(values, counts)
                    for one, part in zip(filters[taken], parts, strict=True):
                        self._insert(one, part, encoding)
                first = taken.stop
        except UsageError as error:  # values that are not of the encoding
            raise UnsupportedFeatureError(error.what, found=error.found) from error
        return filters

    def _insert(self, one: OrcBloomFilter, values: pa.Array[Any], encoding: OrcEncoding) -> None:
        one.insert(hash_orc(values, encoding))
        if encoding.family == "date" and self._tail.calendar != "proleptic_gregorian":
            one.insert(hash_orc(_moved_days(values), encoding))

    def _record_outcomes(
        self,
        work: StripeWork,
        old: _OldFilters,
        way: Way = NONE,
        filters: Sequence[OrcBloomFilter] = (),
        reason: str = "",
        damaged: bool = False,
        dropped: bool = False,
    ) -> None:
        """Record one outcome for each row group."""
        first, found = self._first[old.stripe.ordinal], old.index.filters or ()
        before = [None if old_filter.filter is None else old_filter.filter.estimated_fpp() for old_filter in found]
        outcomes = []
        for group in range(old.stripe.num_row_groups):
            new = filters[group] if filters else None
            outcomes.append(
                Outcome(
                    self._source.name,
                    first + group,
                    old.column.path,
                    BLOOM,
                    way,
                    new.num_bytes if new else 0,
                    before[group] if found else None,
                    new.estimated_fpp() if new else None,
                    reason=reason,
                    damaged=damaged,
                    dropped=dropped,
                )
            )
        work.outcomes[old.column.id] = outcomes


def _taken_together(old: _OldFilters, encoding: OrcEncoding, step: int) -> Iterator[list[int]]:
    """Yield the rows of row groups whose values are decoded together: few calls for many values.

    Row groups of a nested column are decoded alone, because its rows have no values or several, and so are timestamps,
    whose unit depends on the values of their row group.
    """
    most = 0 if old.column.parent or encoding.zone or encoding.writer else min(step, _MOST_ROWS)
    together: list[int] = []
    for group in old.stripe.row_groups:
        if together and sum(together) + group.rows > most:
            yield together
            together = []
        together.append(group.rows)
    yield together


def _cut(values: Any, lengths: Sequence[int]) -> Iterator[Any]:
    """Yield consecutive slices of an array, of these lengths."""
    at = 0
    for length in lengths:
        yield values[at : at + length]
        at += length


def _moved_days(values: pa.Array[Any]) -> pa.Array[Any]:
    days = values.drop_null().view(pa.int32()).to_numpy().astype(np.int64)
    return pa.array(old_days_in_proleptic(days).astype(np.int32)).view(pa.date32())
