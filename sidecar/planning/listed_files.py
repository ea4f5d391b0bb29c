"""Answers for manifests that a sidecar's units table lists unchanged, so that pyiceberg need not open them.

A manifest is immutable, and a units table holds copies of the Avro records of its live entries. Filters and bounds are
asked about all files of the manifests of one segment at once. Only the records of the files that are left are read.
pyiceberg decodes them, fills in the fields that come from today's manifest list, and asks its own evaluators about
them. So the entries that come out are those that pyiceberg would have found.

*   With up to :data:`FEW` files, all records are read. Bounds decide first, and the caller asks filters about the
    files that are left.
*   With more files, filters are asked first if the predicate asks them anything: a lookup reads about a byte for each
    file, bounds take many. Bounds are read if the records of the files that are left would be more bytes.
*   If more than :data:`WALKED` files are left and bounds have answered for all of the predicate, the records of all of
    them are walked at once (:mod:`sidecar.iceberg.records`), and the rest of each is decoded when it is looked at.
*   Otherwise a manifest is opened by pyiceberg after all if decoding its remaining records would take longer. Records
    are decoded in Python, because pyiceberg's compiled decoder is not safe with bytes from untrusted writers.

A caller that keeps manifests in memory makes tasks from these much faster. If more files are left than such a caller
wants to get as entries (:class:`ManifestsInMemory`), it gets a flag for each file, and no record is decoded.

If a record of a manifest is wrong, the manifest is opened, with a warning. Nothing here raises, except pyiceberg's
evaluators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.types import NestedField

from sidecar.bundle.model import FileEntry, ListedManifest
from sidecar.bundle.segment import Segment
from sidecar.bundle.units.fingerprints import Fingerprints
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.iceberg.listing import identity_of
from sidecar.iceberg.manifests import entry_decoder
from sidecar.planning import bound_columns, partition_columns
from sidecar.planning.filter_answers import FilterAnswers, Ordinals
from sidecar.planning.task_planner import Evaluators, count_files

if TYPE_CHECKING:
    from sidecar.iceberg.records.entries import EntryMaker, StoredRecords

FEW = 64
"""Up to this many files, all records are read, because they are one or two batches of a units table."""
WALKED = 64
"""With more than this many files left, their records are walked at once; for fewer, decoding takes no longer."""
DECODING = 0.1
"""Milliseconds to decode one record of a units table."""
MANY_MANIFESTS = 8
"""With at least this many manifests, the sidecar answers for them even if the predicate asks nothing of filters."""
OPENING, READING = 20.0, 0.045
"""Milliseconds to open a manifest, and to read one entry of it."""


Flags = npt.NDArray[np.bool_]
"""bool[live files of a manifest], in its order: the files that may match."""


@dataclass(frozen=True)
class ManifestsInMemory:
    """What a caller has of the data manifests of a snapshot."""

    most_entries: int
    """If more files are left, the caller wants flags instead of entries."""
    may_match: Callable[[ManifestFile], Flags | None]
    """Returns the files that partitions and bounds keep; ``None`` if the manifest was not read yet."""
    fingerprints: Callable[[ManifestFile], Fingerprints]
    """Returns a fingerprint for each live file. May read the manifest, and raise the errors of that."""


@dataclass(frozen=True)
class AnsweredManifests:
    """The entries that are left, by manifest path, and how many files of these manifests filters dropped."""

    entries: dict[str, list[ManifestEntry]] = field(default_factory=dict)
    dropped: int = 0
    flags: Mapping[str, Flags] | None = None
    """The files that are left, by manifest path, in place of entries. Of other manifests, every file may match."""


@dataclass(frozen=True)
class _Left:
    """The files of all ``members``, which segment ``number`` lists: which of them are left, and which filters dropped.

    ``owners`` has the place of each file's manifest in ``members``.
    """

    number: int
    members: Sequence[_Member]
    owners: npt.NDArray[np.int64]
    ordinals: Ordinals
    alive: Flags
    by_filter: Flags
    bounded: bool
    """Whether bounds and partitions were asked all that the predicate asks."""

    def flags(self) -> dict[str, Flags]:
        """Return which files are left, by manifest path."""
        return {member.line.manifest_path: self.alive[self.owners == at] for at, member in enumerate(self.members)}


@dataclass(frozen=True)
class _Member:
    """A manifest, as the manifest list (``line``) and one segment (``entry``) list it."""

    line: ManifestFile
    entry: ListedManifest
    places: dict[int, int]
    """The ordinal of its first file in each segment that lists it, by segment number."""

    @property
    def ordinals(self) -> Ordinals:
        return np.arange(self.entry.first_file, self.entry.first_file + self.entry.live_files)


def is_worth_it(lines: Sequence[ManifestFile], bound: BooleanExpression, evaluators: Evaluators, least: int) -> bool:
    """Return whether bounds or partitions may rule out some of at least ``least`` files, or of as many manifests.

    With :data:`MANY_MANIFESTS` manifests, opening them takes longer than opening the sidecar, however few their files.
    """
    if count_files(lines) < least and len(lines) < MANY_MANIFESTS:
        return False
    specs = {line.partition_spec_id for line in lines}
    return bool(bound_columns.helpful_fields(bound)) or any(map(evaluators.partition_field_ids, specs))


class ListedFiles:
    """Answers for manifests from the units tables of one sidecar; ``warn`` gets a text for each error in them."""

    def __init__(
        self,
        answers: FilterAnswers,
        bound: BooleanExpression,
        warn: Callable[[str], None],
        in_memory: ManifestsInMemory | None = None,
    ) -> None:
        self._answers = answers
        self._in_memory = in_memory
        self._bound = bound
        self._fields = bound_columns.helpful_fields(bound)
        self._warn = warn

    def answer(self, lines: Sequence[ManifestFile], evaluators: Evaluators) -> AnsweredManifests:
        """Return what is left of the data manifests in ``lines`` that a segment lists.

        A manifest that is there more than once is opened: answers are by path, and its lines may inherit differently.
        """
        members: dict[int, list[_Member]] = {}
        often = Counter(line.manifest_path for line in lines)
        for line in lines:
            places = self._answers.listed(line) if often[line.manifest_path] == 1 else []
            if places:
                number, entry = places[0]
                member = _Member(line, entry, {n: e.first_file for n, e in places})
                members.setdefault(number, []).append(member)
        left = [self._left_of(number, of_segment, evaluators) for number, of_segment in members.items()]
        flags = None if self._in_memory is None else self._flags(lines, left, self._in_memory)
        if flags is not None:
            return AnsweredManifests(flags=flags)
        entries: dict[str, list[ManifestEntry]] = {}
        dropped = 0
        for one in left:
            answered = self._entries(one, evaluators)
            entries |= answered.entries
            dropped += answered.dropped
        return AnsweredManifests(entries, dropped)

    def _flags(
        self, lines: Sequence[ManifestFile], left: Sequence[_Left], in_memory: ManifestsInMemory
    ) -> dict[str, Flags] | None:
        """Return which files are left, by manifest path; ``None`` if they are so few that entries are wanted."""
        flags = {path: alive for one in left for path, alive in one.flags().items()}
        others = [line for line in lines if line.manifest_path not in flags]
        if sum(int(one.alive.sum()) for one in left) + count_files(others) <= in_memory.most_entries:
            return None
        if others and self._answers.may_have_moved:
            return None  # their files are found by other paths, one by one
        for one in left:
            if len(one.ordinals) <= FEW:  # bounds alone were asked about them
                judged = replace(one, alive=one.alive & self._judged(one.number, one.members, one.ordinals))
                flags |= judged.flags()
        return flags | {line.manifest_path: self._answers.judge_by(in_memory.fingerprints(line)) for line in others}

    def _judged(self, number: int, members: Sequence[_Member], ordinals: Ordinals) -> Flags:
        """Return bool[n]: the files that filters keep."""
        if self._answers.question is None:
            return np.ones(len(ordinals), np.bool_)
        return self._answers.judge(self._places(number, members, ordinals))

    def _left_of(self, number: int, members: Sequence[_Member], evaluators: Evaluators) -> _Left:
        """Ask filters and bounds about ``members``, manifests that segment ``number`` lists."""
        segment = self._answers.segments[number]
        ordinals = np.concatenate([member.ordinals for member in members])
        owners = np.repeat(np.arange(len(members)), [member.entry.live_files for member in members])
        alive = np.ones(len(ordinals), np.bool_)
        if len(ordinals) > FEW:
            alive = self._judged(number, members, ordinals)
        by_filter, bounded = ~alive, False
        if alive.sum() > FEW:
            known = [self._in_memory.may_match(member.line) for member in members] if self._in_memory else [None]
            flags = [one for one in known if one is not None]
            if len(flags) == len(known) and sum(map(len, flags)) == len(alive):
                alive &= np.concatenate(flags)
            else:
                bounded = self._rule_out(segment, members, owners, ordinals, alive, evaluators)
        return _Left(number, members, owners, ordinals, alive, by_filter, bounded)

    def _entries(self, left: _Left, evaluators: Evaluators) -> AnsweredManifests:
        """Return the entries of the files that are left."""
        entries = self._walked(left, evaluators) if left.bounded and left.alive.sum() > WALKED else None
        if entries is None:
            entries = self._decoded_entries(left, evaluators)
        answered = np.array([member.line.manifest_path in entries for member in left.members])
        dropped = left.by_filter & answered[left.owners]
        self._answers.count_dropped(left.number, left.ordinals[dropped])
        return AnsweredManifests(entries, int(dropped.sum()))

    def _decoded_entries(self, left: _Left, evaluators: Evaluators) -> dict[str, list[ManifestEntry]]:
        """Decode the records of the files that are left one by one, of manifests that take longer to open."""
        members, owners, alive = left.members, left.owners, left.alive
        # Files of a manifest that is opened are not dropped here: pyiceberg shows them to the pruner one by one.
        opened = self._to_be_opened(members, np.bincount(owners[alive], minlength=len(members)))
        alive &= ~opened[owners]
        kept = [member for member, is_opened in zip(members, opened.tolist(), strict=True) if not is_opened]
        entries: dict[str, list[ManifestEntry]] = {member.line.manifest_path: [] for member in kept}
        owned_by = [members[owner] for owner in owners[alive].tolist()]
        self._decode(self._answers.segments[left.number], owned_by, left.ordinals[alive], evaluators, entries)
        return entries

    def _walked(self, left: _Left, evaluators: Evaluators) -> dict[str, list[ManifestEntry]] | None:
        """Make entries of all records at once; ``None`` if they have to be decoded one by one."""
        from sidecar.iceberg.records.entries import EntryMaker

        segment = self._answers.segments[left.number]
        members, owners, ordinals = left.members, left.owners[left.alive], left.ordinals[left.alive]
        table = segment.file_columns(ordinals)
        if table is None:
            return None
        kinds = [(member.line.partition_spec_id, member.entry.schema) for member in members]
        of_kind = {kind: at for at, kind in enumerate(dict.fromkeys(kinds))}
        kind_of = np.array([of_kind[kind] for kind in kinds])[owners]
        entries: dict[str, list[ManifestEntry]] = {member.line.manifest_path: [] for member in members}
        for (spec_id, schema), at in of_kind.items():
            chosen = np.flatnonzero(kind_of == at)
            if not len(chosen):
                continue
            try:
                decoder = entry_decoder(segment.schemas[schema] if 0 <= schema < len(segment.schemas) else "")
                maker = EntryMaker(decoder, _stored_records(table, chosen), evaluators.partition(spec_id))
            except SidecarError:
                return None  # decoding finds out which record is wrong
            if not self._make(maker, members, owners[chosen], ordinals[chosen], evaluators, entries):
                return None
        return entries

    def _make(
        self,
        maker: EntryMaker,
        members: Sequence[_Member],
        owners: npt.NDArray[np.int64],
        ordinals: Ordinals,
        evaluators: Evaluators,
        entries: dict[str, list[ManifestEntry]],
    ) -> bool:
        """Add the entries of walked records to ``entries``; return whether all records are those of their files."""
        starts = np.flatnonzero(np.diff(owners, prepend=-1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(owners)], strict=True):
            member = members[owners[start]]
            try:
                made = maker.entries(slice(start, end), member.line)
            except SidecarError:
                return False  # decoding finds out which record is wrong
            # Bounds were asked already, of all files at once; pyiceberg also drops files without rows.
            made = [one for one in made if one[1].data_file.record_count or evaluators.metrics(one[1].data_file)]
            positions = (ordinals - member.entry.first_file).tolist()
            kept = [entry for _, entry in made]
            self._answers.remember(kept, member.places, [positions[row] for row, _ in made])
            entries[member.line.manifest_path] += kept
        return True

    def _places(self, number: int, members: Sequence[_Member], ordinals: Ordinals) -> dict[int, Ordinals]:
        """Return the ordinals of files in each segment that may answer for them, by segment number."""
        places = {number: ordinals} | self._answers.other_places(number, ordinals)
        starts = np.cumsum([0, *(member.entry.live_files for member in members)]).tolist()
        for other in {n for member in members for n in member.places} - {number}:
            in_other = places.setdefault(other, np.full(len(ordinals), -1, np.int64))
            for member, start in zip(members, starts, strict=False):
                if other in member.places:
                    count = member.entry.live_files
                    # Both segments list the manifest unchanged, so its files have the same order in both.
                    in_other[start : start + count] = member.places[other] + np.arange(count)
        return places

    def _rule_out(
        self,
        segment: Segment,
        members: Sequence[_Member],
        owners: npt.NDArray[np.int64],
        ordinals: Ordinals,
        alive: npt.NDArray[np.bool_],
        evaluators: Evaluators,
    ) -> bool:
        """Take files out of ``alive`` by bounds and partitions, if these are fewer bytes than the files' records.

        Return whether bounds were asked all that the predicate asks.
        """
        # Partition tuples compare only within one spec and one order of its fields, which the records' schema gives.
        kinds = [(member.line.partition_spec_id, member.entry.schema) for member in members]
        left = {kinds[owner] for owner in np.unique(owners[alive]).tolist()}
        fields = {kind: self._partition_fields(segment, kind, evaluators) for kind in left}
        if not self._columns_are_cheaper(segment, ordinals[alive], any(fields.values())):
            return False
        alive[alive] = self._within_bounds(segment, ordinals[alive])
        for kind, parts in fields.items():
            if parts:
                chosen = alive & np.array([member_kind == kind for member_kind in kinds])[owners]
                evaluate = evaluators.partition(kind[0])
                alive[chosen] = self._within_partitions(segment, ordinals[chosen], parts, evaluate)
        return bound_columns.asks_bounds_alone(self._bound)

    def _columns_are_cheaper(self, segment: Segment, ordinals: Ordinals, partitions: bool) -> bool:
        """Return whether bounds (and partitions) of all files are fewer bytes than the records of ``ordinals``."""
        units = segment.units
        if not self._fields and not partitions:
            return False
        return units.bytes_of_columns(self._fields, partitions) < units.bytes_of_files(ordinals)

    def _within_bounds(self, segment: Segment, ordinals: Ordinals) -> npt.NDArray[np.bool_]:
        """Return bool[n]: which files may match by their bounds."""

        def column(field_id: int) -> pa.Table | None:
            bounds = segment.bounds(field_id)
            return None if bounds is None else bounds.take(pa.array(ordinals, pa.int64()))

        return bound_columns.may_match(self._bound, column, len(ordinals))

    def _partition_fields(
        self, segment: Segment, kind: tuple[int, int], evaluators: Evaluators
    ) -> tuple[NestedField, ...]:
        """Return the fields of recorded partition tuples if they can rule something out, else none.

        ``kind`` is a spec id and the ordinal of the schema of the records. If that schema has the fields in another
        order than the spec, the tuples are not used.
        """
        spec_id, schema = kind
        ids = evaluators.partition_field_ids(spec_id)
        if not ids or not 0 <= schema < len(segment.schemas):
            return ()
        try:
            fields = entry_decoder(segment.schemas[schema]).partition_fields
        except SidecarError:
            return ()  # its records cannot be decoded either; decoding them warns
        return fields if [field.field_id for field in fields] == ids else ()

    def _within_partitions(
        self,
        segment: Segment,
        ordinals: Ordinals,
        fields: Sequence[NestedField],
        evaluate: Callable[[DataFile], bool],
    ) -> npt.NDArray[np.bool_]:
        """Return bool[n]: which files may match by their partition values."""
        partitions = segment.partitions()
        if partitions is None:
            return np.ones(len(ordinals), np.bool_)
        chosen = partitions.take(pa.array(ordinals, pa.int64()))
        return partition_columns.may_match(
            chosen, fields, lambda record: evaluate(DataFile.from_args(partition=record))
        )

    def _to_be_opened(self, members: Sequence[_Member], left: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return bool[members]: manifests that pyiceberg reads faster than their remaining records are decoded."""
        files = np.array([member.entry.live_files for member in members])
        costly: npt.NDArray[np.bool_] = left * DECODING > OPENING + files * READING
        return costly

    def _decode(
        self,
        segment: Segment,
        owners: Sequence[_Member],
        ordinals: Ordinals,
        evaluators: Evaluators,
        entries: dict[str, list[ManifestEntry]],
    ) -> None:
        """Add to ``entries`` those that pyiceberg's evaluators keep; remove a manifest if a record is wrong."""
        chosen = ordinals.tolist()
        for member, ordinal, file in zip(owners, chosen, segment.files(chosen), strict=True):
            path = member.line.manifest_path
            if path not in entries:
                continue  # an earlier record was wrong, so pyiceberg opens the manifest
            try:
                entry = _decoded(segment, member, file)
            except SidecarError as error:
                self._warn(f"manifest {path} is opened, because its entries in the sidecar are in doubt: {error}")
                del entries[path]
                continue
            data = entry.data_file
            if evaluators.match(member.line, data):
                self._answers.remember([entry], member.places, [ordinal - member.entry.first_file])
                entries[path].append(entry)


