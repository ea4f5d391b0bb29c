"""What one sidecar file says of the data files of a snapshot.

A data file is known to a segment by its fingerprint (path as the manifest spells it, size, record count). It
may match if one of its units may match; it is dropped only if it is listed, every unit of it is indexed and none
may match. Several segments may list one file (columns that were indexed at different times); each can drop it.

Nothing is read before the first file is asked for, and nothing here raises: whatever goes wrong with an index
keeps the files and becomes a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pyiceberg.manifest import ManifestContent, ManifestFile

from sidecar.bundle.model import INDEXED, Coverage, ListedManifest
from sidecar.filters.probes import AnyEncoding, probe_for
from sidecar.filters.values import Probe
from sidecar.iceberg.may_match import AnyOf, HoldsAny, Question, Units, leaves, may_match

if TYPE_CHECKING:
    from sidecar.bundle.sidecar_file import Segment

BLOOM = "bloom"
NOT_LISTED = "not listed in the sidecar"
MAY_MATCH = "may match"
DAMAGED = "may match: part of the index is damaged"
UNREADABLE = "index unreadable"

Files = npt.NDArray[np.bool_]
"""One flag for each file of a segment."""


class Verdict(NamedTuple):
    """Whether a file is kept, and why."""

    keep: bool
    reason: str


@dataclass(frozen=True)
class Place:
    """Where a segment lists a file. ``alive`` has a flag for each of its row groups: whether filters keep it."""

    segment: Segment
    ordinal: int
    first_unit: int
    alive: Units


class Counts(NamedTuple):
    """Live files that stand in the sidecar, and those whose entries can answer the question."""

    listed: int
    indexed: int


@dataclass(frozen=True)
class _Answer:
    """What one segment says of its units and files: may they match, can it say no at all, and why it does not."""

    units: Units
    keep: Files
    indexed: Files
    kept_because: str


class Verdicts:
    """Verdicts of the segments of one sidecar file on one question.

    ``resolution_holds(field_id, resolution)`` says whether a column would still be found in a file as it was
    when the file was indexed; ``warnings`` is the list that grows where the sidecar finds damage.
    """

    def __init__(
        self,
        segments: Iterable[Segment],
        question: Question | None,
        resolution_holds: Callable[[int, str], bool],
        warnings: Sequence[str] = (),
    ) -> None:
        self._segments = list(segments)
        self._question = question
        self._resolution_holds = resolution_holds
        self._warnings = warnings
        self._answers: dict[int, _Answer] = {}
        self._seen: list[set[int]] = [set() for _ in self._segments]
        self.units_dropped = 0
        """Row groups of the files that were dropped."""

    def of(self, path: str, file_size: int, record_count: int) -> Verdict:
        """The verdict on a data file; asks the index when the first listed file comes by."""
        reason = NOT_LISTED
        for number, segment in enumerate(self._segments):
            ordinal = segment.file_ordinal(path, file_size, record_count)
            if ordinal is None:
                continue
            self._seen[number].add(ordinal)
            answer = self._answer(number)
            if not answer.keep[ordinal]:
                self.units_dropped += int(segment.unit_ranges[ordinal + 1] - segment.unit_ranges[ordinal])
                return Verdict(False, "")
            if answer.indexed[ordinal]:
                reason = answer.kept_because
            elif reason == NOT_LISTED:
                reason = self._why_not_indexed(segment, ordinal)
        return Verdict(True, reason)

    def places(self, path: str, file_size: int, record_count: int) -> list[Place]:
        """Where a file that is kept is listed, and which of its row groups filters keep."""
        found = []
        for number, segment in enumerate(self._segments):
            ordinal = segment.file_ordinal(path, file_size, record_count)
            if ordinal is not None:
                self._seen[number].add(ordinal)
                first, end = segment.unit_ranges[ordinal : ordinal + 2].tolist()
                found.append(Place(segment, ordinal, first, self._answer(number).units[first:end]))
        return found

    def counts(self, manifests: Iterable[ManifestFile]) -> Counts:
        """Live files of the snapshot that are listed, and indexed for the question.

        Those in ``manifests`` that a segment lists as they stand are counted without opening them; of other
        manifests, the files that were asked for.
        """
        listed = indexed = 0
        inside: list[set[int]] = [set() for _ in self._segments]
        for manifest in manifests:
            flags = [
                self._take(number, entry, inside[number])
                for number, segment in enumerate(self._segments)
                for entry in segment.listed_manifests
                if is_listed(manifest, entry)
            ]
            if flags:
                listed += len(flags[0])
                indexed += int(np.logical_or.reduce(flags).sum())
        for number, seen in enumerate(self._seen):
            rest = seen - inside[number]
            listed += len(rest)
            indexed += sum(bool(self._answer(number).indexed[ordinal]) for ordinal in rest)
        return Counts(listed, indexed)

    def _take(self, number: int, entry: ListedManifest, inside: set[int]) -> Files:
        files = range(entry.first_file, entry.first_file + entry.live_files)
        inside.update(files)
        return self._answer(number).indexed[files.start : files.stop]

    def _answer(self, number: int) -> _Answer:
        if number not in self._answers:
            segment = self._segments[number]
            if self._question is None:  # filters are not asked
                every, none = np.ones(segment.num_units, np.bool_), np.zeros(segment.num_files, np.bool_)
                self._answers[number] = _Answer(every, ~none, none, MAY_MATCH)
                return self._answers[number]
            able = _answerable(self._question, lambda leaf: _indexed(segment, leaf), segment.num_units)
            wanted, warned = np.ones(segment.num_units, np.bool_), len(self._warnings)
            units = may_match(self._question, self._asker(segment), wanted) if able.any() else wanted
            without = np.diff(segment.unit_ranges) == 0  # listed, but no row group of it is known: kept
            keep, unable = _any_unit(segment, units), _any_unit(segment, ~able)
            why = DAMAGED if len(self._warnings) > warned else MAY_MATCH
            self._answers[number] = _Answer(units, keep | without, ~(unable | without), why)
        return self._answers[number]

    def _asker(self, segment: Segment) -> Callable[[HoldsAny], Units]:
        def ask(leaf: HoldsAny) -> Units:
            def holds(resolution: str) -> bool:
                return self._resolution_holds(leaf.field_id, resolution)

            return segment.might_match(leaf.field_id, partial(_probe, leaf), holds)

        return ask

    def _why_not_indexed(self, segment: Segment, ordinal: int) -> str:
        units = range(segment.unit_ranges[ordinal], segment.unit_ranges[ordinal + 1])
        for leaf in leaves(self._question) if self._question else ():
            indexed, coverage = _indexed(segment, leaf), segment.coverage(leaf.field_id, BLOOM)
            for unit in units:
                if not indexed[unit]:
                    return f"not indexed: {leaf.column}: {state_of(coverage, unit)}"
        return "not indexed: no row group of it is known"


def _probe(leaf: HoldsAny, encoding: AnyEncoding) -> Probe:
    """All values of a leaf in one probe; one that is unknown makes it unknown."""
    hashes: list[int] = []
    for value in leaf.values:
        found = probe_for(value, leaf.type, encoding)
        if found.verdict == "unknown":
            return found
        hashes += found.hashes
    return Probe("probe", tuple(hashes)) if hashes else Probe("cannot-exist")


def state_of(coverage: Coverage | None, unit: int) -> str:
    """Why a unit has no entry, or that the entry it has cannot be read."""
    if coverage is None:
        return "no filters were built"
    state = coverage.states[coverage.codes[unit]].state
    return UNREADABLE if state == INDEXED else state


def is_listed(manifest: ManifestFile, entry: ListedManifest) -> bool:
    """Whether a line of today's manifest list is the manifest that the segment lists, as it was then."""
    live_files = (manifest.added_files_count, manifest.existing_files_count)
    live_rows = (manifest.added_rows_count, manifest.existing_rows_count)
    return (
        manifest.content == ManifestContent.DATA
        and manifest.manifest_path == entry.path
        and manifest.manifest_length == entry.length
        and manifest.partition_spec_id == entry.spec_id
        and manifest.sequence_number == entry.sequence_number
        and manifest.added_snapshot_id == entry.added_snapshot_id
        and (None in live_files or sum(live_files) == entry.live_files)  # type: ignore[arg-type]
        and (None in live_rows or sum(live_rows) == entry.live_rows)  # type: ignore[arg-type]
    )


def _answerable(question: Question, indexed: Callable[[HoldsAny], Units], units: int) -> Units:
    """The units whose entries suffice to answer no."""
    if isinstance(question, HoldsAny):
        return indexed(question)
    parts = [_answerable(part, indexed, units) for part in question.parts]
    every = isinstance(question, AnyOf)
    combine: Any = np.logical_and if every else np.logical_or
    found: Units = combine.reduce([np.full(units, every), *parts])
    return found


def _indexed(segment: Segment, leaf: HoldsAny) -> Units:
    """The units that have a filter of the leaf's column."""
    units = np.zeros(segment.num_units, np.bool_)
    for group in segment.fields.get(leaf.field_id, ()):
        units[group.units] = True
    return units


def _any_unit(segment: Segment, units: Units) -> Files:
    """For each file whether a flag of its units is set; a file without units has one nowhere."""
    counts = np.concatenate(([0], np.cumsum(units)))
    starts = np.asarray(segment.unit_ranges)
    found: Files = counts[starts[1:]] > counts[starts[:-1]]
    return found
