"""Describes the indexes of an ORC file, and looks up one value.

A damaged stream has its reason in the result and does not hide the others. Only a file without a readable tail raises.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from sidecar.errors import DamagedFileError, Problem, SidecarError, UsageError, column_hint, problem_in, reason_at
from sidecar.filters.literals import LiteralValue, as_literal
from sidecar.filters.orc.values import probe_orc
from sidecar.orc.file_info import (
    OrcColumnInfo,
    OrcFileInfo,
    OrcFilterInfo,
    OrcRowGroupInfo,
    OrcRowIndexInfo,
    OrcStreamInfo,
    OrcStripeInfo,
)
from sidecar.orc.index_streams import FoundOrcFilter, StripeIndex, read_indexes
from sidecar.orc.row_index import positions_of
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics.bounds import cannot_hold
from sidecar.orc.statistics.column_statistics import Bound
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.stripe import StripeFooter, read_stripe_footer
from sidecar.orc.tail import OrcTail, Stripe, read_tail
from sidecar.results.base import ProbedRowGroup
from sidecar.storage.source import Source

_EPOCH = datetime(1970, 1, 1)


def inspect_file(source: Source) -> OrcFileInfo:
    """Describe the stripes with their streams, and the row index and filters of every row group.

    Raises as :func:`sidecar.orc.tail.read_tail` does.
    """
    tail = read_tail(source)
    statistics = FileStatistics(source, tail)
    not_believed = statistics.problems()
    stripes: list[OrcStripeInfo] = []
    units: list[OrcRowGroupInfo] = []
    for stripe in tail.stripes:
        footer, problem = None, ""
        try:
            footer = read_stripe_footer(source, tail, stripe)
            indexes = read_indexes(source, tail, footer, range(len(tail.columns)), statistics, legacy=True)
            not_believed += _false_entries(tail, stripe, indexes, len(units))
            units += _units(tail, footer, indexes)
        except SidecarError as error:
            problem = reason_at(error)
        stripes.append(_stripe(tail, stripe, footer, problem))
    return OrcFileInfo(
        file=tail.name,
        size=tail.size,
        created_by=tail.created_by,
        rows=tail.num_rows,
        file_version=".".join(map(str, tail.file_version)),
        compression=tail.compression,
        block_size=tail.block_size,
        row_index_stride=tail.row_index_stride,
        calendar=tail.calendar,
        encrypted=tail.encrypted,
        encrypted_columns=[tail.columns[i].path for i in sorted(tail.encrypted_columns)],
        stripes=stripes,
        units=units,
        not_believed=not_believed,
    )


def _stripe(tail: OrcTail, stripe: Stripe, footer: StripeFooter | None, problem: str) -> OrcStripeInfo:
    return OrcStripeInfo(
        stripe.ordinal,
        stripe.offset,
        stripe.num_rows,
        stripe.num_row_groups,
        stripe.index_length,
        stripe.data_length,
        stripe.footer_length,
        None if footer is None else footer.writer_timezone,
        [] if footer is None else list(_streams(tail, footer)),
        problem,
    )


def _streams(tail: OrcTail, footer: StripeFooter) -> Iterator[OrcStreamInfo]:
    for s in footer.streams:
        yield OrcStreamInfo(s.kind, tail.columns[s.column].path, s.offset, s.length)
    for variant in footer.encrypted_streams:
        for s in variant:
            yield OrcStreamInfo(s.kind, tail.columns[s.column].path, s.offset, s.length, True)


def _false_entries(
    tail: OrcTail, stripe: Stripe, indexes: Mapping[int, StripeIndex], first_unit: int
) -> Iterator[Problem]:
    """Yield what is false in the row indexes of a stripe; ``first_unit`` is the number of row groups before it."""
    for index in indexes.values():
        found = index.contradictions
        if found.of_all:
            yield problem_in(tail.name, f"stripe {stripe.ordinal}: {found.of_all}", index.column.path or None)
        for group, what in found.of_part.items():
            yield problem_in(tail.name, what, index.column.path or None, first_unit + group)


def _units(tail: OrcTail, footer: StripeFooter, indexes: Mapping[int, StripeIndex]) -> list[OrcRowGroupInfo]:
    groups = footer.stripe.row_groups
    shown = {column.path: column for column in tail.columns if column.id or indexes[0].filters is not None}
    return [
        OrcRowGroupInfo(
            footer.stripe.ordinal,
            group.ordinal,
            group.first_row,
            group.rows,
            {path: _column(tail, footer, indexes[column.id], group.ordinal) for path, column in shown.items()},
        )
        for group in groups
    ]


def _column(tail: OrcTail, footer: StripeFooter, index: StripeIndex, row_group: int) -> OrcColumnInfo:
    legacy = index.legacy_filters
    old = None if legacy is None or index.filters is legacy else describe_found(legacy[row_group])
    return OrcColumnInfo(_row_index(tail, footer, index, row_group), _filter(index, row_group), old)


def _row_index(tail: OrcTail, footer: StripeFooter, index: StripeIndex, row_group: int) -> OrcRowIndexInfo | None:
    stream = index.streams.get("ROW_INDEX")
    if stream is None:
        return None
    unread = OrcRowIndexInfo(offset=stream.offset, length=stream.length, reason=reason_at(index.row_index_problem))
    if index.row_index is None:
        return unread
    column = index.column
    try:
        found = index.statistics(row_group)
        unread = replace(unread, positions=positions_of(index.row_index, row_group, column, tail, footer))
    except SidecarError as error:
        return replace(unread, reason=reason_at(error))
    if found is None:
        return replace(unread, reason="no statistics")
    return replace(
        unread,
        values=found.num_values,
        has_null=found.has_null,
        min=_shown(found.min, column),
        max=_shown(found.max, column),
        reason=found.reason,
    )


def _shown(bound: Bound | None, column: OrcColumn) -> Bound | None:
    """Return a bound for people: dates and times as text, if Python's calendar has them."""
    if not isinstance(bound, int) or column.kind not in ("DATE", "TIMESTAMP", "TIMESTAMP_INSTANT"):
        return bound
    try:
        if column.kind == "DATE":
            return (_EPOCH + timedelta(days=bound)).date().isoformat()
        zone = "+00:00" if column.kind == "TIMESTAMP_INSTANT" else ""
        seconds, nanoseconds = divmod(bound, 1_000_000_000)
        return f"{(_EPOCH + timedelta(seconds=seconds)).isoformat()}.{nanoseconds:09d}{zone}"
    except OverflowError:
        return bound


