"""pyiceberg's reader of data files as separate steps, so that rows can come from our own page reader.

pyiceberg reads a data file in five steps:

1. It turns the file's Arrow schema into an Iceberg schema, by field ids or by the table's name mapping.
2. It takes the values of columns that the file lacks from the file's partition.
3. It translates the row filter to the file's names and types (here :mod:`sidecar.reading.file_predicate` does).
4. Arrow scans the row groups whose statistics allow a match. If the file has position deletes, all row groups are
   scanned and deleted rows are removed before the filter.
5. It projects each batch to the requested schema: promotions, initial defaults, nulls.

This module makes the same calls, most of them private functions of pyiceberg, but shows Arrow only the footer of a
Parquet file. Arrow says which row groups it would scan. :class:`FileView` has the other steps, for rows that
:mod:`sidecar.reading.table_files` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import acero
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import extract_field_ids
from pyiceberg.io import FileIO, InputFile
from pyiceberg.io.pyarrow import (
    UnsupportedPyArrowTypeException,
    expression_to_pyarrow,
    pyarrow_to_schema,
)
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema, index_by_id, prune_columns
from pyiceberg.table import DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE, FileScanTask, Table, TableProperties
from pyiceberg.table.name_mapping import parse_mapping_from_json
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import TableVersion
from pyiceberg.types import IntegerType, ListType, LongType, MapType, NestedField, StructType, UUIDType
from pyiceberg.utils.config import Config

from sidecar.access import Access
from sidecar.dependencies.pyiceberg import arrow_file_format, column_projection_values
from sidecar.errors import SidecarError, UnsupportedFeatureError
from sidecar.iceberg.struct_nulls import bound_to
from sidecar.parquet.encrypted.plain_view import unlock
from sidecar.parquet.scan.page_scan import Residual
from sidecar.parquet.scan.schema_parts import has_views
from sidecar.parquet.scan.usual_types import with_usual_types
from sidecar.reading.absent_columns import AbsentColumns
from sidecar.reading.arrow_statistics import has_bit_packed_levels, may_mislead
from sidecar.reading.file_columns import FileColumn, FileColumns
from sidecar.reading.file_predicate import asks_floats, for_statistics, in_types_of_file, may_not_fit
from sidecar.reading.projection import to_requested_schema
from sidecar.reading.residual import residual_of
from sidecar.reading.row_deletes import Deletes, read_deletes
from sidecar.storage.locations import file_at, local_path
from sidecar.storage.remote import REMOTE_TAIL, has_cheap_ranges
from sidecar.storage.source import Source, SourceFile

SMALL = REMOTE_TAIL
"""Files of at most this many bytes are small: one request has all of a remote one."""


@dataclass(frozen=True, eq=False)
class FileView:
    """A data file as pyiceberg reads it, or all data files with the same columns.

    ``file_schema`` has the file's column names and the table's field ids.
    """

    physical_schema: Any
    file_schema: Schema
    projected: Schema
    """The part of ``file_schema`` that is read: the requested columns and those of the filter."""
    row_filter: BooleanExpression
    """The filter with the file's names and literals in the file's types; predicates on absent columns are resolved."""
    arrow_filter: Any
    """``row_filter`` as an Arrow expression; ``None`` if every row matches."""
    reader: TableReader
    missing: Mapping[int, Any]
    downcasts_ns: bool
    """Whether the file has nanosecond timestamps that are read as microseconds."""
    _changes: list[tuple[pa.Schema, pa.Schema | None]] = field(default_factory=list, repr=False)
    """Schemas of batches, each with what it becomes; ``None`` if values change too."""

    def scanned_row_groups(self, fragment: Any) -> set[int]:
        """Return the ordinals of the row groups of Arrow's ``fragment`` of the file whose statistics allow a match.

        These are all row groups if the statistics are not to be believed.
        """
        if self.statistics_filter is None or self.may_mislead(fragment.metadata):
            return set(range(fragment.num_row_groups))
        subset = fragment.subset(filter=self.statistics_filter, schema=self.physical_schema)
        return {group.id for group in subset.row_groups}

    def may_mislead(self, metadata: Any) -> bool:
        """Return whether Arrow would skip row groups by statistics of the file that are not to be believed.

        ``metadata`` is that of Arrow's fragment of the file, which is a Parquet file.
        """
        if self.arrow_filter is None:
            return False
        paths = dict(column_paths(self.file_schema))
        return may_mislead(metadata, [paths[i] for i in extract_field_ids(self.row_filter) if i in paths])

    @cached_property
    def statistics_filter(self) -> Any:
        """An Arrow expression that all matching rows meet and statistics can be asked; ``None`` if there is none."""
        if self.arrow_filter is None or self.asks_uuid:
            return None
        wide = for_statistics(self.row_filter)
        return None if wide == AlwaysTrue() else expression_to_pyarrow(wide, self.file_schema)

    @property
    def asks_uuid(self) -> bool:
        """Whether the filter compares UUIDs, for which Arrow has no function."""
        fields = map(self.file_schema.find_field, extract_field_ids(self.row_filter))
        return any(isinstance(field.field_type, UUIDType) for field in fields)

    def residual(self) -> Residual | None:
        """Return the filter on rows as pyiceberg evaluates it in Arrow; UUIDs are compared as bytes.

        ``None`` if every row matches.
        """
        if self.arrow_filter is None:
            return None
        if not self.asks_uuid:
            return partial(_matching, self.arrow_filter)
        columns = {i: FileColumn(path, path, None) for i, path in column_paths(self.file_schema)}
        ids = sorted(extract_field_ids(self.row_filter))
        return residual_of(self.row_filter, FileColumns(self.file_schema, columns), ids, zeros_are_equal=False)

    def project(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Convert rows of the projected columns to the requested schema."""
        yield from map(self.project_batch, rows.combine_chunks().to_batches())

    def project_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch of the projected columns to the requested schema.

        pyiceberg's conversion takes long for a small batch. If it changed no value of a batch, only the schema is
        changed of others like that one.
        """
        known = [schema for seen, schema in self._changes if seen.equals(batch.schema)]
        if known and known[0] is not None:
            columns = [column.cast(field.type) for column, field in zip(batch.columns, known[0], strict=True)]
            return pa.RecordBatch.from_arrays(columns, schema=known[0])
        converted = to_requested_schema(self.reader.schema, self.projected, batch, self.missing, self.downcasts_ns)
        if not known:
            self._changes.append((batch.schema, converted.schema if self._keeps_values(batch, converted) else None))
        return converted

    def _keeps_values(self, batch: pa.RecordBatch, converted: pa.RecordBatch) -> bool:
        """Return whether the conversion of a batch, and of others like it, changes no value.

        It does not if there are the same columns in the same order with the same Arrow types. Lists and maps are in
        doubt, because pyiceberg builds them anew.
        """
        ours, theirs = index_by_id(self.projected), index_by_id(self.reader.schema)
        return (
            batch.schema.types == converted.schema.types
            and batch.schema.names == [column.name for column in self.projected.columns]
            and list(ours) == list(theirs)
            and not any(isinstance(column.field_type, ListType | MapType) for column in ours.values())
        )


def _matching(expression: Any, table: pa.Table) -> npt.NDArray[np.int64]:
    """Return the positions (int64 [n], rising) of the rows for which an Arrow expression is true."""
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
        acero.Declaration("project", acero.ProjectNodeOptions([expression], ["matches"])),
    ]
    # Without threads the rows stay in their order, and the caller need not wait until Arrow's threads are free.
    matches: Any = acero.Declaration.from_sequence(steps).to_table(use_threads=False)["matches"]
    found: npt.NDArray[np.int64] = pc.indices_nonzero(matches).to_numpy().astype(np.int64)  # a null is none
    return found


def column_paths(schema: Schema) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the field id and the path of names of each column outside of lists and maps."""
    open_: list[tuple[tuple[str, ...], Sequence[NestedField]]] = [((), schema.fields)]
    while open_:
        above, fields = open_.pop()
        for column in fields:
            path = (*above, column.name)
            yield column.field_id, path
            if isinstance(column.field_type, StructType):
                open_.append((path, column.field_type.fields))


