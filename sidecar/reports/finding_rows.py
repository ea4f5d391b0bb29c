"""Counts the rows of data files and delete files that have the values of one question.

Rows are read as a scan of the table reads them (:mod:`sidecar.reading.table_files`): columns by field id or name
mapping, promoted types, values that only the partition has. Indexes in the file may leave out parts of it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import FileScanTask

from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import UnsupportedFeatureError
from sidecar.filters.column_types import ColumnType
from sidecar.planning.file_question import FileQuestion
from sidecar.reading.arrow_reader import Deletes, TableReader
from sidecar.reading.scanning import reading_errors
from sidecar.reading.table_files import DataFileReader
from sidecar.reports.finding_values import ValueQuestion

_SECOND = 1_000_000
MOST_ASKED = 200
"""With more values than this, whole columns are read: indexes rule out little then, and long predicates cost more."""


class RowCounter:
    """Reads files for one question. Threads can share it. With ``read_all``, indexes in files are not asked either."""

    def __init__(self, question: ValueQuestion, encryption_keys: EncryptionKeys | None, read_all: bool) -> None:
        self.question = question
        self._whole = TableReader(question.table, question.projection, AlwaysTrue(), encryption_keys)
        self._matching = self._whole
        if not read_all and len(question.literals) <= MOST_ASKED:
            self._matching = TableReader(question.table, question.projection, question.predicate, encryption_keys)
        self._counted: dict[tuple[str, frozenset[str]], Counter[str]] = {}

    def count(self, file: DataFile) -> Counter[str]:
        """Count the rows of a file with each value, deleted rows included. A file is read once.

        Raises :class:`sidecar.errors.SidecarError` for a file that cannot be read.
        """
        return self._count(FileScanTask(file), {})

    def count_live(self, task: FileScanTask) -> Counter[str]:
        """Do the same for the rows that are left by the position deletes of a task. Raises the errors of reading."""
        if not task.delete_files:
            return self.count(task.file)
        with reading_errors(task.file.file_path):
            deletes = self._whole.read_deletes([task])
        return self._count(task, deletes)

    def _count(self, task: FileScanTask, deletes: Deletes) -> Counter[str]:
        key = task.file.file_path, frozenset(deletes)
        if key not in self._counted:
            self._counted[key] = self._read(task, deletes)
        return self._counted[key]

    def _read(self, task: FileScanTask, deletes: Deletes) -> Counter[str]:
        if task.file.file_format == FileFormat.ORC:
            self._refuse_early_times(task.file.file_path)
        question, table_reader = self.question, self._matching
        asked = FileQuestion(table_reader.row_filter, question.schema)
        # is_locked: look for the keys of each file first, because Arrow may hang on an encrypted column.
        reader = DataFileReader(table_reader, question.table.io, deletes, None, asked, is_locked=True)
        found: Counter[str] = Counter()
        with reading_errors(task.file.file_path):
            rows = reader.read(task, None, answered=False)
            while rows.batches:
                found += question.count(rows.batches.pop())
        return found

    def _refuse_early_times(self, path: str) -> None:
        """Raise :class:`UnsupportedFeatureError` for times that ORC readers do not agree on."""
        if ColumnType.parse(str(self.question.column.type)).family != "timestamp":
            return
        values: list[Any] = [one.value for one in self.question.literals.values()]
        if any(value < 0 and value % _SECOND for value in values):
            raise UnsupportedFeatureError(
                "readers disagree on fractions of a second before 1970 in ORC files",
                file=path,
                column=self.question.column.name,
            )
