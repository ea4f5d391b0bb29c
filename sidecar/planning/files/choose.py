"""Chooses the files of a plan: makes file sets of a snapshot's manifests, and lets the stages narrow each.

Manifests that segments list become one set. First this is narrowed by what a sidecar has as columns, so that
a caller knows how many files are left before an entry of one is read. Then entries are read; each other manifest
is opened, and is a set of its own. The order of the stages is that of :mod:`sidecar.planning.files.cheapest`.

The sidecar is opened if the predicate asks something of filters, or if there are so many files that reading their
bounds in the sidecar is cheaper than reading manifests. If it fails, a set stays as it was before the stage, and
nothing more is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

from pyiceberg.manifest import ManifestFile

from sidecar.planning import bound_columns
from sidecar.planning.evaluators import Evaluators
from sidecar.planning.file_question import FileQuestion
from sidecar.planning.files import cheapest
from sidecar.planning.files.by_bounds import by_bounds
from sidecar.planning.files.by_filters import IndexedFiles, by_filters
from sidecar.planning.files.file_set import DroppedBy, FileSet, FileSource, Line, Reasons, S_co
from sidecar.planning.files.records import WrongRecords, opened_manifests, read_entries
from sidecar.planning.files.sources import ListedManifests
from sidecar.planning.opened_sidecar import OpenedSidecar
from sidecar.planning.tasks import count_files


@dataclass(frozen=True)
class ChosenFiles:
    """The files of data manifests after the stages."""

    lines: Sequence[Line] = ()
    """The manifests: those whose partition summaries allow a match."""
    sets: Sequence[FileSet[FileSource]] = ()
    manifests_opened: int = 0

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
    def by_manifest(self) -> Sequence[tuple[int, FileSet[FileSource], slice]]:
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
        chosen, opened = ChosenFiles(lines), self.opened
        if not lines:
            return chosen
        if self.question.for_filters.condition is not None:
            opened.open_for_question()
        elif cheapest.is_worth_opening([line.file for line in lines], self.question.for_manifests, self.evaluators):
            with opened.guarded():
                opened.open()
        index = opened.index
        if index is not None:
            with opened.guarded():
                chosen = ChosenFiles(lines, self._listed(index, lines, manifests))
        return chosen

    def _listed(
        self, index: IndexedFiles, lines: Sequence[Line], manifests: Sequence[ManifestFile]
    ) -> list[FileSet[ListedManifests]]:
        """Return the files of manifests that segments list, one set of all."""
        index.files.note_manifests(manifests)
        often = Counter(line.file.manifest_path for line in lines)
        # A manifest that is in the list twice is opened twice: its lines may inherit different numbers.
        known = [line for line in lines if often[line.file.manifest_path] == 1 and index.files.listings(line.file)]
        source = ListedManifests.of(index.files, known)
        return [] if source is None else [self._by_columns(index, source)]

    def _by_columns(self, index: IndexedFiles, source: ListedManifests) -> FileSet[ListedManifests]:
        """Return the files that columns of the sidecar leave; all of them if their entries come first."""
        files, bound = FileSet.all(source), self.question.for_manifests
        if len(files) > cheapest.FEW:
            if index.question is not None:
                files = by_filters(files, index)
            return files if len(files) <= cheapest.FEW else by_bounds(files, bound, self.evaluators)
        if not bound_columns.asks_bounds_alone(bound):
            return files
        files = by_bounds(files, bound, self.evaluators)
        return by_filters(files, index) if files.steps and index.question is not None else files

    def read(self, chosen: ChosenFiles) -> ChosenFiles:
        """Read the entries of the files that are left, and open the other manifests and ask filters about their files.

        Raises errors about the table's own metadata.
        """
        opened, index = self.opened, self.opened.index
        read: list[tuple[FileSet[ListedManifests], int]] = []
        if index is not None:
            with opened.guarded():
                read = [one for files in chosen.sets for one in self._with_entries(index, files)]
        listed = [files for files, _ in read]
        others = ChosenFiles(chosen.lines, listed).others
        sets: Iterable[FileSet[FileSource]] = chain(listed, opened_manifests(others, self.evaluators))
        # Sets have no reasons if filters come after entries, or are not asked, or if the sidecar failed meanwhile.
        asked = [files if files.reasons is not None else ask_filters(opened, files) for files in sets]
        return ChosenFiles(chosen.lines, asked, len(others) + sum(count for _, count in read))

    def _with_entries(self, index: IndexedFiles, files: FileSet[Any]) -> Iterator[tuple[FileSet[ListedManifests], int]]:
        """Yield the files with their entries, and how many manifests were opened for these.

        Manifests whose entries are in doubt are left out.
        """
        source: ListedManifests = files.source
        try:
            yield read_entries(files, self.question.for_manifests, self.evaluators)
        except WrongRecords as wrong:  # start again without these manifests
            for line in source.lines:
                if (error := wrong.errors.get(line.place)) is not None:
                    what = "because its entries in the sidecar are in doubt"
                    self.opened.warn(f"manifest {line.file.manifest_path} is opened, {what}: {error}")
            good = [line for line in source.lines if line.place not in wrong.errors]
            left = ListedManifests.of(index.files, good)
            if left is not None:
                yield from self._with_entries(index, self._by_columns(index, left))


def ask_filters(opened: OpenedSidecar, files: FileSet[S_co]) -> FileSet[S_co]:
    """Ask filters about a set; it stays as it was, with the reason, if they cannot answer."""
    index, asked = opened.index, files
    if index is not None and index.question is not None and len(files):
        with opened.guarded():
            asked = by_filters(files, index)
    if asked.reasons is not None:
        return asked
    return replace(files, reasons=Reasons.all(len(files), opened.otherwise))
