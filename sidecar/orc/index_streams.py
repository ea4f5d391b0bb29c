"""Reads the index of a stripe: row indexes and Bloom filters of its columns, one read for each column.

Writers put the streams ROW_INDEX, BLOOM_FILTER and BLOOM_FILTER_UTF8 of a column next to each other, in the order of
column ids. Java writes BLOOM_FILTER, the older form, on request (``original``); before writer version 5 it writes only
that. If a column has both, the UTF-8 stream is read, because it can be probed for at least as many types.

:mod:`sidecar.orc.trust` decides which filters may be probed. A filter that is not trusted is still read if possible,
has a reason, and never prunes. A damaged stream does not affect the other streams.

Row index, filters and the statistics of the stripe are held against each other
(:mod:`sidecar.orc.statistics.contradictions`). What is false is not believed: such a filter is not trusted, and
:meth:`StripeIndex.statistics` know nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

from sidecar.errors import DamagedFileError, SidecarError, located
from sidecar.filters.orc.bloom import OrcBloomFilter
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.orc.key_hash import hash_long
from sidecar.filters.orc.values import probe_orc
from sidecar.orc.bloom import decode_filters
from sidecar.orc.compression import bound
from sidecar.orc.row_index import RowIndex, decode_row_index
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics.column_statistics import ColumnStatistics, unknown_statistics
from sidecar.orc.statistics.contradictions import Contradictions, RowIndexClaims
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.stripe import Stream, StripeFooter
from sidecar.orc.tail import OrcTail
from sidecar.orc.trust import encoding_of
from sidecar.storage.ranges import read_ranges
from sidecar.storage.source import Source

ROW_INDEX, BLOOM_FILTER, BLOOM_FILTER_UTF8 = "ROW_INDEX", "BLOOM_FILTER", "BLOOM_FILTER_UTF8"

MAX_STREAM = 256 << 20
"""Bytes of the largest index stream that is read, decompressed."""

_MISSING = DamagedFileError("the filter is missing")


class FoundOrcFilter(NamedTuple):
    """The filter of one row group in a file.

    ``offset`` and ``length`` are those of its stream, in bytes; all row groups of the stripe share it.
    """

    filter: OrcBloomFilter | None
    """``None`` if the bytes are not a filter; ``reason`` says why."""
    stream_kind: str
    offset: int
    length: int
    encoding: OrcEncoding | None
    """The encoding of the keys that it hashes; ``None`` if unknown."""
    trusted: bool
    reason: str
    """The reason why it is not trusted; empty if it is."""
    contradiction: str = ""
    """Why the filter and the statistics of its row group cannot both be right; empty if they can."""


_FilterPlace = tuple[str, int, int, OrcEncoding | None]
"""The stream, its place and the encoding of a :class:`FoundOrcFilter`."""


@dataclass(frozen=True)
class IndexContext:
    """The facts with which the index of a stripe is compared: the file, the stripe's footer, and the file's
    statistics."""

    tail: OrcTail
    footer: StripeFooter
    statistics: FileStatistics

    def whole(self, column: OrcColumn) -> ColumnStatistics | None:
        """Return the statistics of a column in the stripe; ``None`` if they are missing or damaged."""
        try:
            return self.statistics.of_stripe(self.footer.stripe, column, self.footer.writer_timezone)
        except DamagedFileError:
            return None


@dataclass(frozen=True)
class StripeIndex:
    """The index of one column in one stripe."""

    column: OrcColumn
    row_index: RowIndex | None
    row_index_problem: SidecarError | None
    """The error of the row index, which is then ``None``."""
    filters: list[FoundOrcFilter] | None
    """One for each row group, from the UTF-8 stream if there is one; ``None`` without a readable stream."""
    legacy_filters: list[FoundOrcFilter] | None
    """The filters of BLOOM_FILTER, if ``legacy`` asked for that stream too."""
    filters_problem: SidecarError | None
    """The error of the stream of ``filters``, which is then ``None``."""
    streams: dict[str, Stream]
    """The index streams by kind."""
    claims: RowIndexClaims | None
    """The statements of ``row_index``; ``None`` without it."""
    context: IndexContext

    @cached_property
    def whole(self) -> ColumnStatistics | None:
        """The column's statistics in the stripe; ``None`` if they are missing or damaged."""
        return self.context.whole(self.column)

    @cached_property
    def contradictions(self) -> Contradictions:
        """The contradictions in the row index, by row group. The statistics of such a row group are not believed."""
        found = Contradictions() if self.claims is None else self.claims.contradictions
        by_filters = {
            group: one.contradiction
            for filters in (self.legacy_filters, self.filters)
            for group, one in enumerate(filters or ())
            if one.contradiction
        }
        return Contradictions(found.of_all, by_filters | found.of_part)

    def statistics(self, row_group: int) -> ColumnStatistics | None:
        """Return what is believed of a row group; ``None`` if it has no statistics.

        Raises :class:`DamagedFileError`.
        """
        found = None if self.claims is None else self.claims.believed(row_group)
        what = "" if found is None else self.contradictions.of(row_group)
        return unknown_statistics(found.raw, self.column, what) if found is not None and what else found

    def is_misplaced(self, row_group: int) -> bool:
        """Return whether the row group cannot be read by its positions: there are none, or they are false."""
        return self.claims is None or bool(self.claims.misplaced(row_group))


