"""Restores an ORC file's filters from a sidecar; filters that do not fit are built from the file's values.

An ORC file cannot hold every filter of a sidecar. Readers look up the keys that the file's writer is known for, so a
filter with other keys, in the writer's charset or of the split-block kind is built anew. A stripe has filters for all
of its row groups or for none, so if one row group lacks its filter, the whole stripe is built anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor

from sidecar.access import Access
from sidecar.bundle.kinds.declared import BLOOM
from sidecar.bundle.model import UnitState
from sidecar.conversion.filter_pool import FilterPool, PooledFilters
from sidecar.conversion.matching.orc_witness import ask_row_groups
from sidecar.conversion.outcome import IndexPlace, Outcome
from sidecar.conversion.restore import coverage
from sidecar.conversion.reuse import FilterRules
from sidecar.data_files.chunk_check import ChunkCheck
from sidecar.data_files.open_orc import OpenOrc
from sidecar.embedding.orc_file import PLACEMENT, write_orc
from sidecar.embedding.orc_filters import OrcFilterMaker, check_filterable, new_encoding
from sidecar.embedding.report import EmbedReport
from sidecar.embedding.restore_plan import IndexRestorer, Place, RestoreChoice, RestorePlan
from sidecar.errors import UnsupportedFeatureError
from sidecar.filters.orc.bloom import OrcBloomFilter
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.orc.schema import OrcColumn
from sidecar.orc.stripe import ColumnEncoding, StripeFooter
from sidecar.orc.tail import Stripe
from sidecar.orc.trust import UTF8, UTF8_UTC, encoding_of
from sidecar.questions.bounds import Unknown
from sidecar.storage.target import Target

SPLIT_BLOCK = "the sidecar has a split-block filter for it, which an ORC file cannot hold"


class OrcRestorer(IndexRestorer[OpenOrc, None]):
    """Gives each stripe of one ORC file its filters, as :class:`sidecar.embedding.orc_filters.GivenFilters`."""

    def __init__(self, plan: RestorePlan[OpenOrc], choice: RestoreChoice, pool: FilterPool, provers: Executor) -> None:
        super().__init__(plan, choice, pool, provers)
        self._file, self._tail = plan.file, plan.file.tail
        self._parts = {(group, part.column): part for part in plan.parts for group in part.units}

    @property
    def columns(self) -> AbstractSet[int]:
        """Ids of the columns that the sidecar has filters for."""
        return {column for _, column in self._parts} | self.plan.from_values.keys()

    def _load(self) -> None:
        columns = sorted({part.column for part in self.plan.exact_parts})
        stripes = [stripe for stripe in self._tail.stripes if stripe.num_rows and columns]
        places = {(self._file.first_units[stripe.ordinal], column) for stripe in stripes for column in columns}
        self._doubtful(places, self._checks(stripes, columns))

    def _checks(self, stripes: Sequence[Stripe], columns: Sequence[int]) -> Iterator[tuple[Place, ChunkCheck]]:
        for stripe in stripes:
            footer, first = self._file.footer(stripe.ordinal), self._file.first_units[stripe.ordinal]
            for column in columns:
                check = self._look_at(footer, self._tail.columns[column])
                if check is not None:
                    yield (first, column), check

    def _look_at(self, footer: StripeFooter, column: OrcColumn) -> ChunkCheck | None:
        """Look up a stripe's values in the filters for its column; return ``None`` if there are no filters."""
        found = self.filters(footer, column)
        if not isinstance(found, list):
            return None
        first = self._file.first_units[footer.stripe.ordinal]
        names = [self._parts[first + number, column.id].group.encoding for number in range(len(found))]
        filters = [(bits, OrcEncoding.parse(name)) for bits, name in zip(found, names, strict=True)]
        whole = not self.witness.proof
        return ask_row_groups(self._source, self._tail, footer, column, filters, self._file.statistics, whole=whole)

    def write(self, access: Access, target: Target, start: float) -> EmbedReport:
        """See :class:`sidecar.embedding.restore_plan.IndexRestorer`."""
        self._loaded.result()
        tail = self._tail
        if self.columns:
            check_filterable(tail)
        maker = OrcFilterMaker(self._source, tail, FilterRules(fpp=self.plan.fpp), self)
        written, outcomes = write_orc(self._source, tail, target, maker)
        outcomes = sorted([*outcomes, *self._lacking(outcomes)], key=lambda outcome: outcome.row_group)
        name, seconds = self._source.name, time.monotonic() - start
        return EmbedReport(name, target.name, PLACEMENT, tail.size, written, outcomes, seconds, self.plan.fpp)

    def _lacking(self, outcomes: Sequence[Outcome]) -> Iterator[Outcome]:
        """Yield an outcome for each row group without a filter in the sidecar, with the sidecar's reason."""
        noted = {(outcome.row_group, outcome.column) for outcome in outcomes}
        for group, leaf, state in coverage(self.plan.matches, self._file, BLOOM):
            place = (group, leaf.own_path)
            wanted = self._choice.bloom is None or leaf.own_path in self._choice.bloom
            if state != UnitState.INDEXED and wanted and place not in noted:
                noted.add(place)
                yield IndexPlace(self._source.name, *place, BLOOM).without_index(state)

    def filters(self, footer: StripeFooter, column: OrcColumn) -> list[OrcBloomFilter] | Unknown | None:
        """Return the filters of a stripe's column, why they are replaced, or ``None`` if the sidecar has none."""
        if column.id in self.plan.from_values:
            return Unknown(self.plan.from_values[column.id])
        first = self._file.first_units[footer.stripe.ordinal]
        groups = range(first, first + footer.stripe.num_row_groups)
        parts = [self._parts.get((group, column.id)) for group in groups]
        having = [part for part in parts if part is not None]
        if not having:
            return None
        reason = "" if len(having) == len(parts) else "the sidecar lacks it for some row group of the stripe"
        for part in having:
            reason = reason or self._doubt(part, footer, column)
        if reason:
            return Unknown(reason)
        found = [self._pool.get(part, group) for part, group in zip(having, groups, strict=True)]
        return [bits for bits in found if isinstance(bits, OrcBloomFilter)]

    def _doubt(self, part: PooledFilters, footer: StripeFooter, column: OrcColumn) -> str:
        """Return why the file cannot hold a filter; an empty text if it can."""
        if not self.plan.file.can_hold(part.group.rule):
            return SPLIT_BLOCK
        tail, zone = self._tail, footer.writer_timezone
        encoding, trusted, _ = encoding_of(tail, column, ColumnEncoding("DIRECT", 0, UTF8_UTC), UTF8, zone)
        if encoding is None or encoding.name != part.group.encoding:
            asked = "unknown keys" if encoding is None else encoding.name
            return f"its keys are {part.group.encoding}, but readers of the file look up {asked}"
        # The proof may have come after the parts were found.
        proven = any(match.is_proven and match.number == part.match.number for match in self.plan.matches)
        # The file had this very filter, so it goes back even if no such filter would be built today.
        if trusted and proven:
            return ""
        try:
            new_encoding(tail, column, zone)
        except UnsupportedFeatureError as error:
            return error.what
        return ""
