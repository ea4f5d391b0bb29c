"""Finds out which data files of a table hold a value, exactly, and gives the evidence.

A search has five steps:

1. :mod:`sidecar.reports.finding.values` makes questions of the conditions: columns by field id, values of their type.
2. :mod:`sidecar.reports.finding.files` rules out files of each snapshot by partitions, bounds and filters.
3. :mod:`sidecar.reports.finding.rows` reads the rows of all other files, each once for a column.
4. For files with such rows, the deletes of each snapshot tell live rows from deleted ones.
5. :mod:`sidecar.reports.finding.sidecars` and :mod:`sidecar.reports.finding.traces` look for the value in indexes and
   bounds, which may outlive the rows.

Whatever cannot be asked is listed. If nothing was found, it makes the answer *not proven*; it is never *absent* then.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DoubleType, FloatType

from sidecar.access import Access
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import SidecarError, UsageError, enough_memory
from sidecar.iceberg.catalog import with_all_snapshots
from sidecar.iceberg.deletes.delete_files import DeleteFile, EqualityDeletes
from sidecar.iceberg.listing import snapshot_of
from sidecar.iceberg.refs import is_empty, one_version, schema_at, snapshot_id_of
from sidecar.planning.tasks import plan_tasks
from sidecar.reading.scanning import as_table, reading_errors, reading_threads
from sidecar.reports.finding.evidence import Evidence, FindOptions, Hit, report_of
from sidecar.reports.finding.files import Candidate, FileSearch, SnapshotFiles
from sidecar.reports.finding.orphans import UNNAMED, find_orphans, other_ids
from sidecar.reports.finding.plain_files import find_in_files
from sidecar.reports.finding.results import (
    DeleteFileAsked,
    FileRead,
    FindReport,
    NotAsked,
    RowsInSnapshot,
    ValueTrace,
)
from sidecar.reports.finding.rows import RowCounter
from sidecar.reports.finding.sidecars import SidecarSearch
from sidecar.reports.finding.traces import traces_in_file
from sidecar.reports.finding.values import AskedValues, QuestionKey, Questions, ValueQuestion
from sidecar.run import in_turn, report_progress
from sidecar.storage.locations import local_path
from sidecar.storage.source import AnyPath


def find(
    table: Table | AnyPath | Iterable[AnyPath],
    values: Mapping[str, object],
    *,
    at: int | str | None = None,
    all_snapshots: bool = False,
    read_all: bool = False,
    orphans: bool = False,
    encryption_keys: EncryptionKeys | None = None,
    threads: int | None = None,
    io: FileIO | None = None,
) -> FindReport:
    """Find out which data files have rows with one of some values, and give the evidence.

    Example: ``sidecar.find(table, {"mail": "ann@example.com"})``
    ``table``: a table, or files, folders and globs.
    ``values``: ``{column: value or list of values}``, each a question of its own, as text or as a value that the type
    takes exactly. A name means every column that has had it; ``mail|email`` means the columns of both names.
    ``at``: a snapshot id, a branch or a tag; by default the current snapshot.
    ``all_snapshots``: ask every retained snapshot.
    ``read_all``: read every file, and believe no index.
    ``orphans``: also read data files in the table's folders that no retained snapshot names.
    ``encryption_keys``: open encrypted files and filters.
    ``threads``: how many files are read at once.
    ``io``: opens plain files.

    What cannot be read is in ``not_asked``. Raises :class:`UsageError` for an unknown column or snapshot and a value
    that fits no column, :class:`sidecar.errors.UnsupportedFeatureError` for a column whose type
    cannot be compared.
    """
    options = FindOptions(at, all_snapshots, read_all, orphans, encryption_keys, threads, io)
    if isinstance(table, Table):
        return find_with(as_table(table, io), values, options)
    return find_in_files(table, values, options)


@enough_memory()
def find_with(table: Table, values: Mapping[str, object], options: FindOptions) -> FindReport:
    """Do :func:`find`."""
    started = time.perf_counter()
    table = one_version(with_all_snapshots(one_version(table)))
    asked = schema_at(table, options.at)
    snapshot_id = snapshot_id_of(table, options.at)
    if options.all_snapshots and snapshot_id is not None:
        raise UsageError("all snapshots and one of them were asked for; ask for one or for all")
    conditions = AskedValues.of_all(values)
    if options.all_snapshots:
        snapshots = sorted(table.metadata.snapshots, key=lambda one: (one.timestamp_ms, one.sequence_number or 0))[::-1]
        schemas = {one.snapshot_id: schema_at(table, one.snapshot_id) for one in snapshots}
        if table.metadata.current_snapshot_id is not None:
            schemas[table.metadata.current_snapshot_id] = table.schema()
    else:
        snapshots = [] if is_empty(table, snapshot_id) else [snapshot_of(table, snapshot_id)]
        schemas = {one.snapshot_id: asked for one in snapshots}
    questions = Questions(table, conditions, schemas, may_lack=options.may_lack)
    search = _Search(table, questions, Access(table.io, options.encryption_keys), options.read_all)
    if options.orphans:
        search.add_orphans()
    remote = local_path(table.location()) is None
    search.run(snapshots, reading_threads(options.threads, remote))
    return report_of(table, search, conditions, options, started)


class RowFate(Enum):
    """What equality deletes do to the rows of a file with one value."""

    LIVE = "live"
    DELETED = "deleted"
    IN_DOUBT = "in doubt"


_FLOATS = (FloatType, DoubleType)
"""Engines do not agree on whether a delete of 0.0 deletes -0.0."""


class _Search(Evidence):
    """One search. Its lists are the evidence."""

    def __init__(
        self,
        table: Table,
        questions: Questions,
        access: Access,
        read_all: bool,
    ) -> None:
        super().__init__(questions)
        self.table = table
        self.questions: Questions = questions
        self.files = FileSearch(table, access, read_all)
        self.sidecars = SidecarSearch(table, access)
        self._access = access
        self._held: dict[tuple[QuestionKey, str], Counter[str]] = {}
        """How many rows of each equality-delete file have which value."""
        self._by_key = {question.key: question for question in questions.all}
        self._readers = {
            key: RowCounter(table, question, access, read_all)
            for key, question in self._by_key.items()
            if question.can_match
        }

    def add_orphans(self) -> None:
        """Have the data files read that no retained snapshot names."""
        report_progress("listing the table's folders")
        self.orphans, missed = find_orphans(self.table, self._access)
        self.not_asked += missed

    def run(self, snapshots: Sequence[Snapshot], threads: int) -> None:
        """Do all steps."""
        for done, snapshot in enumerate(snapshots):
            report_progress("reading manifests", done, len(snapshots))
            asked = self.questions.by_snapshot[snapshot.snapshot_id]
            self.snapshots.append(self.files.files_of(snapshot, asked))
        self._check_orphans(threads)
        self._read_candidates(threads)
        self._read_equality_deletes()
        for done, found in enumerate(self.snapshots):
            report_progress("telling live rows from deleted ones", done, len(self.snapshots))
            self._tell_deleted(found)
        report_progress("asking sidecar files")
        self.asked_sidecars = self.sidecars.ask([self._by_key[key] for key in self._readers])
        self.not_asked += self.files.not_asked
        self.ruled_out, self.warnings = self.files.ruled_out, self.files.warnings
        self.traces += [*self.files.traces, *self.sidecars.traces]

    def _check_orphans(self, threads: int) -> None:
        for missed in in_turn(lambda file: other_ids(file, self.questions, self._access), self.orphans, threads):
            self.not_asked += missed
            self.other_ids |= {one.column for one in missed if one.column is not None}

    def _read_candidates(self, threads: int) -> None:
        """Read the rows of each file that may have a value, once for each question."""
        jobs: dict[tuple[QuestionKey, str], Candidate] = {}
        for found in self.snapshots:
            for key, candidates in found.candidates.items():
                for path, candidate in candidates.items():
                    jobs.setdefault((key, path), candidate)
        for file in self.orphans:
            for key in self._readers:
                jobs.setdefault((key, file.file_path), Candidate(file, UNNAMED))

        def read(
            job: tuple[tuple[QuestionKey, str], Candidate],
        ) -> tuple[Counter[str] | SidecarError, list[ValueTrace]]:
            (key, _), candidate = job
            # Statistics may have a value that no row has, so traces are looked for in each file.
            traces = list(traces_in_file(self.table, self._by_key[key], candidate.file, self._access))
            try:
                return self._readers[key].count(candidate.file), traces
            except SidecarError as error:
                return error, traces

        answers = zip(jobs.items(), in_turn(read, jobs.items(), threads), strict=True)
        for done, (((key, path), candidate), (rows, traces)) in enumerate(answers):
            report_progress("reading rows", done, len(jobs))
            question = self._by_key[key]
            self.traces += traces
            if isinstance(rows, SidecarError):
                self.not_asked.append(NotAsked("data file", path, rows.what, question.name))
                continue
            total = sum(rows.values())
            self.read.append(FileRead(path, question.name, question.field_id, candidate.because, total))
            if total:
                self.hits[key, path] = Hit(question, candidate.file, rows)

    def _read_equality_deletes(self) -> None:
        """Count the values in equality-delete files, which have values of the rows that they delete."""
        for path, (file, snapshots) in self.files.equality_deletes.items():
            for key, reader in self._readers.items():
                question = self._by_key[key]
                known = file.value_counts
                if question.field_id not in (file.equality_ids or ()) and known and question.field_id not in known:
                    continue
                try:
                    rows = reader.count(file)
                except SidecarError as error:
                    self.not_asked.append(NotAsked("delete file", path, error.what, question.name))
                    continue
                self._held[key, path] = rows
                asked = DeleteFileAsked(path, question.name, question.field_id, list(snapshots), dict(rows))
                self.delete_files.append(asked)

    def _tell_deleted(self, found: SnapshotFiles) -> None:
        """Split the rows of the files with hits that a snapshot has into live and deleted ones."""
        hits = [hit for (key, path), hit in self.hits.items() if path in found.candidates.get(key, ())]
        if not hits:
            return
        deletes, tasks = EqualityDeletes(), dict[str, FileScanTask]()
        if any(line.content == ManifestContent.DELETES for line in found.lines):
            try:
                tasks = self._tasks(found, {hit.file.file_path for hit in hits}, deletes)
            except SidecarError as error:
                self.not_asked.append(NotAsked("delete file", found.snapshot.manifest_list, error.what))
                for hit in hits:
                    _record(hit, found.snapshot, Counter(), hit.rows, ())
                return
        for hit in hits:
            self._tell_deleted_of(hit, found.snapshot, tasks.get(hit.file.file_path), deletes)

    def _tell_deleted_of(
        self, hit: Hit, snapshot: Snapshot, task: FileScanTask | None, deletes: EqualityDeletes
    ) -> None:
        if task is None:
            _record(hit, snapshot, hit.rows, Counter(), ())
            return
        try:
            live = self._readers[hit.question.key].count_live(task)
        except SidecarError as error:
            paths = ", ".join(sorted(file.file_path for file in task.delete_files))
            self.not_asked.append(NotAsked("delete file", paths, error.what, hit.question.name))
            _record(hit, snapshot, Counter(), hit.rows, ())
            return
        applying = deletes.applying_to(task.file.file_path)
        fates = {text: self._fate(hit.question, text, applying) for text in hit.rows}
        left = {text: rows for text, rows in live.items() if fates[text] is not RowFate.DELETED}
        in_doubt = Counter({text: rows for text, rows in left.items() if fates[text] is RowFate.IN_DOUBT})
        _record(hit, snapshot, Counter(left) - in_doubt, in_doubt, [one.file.file_path for one in applying])

    def _fate(self, question: ValueQuestion, text: str, applying: Sequence[DeleteFile]) -> RowFate:
        """Return what the equality deletes that apply to a data file, or may, do to its rows with a value."""
        fate = RowFate.LIVE
        for delete in applying:
            ids, held = delete.file.equality_ids or [], self._held.get((question.key, delete.file.file_path))
            if question.field_id in ids and held is not None and not held[text]:
                continue  # it deletes rows with other values
            is_certain = ids == [question.field_id] and held is not None and not delete.is_doubtful
            if is_certain and not isinstance(question.column.type, _FLOATS):
                return RowFate.DELETED
            fate = RowFate.IN_DOUBT
        return fate

    def _tasks(self, found: SnapshotFiles, paths: set[str], deletes: EqualityDeletes) -> dict[str, FileScanTask]:
        """Return tasks of files by path, with their position deletes; equality deletes go to ``deletes``."""
        lines = [
            line
            for line in found.lines
            if line.content == ManifestContent.DELETES or found.manifests.get(line.manifest_path, set()) & paths
        ]
        scan = self.table.scan(snapshot_id=found.snapshot.snapshot_id)
        with reading_errors(found.snapshot.manifest_list):
            tasks = plan_tasks(scan, lines, lambda file: file.file_path in paths, deletes)
        return {task.file.file_path: task for task in tasks}


def _record(hit: Hit, snapshot: Snapshot, live: Counter[str], in_doubt: Counter[str], equality: Iterable[str]) -> None:
    """Record the rows of a hit in a snapshot: live, in doubt, and deleted, which all others are."""
    for text, rows in hit.rows.items():
        hit.snapshots.setdefault(text, []).append(
            RowsInSnapshot(
                snapshot_id=snapshot.snapshot_id,
                live=live[text],
                deleted=rows - live[text] - in_doubt[text],
                in_doubt=in_doubt[text],
                equality_deletes=sorted(equality),
            )
        )