def _filter(index: StripeIndex, row_group: int) -> OrcFilterInfo | None:
    if index.filters is not None:
        return describe_found(index.filters[row_group])
    if index.filters_problem is None:
        return None
    stream = index.streams.get("BLOOM_FILTER_UTF8") or index.streams["BLOOM_FILTER"]
    return _unread(stream.kind, stream.offset, stream.length, reason_at(index.filters_problem))


def _unread(kind: str, offset: int, length: int, reason: str) -> OrcFilterInfo:
    return OrcFilterInfo(stream=kind, offset=offset, length=length, trusted=False, reason=reason)


def describe_found(found: FoundOrcFilter) -> OrcFilterInfo:
    """Describe a filter; ``offset`` and ``length`` are those of its stream, ``bytes`` is the size of its bitset."""
    unread = _unread(found.stream_kind, found.offset, found.length, found.reason)
    if found.filter is None:
        return unread
    return replace(
        unread,
        bytes=found.filter.num_bytes,
        hash="orc",
        encoding=None if found.encoding is None else found.encoding.name,
        k=found.filter.k,
        m=found.filter.m,
        fill=found.filter.fill(),
        estimated_fpp=found.filter.estimated_fpp(),
        trusted=found.trusted,
        sha256=hashlib.sha256(found.filter.to_bytes()).hexdigest(),
    )


def find_column(tail: OrcTail, path: str) -> OrcColumn:
    """Return the column with a dotted path. Raises :class:`UsageError` with the nearest paths if there is none."""
    column = tail.column(path)
    if column is not None and column.id:
        return column
    paths = [column.path for column in tail.columns if column.id]
    what = "more than one column" if path in paths else "no column"
    raise UsageError(f"the file has {what} '{path}'", file=tail.name, hint=column_hint(path, paths))


def probe_file(source: Source, column: str, literal: LiteralValue) -> list[ProbedRowGroup]:
    """Return for each row group whether the column might contain ``literal``: by bounds first, then by its filter.

    A stripe whose statistics exclude the value is not read. Any other stripe costs one read for its footer, and one for
    row index and filters of the column. A ``str`` is parsed as a literal of the column's type; any other value is the
    value of a bound literal (:mod:`sidecar.filters.literals`). Only trusted statistics or a trusted filter give
    ``False``. Raises :class:`UsageError` for an unknown column and a literal that does not fit it.
    """
    tail = read_tail(source)
    found = find_column(tail, column)
    if found.is_compound or found.iceberg_type is None:
        raise UsageError(f"column '{column}' has no values to compare ({found.kind})", file=tail.name)
    value = as_literal(literal, found.iceberg_type)
    statistics = FileStatistics(source, tail)
    return [unit for stripe in tail.stripes for unit in _probe_stripe(source, tail, stripe, found, value, statistics)]


def _probe_stripe(
    source: Source,
    tail: OrcTail,
    stripe: Stripe,
    column: OrcColumn,
    value: LiteralValue,
    statistics: FileStatistics,
) -> Iterator[ProbedRowGroup]:
    iceberg_type = column.iceberg_type or ""
    whole = None
    with suppress(DamagedFileError):
        whole = statistics.of_stripe(stripe, column)
    if excluded := cannot_hold(whole, value, iceberg_type, column):
        for group in range(len(stripe.row_groups)):
            yield ProbedRowGroup(
                stripe=stripe.ordinal, row_group=group, might_contain=False, reason=f"stripe: {excluded}"
            )
        return
    footer, index, problem = None, None, ""
    try:
        footer = read_stripe_footer(source, tail, stripe)
        index = read_indexes(source, tail, footer, [column.id], statistics)[column.id]
    except SidecarError as error:
        problem = reason_at(error)
    for group in range(len(stripe.row_groups)):
        might: bool | None = None
        reason = problem
        if footer is not None and index is not None:
            might, reason = ask_row_group(index, group, value)
        yield ProbedRowGroup(stripe=stripe.ordinal, row_group=group, might_contain=might, reason=reason)


def ask_row_group(index: StripeIndex, group: int, value: LiteralValue) -> tuple[bool | None, str]:
    """Return whether a row group might hold ``value`` (``None`` if that is not certain), and the reason.

    ``value`` is the value of a bound literal of the column's own Iceberg type. Statistics come before the filter.
    """
    column = index.column
    iceberg_type = column.iceberg_type or ""
    try:
        statistics = index.statistics(group)
    except SidecarError:
        statistics = None
    if excluded := cannot_hold(statistics, value, iceberg_type, column):
        return False, excluded
    if index.filters is None:
        return None, reason_at(index.filters_problem) or "no filter"
    found = index.filters[group]
    if not found.trusted or found.filter is None or found.encoding is None:
        return None, found.reason
    probe = probe_orc(value, iceberg_type, found.encoding)
    if probe.verdict == "probe":
        return any(found.filter.might_contain_hash(h) for h in probe.hashes), ""
    return (False if probe.verdict == "cannot-exist" else None), probe.reason
