"""Restores the filters and page indexes of a Parquet file's row groups from a sidecar.

Indexes that only the file has are carried over as in :mod:`sidecar.embedding.file`. The steps are those of
:mod:`sidecar.embedding.restore_plan`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from sidecar.access import Access
from sidecar.bundle.kinds.declared import BLOOM, PAGE_INDEX, IndexKind
from sidecar.bundle.model import UnitState
from sidecar.conversion.filter_pool import FilterPool, PooledFilters
from sidecar.conversion.outcome import DICTIONARY, EXACT, VALUES, IndexPlace, Outcome
from sidecar.conversion.restore import coverage, stored_entries
from sidecar.conversion.reuse import GOOD, FilterRules
from sidecar.data_files.chunk_check import ChunkCheck, GivenIndexes, ask_pages
from sidecar.data_files.open_parquet import OpenParquet
from sidecar.data_files.parquet_column import RestoredPages
from sidecar.embedding.filters import ParquetFilterMaker, encode_filter
from sidecar.embedding.key_files import notes_on
from sidecar.embedding.page_indexes import PageIndexMaker, first_without_pages
from sidecar.embedding.report import EmbedReport, has_encrypted_filters
from sidecar.embedding.restore_plan import UNREADABLE, IndexRestorer, Place, RestoreChoice, RestorePlan
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.filters.block_filter import BlockFilter
from sidecar.parquet.embed import GroupIndexes, Piece, embed
from sidecar.parquet.encrypted.sealing import NO_KEY
from sidecar.parquet.footer import ColumnChunk, RowGroup
from sidecar.parquet.page_indexes.build import nan_problem
from sidecar.parquet.page_indexes.page_index import decode_column_index, decode_offset_index
from sidecar.parquet.trust import is_float
from sidecar.parquet.verify.filters import lacking_form
from sidecar.run import report_progress
from sidecar.storage.target import Target

ORC_FILTER = "the sidecar has an ORC filter for it, which a Parquet file cannot hold"


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


class Restorer(IndexRestorer[OpenParquet, _Loaded]):
    """Gives each row group of one Parquet file its indexes."""

    def __init__(
        self,
        plan: RestorePlan[OpenParquet],
        choice: RestoreChoice,
        pool: FilterPool,
        provers: Executor,
    ) -> None:
        super().__init__(plan, choice, pool, provers)
        self._footer = plan.file.footer
        self._pages = PageIndexMaker(self._source, self._footer, build=False, reuse=GOOD)
        self._filters: ParquetFilterMaker | None = None
        for part in plan.parts:
            if not plan.file.can_hold(part.group.rule):
                plan.from_values.setdefault(part.column, ORC_FILTER)

    def _load(self) -> _Loaded:
        loaded = self._in_all_forms(self._held_against_values(self._read()))
        rules = FilterRules(tuple(sorted(self.plan.from_values)), self.plan.fpp)
        self._filters = ParquetFilterMaker(self._source, self._footer, rules)
        return loaded

    def _read(self) -> _Loaded:
        plan, choice = self.plan, self._choice
        parts = {(row_group, part.column): part for part in plan.exact_parts for row_group in part.units}
        wanted = None if choice.page_index is None else {plan.file.number_of(name) for name in choice.page_index}
        pages = {
            (entry.unit, entry.leaf.index): plan.file.column_part(entry.unit, entry.leaf).restored(
                entry.stored, entry.is_proven
            )
            for entry in stored_entries(plan.matches, plan.file)
            if wanted is None or entry.leaf.index in wanted
        }
        lacking: dict[tuple[str, int, int], str] = {}
        # Indexes of a locked chunk could not be compared with its values, so none is restored.
        locked = {(c.row_group, c.leaf.index) for group in self._footer.row_groups for c in group.columns.locked}
        for place in locked:
            if parts.pop(place, None) is not None:
                lacking[BLOOM, place[0], place[1]] = NO_KEY
            if pages.pop(place, None) is not None:
                lacking[PAGE_INDEX, place[0], place[1]] = NO_KEY
        unreadable: dict[tuple[int, int], str] = {}
        for kind, names in ((BLOOM, choice.bloom), (PAGE_INDEX, choice.page_index)):
            for row_group, leaf, state in coverage(plan.matches, plan.file, kind):
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
        places = {*loaded.parts, *loaded.pages}
        doubtful = self._doubtful(places, self._checks(sorted(places), loaded))
        leaves = {leaf for _, leaf in doubtful}
        return replace(
            loaded,
            parts={place: part for place, part in loaded.parts.items() if place[1] not in leaves},
            pages={place: pages for place, pages in loaded.pages.items() if place not in doubtful},
            unreadable_pages=loaded.unreadable_pages
            | dict.fromkeys(doubtful & loaded.pages.keys(), self.witness.why_not_used()),
        )

    def _checks(self, places: Iterable[Place], loaded: _Loaded) -> Iterator[tuple[Place, ChunkCheck]]:
        for place in places:
            check = self._look_at(place, loaded)
            if check is not None:
                yield place, check
                # Pages at other offsets: the page index would send readers to wrong bytes, but filters still hold.
                if check.misplaced:
                    loaded.pages[place] = RestoredPages(None, None, f"it belongs to other pages: {check.misplaced}")

    def _in_all_forms(self, loaded: _Loaded) -> _Loaded:
        """Return ``loaded`` without filters that lack a form of their values that readers of the file look up."""
        plan = self.plan
        for (row_group, leaf), part in loaded.parts.items():
            chunk, bits = self._footer.row_groups[row_group].columns[leaf], self._pool.get(part, row_group)
            if leaf in plan.from_values or not isinstance(bits, BlockFilter):
                continue
            if lacking := lacking_form(self._source, self._footer, chunk, bits):
                plan.from_values[leaf] = f"the sidecar's filter {lacking}"
        return replace(loaded, parts={at: part for at, part in loaded.parts.items() if at[1] not in plan.from_values})

    def _look_at(self, place: tuple[int, int], loaded: _Loaded) -> ChunkCheck | None:
        """Compare a chunk's pages with the indexes that it is about to get; return ``None`` if it gets none."""
        row_group, leaf = place
        chunk = self._footer.row_groups[row_group].columns[leaf]
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
        return ask_pages(self._source, self._footer, chunk, given, whole=not self.witness.proof)

    def close(self) -> None:
        """Close what was opened for decoding, too; the source stays open."""
        super().close()
        if self._filters is not None:
            self._filters.close()

    def write(self, access: Access, target: Target, start: float) -> EmbedReport:
        """See :class:`sidecar.embedding.restore_plan.IndexRestorer`. Key material is copied."""
        source, footer, placement = self._source, self._footer, self._choice.placement
        outcomes: list[Outcome] = []
        written = embed(source, footer, target, self.groups(outcomes, target.flush), placement=placement)
        return EmbedReport(
            source.name,
            target.name,
            placement,
            footer.size,
            written,
            outcomes,
            time.monotonic() - start,
            self.plan.fpp,
            has_encrypted_filters(footer, outcomes),
            notes_on(access, source, footer, target.name),
        )

    def groups(self, outcomes: list[Outcome], meanwhile: Callable[[], None]) -> Iterator[GroupIndexes]:
        """Yield the indexes of each row group in order, and add what became of them to ``outcomes``.

        Waits until :meth:`load` is done in another thread. Before it waits, it calls ``meanwhile``.
        """
        if not self._loaded.done():
            meanwhile()
        loaded, filters_of = self._loaded.result(), self._filters
        assert filters_of is not None
        count = len(self._footer.row_groups)
        for group in self._footer.row_groups:
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
        for leaf, reason in self.plan.from_values.items():
            path = self._footer.columns[leaf].path
            if path in outcomes and outcomes[path].way in (VALUES, DICTIONARY):
                outcomes[path] = replace(outcomes[path], reason=reason)
        for leaf, part in own.items():
            bits = self._pool.get(part, group.ordinal)
            data, rate = encode_filter(bits.to_bytes()), bits.estimated_fpp()
            pieces[leaf] = data
            outcomes[part.leaf.own_path] = Outcome(
                self._source.name, group.ordinal, part.leaf.own_path, BLOOM, EXACT, len(data), rate, rate
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
            place = IndexPlace(self._source.name, group.ordinal, path, PAGE_INDEX)
            if found.offset_index is None:
                outcomes.setdefault(path, place.without_index(found.reason))
            elif missing is not None:
                # Readers filter pages only where all columns have an OffsetIndex, and some refuse other files.
                outcomes[path] = place.without_index(f"{missing} of the row group has no page index")
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
        for leaf in self._footer.columns:
            reason = loaded.lacking.get((kind, group.ordinal, leaf.index))
            if reason is not None:
                place = IndexPlace(self._source.name, group.ordinal, leaf.path, kind)
                outcomes.setdefault(leaf.path, place.without_index(reason))

    def _nan_problem(self, chunk: ColumnChunk, column_index: bytes | None) -> str:
        """Return why NaN keeps a ColumnIndex out of the file; an empty text if it does not."""
        if column_index is None or not is_float(chunk.leaf):
            return ""
        try:
            problem = nan_problem(self._source, self._footer, chunk, decode_column_index(column_index))
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