class PackedLevelsError(UnsupportedFeatureError):
    """Arrow would read wrong rows of a file: its levels are BIT_PACKED. No row was returned before."""


class _KnownFiles(FileIO):
    """A FileIO with which pyiceberg reads whole files; it does not ask the storage for file sizes that are known."""

    def __init__(self, access: Access) -> None:
        io = access.io
        assert io is not None  # a table has one
        super().__init__(io.properties)
        self.inner = io
        self._access, self._without_keys = access, Access(io)
        self.sizes: dict[str, int] = {}
        """Lengths of files in bytes, by path."""
        self.parquet: set[str] = set()
        """Paths of Parquet files, which may be encrypted."""
        self.with_views: set[str] = set()
        """Paths of Parquet files whose view types (string_view, binary_view) are shown as the usual types."""

    def remember(self, file: DataFile) -> None:
        """Remember the size and format of a file that will be read."""
        self.sizes[file.file_path] = file.file_size_in_bytes
        if file.file_format == FileFormat.PARQUET:
            self.parquet.add(file.file_path)

    def new_input(self, location: str) -> Any:
        size = self.sizes.get(location)
        access = self._access if location in self.parquet else self._without_keys
        if size is not None and location in self.with_views:
            return _KnownFile(location, access, size, with_usual_types)
        if size is None or (access.keys is None and not has_cheap_ranges(location, self.inner, size)):
            return file_at(self.inner, location)
        return _KnownFile(location, access, size)

    def new_output(self, location: str) -> Any:
        return self.inner.new_output(location)

    def delete(self, location: Any) -> None:
        self.inner.delete(location)


