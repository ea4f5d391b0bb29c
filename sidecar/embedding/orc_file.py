"""Embeds Bloom filters into an ORC file without touching its data, or removes all of them.

A column has filters in every stripe or in none: if some stripes lack them, ORC Java also stops skipping by the column's
statistics. So all filters are made before the first stripe is written, by threads
(:mod:`sidecar.embedding.orc_filters`), and wait in a spool, which stays in memory while it is small.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from tempfile import SpooledTemporaryFile
from typing import Final

from sidecar.bundle.kinds.declared import BLOOM
from sidecar.conversion.outcome import NONE, IndexPlace, Outcome
from sidecar.conversion.reuse import FilterRules
from sidecar.data_files.open_orc import OpenOrc
from sidecar.embedding.orc_filters import OrcFilterMaker, StripeWork, check_filterable
from sidecar.embedding.report import EmbedReport
from sidecar.orc.embed import FILTER_STREAMS, StripeFilters, WrittenOrc, check_embeddable, embed
from sidecar.orc.stripe import read_stripe_footer
from sidecar.orc.tail import OrcTail
from sidecar.parquet.page_indexes.extents import Range
from sidecar.run import in_turn, report_progress
from sidecar.storage.source import Source
from sidecar.storage.target import Target

PLACEMENT: Final = "stripe"
"""The only place of ORC filters: the index of their stripe."""

WAITING_BYTES = 64 << 20
"""Bytes of new indexes that wait to be written, about."""
_SPOOL_LENGTH = 16 << 20
"""Bytes of filters that the spool keeps in memory."""


def embed_orc(file: OpenOrc, target: Target, rules: FilterRules, threads: int) -> EmbedReport:
    """Write the file with filters to the empty ``target``.

    Raises the errors of :func:`sidecar.orc.embed.embed`, and :class:`UnsupportedFeatureError` for files that cannot
    hold filters or in which no reader would use them.
    """
    start, source, tail = time.monotonic(), file.source, file.tail
    check_embeddable(tail)
    check_filterable(tail)
    maker = OrcFilterMaker(source, tail, rules)
    written, outcomes = write_orc(source, tail, target, maker, threads)
    seconds = time.monotonic() - start
    return EmbedReport(source.name, target.name, PLACEMENT, tail.size, written, outcomes, seconds, rules.fpp)


def write_orc(
    source: Source,
    tail: OrcTail,
    target: Target,
    maker: OrcFilterMaker,
    threads: int = 1,
) -> tuple[WrittenOrc, list[Outcome]]:
    """Write the file with the filters of ``maker``; each column has them in all stripes or in none."""
    with SpooledTemporaryFile(_SPOOL_LENGTH) as spool:
        plan = _Plan(tail, spool)
        with closing(in_turn(maker.make, range(len(tail.stripes)), threads, WAITING_BYTES)) as ahead:
            for number, work in enumerate(ahead):
                report_progress("stripes", number + 1, len(tail.stripes))
                plan.add(work)
        plan.all_or_none()
        return embed(source, tail, target, plan.filters()), plan.outcomes()


def strip_orc(file: OpenOrc, target: Target) -> EmbedReport:
    """Write the file without filters to the empty ``target``. Raises the errors of :func:`sidecar.orc.embed.embed`."""
    start, source, tail = time.monotonic(), file.source, file.tail
    check_embeddable(tail)
    removed = list(_removed(source, tail))
    written = embed(source, tail, target, _no_filters(len(tail.stripes)))
    return EmbedReport(source.name, target.name, PLACEMENT, tail.size, written, removed, time.monotonic() - start)


def _no_filters(count: int) -> Iterator[StripeFilters]:
    for number in range(count):
        report_progress("stripes", number, count)
        yield StripeFilters()
    report_progress("stripes", count, count)


class _Plan:
    """The filters of every stripe; new ones are in a spool."""

    def __init__(self, tail: OrcTail, spool: SpooledTemporaryFile[bytes]) -> None:
        self._tail = tail
        self._spool = spool
        self._work: list[StripeWork] = []
        self._places: list[dict[int, Range]] = []

    def add(self, work: StripeWork) -> None:
        """Add the next stripe."""
        places = {}
        for column, parts in work.new.items():
            start = self._spool.tell()
            self._spool.writelines(parts)
            places[column] = Range(start, self._spool.tell() - start)
        work.new.clear()
        self._work.append(work)
        self._places.append(places)

    def all_or_none(self) -> None:
        """Drop the filters of each column that some stripe with rows has no filters for."""
        columns = {column for work in self._work for column in work.outcomes}
        for column in columns:
            lacking = next(
                (s.ordinal for s in self._tail.stripes if s.num_rows and not self._has_filters(s.ordinal, column)),
                None,
            )
            if lacking is None:
                continue
            outcomes = self._work[lacking].outcomes.get(column)
            why = f": {outcomes[0].reason}" if outcomes and outcomes[0].reason else ""
            for ordinal, work in enumerate(self._work):
                if self._has_filters(ordinal, column):
                    work.kept.discard(column)
                    self._places[ordinal].pop(column, None)
                    reason = f"dropped: stripe {lacking} has no filters{why}"
                    work.outcomes[column] = [
                        replace(outcome, way=NONE, bytes=0, rate_after=None, reason=reason)
                        for outcome in work.outcomes[column]
                    ]

    def _has_filters(self, ordinal: int, column: int) -> bool:
        return column in self._places[ordinal] or column in self._work[ordinal].kept

    def filters(self) -> Iterator[StripeFilters]:
        """Yield the filters of each stripe, read from the spool."""
        for work, places in zip(self._work, self._places, strict=True):
            new = {}
            for column, place in places.items():
                self._spool.seek(place.offset)
                new[column] = self._spool.read(place.length)
            yield StripeFilters(new, work.kept, work.without_legacy)

    def outcomes(self) -> list[Outcome]:
        """Return all outcomes, by row group and then by column."""
        by_stripe = ([work.outcomes[column] for column in sorted(work.outcomes)] for work in self._work)
        return [outcome for columns in by_stripe for group in zip(*columns, strict=True) for outcome in group]


def _removed(source: Source, tail: OrcTail) -> Iterator[Outcome]:
    first = 0
    for stripe in tail.stripes:
        footer = read_stripe_footer(source, tail, stripe)
        columns = sorted({s.column for s in footer.streams if s.kind in FILTER_STREAMS})
        for group in range(first, first + stripe.num_row_groups):
            for column in columns:
                yield IndexPlace(tail.name, group, tail.columns[column].path, BLOOM).without_index("removed")
        first += stripe.num_row_groups
