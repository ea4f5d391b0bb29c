"""Restores the filters and page indexes of a Parquet file's row groups from a sidecar.

Indexes that only the file has are carried over as in :mod:`sidecar.embedding.file`. The order of the steps matters for
safety: :func:`plan_restore` matches the file, ``load`` waits for the proof, reads the indexes and compares them with
values, and only then ``write`` publishes them. An index that is denied or cannot be read is built from the values
instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field, replace

from sidecar.access import Access
from sidecar.bundle.kinds.declared import BLOOM, PAGE_INDEX, IndexKind
from sidecar.bundle.model import UnitState
from sidecar.conversion.filter_pool import FilterPool, PooledFilters
from sidecar.conversion.matching.identity import Identity, identity_of
from sidecar.conversion.matching.match import Finder, Match, prove
from sidecar.conversion.matching.witness import UNPROVEN, ChunkCheck, GivenIndexes, Witness, ask_pages
from sidecar.conversion.outcome import DICTIONARY, EXACT, VALUES, IndexPlace, Outcome
from sidecar.conversion.restore import (
    RestoredPages,
    coverage,
    filter_parts,
    leaves_with_orc_filters,
    restore_pages,
)
from sidecar.conversion.reuse import GOOD
from sidecar.data_files.open_parquet import OpenParquet
from sidecar.embedding.filters import FilterRules, ParquetFilterMaker, encode_filter
from sidecar.embedding.key_files import notes_on
from sidecar.embedding.page_indexes import PageIndexMaker, first_without_pages
from sidecar.embedding.report import has_encrypted_filters
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.filters.block_filter import BlockFilter
from sidecar.filters.sizing import DEFAULT_FPP
from sidecar.parquet.embed import GroupIndexes, Piece, WrittenParquet, embed
from sidecar.parquet.encrypted.sealing import NO_KEY
from sidecar.parquet.footer import ColumnChunk, Footer, RowGroup
from sidecar.parquet.inspect import find_leaf
from sidecar.parquet.page_indexes.build import nan_problem
from sidecar.parquet.page_indexes.page_index import decode_column_index, decode_offset_index
from sidecar.parquet.trust import is_float
from sidecar.parquet.verify.filters import lacking_form
from sidecar.results.choices import Placement
from sidecar.run import report_progress
from sidecar.storage.source import Source
from sidecar.storage.target import Target

UNREADABLE = "the sidecar's index for it cannot be read"
ORC_FILTER = "the sidecar has an ORC filter for it, which a Parquet file cannot hold"

LARGE_BUNDLE = 64 << 20
"""The most bytes of other files' filters that are read to restore a plain file's filters byte for byte."""


@dataclass(frozen=True)
class RestoreChoice:
    """The indexes to restore: ``bloom`` and ``page_index`` name leaves, ``None`` means all of them.

    ``is_shared``: the sidecar is read once for many files, so its filters are taken whatever they cost one of them.
    """

    bloom: Sequence[str] | None = None
    page_index: Sequence[str] | None = None
    placement: Placement = "end"
    is_shared: bool = False


@dataclass
class RestorePlan:
    """The restore of one file: what the sidecar has for it, and which leaves are built from values instead.

    ``matches`` lack the proof that takes all pages of the file.
    """

    footer: Footer
    identity: Identity
    matches: list[Match]
    parts: list[PooledFilters]
    from_values: dict[int, str] = field(default_factory=dict)
    """The reason by leaf index."""

    @property
    def exact_parts(self) -> list[PooledFilters]:
        """The parts that are read from the sidecar."""
        return [part for part in self.parts if part.column not in self.from_values]


def proof_of(matches: Sequence[Match]) -> str:
    """Return the proof that a file is the one that was indexed; an empty text if any segment lacks a proof."""
    return matches[0].proof if all(match.is_proven for match in matches) else ""


def plan_restore(finder: Finder, file: OpenParquet, choice: RestoreChoice) -> RestorePlan:
    """Find what the sidecar has for a file, and decide which leaves are cheaper to build from values.

    Raises :class:`UsageError` if the sidecar does not list the file, and for unknown columns.
    """
    footer, identity = file.footer, identity_of(file)
    matches = finder.look_up(identity)
    plan = RestorePlan(footer, identity, matches, filter_parts(matches, footer, _indexes(footer, choice.bloom)))
    by_leaf: dict[int, list[PooledFilters]] = defaultdict(list)
    for part in plan.parts:
        by_leaf[part.column].append(part)
    for leaf, parts in by_leaf.items():
        reason = "" if choice.is_shared else _why_values(footer, leaf, parts, proof_of(matches))
        if reason:
            plan.from_values[leaf] = reason
    # The coverage says which filters should be there. One that is *indexed* but has no part is in a damaged bundle
    # (or is an ORC filter), so it is built from values instead of being silently lost.
    others = leaves_with_orc_filters(matches, footer)
    readable = {(row_group, part.column) for part in plan.parts for row_group in part.units}
    for row_group, found, state in coverage(matches, footer, BLOOM):
        wanted = choice.bloom is None or found.path in choice.bloom
        if state == UnitState.INDEXED and wanted and (row_group, found.index) not in readable:
            plan.from_values.setdefault(found.index, ORC_FILTER if found.index in others else UNREADABLE)
    return plan


def _indexes(footer: Footer, names: Sequence[str] | None) -> set[int] | None:
    return None if names is None else {find_leaf(footer, name).index for name in names}


def _why_values(footer: Footer, leaf: int, parts: Sequence[PooledFilters], proof: str) -> str:
    """Return why a column's filters are built from its values; an empty text if they are read from the sidecar."""
    if footer.columns[leaf].encoding.not_indexable is not None:
        return ""
    bundle = sum(part.group.layout.length for part in parts)
    values = sum(footer.row_groups[i].columns.stored[leaf].total_compressed_size for p in parts for i in p.units)
    return why_not_bundle(parts, bundle, values, proof)


