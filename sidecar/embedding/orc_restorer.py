"""Restores an ORC file's filters from a sidecar; filters that do not fit are built from the file's values.

An ORC file cannot hold every filter of a sidecar. Readers look up the keys that the file's writer is known for, so a
filter with other keys, in the writer's charset or of the split-block kind is built anew. A stripe has filters for all
of its row groups or for none, so if one row group lacks its filter, the whole stripe is built anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field

from sidecar.bundle.filters.rules import OrcRule
from sidecar.bundle.kinds.declared import BLOOM
from sidecar.bundle.model import UnitState
from sidecar.conversion.filter_pool import FilterPool, PooledFilters
from sidecar.conversion.matching.identity import Identity, identity_of
from sidecar.conversion.matching.match import Finder, Match, prove
from sidecar.conversion.matching.orc_witness import ask_row_groups
from sidecar.conversion.matching.witness import ChunkCheck, Witness
from sidecar.conversion.outcome import Outcome
from sidecar.conversion.restore import orc_coverage, orc_filter_parts
from sidecar.data_files.open_orc import OpenOrc, first_units
from sidecar.embedding.orc_file import write_orc
from sidecar.embedding.orc_filters import (
    OrcFilterMaker,
    OrcRules,
    ReplacedFilters,
    check_filterable,
    new_encoding,
)
from sidecar.embedding.restorer import (
    UNREADABLE,
    RestoreChoice,
    proof_of,
    replace_unreadable,
    why_not_bundle,
)
from sidecar.errors import UnsupportedFeatureError
from sidecar.filters.orc.bloom import OrcBloomFilter
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.sizing import DEFAULT_FPP
from sidecar.orc.embed import WrittenOrc, check_embeddable
from sidecar.orc.inspect import find_column
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.stripe import INDEX_STREAMS, ColumnEncoding, StripeFooter, read_stripe_footer
from sidecar.orc.tail import OrcTail
from sidecar.orc.trust import UTF8, UTF8_UTC, encoding_of
from sidecar.storage.source import Source
from sidecar.storage.target import Target

SPLIT_BLOCK = "the sidecar has a split-block filter for it, which an ORC file cannot hold"


@dataclass
class OrcRestorePlan:
    """The restore of one file: the sidecar's ``parts`` by (row group, column id), and the columns built from values.

    ``matches`` lack the proof that takes all data of the file.
    """

    tail: OrcTail
    identity: Identity
    matches: list[Match]
    parts: dict[tuple[int, int], PooledFilters]
    from_values: dict[int, str] = field(default_factory=dict)
    """The reason by column id."""

    @property
    def exact_parts(self) -> list[PooledFilters]:
        """The parts that are read from the sidecar."""
        found = {id(part): part for part in self.parts.values() if isinstance(part.group.rule, OrcRule)}
        return [part for part in found.values() if part.column not in self.from_values]


def plan_orc_restore(finder: Finder, file: OpenOrc, choice: RestoreChoice) -> OrcRestorePlan:
    """Find what the sidecar has for a file, and decide which columns are cheaper to build from values.

    Raises :class:`UsageError` if the sidecar does not list the file, and for unknown columns.
    """
    tail = file.tail
    check_embeddable(tail)
    wanted = None if choice.bloom is None else {find_column(tail, name).id for name in choice.bloom}
    identity = identity_of(file)
    matches = finder.look_up(identity)
    parts = orc_filter_parts(matches, tail, wanted)
    plan = OrcRestorePlan(
        tail, identity, matches, {(group, part.column): part for part in parts for group in part.units}
    )
    by_column: dict[int, list[PooledFilters]] = defaultdict(list)
    for part in parts:
        by_column[part.column].append(part)
    if by_column and not choice.is_shared:
        lengths, proof = _data_lengths(file.source, tail), proof_of(matches)
        reasons = {column: _cheaper(own, lengths.get(column, 0), proof) for column, own in by_column.items()}
        plan.from_values.update({column: reason for column, reason in reasons.items() if reason})
    for group, found, state in orc_coverage(matches, tail):
        lost = state == UnitState.INDEXED and (group, found.id) not in plan.parts
        if lost and (wanted is None or found.id in wanted):
            plan.from_values.setdefault(found.id, UNREADABLE)
    return plan


def _data_lengths(source: Source, tail: OrcTail) -> dict[int, int]:
    """Return the bytes of each column's data in the file, by column id."""
    lengths: dict[int, int] = defaultdict(int)
    for stripe in tail.stripes:
        if stripe.num_rows:
            for stream in read_stripe_footer(source, tail, stripe).streams:
                if stream.kind not in INDEX_STREAMS:
                    lengths[stream.column] += stream.length
    return lengths