def _stored_records(table: pa.Table, rows: npt.NDArray[np.int64]) -> StoredRecords:
    """Return rows of a table of files (:meth:`Segment.file_columns`) as records to walk."""
    from sidecar.iceberg.records.entries import StoredRecords

    chosen: Any = table if len(rows) == table.num_rows else table.take(pa.array(rows, pa.int64()))
    names = ("file_size_in_bytes", "record_count", "spec_id", "added_snapshot_id", "file_sequence_number")
    numbers = np.stack([chosen[name].to_numpy() for name in names], axis=1)
    return StoredRecords(chosen["entry"].to_pylist(), chosen["file_path"].to_pylist(), numbers)


def _decoded(segment: Segment, member: _Member, file: FileEntry | None) -> ManifestEntry:
    """Return the entry as pyiceberg reads it.

    Raises :class:`DamagedFileError` unless it is a live entry of the data file that the units table names. A record of
    another file would put that file's rows into the plan in place of this one's.
    """
    if file is None:
        raise DamagedFileError("the record of a file cannot be read")
    if not 0 <= member.entry.schema < len(segment.schemas):
        raise DamagedFileError("the schema of its records is missing", found=member.entry.schema)
    entry = entry_decoder(segment.schemas[member.entry.schema]).decode(file.entry, member.line)
    data = entry.data_file
    recorded = (*file.identity, file.spec_id)
    decoded = (*identity_of(entry), member.line.partition_spec_id)
    if decoded != recorded:
        raise DamagedFileError("a record belongs to another file", expected=recorded, found=decoded)
    if entry.status == ManifestEntryStatus.DELETED or data.content != DataFileContent.DATA:
        raise DamagedFileError("a record is not that of a live data file", found=data.file_path)
    return entry
