"""The evidence of a search for values, in a table or in plain files, and the report that is made of it."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType

from sidecar.crypto.keys import EncryptionKeys
from sidecar.iceberg.refs import lineage
from sidecar.iceberg.table_names import name_of
from sidecar.reports.finding.files import SnapshotFiles
from sidecar.reports.finding.results import (
    ConditionAnswer,
    DeleteFileAsked,
    FileRead,
    FileRuledOut,
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
from sidecar.reports.finding.values import AskedValues, ConditionReader, QuestionKey, ValueQuestion
from sidecar.run_log import log_run

log = logging.getLogger(__name__)

ORPHANS = "files that no retained snapshot names: left-over data files, manifests and versions of the metadata"
LEFT_OVER = "manifests and versions of the metadata that nothing names, and files of other formats"
OTHERS = "the other retained snapshots; all_snapshots asks them"
NOT_LISTED = "files in the folders without the ending of Parquet or ORC, hidden files, sidecars, and copies elsewhere"
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
    io: FileIO | None = None
    may_lack: bool = False
    """Whether the table may lack columns: one of many tables need not have all."""


@dataclass
class Hit:
    """A data file with such rows: how many of them have which value, and what its asked snapshots say of them."""

    question: ValueQuestion
    file: DataFile
    rows: Counter[str]
    snapshots: dict[str, list[RowsInSnapshot]] = field(default_factory=dict)


@dataclass
class Evidence:
    """What a search found. Its lists are the evidence."""

    questions: ConditionReader
    snapshots: list[SnapshotFiles] = field(default_factory=list)
    hits: dict[tuple[QuestionKey, str], Hit] = field(default_factory=dict)
    read: list[FileRead] = field(default_factory=list)
    ruled_out: list[FileRuledOut] = field(default_factory=list)
    delete_files: list[DeleteFileAsked] = field(default_factory=list)
    not_asked: list[NotAsked] = field(default_factory=list)
    traces: list[ValueTrace] = field(default_factory=list)
    asked_sidecars: list[SidecarAsked] = field(default_factory=list)
    orphans: list[DataFile] = field(default_factory=list)
    other_ids: set[str] = field(default_factory=set)
    """Names of columns that an orphan has under a field id that the table does not give them."""
    warnings: list[str] = field(default_factory=list)

    def add(self, other: Evidence) -> None:
        """Add what another part of the search found."""
        self.hits |= other.hits
        self.read += other.read
        self.ruled_out += other.ruled_out
        self.not_asked += other.not_asked
        self.traces += other.traces
        self.warnings += other.warnings


def report_of(
    table: Table | str, search: Evidence, conditions: Sequence[AskedValues], options: FindOptions, started: float
) -> FindReport:
    """Return the answers to conditions. ``table`` is the text that names the files if they are of no table."""
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
    beyond = [*([] if options.all_snapshots else [OTHERS]), LEFT_OVER if options.orphans else ORPHANS, PATHS]
    report = FindReport(
        table=table if isinstance(table, str) else name_of(table),
        table_uuid="" if isinstance(table, str) else str(table.metadata.table_uuid),
        metadata_file="" if isinstance(table, str) else table.metadata_location,
        answer=next(one.value for one in order if one.value in found),
        all_snapshots=options.all_snapshots,
        read_all=options.read_all,
        orphans=len(search.orphans) if options.orphans else None,
        conditions=answers,
        snapshots=[] if isinstance(table, str) else _snapshots(table, search.snapshots, files),
        files=files,
        files_ruled_out=each_once(
            one for one in search.ruled_out if (one.file, one.field_id) not in read and one.file not in missed
        ),
        files_read=each_once(search.read),
        equality_deletes=each_once(search.delete_files),
        traces=traces,
        sidecars=each_once(search.asked_sidecars),
        not_asked=search.not_asked,
        warnings=list(dict.fromkeys(search.warnings)),
        beyond=[NOT_LISTED] if isinstance(table, str) else beyond,
        seconds=time.perf_counter() - started,
    )
    log_run(log, lambda: _log_line(report), report.warnings)
    return report


class _FactsByCondition:
    """The evidence of a search by column and value, for the answers."""

    def __init__(self, search: Evidence, files: Sequence[FileWithValue], traces: Sequence[ValueTrace]) -> None:
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
