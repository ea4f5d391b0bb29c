"""Chooses the files of a plan: makes file sets of a snapshot's manifests, and lets the stages narrow each.

Manifests that a segment lists become one set a segment. First they are narrowed by what a sidecar has as columns, so
that a caller knows how many files are left before an entry of one is read. Then entries are read; each other
manifest is opened, and is a set of its own. The order of the stages is that of
:mod:`sidecar.planning.files.cheapest`. The sidecar is opened if the predicate asks something of filters, or if there
are so many files that reading their bounds in the sidecar is cheaper than reading manifests. If it fails, a set stays
as it was before the stage, and nothing more is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile

from sidecar.planning.file_question import FileQuestion
from sidecar.planning.files import cheapest
from sidecar.planning.files.by_bounds import by_bounds
from sidecar.planning.files.by_filters import IndexedFiles, by_filters
from sidecar.planning.files.file_set import DroppedBy, FileSet, Line, Reasons
from sidecar.planning.files.records import WrongRecords, opened_manifests, read_entries
from sidecar.planning.files.sources import ListedManifests
from sidecar.planning.funnel import ManifestUse
from sidecar.planning.opened_sidecar import OpenedSidecar
from sidecar.planning.tasks import Evaluators, count_files


@dataclass(frozen=True)
class ChosenFiles:
    """The files of data manifests after the stages."""

    lines: Sequence[Line] = ()
    """The manifests: those whose partition summaries allow a match."""
    sets: Sequence[FileSet] = ()

    @property
    def others(self) -> list[Line]:
        """The manifests whose files are in no set: they have to be opened."""
        known = {place for files in self.sets for place in files.source.places}
        return [line for line in self.lines if line.place not in known]

    @property
    def most(self) -> int:
        """The number of files that are left, as far as it is known."""
        return sum(map(len, self.sets)) + count_files(line.file for line in self.others)

    @cached_property
    def by_manifest(self) -> Sequence[tuple[int, FileSet, slice]]:
        """For manifests with files that are left, in order: its place, the set, and which files of it these are."""
        found = [(at, files, rows) for files in self.sets if len(files) for at, rows in files.by_manifest()]
        return sorted((one for one in found if one[2].start < one[2].stop), key=lambda one: one[0])

    def dropped(self) -> Counter[DroppedBy]:
        """Count the files that are out, by what dropped them."""
        return sum((files.dropped() for files in self.sets), Counter())


@dataclass(frozen=True)
class FileChooser:
    """Narrows file sets for one question. It holds what stages need, and changes nothing but ``opened``."""

    opened: OpenedSidecar
    question: FileQuestion
    evaluators: Evaluators

    def choose(self, lines: Sequence[Line], manifests: Sequence[ManifestFile]) -> ChosenFiles:
        """Choose among the files of manifests that segments list. Reads the entry of no file.

        ``manifests`` are all data manifests of the snapshot.
        """
        opened, chosen = self.opened, ChosenFiles(lines)
        if not lines:
            return chosen
        if self.question.for_filters.condition is not None:
            opened.open_for_question()
        elif cheapest.is_worth_opening([line.file for line in lines], self.question.for_manifests, self.evaluators):
            opened.guarded(opened.open, None)
        if opened.index is None:
            return chosen
        return opened.guarded(partial(self._listed, opened.index, lines, manifests), chosen)

    def _listed(self, index: IndexedFiles, lines: Sequence[Line], manifests: Sequence[ManifestFile]) -> ChosenFiles:
        index.note_manifests(manifests)
        often = Counter(line.file.manifest_path for line in lines)
        by_segment: dict[int, list[Line]] = {}
        for line in lines:
            if often[line.file.manifest_path] == 1 and (listing := index.listing(line.file)):
                by_segment.setdefault(next(iter(listing)), []).append(line)
        sources = [_in_order(index, number, own) for number, own in by_segment.items()]
        return ChosenFiles(lines, [self._by_columns(index, source) for source in sources if source is not None])

    def _by_columns(self, index: IndexedFiles, source: ListedManifests) -> FileSet:
        files = FileSet.all(source)
        if len(files) <= cheapest.FEW:
            files = by_bounds(files, self.question.for_manifests, self.evaluators)
        if index.question is not None:
            files = by_filters(files, index, sorted({source.number, *index.asked}))
        return files if len(files) <= cheapest.FEW else by_bounds(files, self.question.for_manifests, self.evaluators)

    def read(self, chosen: ChosenFiles, io: FileIO, use: ManifestUse) -> ChosenFiles:
        """Read the entries of the files that are left, and open the other manifests and ask filters about their files.

        Raises errors about the table's own metadata.
        """
        opened, index = self.opened, self.opened.index
        listed = list[FileSet]()
        if index is not None:
            listed = opened.guarded(lambda: [*self._entries(index, chosen.sets, io, use)], listed)
        others = ChosenFiles(chosen.lines, listed).others
        sets = [*listed, *map(partial(ask_filters, opened), opened_manifests(io, others, self.evaluators))]
        use.opened += len(others)
        use.listed = len(chosen.lines) - use.opened
        # Sets have no reasons if filters are not asked, or if the sidecar failed after they were made.
        return ChosenFiles(
            chosen.lines, [files if files.why is not None else _unasked(opened, files) for files in sets]
        )

    def _entries(self, index: IndexedFiles, sets: Iterable[FileSet], io: FileIO, use: ManifestUse) -> Iterator[FileSet]:
        """Yield the sets with the entries of their files. Manifests whose entries are in doubt are left out."""
        for files in sets:
            source = files.source
            assert isinstance(source, ListedManifests)
            try:
                yield read_entries(files, self.question.for_manifests, self.evaluators, io, use, self.opened.warn)
            except WrongRecords as wrong:  # start again without these manifests
                good = [line for line in source.lines if line.place not in wrong.places]
                left = _in_order(index, source.number, good) if good else None
                yield from self._entries(index, [] if left is None else [self._by_columns(index, left)], io, use)


def ask_filters(opened: OpenedSidecar, files: FileSet) -> FileSet:
    """Ask filters about a set; it stays as it was, with the reason, if they cannot answer."""
    index = opened.index
    if index is None or index.question is None or not len(files):
        return _unasked(opened, files)
    asked = opened.guarded(partial(by_filters, files, index), None)
    return _unasked(opened, files) if asked is None else asked


def _unasked(opened: OpenedSidecar, files: FileSet) -> FileSet:
    return replace(files, why=Reasons.all(len(files), opened.otherwise))


def _in_order(index: IndexedFiles, number: int, lines: Sequence[Line]) -> ListedManifests | None:
    """Return manifests as a source, in the order of the segment; ``None`` if two of them claim one file."""
    ordered = sorted(lines, key=lambda line: index.listing(line.file)[number].first_file)
    listings = [index.listing(line.file) for line in ordered]
    spans = np.array([(one[number].first_file, one[number].first_file + one[number].live_files) for one in listings])
    overlap = (spans[1:, 0] < spans[:-1, 1]).any()
    return None if overlap else ListedManifests(index.segments[number], number, ordered, listings, spans)
