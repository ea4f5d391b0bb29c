"""Finds values in plain Parquet and ORC files, which need no table.

The rows of each file are read as :func:`sidecar.scan` reads them: statistics, page indexes and filters of the file rule
parts of it out. The rows that match a question are counted by value; a value that no row is counted for is proven to be
absent only if each row that matched was counted. Columns go by the names that they have in each file.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from sidecar.access import Access
from sidecar.data_files.formats import opened_file
from sidecar.data_files.open_file import unique_leaves
from sidecar.data_files.open_orc import OpenOrc
from sidecar.data_files.open_parquet import OpenParquet
from sidecar.errors import SidecarError, UnsupportedFeatureError, UsageError, enough_memory
from sidecar.iceberg.struct_nulls import bound_to
from sidecar.many_files.find import DATA_ENDINGS, Paths, find_files
from sidecar.parquet.scan.page_scan import ScanReport
from sidecar.parquet.scan.schema_parts import read_shape
from sidecar.reading.file_columns import FileColumns, file_columns
from sidecar.reading.file_scanning import open_scan
from sidecar.reading.orc_columns import orc_columns
from sidecar.reading.residual import residual_of
from sidecar.reading.scanning import reading_errors, reading_threads
from sidecar.reports.finding.evidence import Evidence, FindOptions, Hit, report_of
from sidecar.reports.finding.results import FileRead, FileRuledOut, FindReport, NotAsked
from sidecar.reports.finding.rows import MOST_ASKED, refuse_doubt, refuse_early_times
from sidecar.reports.finding.traces import traces_of_leaf
from sidecar.reports.finding.values import OTHER_NAME, AskedValues, ConditionReader, ValueQuestion
from sidecar.run import in_turn
from sidecar.storage.locations import local_path

NAMED_FILE = "it was named"


@enough_memory()
def find_in_files(paths: Paths, values: Mapping[str, object], options: FindOptions) -> FindReport:
    """Do :func:`sidecar.find` for files, folders and globs. Raises :class:`UsageError` for a column that none has."""
    started = time.perf_counter()
    if options.at is not None or options.all_snapshots or options.orphans:
        raise UsageError("files have no snapshots and no orphans", hint="Name the table that has them.")
    conditions, access = AskedValues.of_all(values), Access(options.io, options.encryption_keys)
    named = [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    found = find_files(named, access, endings=DATA_ENDINGS)
    search = _PlainSearch(conditions, access, options.read_all)
    threads = reading_threads(options.threads, any(local_path(path) is None for path in found.files))
    evidence = Evidence(search.questions)
    evidence.not_asked += [NotAsked("folder", path, error.what) for path, error in found.failed.items()]
    for one in in_turn(search.ask, found.files, threads):
        evidence.add(one)
    search.questions.check()
    if evidence.not_asked:
        search.questions.impossible.clear()  # a file that is not known may have the column in a type that has the value
    else:
        for condition in conditions:
            if condition.name not in search.had:
                raise UsageError("no file has the column", column=condition.name, hint="mail|email names both columns.")
    return report_of(", ".join(named), evidence, conditions, options, started)


@dataclass(eq=False)
class _PlainSearch:
    """Asks files. Threads can share it."""

    conditions: Sequence[AskedValues]
    access: Access
    read_all: bool
    questions: ConditionReader = field(default_factory=ConditionReader)
    had: set[str] = field(default_factory=set)
    """The names for which some file has a column."""
    _schemas: dict[str, int] = field(default_factory=dict)
    _numbers: Any = field(default_factory=count)

    def ask(self, path: str) -> Evidence:
        """Return what one file says. A file that cannot be read is not asked."""
        evidence = Evidence(self.questions)
        try:
            with reading_errors(path), opened_file(self.access, path) as file:
                known = (
                    orc_columns(file.tail) if isinstance(file, OpenOrc) else file_columns(read_shape(file.footer), path)
                )
                asked = _AskedFile(path, file, known, evidence, self.read_all, self.access)
                for condition in self.conditions:
                    self._ask_condition(condition, asked)
        except SidecarError as error:
            evidence.not_asked.append(NotAsked("data file", path, error.what))
        return evidence

    def _ask_condition(self, condition: AskedValues, asked: _AskedFile) -> None:
        schema, ambiguous = asked.known.schema, asked.known.ambiguous
        # Types differ between files: schemas that are equal have one number, so that each has its own questions.
        schema = Schema(*schema.fields, schema_id=self._schemas.setdefault(str(schema), next(self._numbers)))
        here = {*schema.column_names, *ambiguous}
        names = [condition.name] if condition.name in here else condition.name.split(OTHER_NAME)
        known = [name for name in names if name in here]
        alike = [name for name in here.difference(names) if name.lower() in {one.lower() for one in names}]
        if alike:
            self._miss(asked, condition, f"the column has the name in another case: {', '.join(sorted(alike))}")
        for name in known:
            self.had.add(condition.name)
            if name in ambiguous:
                self._miss(asked, condition, "several columns of the file have the name")
                continue
            question = self.questions.question(condition, schema, schema.find_field(name).field_id)
            unread = condition.values if question is None else self.questions.refused(condition, question)
            if unread:  # in another file they may be values, so they may be meant in another way here
                self._miss(asked, condition, f"the column has no such value as it was written: {unread[0][0]}")
            if question is not None and question.can_match:
                try:
                    with reading_errors(asked.path):
                        asked.ask(question)
                except SidecarError as error:
                    self._miss(asked, condition, error.what)

    def _miss(self, asked: _AskedFile, condition: AskedValues, reason: str) -> None:
        asked.evidence.not_asked.append(NotAsked("data file", asked.path, reason, condition.name))


@dataclass(frozen=True, eq=False)
class _AskedFile:
    """A file that is asked."""

    path: str
    file: OpenParquet | OpenOrc
    known: FileColumns
    evidence: Evidence
    read_all: bool
    access: Access

    def ask(self, question: ValueQuestion) -> None:
        """Add what the file says of a question. Raises the errors of reading."""
        path, evidence, place = self.path, self.evidence, (self.path, question.name, question.field_id)
        leaf = unique_leaves(self.file.leaves).get(question.column.name)
        if isinstance(self.file, OpenOrc):
            refuse_early_times(question, path)
        if leaf is not None:
            with suppress(SidecarError):  # bounds that cannot be read have no traces
                evidence.traces += traces_of_leaf(question, path, self.file, leaf)
        whole = self.read_all or len(question.literals) > MOST_ASKED
        rows, matched, report = self._count(question, whole)
        total = sum(rows.values())
        if total:
            evidence.hits[question.key, path] = Hit(question, DataFile.from_args(file_path=path), rows)
        evidence.warnings += [f"{path}: {text}" for text in report.warnings]
        if not whole and report.rows and not report.rows_may_match:
            by = (name.replace("_", " ") for name, groups in report.dropped.items() if groups)
            evidence.ruled_out.append(FileRuledOut(*place, " and ".join(by) + " of the file"))
        else:
            evidence.read.append(FileRead(*place, NAMED_FILE, total))
        if total < matched:
            raise UnsupportedFeatureError("rows match, and it is not known which of the values they have", file=path)
        if not all(rows[text] for text in (*question.literals, *question.nan)):
            refuse_doubt(question, self.file, leaf)

    def _count(self, question: ValueQuestion, whole: bool) -> tuple[Counter[str], int, ScanReport]:
        """Count the rows with each value, and those that match; without ``whole``, indexes leave rows out."""
        rows, matched, known, name = Counter[str](), 0, self.known, question.column.name
        matches = residual_of(bound_to(known.schema, question.predicate), known, [question.field_id])
        with open_scan(self.path, AlwaysTrue() if whole else question.predicate, [name], access=self.access) as scan:
            for found in scan.found():
                rows += question.count_values(_as_literals(known, question, found.rows))
                matched += len(matches(found.rows))
            return rows, matched, scan.report


def _as_literals(known: FileColumns, question: ValueQuestion, table: pa.Table) -> Any:
    """Return the values of the column in the unit of literals, microseconds; null for times that are between two."""
    values = known.columns[question.field_id].compared_in(table)
    is_time = pa.types.is_time(values.type)
    if is_time or pa.types.is_timestamp(values.type):
        whole = values.cast(pa.time64("us") if is_time else pa.timestamp("us", values.type.tz), safe=False)
        values = pc.if_else(pc.equal(whole, values), whole, None)
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
