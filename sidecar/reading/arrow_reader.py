"""pyiceberg's reader of data files as separate steps, so that rows can come from our own page reader.

pyiceberg reads a data file in five steps:

1. It turns the file's Arrow schema into an Iceberg schema, by field ids or by the table's name mapping.
2. It takes the values of columns that the file lacks from the file's partition.
3. It translates the row filter to the file's names and types (here :mod:`sidecar.reading.file_predicate` does).
4. Arrow scans the row groups whose statistics allow a match. If the file has position deletes, all row groups are
   scanned and deleted rows are removed before the filter.
5. It projects each batch to the requested schema: promotions, initial defaults, nulls.

This module makes the same calls, most of them private functions of pyiceberg, but shows Arrow only the footer of a
Parquet file. Arrow says which row groups it would scan. A :class:`FileView` has the other steps, for rows that
:mod:`sidecar.reading.table_files` reads. pyiceberg opens whole files through :class:`KnownFiles`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.expressions.visitors import extract_field_ids
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, expression_to_pyarrow, pyarrow_to_schema
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE, FileScanTask, Table, TableProperties
from pyiceberg.table.name_mapping import parse_mapping_from_json
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import TableVersion
from pyiceberg.types import IntegerType, ListType, LongType, MapType, NestedField, StructType, UUIDType
from pyiceberg.utils.config import Config

from sidecar.access import Access
from sidecar.dependencies.pyiceberg import arrow_file_format, column_projection_values
from sidecar.errors import UnsupportedFeatureError
from sidecar.parquet.scan.schema_parts import has_views
from sidecar.planning.file_question import FileQuestion
from sidecar.reading.absent_columns import AbsentColumns
from sidecar.reading.arrow_statistics import has_bit_packed_levels
from sidecar.reading.file_predicate import asks_floats, in_types_of_file, may_not_fit
from sidecar.reading.file_view import FileView
from sidecar.reading.known_files import KnownFiles
from sidecar.reading.row_deletes import Deletes, read_deletes
from sidecar.storage.costs import REMOTE_TAIL
from sidecar.storage.locations import file_at, local_path

SMALL = REMOTE_TAIL
"""Files of at most this many bytes are small: one request has all of a remote one."""


class PackedLevelsError(UnsupportedFeatureError):
    """Arrow would read wrong rows of a file: its levels are BIT_PACKED. No row was returned before."""


@lru_cache(maxsize=64)
def _file_schema(columns: bytes, mapping: str | None, downcasts_ns: bool, version: TableVersion) -> Schema:
    """Return the Iceberg schema of a file's Arrow schema, given as IPC bytes, and a table's name mapping as JSON.

    Lookups read files of the same tables again and again, and making a schema takes longer than reading a small file.
    """
    return pyarrow_to_schema(
        pa.ipc.read_schema(pa.py_buffer(columns)),
        parse_mapping_from_json(mapping) if mapping else None,
        downcast_ns_timestamp_to_us=downcasts_ns,
        format_version=version,
    )


def _with_unsigned_longs(file_schema: Schema, physical: pa.Schema, schema: Schema) -> Schema:
    """Return a file's schema in which unsigned columns of 32 bits are longs, where the table has longs.

    pyiceberg takes them for ints. A literal beyond an int would then never match, though the file can have its value.
    """
    fields = _longs(file_schema.fields, physical, schema)
    return Schema(*fields, schema_id=file_schema.schema_id, identifier_field_ids=file_schema.identifier_field_ids)


def _longs(columns: Sequence[NestedField], stored: Iterable[pa.Field[Any]], schema: Schema) -> list[NestedField]:
    types = {one.name: one.type for one in stored}
    found = []
    for column in columns:
        physical, made = types.get(column.name), column.field_type
        if isinstance(made, StructType) and physical is not None and pa.types.is_struct(physical):
            made = StructType(*_longs(made.fields, physical.fields, schema))
        elif made == IntegerType() and physical == pa.uint32() and column.field_id in schema.field_ids:
            made = LongType() if schema.find_type(column.field_id) == LongType() else made
        found.append(column.model_copy(update={"field_type": made}))
    return found


def _is_little(file: DataFile) -> bool:
    """Return whether Arrow takes longer to start a scan of the file in threads than to read it."""
    return (
        file.file_format == FileFormat.PARQUET
        and file.file_size_in_bytes <= SMALL
        and local_path(file.file_path) is not None
    )


def _batches_of(file: DataFile, opened: Any, fragment: Any, view: FileView, by_arrow: Any) -> Iterator[pa.RecordBatch]:
    """Yield the columns of a view from a file, all rows in their order, or those that an Arrow filter allows."""
    names = [column.name for column in view.projected.columns]
    if _is_little(file) and not any(map(_has_inner_dictionary, view.physical_schema.types)):
        # Buffered ahead, it would be read by another thread, which takes longer to wake than the file to read.
        little = pq.ParquetFile(opened, metadata=fragment.metadata, pre_buffer=False)
        if little.schema_arrow.equals(view.physical_schema):
            for batch in little.iter_batches(columns=names, use_threads=False):
                yield batch.select(names)
            return
    yield from _scanner(fragment, view, by_arrow).to_batches()


def _has_inner_dictionary(kind: pa.DataType) -> bool:
    """Return whether a nested type has dictionaries. Arrow's scanner reads them row group by row group.

    Its reader of files without a scanner does not: it cannot join the dictionaries of two row groups.
    """
    return pa.types.is_nested(kind) and "dictionary<" in str(kind)


def _scanner(fragment: Any, view: FileView, by_arrow: Any) -> Any:
    names = [column.name for column in view.projected.columns]
    return ds.Scanner.from_fragment(fragment, schema=view.physical_schema, columns=names, filter=by_arrow)


class TableReader:
    """Reads files of one table for one filter and one schema, as pyiceberg's ``ArrowScan`` does."""

    def __init__(
        self,
        table: Table,
        schema: Schema,
        question: FileQuestion,
        access: Access,
    ) -> None:
        self.schema = schema
        self.access = access
        self._metadata = table.metadata
        self._io = KnownFiles(access)
        self.question = question
        """The filter on the table's schema."""
        self.row_filter = question.bound
        self._schemas: dict[bytes, tuple[Schema, Schema, bool]] = {}
        self._views: dict[bytes, FileView] = {}

    def read_deletes(self, tasks: Sequence[FileScanTask]) -> Deletes:
        """Read each delete file of ``tasks`` once. Raises the errors of :func:`read_deletes`."""
        files = [file for task in tasks for file in task.delete_files]
        for file in files:
            self._io.remember(file)
        return read_deletes(self.access, files, self._io)

    def read_whole(self, task: FileScanTask, deletes: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows of a whole file without its ``deletes``, in the steps that pyiceberg takes.

        pyiceberg does not handle Arrow's view types, so a Parquet file that has some is shown with the usual types.
        """
        self._io.remember(task.file)
        batches = self._read(task, deletes)
        try:
            first = next(batches, None)
            if first is None:
                return
            again = any(map(has_views, first.schema.types))
        except (pa.ArrowNotImplementedError, UnsupportedPyArrowTypeException):
            if task.file.file_path not in self._io.parquet - self._io.with_views:
                raise
            again, first = True, None
        if again:
            self._io.with_views.add(task.file.file_path)
            batches = self._read(task, deletes)
        elif first is not None:
            yield first
        yield from batches

    @cached_property
    def _filters_here(self) -> bool:
        """Whether the rows that pyiceberg finds may be wrong.

        Its translation of the filter may be wrong for a file. Arrow does not compare UUIDs. And it takes floats as
        constant whose minimum and maximum are equal, although there may be NaN too.
        """
        schema, asked = self._metadata.schema(), self.row_filter
        has_uuid = any(isinstance(schema.find_field(i).field_type, UUIDType) for i in extract_field_ids(asked))
        return has_uuid or asks_floats(asked) or may_not_fit(asked)

    @cached_property
    def _only_asked(self) -> Schema:
        """The columns of identity partitions that the filter asks for, and that are not in the result.

        If a file lacks such a column, its value is that of the file's partition. pyiceberg takes NULL for it.
        """
        partitions = (field for spec in self._metadata.specs().values() for field in spec.fields)
        ids = {field.source_id for field in partitions if isinstance(field.transform, IdentityTransform)}
        ids &= extract_field_ids(self.row_filter) - self.schema.field_ids
        return prune_columns(self._metadata.schema(), ids, select_full_types=False)

    def _read(self, task: FileScanTask, deletes: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        """Take the steps of pyiceberg, but with our view of the file, which is made once for files with equal columns.

        All row groups are read, in order, if rows are deleted, because rows are numbered before the filter then.
        """
        deleted = [positions.to_numpy() for positions in deletes]
        gone = np.unique(np.concatenate(deleted)) if deleted else np.array([], np.int64)
        opened: Any = file_at(self._io, task.file.file_path).open()
        with opened as file:
            fragment = arrow_file_format(task.file.file_format, pre_buffer=True).make_fragment(file)
            view = self.view_of(task, fragment)
            metadata: Any = getattr(fragment, "metadata", None)  # only Parquet files have some
            if metadata is not None and has_bit_packed_levels(metadata, (f.name for f in view.projected.columns)):
                raise PackedLevelsError("Arrow decodes BIT_PACKED levels wrong", file=task.file.file_path)
            misled = metadata is not None and not deleted and view.may_mislead(metadata)
            if not (deleted or misled or self._filters_here or _is_little(task.file)):
                scanner = _scanner(fragment, view, view.arrow_filter)
                yield from (view.project_batch(batch) for batch in scanner.to_batches() if batch.num_rows)
                return
            by_arrow = None if deleted or misled else view.statistics_filter
            residual, first_row = view.residual(), 0
            for batch in _batches_of(task.file, file, fragment, view, by_arrow):
                if not batch.num_rows:
                    continue
                # Not a table: if the file lacks all columns, the take of a table without columns has no rows.
                rows = batch
                if deleted:
                    rows = rows.take(np.setdiff1d(np.arange(first_row, first_row + len(batch)), gone) - first_row)
                    first_row += len(batch)
                if residual is not None:
                    rows = rows.take(residual(pa.Table.from_batches([rows])))
                if rows.num_rows:
                    yield from view.project(pa.Table.from_batches([rows]))

    @cached_property
    def field_ids(self) -> set[int]:
        """Field ids of the columns that are read: those of the schema and of the filter."""
        kinds = {i: self.schema.find_type(i) for i in self.schema.field_ids}
        read = {i for i, kind in kinds.items() if not isinstance(kind, ListType | MapType)}
        return read | extract_field_ids(self.row_filter)

    @cached_property
    def _downcasts_ns(self) -> bool:
        configured = Config().get_bool(DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE)
        return self._metadata.format_version <= 2 if configured is None else configured

    def view(self, task: FileScanTask, footer: bytes) -> tuple[FileView, Any]:
        """Return the view of the file of ``task`` and Arrow's fragment, given a Parquet file that is a footer only.

        Raises the errors of pyiceberg and Arrow.
        """
        footer_file: Any = pa.BufferReader(footer)
        fragment = ds.ParquetFileFormat().make_fragment(footer_file)
        return self.view_of(task, fragment), fragment

    def view_of(self, task: FileScanTask, fragment: Any) -> FileView:
        """Return the view of the file of ``task``, given Arrow's fragment of it. Raises the errors of pyiceberg."""
        physical = fragment.physical_schema
        key = physical.remove_metadata().serialize().to_pybytes()  # with the fields' metadata, which has their ids
        file_schema, projected, downcasts_ns = self._schemas_of(key, physical)
        table_schema = self._metadata.schema()
        spec = self._metadata.specs().get(task.file.spec_id)
        if spec is not None and len(task.file.partition or ()) < len(spec.fields):
            spec = None  # the manifest lacks partition values
        missing = dict[int, Any]()
        for schema in (self.schema, self._only_asked) if self._only_asked.fields else (self.schema,):
            missing |= column_projection_values(task.file, schema, table_schema, spec, file_schema.field_ids)
        if missing:  # the values of partitions differ from file to file
            return self._new_view(physical, file_schema, projected, missing, downcasts_ns)
        if key not in self._views:
            self._views[key] = self._new_view(physical, file_schema, projected, missing, downcasts_ns)
        return self._views[key]

    def _new_view(
        self,
        physical: pa.Schema,
        file_schema: Schema,
        projected: Schema,
        missing: Mapping[int, Any],
        downcasts_ns: bool,
    ) -> FileView:
        row_filter, arrow_filter = self.row_filter, None
        if row_filter is not AlwaysTrue():
            absent = AbsentColumns(self._metadata.schema(), file_schema, missing)
            row_filter = in_types_of_file(row_filter, file_schema, absent)
            arrow_filter = expression_to_pyarrow(row_filter, file_schema)
        return FileView(physical, file_schema, projected, row_filter, arrow_filter, self.schema, missing, downcasts_ns)

    def _schemas_of(self, key: bytes, physical: pa.Schema) -> tuple[Schema, Schema, bool]:
        """Return the schema of a file, the part of it that is read, and whether nanoseconds become microseconds.

        They are made once for all files with equal columns.
        """
        if key not in self._schemas:
            mapping = self._metadata.properties.get(TableProperties.DEFAULT_NAME_MAPPING)
            downcasts_ns = "[ns" in str(physical.types) and self._downcasts_ns  # pyiceberg's settings are read slowly
            file_schema = _file_schema(key, mapping, downcasts_ns, self._metadata.format_version)
            if "uint32" in str(physical.types):
                file_schema = _with_unsigned_longs(file_schema, physical, self._metadata.schema())
            absent = AbsentColumns(self._metadata.schema(), file_schema, {})
            read = self.field_ids | absent.structs_asked(extract_field_ids(self.row_filter))
            projected = prune_columns(file_schema, read, select_full_types=False)
            self._schemas[key] = file_schema, projected, downcasts_ns
        return self._schemas[key]
