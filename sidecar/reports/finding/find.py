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

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum

from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DoubleType, FloatType

from sidecar.access import Access
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import SidecarError, UsageError, enough_memory
from sidecar.iceberg.catalog import with_all_snapshots
from sidecar.iceberg.deletes.delete_files import DeleteFile, EqualityDeletes
from sidecar.iceberg.listing import snapshot_of
from sidecar.iceberg.refs import is_empty, lineage, one_version, schema_at, snapshot_id_of
from sidecar.iceberg.table_names import name_of
from sidecar.planning.tasks import plan_tasks
from sidecar.reading.scanning import reading_errors, reading_threads
from sidecar.reports.finding.files import Candidate, FileSearch, SnapshotFiles
from sidecar.reports.finding.orphans import UNNAMED, find_orphans, other_ids
from sidecar.reports.finding.results import (
    ConditionAnswer,
    DeleteFileAsked,
    FileRead,
    FileWithValue,
    FindAnswer,
    FindReport,
    NotAsked,
    RowsInSnapshot,
    SidecarAsked,
    SnapshotAsked,
    ValueTrace,
    each_once,
)
from sidecar.reports.finding.rows import RowCounter
from sidecar.reports.finding.sidecars import SidecarSearch
from sidecar.reports.finding.traces import traces_in_file
from sidecar.reports.finding.values import AskedValues, QuestionKey, Questions, ValueQuestion
from sidecar.run import in_turn, report_progress
from sidecar.run_log import log_run
from sidecar.storage.locations import local_path

log = logging.getLogger(__name__)

ORPHANS = "files that no retained snapshot names: left-over data files, manifests and versions of the metadata"
LEFT_OVER = "manifests and versions of the metadata that nothing names, and files of other formats"
OTHERS = "the other retained snapshots; all_snapshots asks them"
PATHS = "names of files and partitions outside of manifests, and copies of the table elsewhere"


@dataclass(frozen=True)
class FindOptions:
    """What is asked of a table, with the parameters of :func:`find`."""

    at: int | str | None = None
    all_snapshots: bool = False
    read_all: bool = False
    orphans: bool = False
    encryption_keys: EncryptionKeys | None = None
    threads: int | None = None
    may_lack: bool = False
    """Whether the table may lack columns: one of many tables need not have all."""


def find(
    table: Table,
    values: Mapping[str, object],
    *,
    at: int | str | None = None,
    all_snapshots: bool = False,
    read_all: bool = False,
    orphans: bool = False,
    encryption_keys: EncryptionKeys | None = None,
    threads: int | None = None,
) -> FindReport:
    """Find out which data files of ``table`` have rows with one of some values, and give the evidence.

    Example: ``sidecar.find(table, {"mail": "ann@example.com"})``
    ``values``: ``{column: value or list of values}``, each a question of its own, as text or as a value that the type
    takes exactly. A name means every column that has had it; ``mail|email`` means the columns of both names.
    ``at``: a snapshot id, a branch or a tag; by default the current snapshot.
    ``all_snapshots``: ask every retained snapshot.
    ``read_all``: read every file, and believe no index.
    ``orphans``: also read data files in the table's folders that no retained snapshot names.
    ``encryption_keys``: open encrypted files and filters.
    ``threads``: how many files are read at once.

    What cannot be read is in ``not_asked``. Raises :class:`UsageError` for an unknown column or snapshot and for a
    value that fits no column of its name, :class:`sidecar.errors.UnsupportedFeatureError` for a column whose type
    cannot be compared.
    """
    return find_with(table, values, FindOptions(at, all_snapshots, read_all, orphans, encryption_keys, threads))