def _cheaper(parts: Sequence[PooledFilters], values: int, proof: str) -> str:
    """Return why a column's filters are built from its values; an empty text if they are read from the sidecar."""
    bundle = sum(part.group.layout.length for part in parts if isinstance(part.group.rule, OrcRule))
    return why_not_bundle(parts, bundle, values, proof) if bundle else ""


class OrcRestorer:
    """Gives each stripe of one file its filters, as :class:`sidecar.embedding.orc_filters.GivenFilters`. Close it.

    One thread calls :meth:`load`, another :meth:`write`, which waits for it. ``provers`` find out meanwhile whether the
    file is the one that was indexed.
    """

    def __init__(
        self, source: Source, plan: OrcRestorePlan, choice: RestoreChoice, pool: FilterPool, provers: Executor
    ) -> None:
        self._source = source
        self._plan = plan
        self._statistics = FileStatistics(source, plan.tail)
        self._choice = choice
        self._pool = pool
        self._loaded: Future[None] = Future()
        self._firsts = first_units(plan.tail)
        self.damage: list[str] = []
        """Parts of the sidecar that could not be read or are not believed."""
        self.witness = Witness()
        rates = [part.bundle.toc.fpp for part in plan.parts.values() if part.bundle.toc.fpp is not None]
        self.fpp = min(rates, default=DEFAULT_FPP)
        self.proven = provers.submit(prove, plan.identity, plan.matches)
        """The matches with their proofs."""

    @property
    def columns(self) -> AbstractSet[int]:
        """Ids of the columns that the sidecar has filters for."""
        return {column for _, column in self._plan.parts} | self._plan.from_values.keys()

    def load(self, load_filters: Callable[[], None]) -> None:
        """Read what the file needs from the sidecar. :meth:`write` in another thread then continues, or fails too."""
        try:
            load_filters()
            plan = self._plan
            plan.matches = self.proven.result()
            self.witness = Witness(proof_of(plan.matches))
            self.damage += replace_unreadable(plan.exact_parts, plan.from_values, self._pool)
            self._hold_against_values()
        except BaseException as error:
            self._loaded.set_exception(error)
            raise
        self._loaded.set_result(None)

    def _hold_against_values(self) -> None:
        """Compare the filters with values, and have denied ones built anew; see ``conversion.matching``."""
        witness, doubtful = self.witness, set()
        columns = sorted({part.column for part in self._plan.exact_parts})
        for stripe in self._plan.tail.stripes if columns else ():
            footer = read_stripe_footer(self._source, self._plan.tail, stripe)
            for column in columns if stripe.num_rows else ():
                check = self._look_at(footer, self._plan.tail.columns[column])
                if check is not None:
                    witness.add(self._plan.tail.columns[column].path, self._firsts[stripe.ordinal], check)
                    doubtful |= {column} if check.not_compared and not witness.proof else set()
        # One denied value means that the sidecar has another file's filters: none of them is believed then.
        if witness.contradictions:
            doubtful = set(columns)
        if not doubtful:
            return
        reason = witness.why_not_used()
        self._plan.from_values.update(dict.fromkeys(doubtful, reason))
        self.damage += [f"{reason}: {text}" for text in witness.contradictions or witness.not_compared]

    def _look_at(self, footer: StripeFooter, column: OrcColumn) -> ChunkCheck | None:
        """Look up a stripe's values in the filters for its column; return ``None`` if there are no filters."""
        found = self.filters(footer, column)
        if not isinstance(found, list):
            return None
        first = self._firsts[footer.stripe.ordinal]
        names = [self._plan.parts[first + number, column.id].group.encoding for number in range(len(found))]
        filters = [(bits, OrcEncoding.parse(name)) for bits, name in zip(found, names, strict=True)]
        whole = not self.witness.proof
        return ask_row_groups(self._source, self._plan.tail, footer, column, filters, self._statistics, whole=whole)

    def close(self) -> None:
        """See to it that the source, which its owner closes, is not read any more."""
        self.proven.cancel()
        wait([self.proven])

    def give_up(self, error: BaseException) -> None:
        """Make a thread that waits for :meth:`load` fail with ``error``, because it will not be called any more."""
        self._loaded.set_exception(error)

    def write(self, target: Target) -> tuple[WrittenOrc, list[Outcome]]:
        """Wait until :meth:`load` is done and write the file to the empty ``target``; return its outcomes."""
        self._loaded.result()
        tail = self._plan.tail
        if self.columns:
            check_filterable(tail)
        maker = OrcFilterMaker(self._source, tail, OrcRules(fpp=self.fpp), self)
        written, outcomes = write_orc(self._source, tail, target, maker)
        return written, sorted([*outcomes, *self._lacking(outcomes)], key=lambda outcome: outcome.row_group)

    def _lacking(self, outcomes: Sequence[Outcome]) -> Iterator[Outcome]:
        """Yield an outcome for each row group without a filter in the sidecar, with the sidecar's reason."""
        noted = {(outcome.row_group, outcome.column) for outcome in outcomes}
        for group, column, state in orc_coverage(self._plan.matches, self._plan.tail):
            place = (group, column.path)
            wanted = self._choice.bloom is None or column.path in self._choice.bloom
            if state != UnitState.INDEXED and wanted and place not in noted:
                noted.add(place)
                yield Outcome(self._source.name, *place, BLOOM, reason=state)

    def filters(self, footer: StripeFooter, column: OrcColumn) -> list[OrcBloomFilter] | ReplacedFilters | None:
        """Return the filters of a stripe's column, why they are replaced, or ``None`` if the sidecar has none."""
        if column.id in self._plan.from_values:
            return ReplacedFilters(self._plan.from_values[column.id])
        first = self._firsts[footer.stripe.ordinal]
        groups = range(first, first + footer.stripe.num_row_groups)
        parts = [self._plan.parts.get((group, column.id)) for group in groups]
        having = [part for part in parts if part is not None]
        if not having:
            return None
        reason = "" if len(having) == len(parts) else "the sidecar lacks it for some row group of the stripe"
        for part in having:
            reason = reason or self._doubt(part, footer, column)
        if reason:
            return ReplacedFilters(reason)
        found = [self._pool.get(part, group) for part, group in zip(having, groups, strict=True)]
        return [bits for bits in found if isinstance(bits, OrcBloomFilter)]

    def _doubt(self, part: PooledFilters, footer: StripeFooter, column: OrcColumn) -> str:
        """Return why the file cannot hold a filter; an empty text if it can."""
        if not isinstance(part.group.rule, OrcRule):
            return SPLIT_BLOCK
        tail, zone = self._plan.tail, footer.writer_timezone
        encoding, trusted, _ = encoding_of(tail, column, ColumnEncoding("DIRECT", 0, UTF8_UTC), UTF8, zone)
        if encoding is None or encoding.name != part.group.encoding:
            asked = "unknown keys" if encoding is None else encoding.name
            return f"its keys are {part.group.encoding}, but readers of the file look up {asked}"
        # The proof may have come after the parts were found.
        proven = any(match.is_proven and match.number == part.match.number for match in self._plan.matches)
        # The file had this very filter, so it goes back even if no such filter would be built today.
        if trusted and proven:
            return ""
        try:
            new_encoding(tail, column, zone)
        except UnsupportedFeatureError as error:
            return error.what
        return ""
