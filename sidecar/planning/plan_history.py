"""Says what each stage of a plan found about one data file, also if the file is not in the plan.

A plan keeps its file sets and their steps, but no entries. A file is looked up in its manifest first, which is opened;
the rest is arrays that the plan had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import FileScanTask, Table

from sidecar.bundle.kinds.declared import BLOOM, KINDS
from sidecar.errors import UsageError
from sidecar.iceberg.listing import live_entries
from sidecar.planning.evaluators import Evaluators
from sidecar.planning.file_question import FileQuestion
from sidecar.planning.files.by_filters import IndexedFiles
from sidecar.planning.files.file_set import DroppedBy, FileSet, FileSource, Judgement
from sidecar.planning.files.sources import PlannedFiles
from sidecar.planning.funnel import KeptReason
from sidecar.planning.row_groups import KeptRowGroups
from sidecar.planning.tasks import data_of
from sidecar.questions.filter_questions import looked_up
from sidecar.results.base import Result

MOST_NAMED = 3
"""The most files of one name that an error names."""


@dataclass(frozen=True, repr=False, slots=True, kw_only=True)
class StageFinding(Result):
    """The finding of one stage of a plan about a data file."""

    stage: str
    """The stage in words, for example ``filter of the sidecar``."""
    kept: bool
    """Whether the file may match; the stage that rules it out is the last one."""
    columns: list[str]
    """The columns that the stage compares, or the fields of a partition; empty if these are not known."""
    segment: int | None
    """For filters: the segment of the sidecar that was asked, counted from 0. ``None`` for other stages."""
    segment_snapshot_id: int | None
    """The snapshot that this segment was built for."""


@dataclass(frozen=True, repr=False, slots=True, kw_only=True)
class RowGroupFinding(Result):
    """The part of one row group that filters and page indexes leave."""

    row_group: int
    """The ordinal of the row group in its file."""
    rows: int | None
    """Its rows; ``None`` if no page index was asked about the file."""
    may_match: int | None
    """Rows that may match; ``None`` if no page index was asked about the file."""
    dropped_by: str | None
    """The stage that ruled the row group out; ``None`` if it may match."""


@dataclass(frozen=True, repr=False, slots=True, kw_only=True)
class FileHistory(Result):
    """The way of one data file through the stages of a plan."""

    file: str
    """The path of the file, as its manifest has it."""
    kept: bool
    """Whether the file is read."""
    because: str
    """Why the file is kept, or the stage that ruled it out."""
    stages: list[StageFinding]
    """The stages that looked at the file, in their order."""
    row_groups: list[RowGroupFinding]
    """Its row groups; empty if no segment was asked that lists the file."""


class _LiveFile(NamedTuple):
    """A live data file: the place of its manifest in the manifest list, its position in it, and its entry."""

    place: int
    position: int
    entry: ManifestEntry

    @property
    def path(self) -> str:
        return self.entry.data_file.file_path


@dataclass(frozen=True)
class PlanHistory:
    """The sets of a plan with their steps, and what became of files after these."""

    lines: Sequence[ManifestFile] = ()
    sets: Sequence[FileSet[FileSource]] = ()
    question: FileQuestion | None = None
    evaluators: Evaluators | None = None
    """``None`` if the catalog planned."""
    index: IndexedFiles | None = None
    """``None`` if no sidecar was asked, or it failed."""
    dropped: Mapping[str, DroppedBy] | None = None
    """The stage that dropped a file after tasks were made of the sets, by path."""
    row_groups: Mapping[str, KeptRowGroups] | None = None
    """The row groups that are left of files, by path; none of files that page indexes dropped."""
    key_column: str | None = None
    reasons: Sequence[KeptReason] = ()
    """Why each task is kept."""

    def of(self, file: str, tasks: Sequence[FileScanTask], table: Table) -> FileHistory:
        """Return what became of a file, which is named by its path or by the end of it. Opens manifests.

        Raises :class:`UsageError` if the snapshot has no such live file, or several.
        """
        found = self._find(file, table)
        files, row = self._row_of(found)
        findings = [*self._findings(found, files, row, table)]
        last = findings[-1]
        reasons = [why.text for task, why in zip(tasks, self.reasons, strict=True) if task.file.file_path == found.path]
        return FileHistory(
            file=found.path,
            kept=last.kept,
            because=reasons[0] if last.kept and reasons else last.stage,
            stages=findings,
            row_groups=[] if files is None else [*self._row_groups(found, files, row)],
        )

    def _find(self, file: str, table: Table) -> _LiveFile:
        """Return the live file with a path; else the only one whose path ends in ``file``."""
        data, ending, similar = set(map(id, data_of(self.lines))), f"/{file}", list[_LiveFile]()
        for place, line in enumerate(self.lines):
            for position, entry in enumerate(live_entries(table.io, line) if id(line) in data else ()):
                path = entry.data_file.file_path
                if path == file:
                    return _LiveFile(place, position, entry)
                if path.endswith(ending):
                    similar.append(_LiveFile(place, position, entry))
        if len(similar) == 1:
            return similar[0]
        if similar:
            paths = ", ".join(one.path for one in similar[:MOST_NAMED])
            raise UsageError("several data files have this name", file=file, found=paths, hint="Give the whole path.")
        raise UsageError("the snapshot has no such data file", file=file)

    def _row_of(self, found: _LiveFile) -> tuple[FileSet[FileSource] | None, int]:
        """Return the set that the file is in, and its row; ``None`` if the file is in none."""
        for files in self.sets:
            source = files.source
            if isinstance(source, PlannedFiles):
                return (files, source.paths.index(found.path)) if found.path in source.paths else (None, 0)
            if found.place in source.places:
                first = int(source.spans[list(source.places).index(found.place), 0])
                return files, first + found.position
        return None, 0

    def _findings(
        self, found: _LiveFile, files: FileSet[FileSource] | None, row: int, table: Table
    ) -> Iterator[StageFinding]:
        """Yield what stages found, to the one that ruled the file out."""
        first = DroppedBy.CATALOG if self.evaluators is None else DroppedBy.SUMMARY
        yield self._finding(first, files is not None, [] if self.evaluators is None else self._parts(found, table))
        judgements = [] if files is None else _once_each([*files.judgements(row)])
        for by, kept in judgements:
            if by is DroppedBy.FILTER and files is not None:
                yield from self._of_filters(self._asked_places(found, files, row))
            elif not kept and self._is_outside(found):
                yield self._finding(DroppedBy.PARTITION, kept, self._parts(found, table))
            else:
                yield self._finding(by if kept else DroppedBy.BOUNDS, kept, self._columns)
        if files is not None and all(one.is_kept for one in judgements):
            yield from self._findings_of_task(found.path)

    def _findings_of_task(self, path: str) -> Iterator[StageFinding]:
        """Yield what keys and page indexes found about a file that the sets keep."""
        dropped_by = (self.dropped or {}).get(path)
        for by in (DroppedBy.KEY_BOUNDS, DroppedBy.KEYS) if self.key_column is not None else ():
            yield self._finding(by, dropped_by is not by, [str(self.key_column)])
            if dropped_by is by:
                return
        pages = (self.row_groups or {}).get(path)
        if pages is not None and (pages.stored or pages.row_indexes or dropped_by is DroppedBy.PAGES):
            asked = {field_id for field_id, _ in pages.stored}
            columns = [name for field_id, name in self._names.items() if field_id in asked]
            yield self._finding(DroppedBy.PAGES, dropped_by is not DroppedBy.PAGES, columns)

    def _of_filters(self, numbers: npt.NDArray[np.int64]) -> Iterator[StageFinding]:
        """Yield what the filters of each segment that lists a file found, to those that ruled it out."""
        if self.index is None:
            return
        may_match = self.index.of_files(numbers).may_match.tolist()
        for number, kept in zip(numbers.tolist(), may_match, strict=True):
            yield self._finding(DroppedBy.FILTER, kept, self._columns_of(number), number)
            if not kept:
                return

    def _asked_places(self, found: _LiveFile, files: FileSet[FileSource], row: int) -> npt.NDArray[np.int64]:
        """Return the numbers of a file in the segments whose filters were asked about it."""
        index, source = self.index, files.source.holding({row: found.entry})
        places = None if index is None else source.listed_at(np.array([row]), index.files, index.fields)
        numbers = [] if places is None else places.numbers.tolist()
        return np.array([number for number in numbers if self._columns_of(number)], np.int64)

    def _finding(self, by: DroppedBy, kept: bool, columns: list[str], number: int | None = None) -> StageFinding:
        segment = None if number is None or self.index is None else self.index.files.owner(number)
        of = None if segment is None or self.index is None else self.index.files.segments[segment].snapshot_id
        return StageFinding(stage=by.value, kept=kept, columns=columns, segment=segment, segment_snapshot_id=of)

    def _is_outside(self, found: _LiveFile) -> bool:
        """Return whether the partition of a file rules it out."""
        spec_id = self.lines[found.place].partition_spec_id
        return self.evaluators is not None and not self.evaluators.partition(spec_id)(found.entry.data_file)

    @property
    def _names(self) -> Mapping[int, str]:
        """The columns of the predicate by field id."""
        return {} if self.question is None else self.question.names

    @property
    def _columns(self) -> list[str]:
        return [*self._names.values()]

    def _columns_of(self, number: int) -> list[str]:
        """Return the columns that filters are asked about in the segment of a file's number."""
        index = self.index
        if index is None or index.question is None:
            return []
        fields = index.files.fields_with(number, *KINDS[BLOOM].blob_types)
        return list(
            dict.fromkeys(leaf.column.name for leaf in looked_up(index.question) if leaf.column.index in fields)
        )

    def _parts(self, found: _LiveFile, table: Table) -> list[str]:
        """Return the partition fields that are compared."""
        spec_id = self.lines[found.place].partition_spec_id
        ids = None if self.evaluators is None else self.evaluators.partition_field_ids(spec_id)
        return [] if ids is None else [part.name for part in table.metadata.specs()[spec_id].fields]

    def _row_groups(self, found: _LiveFile, files: FileSet[FileSource], row: int) -> Iterator[RowGroupFinding]:
        """Yield the row groups of a file: those that page indexes were asked about, else as filters tell them apart."""
        denied = DroppedBy.FILTER.value if self.key_column is None else DroppedBy.KEYS.value
        if (known := (self.row_groups or {}).get(found.path)) is not None:
            for at, (unit, rows) in enumerate(zip(known.units, known.rows, strict=True)):
                by = denied if at in known.denied else None if rows else DroppedBy.PAGES.value
                yield RowGroupFinding(row_group=unit.row_group, rows=unit.rows, may_match=rows.num_rows, dropped_by=by)
            return
        judged = any(one.by is DroppedBy.FILTER for one in files.judgements(row))
        alive = self.index.alive(self._asked_places(found, files, row)) if judged and self.index is not None else []
        if alive and len({len(flags) for flags in alive}) == 1:
            for at, keep in enumerate(np.logical_and.reduce(alive).tolist()):
                yield RowGroupFinding(
                    row_group=at, rows=None, may_match=None, dropped_by=None if keep else DroppedBy.FILTER.value
                )


def _once_each(judgements: Sequence[Judgement]) -> Sequence[Judgement]:
    """Return what stages said, each once, though it may be asked twice: first the one that dropped the file."""
    last = {one.by: one for one in reversed(judgements)}
    last |= {one.by: one for one in judgements if not one.is_kept}
    return [one for one in judgements if one is last[one.by]]
