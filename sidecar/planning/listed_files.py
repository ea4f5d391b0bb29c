"""Entries of manifests that need not be opened: those that a sidecar's units table lists as they stand today.

A manifest is immutable, and a units table holds its live entries as its Avro records. Of the manifests that one
segment lists, all files are told apart at once, by filters and by bounds. Only the records of those that are left are
read, decoded by pyiceberg with what today's manifest list gives them, and shown to pyiceberg's own evaluators. So
the entries that come out are the ones that pyiceberg would have found.

*   Up to :data:`FEW` files, all records are read: bounds come first then, as the caller asks filters about what is
    left.
*   Of more, filters are asked first if the predicate has a question for them: a lookup reads about a byte a file,
    bounds take many. Bounds are read if the records of what is left would be more bytes.
*   A manifest is opened nevertheless, by pyiceberg, if decoding what is left of it would take longer than that.
    Records are decoded in Python, since pyiceberg's compiled decoder is not safe with bytes that may be anybody's.

Whatever is wrong with the records of a manifest has it opened, with a warning. Nothing here raises but what
pyiceberg's evaluators raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.types import NestedField

from sidecar.bundle.model import FileEntry, ListedManifest
from sidecar.bundle.segment import Segment
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.iceberg.listing import identity_of
from sidecar.iceberg.manifests import entry_decoder
from sidecar.planning import bound_columns, partition_columns
from sidecar.planning.filter_answers import FilterAnswers, Ordinals
from sidecar.planning.task_planner import Evaluators

FEW = 64
"""Files whose records are read without more ado: one or two batches of a units table."""
DECODING = 0.1
"""Milliseconds that a record of a units table takes."""
OPENING, READING = 20.0, 0.045
"""Milliseconds that opening a manifest takes, and each of its entries."""


@dataclass(frozen=True)
class AnsweredManifests:
    """Entries that are left of manifests, by path, and how many files of these manifests filters dropped."""

    entries: dict[str, list[ManifestEntry]] = field(default_factory=dict)
    dropped: int = 0


@dataclass(frozen=True)
class _Member:
    """A manifest and the line of it in one segment's list."""

    line: ManifestFile
    entry: ListedManifest
    places: dict[int, int]
    """The ordinal of its first file in each segment, by number, that lists it."""

    @property
    def ordinals(self) -> Ordinals:
        return np.arange(self.entry.first_file, self.entry.first_file + self.entry.live_files)


def is_worth_it(
    lines: Sequence[ManifestFile], bound: BooleanExpression, evaluators: Evaluators, least: int
) -> bool:
    """Whether bounds or partitions of a units table may spare opening manifests of many files."""
    files = sum((line.added_files_count or 0) + (line.existing_files_count or 0) for line in lines)
    if files < least:
        return False
    specs = {line.partition_spec_id for line in lines}
    return bool(bound_columns.helpful_fields(bound)) or any(map(evaluators.partition_field_ids, specs))