def why_not_bundle(parts: Sequence[PooledFilters], bundle: int, values: int, proof: str) -> str:
    """Return why filters are built from ``values`` bytes instead of read from ``bundle`` bytes; empty if they are read.

    Without a proof all values of a table's file are read anyway, so its filters are built from them.
    """
    if bundle > allowed_bytes(parts, values):
        return f"{values:,} bytes of values cost less than {bundle:,} bytes of the bundle"
    return "" if proof or parts[0].match.is_plain else UNPROVEN


def allowed_bytes(parts: Sequence[PooledFilters], values: int) -> float:
    """Return the most bytes of a bundle that are read to restore these filters byte for byte."""
    own = sum(len(part.units) / part.group.layout.members * part.group.layout.length for part in parts)
    return max(LARGE_BUNDLE + own, values) if parts[0].match.is_plain else values


def rules_of(plan: RestorePlan) -> FilterRules:
    """Return the rules for filters that are built from values: at the target rate of the sidecar's filters."""
    leaves = tuple(plan.footer.columns[leaf] for leaf in sorted(plan.from_values))
    rates = [part.bundle.toc.fpp for part in plan.parts if part.bundle.toc.fpp is not None]
    return FilterRules(leaves, min(rates, default=DEFAULT_FPP))


@dataclass(frozen=True)
class _Loaded:
    """The indexes that were read from a sidecar for one file, by (row group, leaf index).

    ``lacking`` is the sidecar's reason for a missing index by (kind, row group, leaf index).
    """

    parts: dict[tuple[int, int], PooledFilters]
    pages: dict[tuple[int, int], RestoredPages]
    lacking: dict[tuple[str, int, int], str]
    unreadable_pages: dict[tuple[int, int], str]
    """Why a page index is built from the pages instead."""


def replace_unreadable(parts: Iterable[PooledFilters], from_values: dict[int, str], pool: FilterPool) -> list[str]:
    """Add the columns of damaged groups to ``from_values`` and return the errors as texts."""
    damage = []
    for part in parts:
        error = pool.failure(part)
        if error is not None:
            from_values[part.column] = f"{UNREADABLE}: {error.what}"
            damage.append(str(error))
    return damage