@enough_memory()
def find_with(table: Table, values: Mapping[str, object], options: FindOptions) -> FindReport:
    """Do :func:`find`."""
    started = time.perf_counter()
    table = one_version(with_all_snapshots(one_version(table)))
    asked = schema_at(table, options.at)
    snapshot_id = snapshot_id_of(table, options.at)
    if options.all_snapshots and snapshot_id is not None:
        raise UsageError("all snapshots and one of them were asked for; ask for one or for all")
    if not isinstance(values, Mapping):
        raise UsageError("values are a mapping of columns to values", hint="Write {'id': 42}, for example.")
    if not values:
        raise UsageError("no value was given")
    conditions = [AskedValues.of(name, given) for name, given in values.items()]
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
    report = _report(table, search, conditions, options, time.perf_counter() - started)
    log_run(log, lambda: _log_line(report), report.warnings)
    return report


class RowFate(Enum):
    """What equality deletes do to the rows of a file with one value."""

    LIVE = "live"
    DELETED = "deleted"
    IN_DOUBT = "in doubt"


_FLOATS = (FloatType, DoubleType)
"""Engines do not agree on whether a delete of 0.0 deletes -0.0."""


@dataclass
class _Hit:
    """A data file with such rows: how many of them have which value, and what its asked snapshots say of them."""

    question: ValueQuestion
    file: DataFile
    rows: Counter[str]
    snapshots: dict[str, list[RowsInSnapshot]] = field(default_factory=dict)


class _Search:
    """One search. Its lists are the evidence."""

    def __init__(
        self,
        table: Table,
        questions: Questions,
        access: Access,
        read_all: bool,
    ) -> None:
        self.table = table
        self.questions = questions
        self.files = FileSearch(table, access, read_all)
        self.sidecars = SidecarSearch(table, access)
        self.snapshots: list[SnapshotFiles] = []
        self.hits: dict[tuple[QuestionKey, str], _Hit] = {}
        self.read: list[FileRead] = []
        self.delete_files: list[DeleteFileAsked] = []
        self.not_asked: list[NotAsked] = []
        self.traces: list[ValueTrace] = []
        self.asked_sidecars: list[SidecarAsked] = []
        self.orphans: list[DataFile] = []
        self.other_ids: set[str] = set()
        """Names of columns that an orphan has under a field id that the table does not give them."""
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
                self.hits[key, path] = _Hit(question, candidate.file, rows)

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
        self, hit: _Hit, snapshot: Snapshot, task: FileScanTask | None, deletes: EqualityDeletes
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


def _record(hit: _Hit, snapshot: Snapshot, live: Counter[str], in_doubt: Counter[str], equality: Iterable[str]) -> None:
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


def _report(
    table: Table,
    search: _Search,
    conditions: Sequence[AskedValues],
    options: FindOptions,
    seconds: float,
) -> FindReport:
    files = each_once(
        FileWithValue(path, hit.question.name, hit.question.field_id, text, rows, hit.snapshots.get(text, []))
        for (_, path), hit in search.hits.items()
        for text, rows in hit.rows.items()
    )
    read = {(one.file, one.field_id) for one in search.read}
    missed = {one.file for one in search.not_asked}
    traces = list(dict.fromkeys(search.traces))
    facts = _FactsByCondition(search, files, traces)
    answers = [facts.answer(condition.name, text) for condition in conditions for text, _ in condition.values]
    found = {answer.answer for answer in answers}
    order = (FindAnswer.FOUND, FindAnswer.NOT_PROVEN, FindAnswer.ABSENT)
    return FindReport(
        table=name_of(table),
        table_uuid=str(table.metadata.table_uuid),
        metadata_file=table.metadata_location,
        answer=next(one.value for one in order if one.value in found),
        all_snapshots=options.all_snapshots,
        read_all=options.read_all,
        orphans=len(search.orphans) if options.orphans else None,
        conditions=answers,
        snapshots=_snapshots(table, search.snapshots, files),
        files=files,
        files_ruled_out=each_once(
            one for one in search.files.ruled_out if (one.file, one.field_id) not in read and one.file not in missed
        ),
        files_read=each_once(search.read),
        equality_deletes=each_once(search.delete_files),
        traces=traces,
        sidecars=each_once(search.asked_sidecars),
        not_asked=search.not_asked,
        warnings=list(dict.fromkeys(search.files.warnings)),
        beyond=[*([] if options.all_snapshots else [OTHERS]), LEFT_OVER if options.orphans else ORPHANS, PATHS],
        seconds=seconds,
    )