class ListedFiles:
    """Answers for manifests from the units tables of one sidecar; ``warn`` is told what is wrong with them."""

    def __init__(self, answers: FilterAnswers, bound: BooleanExpression, warn: Callable[[str], None]) -> None:
        self._answers = answers
        self._bound = bound
        self._fields = bound_columns.helpful_fields(bound)
        self._warn = warn

    def answer(self, lines: Sequence[ManifestFile], evaluators: Evaluators) -> AnsweredManifests:
        """What is left of those among ``lines``, data manifests, that a segment lists."""
        members: dict[int, list[_Member]] = {}
        for line in lines:
            places = self._answers.listed(line)
            if places:
                number, entry = places[0]
                own = _Member(line, entry, {n: e.first_file for n, e in places})
                members.setdefault(number, []).append(own)
        entries: dict[str, list[ManifestEntry]] = {}
        dropped = 0
        for number, own_members in members.items():
            one = self._answer(number, own_members, evaluators)
            entries |= one.entries
            dropped += one.dropped
        return AnsweredManifests(entries, dropped)

    def _answer(self, number: int, members: Sequence[_Member], evaluators: Evaluators) -> AnsweredManifests:
        """Of manifests that one segment lists."""
        segment = self._answers.segments[number]
        ordinals = np.concatenate([member.ordinals for member in members])
        owners = np.repeat(np.arange(len(members)), [member.entry.live_files for member in members])
        alive = np.ones(len(ordinals), np.bool_)
        if self._answers.question is not None and len(ordinals) > FEW:
            alive = self._answers.judge(self._places(number, members, ordinals))
        by_filter = ~alive
        if alive.sum() > FEW:
            self._rule_out(segment, members, owners, ordinals, alive, evaluators)
        opened = self._to_be_opened(members, np.bincount(owners[alive], minlength=len(members)))
        alive &= ~opened[owners]
        kept = [member for member, is_opened in zip(members, opened.tolist(), strict=True) if not is_opened]
        found: dict[str, list[ManifestEntry]] = {member.line.manifest_path: [] for member in kept}
        self._decode(
            segment, [members[owner] for owner in owners[alive].tolist()], ordinals[alive], evaluators, found
        )
        answered = np.array([member.line.manifest_path in found for member in members])
        lost = by_filter & answered[owners]
        self._answers.count_dropped(number, ordinals[lost])
        return AnsweredManifests(found, int(lost.sum()))

    def _places(self, number: int, members: Sequence[_Member], ordinals: Ordinals) -> dict[int, Ordinals]:
        """The ordinals of files in every segment that has something to say of them."""
        places = {number: ordinals} | self._answers.other_places(number, ordinals)
        starts = np.cumsum([0, *(member.entry.live_files for member in members)]).tolist()
        for other in {n for member in members for n in member.places} - {number}:
            own = places.setdefault(other, np.full(len(ordinals), -1, np.int64))
            for member, start in zip(members, starts, strict=False):
                if other in member.places:
                    count = member.entry.live_files
                    own[start : start + count] = member.places[other] + np.arange(count)
        return places

    def _rule_out(
        self,
        segment: Segment,
        members: Sequence[_Member],
        owners: npt.NDArray[np.int64],
        ordinals: Ordinals,
        alive: npt.NDArray[np.bool_],
        evaluators: Evaluators,
    ) -> None:
        """Take files out of ``alive`` by bounds and partitions, if these are fewer bytes than the files' records."""
        kinds = [(member.line.partition_spec_id, member.entry.schema) for member in members]
        left = {kinds[owner] for owner in np.unique(owners[alive]).tolist()}
        fields = {kind: self._partition_fields(segment, kind, evaluators) for kind in left}
        if not self._columns_are_cheaper(segment, ordinals[alive], any(fields.values())):
            return
        alive[alive] = self._within_bounds(segment, ordinals[alive])
        for kind, parts in fields.items():
            if parts:
                chosen = alive & np.array([own == kind for own in kinds])[owners]
                evaluate = evaluators.partition(kind[0])
                alive[chosen] = self._within_partitions(segment, ordinals[chosen], parts, evaluate)

    def _columns_are_cheaper(self, segment: Segment, ordinals: Ordinals, partitions: bool) -> bool:
        """Whether bounds and, perhaps, partitions of all files are fewer bytes than the records of these."""
        units = segment.units
        if not self._fields and not partitions:
            return False
        return units.bytes_of_columns(self._fields, partitions) < units.bytes_of_files(ordinals)

    def _within_bounds(self, segment: Segment, ordinals: Ordinals) -> npt.NDArray[np.bool_]:
        def column(field_id: int) -> pa.Table | None:
            bounds = segment.bounds(field_id)
            return None if bounds is None else bounds.take(pa.array(ordinals, pa.int64()))

        return bound_columns.may_match(self._bound, column, len(ordinals))

    def _partition_fields(
        self, segment: Segment, kind: tuple[int, int], evaluators: Evaluators
    ) -> tuple[NestedField, ...]:
        """The fields of recorded partition tuples, if they can rule something out and stand in the records' order.

        ``kind``: spec id, and ordinal of the schema of the records.
        """
        spec_id, schema = kind
        ids = evaluators.partition_field_ids(spec_id)
        if not ids or not 0 <= schema < len(segment.schemas):
            return ()
        try:
            fields = entry_decoder(segment.schemas[schema]).partition_fields
        except SidecarError:
            return ()  # its records cannot be decoded either, which is said there
        return fields if [field.field_id for field in fields] == ids else ()

    def _within_partitions(
        self,
        segment: Segment,
        ordinals: Ordinals,
        fields: Sequence[NestedField],
        evaluate: Callable[[DataFile], bool],
    ) -> npt.NDArray[np.bool_]:
        partitions = segment.partitions()
        if partitions is None:
            return np.ones(len(ordinals), np.bool_)
        own = partitions.take(pa.array(ordinals, pa.int64()))
        return partition_columns.may_match(
            own, fields, lambda record: evaluate(DataFile.from_args(partition=record))
        )

    def _to_be_opened(self, members: Sequence[_Member], left: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Manifests of which so much is left that pyiceberg reads them sooner than records are decoded."""
        files = np.array([member.entry.live_files for member in members])
        costly: npt.NDArray[np.bool_] = left * DECODING > OPENING + files * READING
        return costly

    def _decode(
        self,
        segment: Segment,
        owners: Sequence[_Member],
        ordinals: Ordinals,
        evaluators: Evaluators,
        found: dict[str, list[ManifestEntry]],
    ) -> None:
        """Add the entries of these files that pyiceberg's evaluators let pass; take out manifests that are in doubt."""
        chosen = ordinals.tolist()
        for member, ordinal, file in zip(owners, chosen, segment.files(chosen), strict=True):
            path = member.line.manifest_path
            if path not in found:
                continue
            try:
                entry = _decoded(segment, member, file)
            except SidecarError as error:
                self._warn(
                    f"the manifest {path} is read, as its entries in the sidecar are in doubt: {error}"
                )
                del found[path]
                continue
            data = entry.data_file
            if evaluators.match(member.line, data):
                at = ordinal - member.entry.first_file
                places = {number: first + at for number, first in member.places.items()}
                self._answers.remember(identity_of(entry), places)
                found[path].append(entry)


def _decoded(segment: Segment, member: _Member, file: FileEntry | None) -> ManifestEntry:
    """The entry as pyiceberg reads it; :class:`DamagedFileError` unless it is a live one of just that file."""
    if file is None:
        raise DamagedFileError("a file's record cannot be read")
    if not 0 <= member.entry.schema < len(segment.schemas):
        raise DamagedFileError("the schema of its records is not there", found=member.entry.schema)
    entry = entry_decoder(segment.schemas[member.entry.schema]).decode(file.entry, member.line)
    data = entry.data_file
    recorded = (*file.identity, file.spec_id)
    own = (*identity_of(entry), member.line.partition_spec_id)
    if own != recorded:
        raise DamagedFileError("a record is of another file", expected=recorded, found=own)
    if entry.status == ManifestEntryStatus.DELETED or data.content != DataFileContent.DATA:
        raise DamagedFileError("a record is of no live data file", found=data.file_path)
    return entry