class Restorer:
    """Gives each row group of one file its indexes. Close it.

    One thread calls :meth:`load`, another :meth:`write`, which waits for it. So pages are copied while indexes are
    read, and while ``provers`` find out whether the file is the one that was indexed, which may take their digest.
    """

    def __init__(
        self,
        source: Source,
        plan: RestorePlan,
        choice: RestoreChoice,
        pool: FilterPool,
        provers: Executor,
    ) -> None:
        self._source = source
        self._plan = plan
        self._pool = pool
        self._pages = PageIndexMaker(source, plan.footer, build=False, reuse=GOOD)
        self._choice = choice
        self._loaded: Future[_Loaded] = Future()
        self._filters: ParquetFilterMaker | None = None
        self.damage: list[str] = []
        """Parts of the sidecar that could not be read or are not believed."""
        self.witness = Witness()
        self.encrypted_filters = False
        """Whether an encrypted column has a filter, once the file is written."""
        self.proven = provers.submit(prove, plan.identity, plan.matches)
        """The matches with their proofs."""

    def load(self, load_filters: Callable[[], None]) -> None:
        """Read what the file needs from the sidecar. :meth:`groups` in another thread then continues, or fails too."""
        try:
            load_filters()
            plan = self._plan
            plan.matches = self.proven.result()
            self.witness = Witness(proof_of(plan.matches))
            self.damage += replace_unreadable(plan.exact_parts, plan.from_values, self._pool)
            loaded = self._in_all_forms(self._held_against_values(self._load()))
            self._filters = ParquetFilterMaker(self._source, self._plan.footer, rules_of(self._plan))
        except BaseException as error:
            self._loaded.set_exception(error)
            raise
        self._loaded.set_result(loaded)

    def _load(self) -> _Loaded:
        plan, choice = self._plan, self._choice
        parts = {(row_group, part.column): part for part in plan.exact_parts for row_group in part.units}
        pages = restore_pages(plan.matches, plan.footer, _indexes(plan.footer, choice.page_index))
        lacking: dict[tuple[str, int, int], str] = {}
        locked = {(c.row_group, c.leaf.index) for group in plan.footer.row_groups for c in group.columns.locked}
        for place in locked:
            if parts.pop(place, None) is not None:
                lacking[BLOOM, place[0], place[1]] = NO_KEY
            if pages.pop(place, None) is not None:
                lacking[PAGE_INDEX, place[0], place[1]] = NO_KEY
        unreadable: dict[tuple[int, int], str] = {}
        for kind, names in ((BLOOM, choice.bloom), (PAGE_INDEX, choice.page_index)):
            for row_group, leaf, state in coverage(plan.matches, plan.footer, kind):
                place = row_group, leaf.index
                if names is not None and leaf.path not in names:
                    continue
                if state != UnitState.INDEXED:
                    lacking[kind, row_group, leaf.index] = state
                elif kind == PAGE_INDEX and place not in pages.keys() | locked:
                    unreadable[place] = UNREADABLE
        return _Loaded(parts, pages, lacking, unreadable)

    def _held_against_values(self, loaded: _Loaded) -> _Loaded:
        """Return ``loaded`` without indexes that values deny or cannot confirm (see ``conversion.matching``)."""
        witness = self.witness
        doubtful: set[tuple[int, int]] = set()
        for place in sorted(loaded.parts.keys() | loaded.pages.keys()):
            check = self._look_at(place, loaded)
            if check is not None:
                witness.add(self._plan.footer.columns[place[1]].path, place[0], check)
                doubtful |= {place} if check.not_compared and not witness.proof else set()
                # Pages at other offsets: the page index would send readers to wrong bytes, but filters still hold.
                if check.misplaced:
                    loaded.pages[place] = RestoredPages(None, None, f"it belongs to other pages: {check.misplaced}")
        # One denied value means that the sidecar has another file's indexes: none of them is believed then.
        if witness.contradictions:
            doubtful = {*loaded.parts, *loaded.pages}
        if not doubtful:
            return loaded
        return self._without(loaded, doubtful, witness.why_not_used())

    def _in_all_forms(self, loaded: _Loaded) -> _Loaded:
        """Return ``loaded`` without filters that lack a form of their values that readers of the file look up."""
        plan = self._plan
        for (row_group, leaf), part in loaded.parts.items():
            chunk, bits = plan.footer.row_groups[row_group].columns[leaf], self._pool.get(part, row_group)
            if leaf in plan.from_values or not isinstance(bits, BlockFilter):
                continue
            if lacking := lacking_form(self._source, plan.footer, chunk, bits):
                plan.from_values[leaf] = f"the sidecar's filter {lacking}"
        return replace(loaded, parts={at: part for at, part in loaded.parts.items() if at[1] not in plan.from_values})

    def _look_at(self, place: tuple[int, int], loaded: _Loaded) -> ChunkCheck | None:
        """Compare a chunk's pages with the indexes that it is about to get; return ``None`` if it gets none."""
        row_group, leaf = place
        chunk = self._plan.footer.row_groups[row_group].columns[leaf]
        part, pages = loaded.parts.get(place), loaded.pages.get(place)
        bits = None if part is None else self._pool.get(part, row_group)
        if bits is None and (pages is None or pages.offset_index is None):
            return None
        try:
            column = None if pages is None or not pages.column_index else decode_column_index(pages.column_index)
            offset = None if pages is None or not pages.offset_index else decode_offset_index(pages.offset_index)
        except SidecarError as error:
            return ChunkCheck(contradiction=error.what)
        given = GivenIndexes(bits if isinstance(bits, BlockFilter) else None, column, offset)
        return ask_pages(self._source, self._plan.footer, chunk, given, whole=not self.witness.proof)

    def _without(self, loaded: _Loaded, doubtful: set[tuple[int, int]], reason: str) -> _Loaded:
        """Return ``loaded`` without the doubtful places; their indexes are built from values.

        Filters are dropped for the whole column, because filters are built for whole columns.
        """
        leaves = {leaf for _, leaf in doubtful}
        for place in loaded.parts:
            if place[1] in leaves:
                self._plan.from_values[place[1]] = reason
        self.damage += [f"{reason}: {text}" for text in self.witness.contradictions or self.witness.not_compared]
        return replace(
            loaded,
            parts={place: part for place, part in loaded.parts.items() if place[1] not in leaves},
            pages={place: pages for place, pages in loaded.pages.items() if place not in doubtful},
            unreadable_pages=loaded.unreadable_pages | dict.fromkeys(doubtful & loaded.pages.keys(), reason),
        )

    def close(self) -> None:
        """Close what was opened for decoding; the source stays open, and is not read any more."""
        self.proven.cancel()
        wait([self.proven])
        if self._filters is not None:
            self._filters.close()

    def give_up(self, error: BaseException) -> None:
        """Make a thread that waits for :meth:`load` fail with ``error``, because it will not be called any more."""
        self._loaded.set_exception(error)

    @property
    def fpp(self) -> float:
        """The target rate of filters that are built from values."""
        return rules_of(self._plan).fpp

    def write(self, target: Target) -> tuple[WrittenParquet, list[Outcome]]:
        """Write the file to the empty ``target``, and return what became of each index."""
        outcomes: list[Outcome] = []
        groups = self.groups(outcomes, target.flush)
        written = embed(self._source, self._plan.footer, target, groups, placement=self._choice.placement)
        self.encrypted_filters = has_encrypted_filters(self._plan.footer, outcomes)
        return written, outcomes

    def notes(self, access: Access, target: str) -> list[str]:
        """Copy key material and return notes, as :func:`sidecar.embedding.key_files.notes_on` does."""
        return notes_on(access, self._source, self._plan.footer, target)

    def groups(self, outcomes: list[Outcome], meanwhile: Callable[[], None]) -> Iterator[GroupIndexes]:
        """Yield the indexes of each row group in order, and add what became of them to ``outcomes``.

        Waits until :meth:`load` is done in another thread. Before it waits, it calls ``meanwhile``.
        """
        if not self._loaded.done():
            meanwhile()
        loaded, filters_of = self._loaded.result(), self._filters
        assert filters_of is not None
        count = len(self._plan.footer.row_groups)
        for group in self._plan.footer.row_groups:
            report_progress("row groups", group.ordinal, count)
            filters, of_filters = self._filters_of(group, loaded, filters_of)
            columns, offsets, of_pages = self._page_indexes_of(group, loaded)
            outcomes += of_filters + of_pages
            yield GroupIndexes(filters, columns, offsets)

    def _filters_of(
        self, group: RowGroup, loaded: _Loaded, maker: ParquetFilterMaker
    ) -> tuple[Mapping[int, Piece], list[Outcome]]:
        """Return the filters of a row group: those of the sidecar, and those that only the file has."""
        own = {leaf: part for (row_group, leaf), part in loaded.parts.items() if row_group == group.ordinal}
        begun = maker.begin(_without(group, own, filters=True))
        made, noted = maker.finish(begun)
        pieces = dict(made)
        outcomes = {outcome.column: outcome for outcome in noted}
        for leaf, reason in self._plan.from_values.items():
            path = self._plan.footer.columns[leaf].path
            if path in outcomes and outcomes[path].way in (VALUES, DICTIONARY):
                outcomes[path] = replace(outcomes[path], reason=reason)
        for leaf, part in own.items():
            bits = self._pool.get(part, group.ordinal)
            data, rate = encode_filter(bits.to_bytes()), bits.estimated_fpp()
            pieces[leaf] = data
            outcomes[part.path] = Outcome(
                self._source.name, group.ordinal, part.path, BLOOM, EXACT, len(data), rate, rate
            )
        self._add_lacking(group, BLOOM, outcomes, loaded)
        return pieces, [outcomes[path] for path in sorted(outcomes)]

    def _page_indexes_of(
        self, group: RowGroup, loaded: _Loaded
    ) -> tuple[Mapping[int, Piece], Mapping[int, Piece], list[Outcome]]:
        own = {
            leaf: found
            for (row_group, leaf), found in loaded.pages.items()
            if row_group == group.ordinal and found.offset_index is not None
        }
        made, noted = self._pages.make(_without(group, own, filters=False), {})
        outcomes = {outcome.column: outcome for outcome in noted}
        for (row_group, leaf), reason in loaded.unreadable_pages.items():
            if row_group == group.ordinal and leaf not in made.offset_indexes:
                built = self._pages.build(group.columns[leaf], made)
                outcomes[built.column] = replace(built, reason=built.reason or reason)
        columns, offsets = dict(made.column_indexes), dict(made.offset_indexes)
        missing = first_without_pages(group, {*own, *offsets}) if group.num_rows else None
        for leaf in sorted({leaf for row_group, leaf in loaded.pages if row_group == group.ordinal}):
            found = loaded.pages[group.ordinal, leaf]
            path = group.columns[leaf].leaf.path
            place: IndexPlace = (self._source.name, group.ordinal, path, PAGE_INDEX)
            if found.offset_index is None:
                outcomes.setdefault(path, Outcome(*place, reason=found.reason))
            elif missing is not None:
                # Readers filter pages only where all columns have an OffsetIndex, and some refuse other files.
                outcomes[path] = Outcome(*place, reason=f"{missing} of the row group has no page index")
            else:
                offsets[leaf] = found.offset_index
                columns.pop(leaf, None)
                reason = found.reason or self._nan_problem(group.columns[leaf], found.column_index)
                length = len(found.offset_index)
                if found.column_index is not None and not reason:
                    columns[leaf] = found.column_index
                    length += len(found.column_index)
                outcomes[path] = Outcome(*place, EXACT, length, reason=reason)
        self._add_lacking(group, PAGE_INDEX, outcomes, loaded)
        return columns, offsets, [outcomes[path] for path in sorted(outcomes)]

    def _add_lacking(self, group: RowGroup, kind: IndexKind, outcomes: dict[str, Outcome], loaded: _Loaded) -> None:
        for leaf in self._plan.footer.columns:
            reason = loaded.lacking.get((kind, group.ordinal, leaf.index))
            if reason is not None:
                place: IndexPlace = (self._source.name, group.ordinal, leaf.path, kind)
                outcomes.setdefault(leaf.path, Outcome(*place, reason=reason))

    def _nan_problem(self, chunk: ColumnChunk, column_index: bytes | None) -> str:
        """Return why NaN keeps a ColumnIndex out of the file; an empty text if it does not."""
        if column_index is None or not is_float(chunk.leaf):
            return ""
        try:
            problem = nan_problem(self._source, self._plan.footer, chunk, decode_column_index(column_index))
        except DamagedFileError as error:
            problem = error.what
        return f"no column index: {problem}" if problem else ""


def _without(group: RowGroup, leaves: Collection[int], *, filters: bool) -> RowGroup:
    """Return the row group as if ``leaves`` had no filters, or no page indexes, because they are replaced."""

    def bare(chunk: ColumnChunk) -> ColumnChunk:
        if chunk.leaf.index not in leaves:
            return chunk
        if filters:
            return replace(chunk, bloom_filter_offset=None, bloom_filter_length=None)
        return replace(
            chunk,
            column_index_offset=None,
            column_index_length=None,
            offset_index_offset=None,
            offset_index_length=None,
        )

    return replace(group, columns=replace(group.columns, stored=tuple(map(bare, group.columns.stored))))
