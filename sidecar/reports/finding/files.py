"""Finds the data files of a snapshot that can hold values, and says of the others what rules them out.

The steps are those of a plan, but one by one, so that each file has its evidence: the partition summary of its
manifest, its partition values, its bounds, the filters of the snapshot's sidecar. A manifest is opened once, and a
file is judged once, however many snapshots have it. A file whose bounds have the value itself is never ruled out by a
filter: one of the two is wrong then, and the rows decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from sidecar.access import Access
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.errors import SidecarError
from sidecar.iceberg.listing import read_checked, readers_of
from sidecar.iceberg.manifests import ManifestContents, identity_of, read_manifests
from sidecar.iceberg.refs import with_schema
from sidecar.planning.evaluators import Evaluators, evaluators_of
from sidecar.planning.files.choose import ask_filters
from sidecar.planning.files.file_set import DroppedBy, FileSet, FileSource, Line
from sidecar.planning.files.sources import opened
from sidecar.planning.opened_sidecar import OpenedSidecar
from sidecar.planning.tasks import count_files, data_of
from sidecar.reports.finding.results import FileRuledOut, NotAsked, ValueTrace
from sidecar.reports.finding.traces import ManifestTraces
from sidecar.reports.finding.values import QuestionKey, ValueQuestion
from sidecar.run import in_turn

READ_ALL = "every file is read"
NAMED = "a bound in the manifest is the value"
_ROW_POSITIONS = {2147483546, 2147483545}
"""Reserved ids of the columns ``file_path`` and ``pos`` of position delete files."""


class Candidate(NamedTuple):
    """A data file that may have one of the values of a question."""

    file: DataFile
    because: str


@dataclass
class SnapshotFiles:
    """The files of a snapshot: its manifests, live data files, and candidates by question and path."""

    snapshot: Snapshot
    lines: list[ManifestFile] = field(default_factory=list)
    data_files: int = 0
    candidates: dict[QuestionKey, dict[str, Candidate]] = field(default_factory=dict)
    manifests: dict[str, set[str]] = field(default_factory=dict)
    """Paths of the candidates in each data manifest."""


@dataclass(frozen=True, eq=False)
class _Query:
    """A question about the files of one snapshot. Without ``sidecar`` or ``evaluators``, these rule nothing out."""

    question: ValueQuestion
    traces: ManifestTraces
    sidecar: OpenedSidecar | None
    evaluators: Evaluators | None

    @classmethod
    def of(cls, table: Table, question: ValueQuestion, snapshot: Snapshot, access: Access, read_all: bool) -> _Query:
        """Ask a question about a snapshot. The sidecar is opened when it is first asked."""
        specs, condition = table.metadata.specs(), question.question.for_filters
        traces, table = ManifestTraces(question, specs), with_schema(table, question.schema.schema_id)
        if read_all:
            return cls(question, traces, None, None)
        sidecar = OpenedSidecar(table, snapshot, condition.condition, access, [question.field_id])
        # pyiceberg has no evaluators if the schema lacks a column by which files are partitioned.
        sources = {part.source_id for spec in specs.values() for part in spec.fields}
        if not sources <= set(question.schema.field_ids):
            return cls(question, traces, sidecar, None)
        scan = table.scan(row_filter=question.predicate, snapshot_id=snapshot.snapshot_id)
        return cls(question, traces, sidecar, evaluators_of(scan))

    def evidence(self, line: ManifestFile, entries: Sequence[ManifestEntry]) -> list[DroppedBy | str]:
        """Return of each file of a manifest why it is a candidate, or what rules it out."""
        if self.sidecar is None:
            return [READ_ALL] * len(entries)
        files = opened(Line(0, line), len(entries), dict(enumerate(entries)))
        if self.evaluators is not None:
            keep = map(self.evaluators.partition(line.partition_spec_id), _files(files))
            files = files.narrow(np.fromiter(keep, np.bool_), DroppedBy.PARTITION)
            files = files.narrow(np.fromiter(map(self.evaluators.metrics, _files(files)), np.bool_), DroppedBy.BOUNDS)
        named = np.array([bool(self.traces.bounds_of(file)) for file in _files(files)], np.bool_)
        found: dict[int, DroppedBy | str] = dict.fromkeys(files.rows[named].tolist(), NAMED)
        files = files.narrow(~named, DroppedBy.NOTHING)
        if len(files):
            self.sidecar.open_for_question()
            files = ask_filters(self.sidecar, files)
        reasons = [] if files.reasons is None else [reason.text for reason in files.reasons.each()]
        found = {**files.dropped_by(), **found, **dict(zip(files.rows.tolist(), reasons, strict=True))}
        return [found[row] for row in range(len(entries))]


def _files(files: FileSet[FileSource]) -> Iterator[DataFile]:
    return (entry.data_file for entry in files.entries)


class FileSearch:
    """Finds candidates in one snapshot after the other, newest first. Everything that it finds is in its lists."""

    def __init__(self, table: Table, access: Access, read_all: bool) -> None:
        self.ruled_out: list[FileRuledOut] = []
        self.not_asked: list[NotAsked] = []
        self.traces: list[ValueTrace] = []
        self.warnings: list[str] = []
        self.equality_deletes: dict[str, tuple[DataFile, list[int]]] = {}
        """Equality-delete files by path, with the ids of the snapshots that have them."""
        self._table = table
        self._access = access
        self._read_all = read_all
        self._known: dict[tuple[str, QuestionKey], dict[str, Candidate]] = {}
        """The candidates of each manifest, by path."""
        self._evidence: dict[tuple[DataFileIdentity, QuestionKey], DroppedBy | str] = {}
        self._live: dict[str, int] = {}
        self._deletes: dict[str, list[DataFile]] = {}
        self._bad: set[str] = set()
        self._traced: set[tuple[str, QuestionKey]] = set()

    def files_of(self, snapshot: Snapshot, questions: Sequence[ValueQuestion]) -> SnapshotFiles:
        """Search the files of a snapshot. A manifest that cannot be read is in :attr:`not_asked`."""
        found = SnapshotFiles(snapshot)
        try:
            found.lines = read_manifests(self._table.io, snapshot.manifest_list)
        except SidecarError as error:
            self._note_not_asked("manifest list", snapshot.manifest_list, error)
            return found
        asked = [_Query.of(self._table, question, snapshot, self._access, self._read_all) for question in questions]
        data = data_of(found.lines)
        self._search(data, asked, snapshot.manifest_list)
        for sidecar in (one.sidecar for one in asked if one.sidecar is not None):
            self.warnings += sidecar.warnings
            sidecar.close()
        for line in data:
            found.data_files += self._live.get(line.manifest_path, count_files([line]))
            for question in questions:
                candidates = self._known.get((line.manifest_path, question.key))
                if candidates:
                    found.candidates.setdefault(question.key, {}).update(candidates)
                    found.manifests.setdefault(line.manifest_path, set()).update(candidates)
        self._read_deletes([line for line in found.lines if line.content == ManifestContent.DELETES], asked, snapshot)
        return found

    def _search(self, lines: Sequence[ManifestFile], asked: Sequence[_Query], manifest_list: str) -> None:
        """Search the data manifests that are new, opening those that may have a value."""
        to_open: dict[str, tuple[ManifestFile, list[_Query]]] = {}
        for line in lines:
            for one in asked:
                key = line.manifest_path, one.question.key
                if key in self._known or line.manifest_path in self._bad:
                    continue
                if key not in self._traced:
                    self._traced.add(key)
                    self.traces += one.traces.of_summary(manifest_list, line)
                if one.evaluators is not None and not one.evaluators.manifest(line):
                    self._known[key] = {}
                    self._rule_out(one, line.manifest_path, DroppedBy.SUMMARY, count_files([line]))
                    if line.deleted_files_count == 0:
                        continue  # otherwise bounds of removed files may still have the value
                to_open.setdefault(line.manifest_path, (line, []))[1].append(one)
        lines = [line for line, _ in to_open.values()]
        read = in_turn(self._open, lines, readers_of(lines))
        for (line, asking), contents in zip(to_open.values(), read, strict=True):
            if contents is None:
                self._bad.add(line.manifest_path)
                continue
            for one in asking:
                self._search_manifest(line, contents, one)

    def _search_manifest(self, line: ManifestFile, contents: ManifestContents, asked: _Query) -> None:
        name, key = line.manifest_path, asked.question.key
        entries = [raw.entry for raw in contents.entries]
        live = [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
        self._live[name] = len(live)
        for entry in entries:
            self.traces += asked.traces.of_entry(line, contents.partition_fields, entry)
        if (name, key) in self._known:
            return  # ruled out by its partition summary
        new = [entry for entry in live if (identity_of(entry), key) not in self._evidence]
        for entry, evidence in zip(new, asked.evidence(line, new) if new else (), strict=True):
            self._evidence[identity_of(entry), key] = evidence
            if isinstance(evidence, DroppedBy):
                self._rule_out(asked, entry.data_file.file_path, evidence, 1)
        found = ((entry.data_file, self._evidence[identity_of(entry), key]) for entry in live)
        self._known[name, key] = {file.file_path: Candidate(file, why) for file, why in found if isinstance(why, str)}

    def _open(self, line: ManifestFile) -> ManifestContents | None:
        try:
            return read_checked(self._table.io, line)
        except SidecarError as error:
            self._note_not_asked("manifest", line.manifest_path, error)
            return None

    def _read_deletes(self, lines: Iterable[ManifestFile], asked: Sequence[_Query], snapshot: Snapshot) -> None:
        """Take note of the equality deletes in delete manifests, and of position deletes that have whole rows."""
        for line in lines:
            if line.manifest_path in self._bad:
                continue
            if line.manifest_path not in self._deletes:
                contents = self._open(line)
                if contents is None:
                    self._bad.add(line.manifest_path)
                    continue
                self._deletes[line.manifest_path] = self._delete_files(line, contents, asked)
            for file in self._deletes[line.manifest_path]:
                _, snapshots = self.equality_deletes.setdefault(file.file_path, (file, []))
                if snapshot.snapshot_id not in snapshots:
                    snapshots.append(snapshot.snapshot_id)

    def _delete_files(self, line: ManifestFile, contents: ManifestContents, asked: Sequence[_Query]) -> list[DataFile]:
        """Return the live equality-delete files of a manifest."""
        equality = []
        for entry in (raw.entry for raw in contents.entries):
            for one in asked:
                self.traces += one.traces.of_entry(line, contents.partition_fields, entry)
            file = entry.data_file
            if entry.status == ManifestEntryStatus.DELETED:
                continue
            if file.content == DataFileContent.EQUALITY_DELETES:
                equality.append(file)
            elif (file.value_counts or {}).keys() - _ROW_POSITIONS:
                reason = "the position delete file has the deleted rows themselves, which are not read"
                self._miss_once(NotAsked("delete file", file.file_path, reason))
        return equality

    def _rule_out(self, asked: _Query, path: str, by: DroppedBy, files: int) -> None:
        used = None if by is not DroppedBy.FILTER or asked.sidecar is None else asked.sidecar.used
        question, index = asked.question, None if used is None else used.path
        self.ruled_out.append(FileRuledOut(path, question.name, question.field_id, by.value, files, index))

    def _note_not_asked(self, what: str, path: str, error: SidecarError) -> None:
        self._miss_once(NotAsked(what, path, error.what))

    def _miss_once(self, missed: NotAsked) -> None:
        if missed not in self.not_asked:
            self.not_asked.append(missed)