def index_streams_of(footer: StripeFooter, column: int, *, bloom: bool = True, legacy: bool = False) -> list[Stream]:
    """Return the streams that :func:`read_indexes` reads for a column."""
    kinds = [ROW_INDEX]
    if bloom:
        utf8 = footer.stream(column, BLOOM_FILTER_UTF8)
        kinds += [BLOOM_FILTER_UTF8] if utf8 and not legacy else [BLOOM_FILTER, BLOOM_FILTER_UTF8]
    found = (footer.stream(column, kind) for kind in kinds)
    return [stream for stream in found if stream is not None]


def read_indexes(
    source: Source,
    tail: OrcTail,
    footer: StripeFooter,
    column_ids: Iterable[int],
    statistics: FileStatistics,
    *,
    bloom: bool = True,
    legacy: bool = False,
) -> dict[int, StripeIndex]:
    """Read row index and filters of columns: at most one read for each column, neighbours together.

    They are held against ``statistics``, those of the file. ``legacy`` reads BLOOM_FILTER even if there is
    BLOOM_FILTER_UTF8. The error of a damaged stream is in the result. Raises only :class:`sidecar.errors.StorageError`,
    and :class:`DamagedFileError` for a file that ends early.
    """
    wanted = {column: index_streams_of(footer, column, bloom=bloom, legacy=legacy) for column in column_ids}
    fetched = _fetch(source, list(wanted.values()))
    context = IndexContext(tail, footer, statistics)
    return {column: _index(context, tail.columns[column], found, fetched) for column, found in wanted.items()}


def _fetch(source: Source, columns: Sequence[Sequence[Stream]]) -> dict[Stream, memoryview]:
    """Read the bytes of all streams; adjacent streams of a column are one range."""
    spans: list[list[Stream]] = []
    for streams in columns:
        for i, stream in enumerate(streams):
            if i and stream.offset == streams[i - 1].offset + streams[i - 1].length:
                spans[-1].append(stream)
            else:
                spans.append([stream])
    ranges = [(span[0].offset, sum(stream.length for stream in span)) for span in spans]
    fetched: dict[Stream, memoryview] = {}
    for span, data in zip(spans, read_ranges(source, ranges), strict=True):
        view = memoryview(data)
        for stream in span:
            at = stream.offset - span[0].offset
            fetched[stream] = view[at : at + stream.length]
    return fetched


def _index(
    context: IndexContext, column: OrcColumn, streams: Sequence[Stream], fetched: dict[Stream, memoryview]
) -> StripeIndex:
    by_kind = {stream.kind: stream for stream in streams}
    row_index, row_index_problem = None, None
    if (stream := by_kind.get(ROW_INDEX)) is not None:
        try:
            row_index = _row_index(context, column, stream, fetched[stream])
        except SidecarError as error:
            row_index_problem = error
    claims = None
    if row_index is not None:
        claims = RowIndexClaims(context.tail, context.footer, column, row_index, partial(context.whole, column))
    groups = _Groups(context, column, claims)
    found: dict[str, list[FoundOrcFilter] | None] = {}
    problems: dict[str, SidecarError] = {}
    for kind in (BLOOM_FILTER_UTF8, BLOOM_FILTER):
        if (stream := by_kind.get(kind)) is not None:
            try:
                found[kind] = groups.filters(stream, fetched[stream])
            except SidecarError as error:
                problems[kind] = error
    # Readers that know BLOOM_FILTER_UTF8 ask it alone.
    best = BLOOM_FILTER_UTF8 if BLOOM_FILTER_UTF8 in by_kind else BLOOM_FILTER
    return StripeIndex(
        column=column,
        row_index=row_index,
        row_index_problem=row_index_problem,
        filters=found.get(best),
        legacy_filters=found.get(BLOOM_FILTER),
        filters_problem=problems.get(best),
        streams=by_kind,
        claims=claims,
        context=context,
    )


