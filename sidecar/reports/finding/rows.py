"""Counts the rows of data files and delete files that have the values of one question.

Rows are read as a scan of the table reads them (:mod:`sidecar.reading.table_files`): columns by field id or name
mapping, promoted types, values that only the partition has. For texts and bytes, indexes in the file may leave out
parts of it. Numbers and times are read whole and compared here: pyiceberg and Arrow compare them in the file's type,
which may be another one than the column's (unsigned, nanoseconds), and lose values that the file's type seems not to
have.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import Any
from uuid import UUID

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import FileScanTask, Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, FixedType, StringType, UUIDType

from sidecar.access import Access
from sidecar.data_files.formats import open_file
from sidecar.data_files.open_file import OpenFile
from sidecar.errors import SidecarError, StorageError, UnsupportedFeatureError, WrongChecksumError
from sidecar.filters.column_types import ColumnType
from sidecar.iceberg.refs import with_schema
from sidecar.iceberg.resolve import ColumnsInFile, FoundColumn
from sidecar.iceberg.table_properties import name_mapping_of
from sidecar.orc.iceberg_values import SECOND
from sidecar.planning.file_question import FileQuestion
from sidecar.reading.arrow_reader import TableReader
from sidecar.reading.row_deletes import DeleteKey, Deletes
from sidecar.reading.scanning import reading_errors
from sidecar.reading.table_files import DataFileReader
from sidecar.reports.finding.values import ValueQuestion

MOST_ASKED = 200
"""With more values than this, whole columns are read: indexes rule out little then, and long predicates cost more."""
_BYTES = (StringType, BinaryType, FixedType, UUIDType)
"""Types whose values are the same bytes in every file."""


class RowCounter:
    """Reads files for one question. Threads can share it. With ``read_all``, indexes in files are not asked either."""

    def __init__(self, table: Table, question: ValueQuestion, access: Access, read_all: bool) -> None:
        self.question, self._access = question, access
        self._table = table = with_schema(table, question.schema.schema_id)
        self._whole = TableReader(table, question.projection, FileQuestion(AlwaysTrue(), question.schema), access)
        self._matching: TableReader | None = None
        is_few = len(question.literals) <= MOST_ASKED
        if not read_all and is_few and isinstance(question.column.type, _BYTES):
            self._matching = TableReader(table, question.projection, question.question, access)
        self._counted: dict[tuple[str, frozenset[DeleteKey]], Counter[str]] = {}

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
        if task.file.file_format != FileFormat.ORC:
            return self._read_plainly(task, deletes)
        refuse_early_times(self.question, task.file.file_path)
        found = self._read_plainly(task, deletes)
        if not all(found[text] for text in (*self.question.literals, *self.question.nan)):
            self._refuse_doubt(task.file)
        return found

    def _read_plainly(self, task: FileScanTask, deletes: Deletes) -> Counter[str]:
        if self._matching is not None and not self._in_partition(task.file):
            try:
                return self._read_with(self._matching, task, deletes)
            except (StorageError, WrongChecksumError):
                raise
            except SidecarError:
                pass  # Arrow refuses some predicates for files of another type
        return self._read_with(self._whole, task, deletes)

    def _read_with(self, table_reader: TableReader, task: FileScanTask, deletes: Deletes) -> Counter[str]:
        question, found, rows = self.question, Counter[str](), 0
        # is_locked: look for the keys of each file first, because Arrow may hang on an encrypted column.
        reader = DataFileReader(table_reader, deletes, None, is_locked=True)
        with reading_errors(task.file.file_path):
            if table_reader is self._whole:
                for batch in reader.read_whole(task):
                    found += question.count(batch)
                    rows += batch.num_rows
                found |= Counter(dict.fromkeys(self._in_partition(task.file), rows))
            else:
                batches = reader.read(task, None, answered=False).batches
                while batches:
                    found += question.count(batches.pop())
        return found

    def _in_partition(self, file: DataFile) -> list[str]:
        """Return the texts of the values that all rows of a file have by its partition.

        If the file stores the column too, Spark and Trino read the partition's value, and pyiceberg the file's.
        """
        question, spec = self.question, self._table.metadata.specs().get(file.spec_id)
        parts = enumerate(spec.fields if spec is not None and question.column.type.is_primitive else ())
        held = [
            file.partition[place]
            for place, part in parts
            if part.source_id == question.field_id and isinstance(part.transform, IdentityTransform)
            if place < len(file.partition)
        ]
        plain = (value.bytes if isinstance(value, UUID) else value for value in held)
        return [text for value in plain if value is not None for text in question.texts_of(value)]

    def _refuse_doubt(self, file: DataFile) -> None:
        """Do :func:`refuse_doubt` for the column of a data file; a file without the column has no such values."""
        with closing(self._access.open(file.file_path, file.file_size_in_bytes)) as source:
            opened = open_file(source)
            mapping = name_mapping_of(self._table)
            found = ColumnsInFile[Any](opened.leaves, self.question.schema, mapping, {}).find(self.question.field_id)
            if isinstance(found, FoundColumn):
                refuse_doubt(self.question, opened, found.leaf)


def refuse_doubt(question: ValueQuestion, file: OpenFile, leaf: Any) -> None:
    """Raise :class:`UnsupportedFeatureError` if other readers may find values that pyarrow has not found."""
    values = [one.value for one in question.literals.values()]
    if reason := file.doubt(leaf, str(question.column.type), values):
        raise UnsupportedFeatureError(reason, file=file.name, column=question.column.name)


def refuse_early_times(question: ValueQuestion, path: str) -> None:
    """Raise :class:`UnsupportedFeatureError` for times that ORC readers do not agree on."""
    if ColumnType.parse(str(question.column.type)).family != "timestamp":
        return
    values: list[Any] = [one.value for one in question.literals.values()]
    if any(value < 0 and value % SECOND for value in values):
        reason = "readers disagree on fractions of a second before 1970 in ORC files"
        raise UnsupportedFeatureError(reason, file=path, column=question.column.name)
