"""Finds the data files of a snapshot that can hold values, and says of the others what rules them out.

The steps are those of a plan, but one by one, so that each file has its evidence: the partition summary of its
manifest, its partition values, its bounds, the filters of the snapshot's sidecar. A manifest is opened once, and a
file is judged once, however many snapshots have it. A file whose bounds have the value itself is never ruled out by a
filter: one of the two is wrong then, and the rows decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

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

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import SidecarError
from sidecar.iceberg.listing import READERS, identity_of, read_checked
from sidecar.iceberg.manifests import ManifestContents, read_manifests
from sidecar.planning.opened_sidecar import OpenedSidecar
from sidecar.planning.task_planner import Evaluators, evaluators_of
from sidecar.reports.finding_results import FileRuledOut, NotAsked, RuledOutBy, ValueTrace
from sidecar.reports.finding_traces import ManifestTraces
from sidecar.reports.finding_values import QuestionKey, ValueQuestion

READ_ALL = "every file is read"
NAMED = "a bound in the manifest is the value"
_ROW_POSITIONS = {2147483546, 2147483545}
"""Reserved ids of the columns ``file_path`` and ``pos`` of position delete files."""


@dataclass(frozen=True)
class Candidate:
    """A data file that may have one of the values of a question."""

    file: DataFile
    because: str


@dataclass
class SnapshotFiles:
    """What a snapshot has: its manifests, live data files, and candidates by question and path."""

    snapshot: Snapshot
    lines: list[ManifestFile] = field(default_factory=list)
    data_files: int = 0
    candidates: dict[QuestionKey, dict[str, Candidate]] = field(default_factory=dict)
    manifests: dict[str, set[str]] = field(default_factory=dict)
    """Paths of the candidates in each data manifest."""


@dataclass
class _Judged:
    """What is known of one manifest for one question: its candidates. Others are ruled out."""

    candidates: dict[str, Candidate]


class FileJudge:
    """Judges the files of one snapshot after the other, newest first. Everything that it finds is in its lists."""

    def __init__(self, table: Table, encryption_keys: EncryptionKeys | None, read_all: bool) -> None:
        self.ruled_out: list[FileRuledOut] = []
        self.not_asked: list[NotAsked] = []
        self.traces: list[ValueTrace] = []
        self.warnings: list[str] = []
        self.equality_deletes: dict[str, tuple[DataFile, list[int]]] = {}
        """Equality-delete files by path, with the ids of the snapshots that have them."""
        self._table = table
        self._keys = encryption_keys
        self._read_all = read_all
        self._judged: dict[tuple[str, QuestionKey], _Judged] = {}
        self._verdicts: dict[tuple[DataFileIdentity, QuestionKey], Candidate | None] = {}
        self._live: dict[str, int] = {}
        self._deletes: dict[str, list[DataFile]] = {}
        self._bad: set[str] = set()
        self._traced: set[tuple[str, QuestionKey]] = set()

    def files_of(self, snapshot: Snapshot, questions: Sequence[ValueQuestion]) -> SnapshotFiles:
        """Judge the files of a snapshot. A manifest that cannot be read is in :attr:`not_asked`."""
        found = SnapshotFiles(snapshot)
        try:
            found.lines = read_manifests(self._table.io, snapshot.manifest_list)
        except SidecarError as error:
            self._miss("manifest list", snapshot.manifest_list, error)
            return found
        judges = [_QuestionJudge(self, question, snapshot) for question in questions]
        data = [line for line in found.lines if line.content == ManifestContent.DATA]
        self._judge(data, judges, snapshot.manifest_list)
        for judge in judges:
            judge.close()
        for line in data:
            found.data_files += self._live.get(line.manifest_path, _files_in(line))
            for question in questions:
                judged = self._judged.get((line.manifest_path, question.key))
                if judged is not None and judged.candidates:
                    found.candidates.setdefault(question.key, {}).update(judged.candidates)
                    found.manifests.setdefault(line.manifest_path, set()).update(judged.candidates)
        self._read_deletes([line for line in found.lines if line.content == ManifestContent.DELETES], judges, snapshot)
        return found

    def _judge(self, lines: Sequence[ManifestFile], judges: Sequence[_QuestionJudge], manifest_list: str) -> None:
        """Judge the files of the data manifests that are new, opening those that may have a value."""
        to_open: dict[str, tuple[ManifestFile, list[_QuestionJudge]]] = {}
        for line in lines:
            for judge in judges:
                key = line.manifest_path, judge.key
                if key in self._judged or line.manifest_path in self._bad:
                    continue
                if key not in self._traced:
                    self._traced.add(key)
                    self.traces += judge.traces.of_summary(manifest_list, line)
                if not judge.allows(line):
                    self._judged[key] = _Judged({})
                    self._rule_out(judge.question, line.manifest_path, RuledOutBy.SUMMARY, _files_in(line))
                    if line.deleted_files_count == 0:
                        continue  # otherwise bounds of removed files may still have the value
                to_open.setdefault(line.manifest_path, (line, []))[1].append(judge)
        with ThreadPoolExecutor(READERS) as pool:
            opened = pool.map(self._open, (line for line, _ in to_open.values()))
            for (line, asking), contents in zip(to_open.values(), opened, strict=True):
                if contents is None:
                    self._bad.add(line.manifest_path)
                    continue
                for judge in asking:
                    self._judge_manifest(line, contents, judge)

    def _judge_manifest(self, line: ManifestFile, contents: ManifestContents, judge: _QuestionJudge) -> None:
        key = line.manifest_path, judge.key
        entries = [raw.entry for raw in contents.entries]
        live = [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
        self._live[line.manifest_path] = len(live)
        for entry in entries:
            self.traces += judge.traces.of_entry(line, contents.partition_fields, entry)
        if key in self._judged:
            return  # ruled out by its partition summary
        candidates: dict[str, Candidate] = {}
        for entry in live:
            identity = identity_of(entry)
            if (identity, judge.key) not in self._verdicts:
                self._verdicts[identity, judge.key] = judge.judge(line, entry, identity)
            candidate = self._verdicts[identity, judge.key]
            if candidate is not None:
                candidates[entry.data_file.file_path] = candidate
        self._judged[key] = _Judged(candidates)

    def _open(self, line: ManifestFile) -> ManifestContents | None:
        try:
            return read_checked(self._table.io, line)
        except SidecarError as error:
            self._miss("manifest", line.manifest_path, error)
            return None

    def _read_deletes(
        self, lines: Iterable[ManifestFile], judges: Sequence[_QuestionJudge], snapshot: Snapshot
    ) -> None:
        """Take note of the equality deletes in delete manifests, and of position deletes that have whole rows."""
        for line in lines:
            if line.manifest_path in self._bad:
                continue
            if line.manifest_path not in self._deletes:
                contents = self._open(line)
                if contents is None:
                    self._bad.add(line.manifest_path)
                    continue
                self._deletes[line.manifest_path] = self._delete_files(line, contents, judges)
            for file in self._deletes[line.manifest_path]:
                _, snapshots = self.equality_deletes.setdefault(file.file_path, (file, []))
                if snapshot.snapshot_id not in snapshots:
                    snapshots.append(snapshot.snapshot_id)

    def _delete_files(
        self, line: ManifestFile, contents: ManifestContents, judges: Sequence[_QuestionJudge]
    ) -> list[DataFile]:
        """Return the live equality-delete files of a manifest."""
        equality = []
        for entry in (raw.entry for raw in contents.entries):
            for judge in judges:
                self.traces += judge.traces.of_entry(line, contents.partition_fields, entry)
            file = entry.data_file
            if entry.status == ManifestEntryStatus.DELETED:
                continue
            if file.content == DataFileContent.EQUALITY_DELETES:
                equality.append(file)
            elif (file.value_counts or {}).keys() - _ROW_POSITIONS:
                reason = "the position delete file has the deleted rows themselves, which are not read"
                self._miss_once(NotAsked("delete file", file.file_path, reason))
        return equality

    def rule_out(self, question: ValueQuestion, file: DataFile, by: RuledOutBy, index: str | None = None) -> None:
        """Record that a data file has none of the values."""
        self._rule_out(question, file.file_path, by, 1, index)

    def _rule_out(
        self, question: ValueQuestion, path: str, by: RuledOutBy, files: int, index: str | None = None
    ) -> None:
        self.ruled_out.append(FileRuledOut(path, question.name, question.field_id, by.value, files, index))

    def _miss(self, what: str, path: str, error: SidecarError) -> None:
        self._miss_once(NotAsked(what, path, error.what))

    def _miss_once(self, missed: NotAsked) -> None:
        if missed not in self.not_asked:
            self.not_asked.append(missed)

    def open_sidecar(self, question: ValueQuestion, snapshot: Snapshot) -> OpenedSidecar:
        """Return the sidecar that answers for a snapshot; it is opened when it is first asked."""
        condition = question.question.for_filters.condition
        return OpenedSidecar(question.table, snapshot, condition, self._keys, [question.field_id])

    @property
    def read_all(self) -> bool:
        """Whether nothing is ruled out."""
        return self._read_all


class _QuestionJudge:
    """Judges the files of one snapshot for one question."""

    def __init__(self, judge: FileJudge, question: ValueQuestion, snapshot: Snapshot) -> None:
        self.question = question
        self.key = question.key
        self.traces = ManifestTraces(question, question.table.metadata.specs())
        self._judge = judge
        self._sidecar = judge.open_sidecar(question, snapshot)
        self._evaluators = None if judge.read_all else _evaluators(question, snapshot)

    def allows(self, line: ManifestFile) -> bool:
        """Return whether the partition summaries of a manifest allow one of the values."""
        return self._evaluators is None or self._evaluators.manifest(line)

    def judge(self, line: ManifestFile, entry: ManifestEntry, identity: DataFileIdentity) -> Candidate | None:
        """Return a live data file as a candidate; ``None`` if it is ruled out."""
        file, evaluators = entry.data_file, self._evaluators
        if self._judge.read_all:
            return Candidate(file, READ_ALL)
        if evaluators is not None:
            if not evaluators.partition(line.partition_spec_id)(file):
                self._judge.rule_out(self.question, file, RuledOutBy.PARTITION)
                return None
            if not evaluators.metrics(file):
                self._judge.rule_out(self.question, file, RuledOutBy.BOUNDS)
                return None
        if self.traces.bounds_of(file):
            return Candidate(file, NAMED)
        self._sidecar.open_for_question()
        verdict = self._sidecar.verdict(lambda: identity)
        if not verdict.keep:
            used = self._sidecar.used
            self._judge.rule_out(self.question, file, RuledOutBy.FILTER, used.path if used else None)
            return None
        assert verdict.reason is not None
        return Candidate(file, verdict.reason.text)

    def close(self) -> None:
        """Close the sidecar, and take its warnings."""
        self._judge.warnings += self._sidecar.warnings
        self._sidecar.close()


def _evaluators(question: ValueQuestion, snapshot: Snapshot) -> Evaluators | None:
    """Return pyiceberg's evaluators; ``None`` if the schema lacks a column by which files are partitioned."""
    sources = {part.source_id for spec in question.table.metadata.specs().values() for part in spec.fields}
    if not sources <= set(question.schema.field_ids):
        return None
    return evaluators_of(question.table.scan(row_filter=question.predicate, snapshot_id=snapshot.snapshot_id))


def _files_in(line: ManifestFile) -> int:
    """Return the number of live data files of a manifest by its line in the manifest list; counts are optional."""
    return (line.added_files_count or 0) + (line.existing_files_count or 0)