class _FactsByCondition:
    """The evidence of a search by column and value, for the answers."""

    def __init__(self, search: _Search, files: Sequence[FileWithValue], traces: Sequence[ValueTrace]) -> None:
        self._impossible = search.questions.impossible
        self._other_ids = search.other_ids
        self._missed = {one.column for one in search.not_asked}
        self._files: dict[tuple[str, str], list[FileWithValue]] = {}
        for file in files:
            self._files.setdefault((file.column, file.value), []).append(file)
        self._deletes: dict[tuple[str, str], set[str]] = {}
        for delete in search.delete_files:
            for text in delete.rows:
                self._deletes.setdefault((delete.column, text), set()).add(delete.file)
        self._traces = Counter((one.column, one.value) for one in traces)
        self._field_ids: dict[str, set[int]] = {}
        for question in search.questions.all:
            self._field_ids.setdefault(question.name, set()).add(question.field_id)

    def answer(self, name: str, text: str) -> ConditionAnswer:
        """Return the answer for one condition."""
        key = name, text
        files, deletes, impossible = self._files.get(key, []), self._deletes.get(key, set()), self._impossible.get(key)
        answer = FindAnswer.ABSENT
        if files or deletes:
            answer = FindAnswer.FOUND
        elif name in self._other_ids or (impossible is None and self._missed & {name, None}):
            answer = FindAnswer.NOT_PROVEN
        return ConditionAnswer(
            column=name,
            value=text,
            field_ids=sorted(self._field_ids.get(name, ())),
            answer=answer.value,
            files=len({one.file for one in files}),
            rows=sum(one.rows for one in files),
            delete_files=len(deletes),
            traces=self._traces[key],
            impossible=impossible,
        )


def _snapshots(table: Table, asked: Sequence[SnapshotFiles], files: Sequence[FileWithValue]) -> list[SnapshotAsked]:
    branches: dict[int, list[str]] = {}
    tags: dict[int, list[str]] = {}
    for name, ref in table.metadata.refs.items():
        by_snapshot = branches if ref.snapshot_ref_type == SnapshotRefType.BRANCH else tags
        for snapshot_id in lineage(table, ref.snapshot_id):
            by_snapshot.setdefault(snapshot_id, []).append(name)
    shown = [one for file in files for one in file.snapshots]
    found = []
    for one in asked:
        snapshot_id = one.snapshot.snapshot_id
        rows = [row for row in shown if row.snapshot_id == snapshot_id]
        found.append(
            SnapshotAsked(
                snapshot_id=snapshot_id,
                committed_at=datetime.fromtimestamp(one.snapshot.timestamp_ms / 1000, timezone.utc).isoformat(),
                branches=branches.get(snapshot_id, []),
                tags=tags.get(snapshot_id, []),
                staged=snapshot_id not in branches and snapshot_id not in tags,
                data_files=one.data_files,
                rows_live=sum(row.live for row in rows),
                rows_deleted=sum(row.deleted for row in rows),
                rows_in_doubt=sum(row.in_doubt for row in rows),
            )
        )
    return found


def _log_line(report: FindReport) -> str:
    """A search for the log, without the values."""
    return (
        f"find in {report.table}: {report.answer}; {len(report.conditions)} values, {len(report.snapshots)} snapshots, "
        f"{len(report.files_read)} files read, {sum(report.ruled_out_by.values())} ruled out, "
        f"{len(report.not_asked)} not asked; {report.seconds:.3f} s"
    )