class _KnownFile(InputFile):
    def __init__(
        self,
        location: str,
        access: Access,
        size: int,
        shown: Callable[[Source], Source] | None = None,
    ) -> None:
        super().__init__(location)
        self._shown = shown
        self._access = access
        self._size = size

    def __len__(self) -> int:
        return self._size

    def _stored(self) -> InputFile:
        assert self._access.io is not None
        return file_at(self._access.io, self.location)

    def exists(self) -> bool:
        return self._stored().exists()

    def open(self, seekable: bool = True) -> Any:
        source = self._access.open(self.location, self._size)
        if self._access.keys is None and self._shown is None and not _has_end_magic(source):
            return self._stored().open(seekable)  # the size in the manifest is wrong
        plain = unlock(source, self._access.keys)
        file: Any = SourceFile(plain if self._shown is None else self._shown(plain))
        return pa.PythonFile(file, "r")


def _has_end_magic(source: Source) -> bool:
    """Return whether the file ends with a Parquet or ORC magic. Readers read the end first, so this costs little."""
    try:
        end = source.read(source.size - 4, 4)
    except SidecarError:
        return False
    return end in (b"PAR1", b"PFA1") or end[:3] == b"ORC"


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
        row_filter: BooleanExpression,
        access: Access,
    ) -> None:
        self.schema = schema
        self.access = access
        self._metadata = table.metadata
        self._io = _KnownFiles(access)
        self.named_filter = row_filter
        """The filter with the names of the table's schema."""
        self.row_filter = bound_to(table.schema(), row_filter)
        """The filter bound to the table's schema."""
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
                rows = batch  # not a table: without columns, if the file has none of them, a table's take has no rows
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
        fields = index_by_id(self.schema)
        read = {i for i, column in fields.items() if not isinstance(column.field_type, ListType | MapType)}
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
        return FileView(physical, file_schema, projected, row_filter, arrow_filter, self, missing, downcasts_ns)

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