def _content(context: IndexContext, column: OrcColumn, stream: Stream, data: memoryview) -> bytes | memoryview:
    tail = context.tail
    with located(tail.name, column.path, stream.offset):
        return tail.content(data, stream.offset, bound(stream.length, MAX_STREAM))


def _row_index(context: IndexContext, column: OrcColumn, stream: Stream, data: memoryview) -> RowIndex:
    content = bytes(_content(context, column, stream, data))
    with located(context.tail.name, column.path, stream.offset):
        index = decode_row_index(content)
        if len(index) != context.footer.stripe.num_row_groups:
            raise DamagedFileError(
                "the number of entries in a row index differs from the number of row groups in the stripe",
                expected=context.footer.stripe.num_row_groups,
                found=len(index),
            )
        return index


class _Groups:
    """The filters of a column by row group."""

    def __init__(self, context: IndexContext, column: OrcColumn, claims: RowIndexClaims | None) -> None:
        self.context = context
        self.column = column
        self.claims = claims

    def filters(self, stream: Stream, data: memoryview) -> list[FoundOrcFilter]:
        tail, footer, column = self.context.tail, self.context.footer, self.column
        content, count = _content(self.context, column, stream, data), self.context.footer.stripe.num_row_groups
        with located(tail.name, column.path, stream.offset):
            found = decode_filters(content, count)
        encoding, _, reason = encoding_of(
            tail, column, footer.encodings[column.id], stream.kind, footer.writer_timezone
        )
        reason = reason or self._doubt(stream, len(found))
        found = [*found[:count], *(_MISSING,) * (count - len(found))]
        place = (stream.kind, stream.offset, stream.length, encoding)
        return [self._filter(i, one, place, reason) for i, one in enumerate(found)]

    def _doubt(self, stream: Stream, count: int) -> str:
        """Return the reason why the filters may not be those of the row groups; empty if they are."""
        footer = self.context.footer
        if count != footer.stripe.num_row_groups:
            return f"the stream has {count} filters for {footer.stripe.num_row_groups} row groups"
        if sum(other.kind == stream.kind for other in footer.streams_of(self.column.id)) > 1:
            return "the column has two filter streams of one kind"
        return footer.doubt

    def _filter(
        self, row_group: int, found: OrcBloomFilter | SidecarError, place: _FilterPlace, reason: str
    ) -> FoundOrcFilter:
        if isinstance(found, SidecarError):
            return FoundOrcFilter(None, *place, False, reason or found.what)
        if reason:
            return FoundOrcFilter(found, *place, False, reason)
        if not found.words.item(0) and not found.words.any():
            reason = self._empty(row_group)
            return FoundOrcFilter(found, *place, not reason, reason)
        contradiction = self._contradiction(found, place[-1], row_group)
        return FoundOrcFilter(found, *place, not contradiction, contradiction, contradiction)

    def _statistics(self, row_group: int) -> ColumnStatistics | None:
        try:
            return None if self.claims is None else self.claims.statistics(row_group)
        except SidecarError:
            return None

    def _empty(self, row_group: int) -> str:
        """Return the reason why an empty filter cannot be right; empty if the row group has only nulls."""
        try:
            statistics = None if self.claims is None else self.claims.believed(row_group)
        except SidecarError:
            statistics = None
        if statistics is None or statistics.num_values is None:
            return "the filter is empty, but the file does not say that the row group has only nulls"
        values = statistics.num_values
        if values:
            return f"the filter is empty, but the row group has {values} values"
        return "" if statistics.all_null else "the filter is empty, but nulls of the row group are not counted"

    def _contradiction(self, found: OrcBloomFilter, encoding: OrcEncoding | None, row_group: int) -> str:
        """Return why a filter with bits and the statistics cannot both be right; empty if they can."""
        statistics = self._statistics(row_group)
        if statistics is None or encoding is None:
            return ""
        if statistics.all_null:
            return "the filter has values, but the row group has none"
        bounds = {"minimum": statistics.min, "maximum": statistics.max} if statistics.exact else {}
        for name, value in bounds.items():
            if encoding.family == "long" and type(value) is int:  # the usual case, and most of the work of a lookup
                is_denied = not found.might_contain_hash(hash_long(value))
            else:
                probe = probe_orc(value, self.column.iceberg_type or "", encoding)
                is_denied = probe.verdict == "probe" and not any(map(found.might_contain_hash, probe.hashes))
            if is_denied:
                return f"the filter denies the {name} of the row group"
        return ""
