"""The one module that reads by pyiceberg's private and undocumented API; its test fails when that changes.

Its counterpart for writing is :mod:`sidecar.iceberg.snapshot_producer`.

An Iceberg manifest is an Avro object container file: magic ``Obj\\x01``, a metadata map (``avro.schema``,
``avro.codec`` and the manifest's own keys), a 16-byte sync marker; then blocks, each a record count (zigzag
varint), a byte length, the records (compressed as one piece) and the sync marker again. One record is one
manifest entry. Planning without manifests needs each record's bytes as they stand in the block, so that
they can be decoded later by pyiceberg itself into the very entry that it would have read.

pyiceberg's own loop over blocks ends silently at a truncation, and its compiled decoder (0.12) reads beyond
the end of its bytes where a length is wrong. So blocks are walked here, and records are decoded by its
decoder in Python, which raises: 0.1 ms an entry instead of 0.04.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, KNOWN_CODECS
from pyiceberg.avro.decoder import BinaryDecoder, StreamingBinaryDecoder
from pyiceberg.avro.file import _SCHEMA_KEY, MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    INITIAL_SEQUENCE_NUMBER,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    _inherit_from_manifest,
)
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask, ManifestGroupPlanner, _open_manifest
from pyiceberg.typedef import KeyDefaultDict
from pyiceberg.types import NestedField, StructType
from pyiceberg.utils.concurrent import ExecutorFactory
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, foreign_reason
from sidecar.iceberg.funnel import ManifestUse
from sidecar.source import read_file

_DATA_FILE, _PARTITION = 2, 102  # field ids of the Iceberg specification
_ENUMS: dict[int, Callable[..., Any]] = {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent}
_TYPES: dict[int, Callable[..., Any]] = {-1: ManifestEntry, _DATA_FILE: DataFile}
_LINE_ENUMS: dict[int, Callable[..., Any]] = {517: ManifestContent}
_LINE_TYPES: dict[int, Callable[..., Any]] = {-1: ManifestFile, 508: PartitionFieldSummary}
R = TypeVar("R")


@dataclass(frozen=True)
class RawEntry:
    """One manifest entry: decoded (with what it inherits from the manifest list) and as its Avro bytes."""

    entry: ManifestEntry
    raw: bytes


@dataclass(frozen=True)
class ManifestContents:
    """A whole manifest: its key-value metadata, the writer's Avro schema as JSON text, and all entries."""

    metadata: Mapping[str, str]
    avro_schema: str
    partition_fields: tuple[NestedField, ...]
    entries: tuple[RawEntry, ...]


class EntryDecoder:
    """Decodes Avro records of manifest entries that were written with one writer schema."""

    def __init__(self, avro_schema: str) -> None:
        try:
            self.schema: Schema = AvroSchemaConversion().avro_to_iceberg(json.loads(avro_schema))
            read_schema = MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION]
            self._reader: Reader = resolve_reader(self.schema, read_schema, _TYPES, _ENUMS)
        except Exception as error:
            raise DamagedFileError(
                f"the manifest's Avro schema is not understood: {foreign_reason(error)}"
            ) from error

    @property
    def partition_fields(self) -> tuple[NestedField, ...]:
        """Fields of the partition struct as the manifest was written, in the order of its record."""
        partition = self.schema.find_type(_PARTITION)
        return partition.fields if isinstance(partition, StructType) else ()

    def read(self, decoder: BinaryDecoder, manifest: ManifestFile) -> ManifestEntry:
        """The next entry of ``decoder``, with what it inherits from its line in the manifest list."""
        entry: ManifestEntry = self._reader.read(decoder)
        return _inherit_from_manifest(entry, manifest)

    def decode(self, raw: bytes, manifest: ManifestFile) -> ManifestEntry:
        """The entry that ``raw`` holds; :class:`DamagedFileError` if the bytes are not exactly one record."""
        decoder = StreamingBinaryDecoder(raw)
        try:
            entry = self.read(decoder, manifest)
        except Exception as error:
            raise DamagedFileError(f"a manifest entry cannot be decoded: {foreign_reason(error)}") from error
        if decoder.tell() != len(raw):
            raise DamagedFileError(
                "a manifest entry does not fill its record", expected=len(raw), found=decoder.tell()
            )
        return entry


@lru_cache(maxsize=64)
def entry_decoder(avro_schema: str) -> EntryDecoder:
    """A (cached) decoder for one writer schema; :class:`DamagedFileError` if it is none of a manifest."""
    return EntryDecoder(avro_schema)


def read_manifests(io: FileIO, manifest_list: str) -> list[ManifestFile]:
    """The lines of a manifest list, read afresh: pyiceberg's own cache answers from other snapshots' lists.

    Raises :class:`DamagedFileError` or :class:`StorageError` naming the manifest list.
    """
    data = read_file(manifest_list, io)
    with _errors_name(manifest_list):
        header, decoder = _decode_header(data)
        schema = MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION]
        reader = resolve_reader(header.get_schema(), schema, _LINE_TYPES, _LINE_ENUMS)
        blocks = _blocks(data, header, decoder)
        return [line for block, count in blocks for line, _ in _records(block, count, reader.read)]


def read_manifest(io: FileIO, manifest: ManifestFile) -> ManifestContents:
    """All entries of a manifest (deleted ones too), read in one open of the whole file.

    Raises :class:`DamagedFileError` or :class:`StorageError` naming the manifest.
    """
    return decode_manifest(read_file(manifest.manifest_path, io), manifest)


def decode_manifest(data: bytes, manifest: ManifestFile) -> ManifestContents:
    """:class:`ManifestContents` of the bytes of a whole manifest file."""
    with _errors_name(manifest.manifest_path):
        header, decoder = _decode_header(data)
        avro_schema = header.meta[_SCHEMA_KEY]
        records = entry_decoder(avro_schema)
        entries = tuple(
            RawEntry(entry, raw)
            for block, count in _blocks(data, header, decoder)
            for entry, raw in _records(block, count, lambda d: records.read(d, manifest))
        )
    return ManifestContents(header.meta, avro_schema, records.partition_fields, entries)


@contextmanager
def _errors_name(path: str) -> Iterator[None]:
    """Only errors of sidecar leave, and they name the file."""
    try:
        yield
    except SidecarError as error:
        error.file = path
        raise
    except ImportError as error:  # a codec of pyiceberg that is not installed
        raise UnsupportedFeatureError(f"cannot decompress: {foreign_reason(error)}", file=path) from error
    except Exception as error:
        raise DamagedFileError(f"the Avro file is broken: {foreign_reason(error)}", file=path) from error


def _decode_header(data: bytes) -> tuple[AvroFileHeader, BinaryDecoder]:
    magic = data[: len(MAGIC)]
    if magic != MAGIC:
        raise DamagedFileError("this is no Avro file", offset=0, expected=MAGIC, found=magic)
    decoder = StreamingBinaryDecoder(data)
    header: AvroFileHeader = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
    if _SCHEMA_KEY not in header.meta:
        raise DamagedFileError("the Avro file names no schema", offset=len(MAGIC))
    return header, decoder


def _blocks(data: bytes, header: AvroFileHeader, decoder: BinaryDecoder) -> Iterator[tuple[bytes, int]]:
    """Each block's decompressed bytes and record count; every block must end with the sync marker."""
    name = header.meta.get(AVRO_CODEC_KEY, "null")
    if name not in KNOWN_CODECS:
        raise UnsupportedFeatureError(f"pyiceberg does not know the Avro codec '{name}'")
    codec = KNOWN_CODECS[name]
    while (start := decoder.tell()) < len(data):
        count = decoder.read_int()
        length = decoder.read_int()
        body = decoder.tell()
        if count < 0 or length < 0 or body + length + SYNC_SIZE > len(data):
            raise DamagedFileError(
                "an Avro block does not fit the file",
                offset=start,
                expected=f"at most {len(data)} bytes",
                found=f"{count} records in {length} bytes from {body}",
            )
        block = decoder.read(length) if length else b""
        if decoder.read(SYNC_SIZE) != header.sync:
            raise DamagedFileError("an Avro block lacks its sync marker", offset=body + length)
        yield codec.decompress(block) if codec else block, count


def _records(block: bytes, count: int, read: Callable[[BinaryDecoder], R]) -> Iterator[tuple[R, bytes]]:
    """Each record of a block, decoded and as its bytes."""
    decoder = StreamingBinaryDecoder(block)
    for _ in range(count):
        start = decoder.tell()
        record = read(decoder)
        yield record, block[start : decoder.tell()]
    if decoder.tell() != len(block):
        raise DamagedFileError(
            "an Avro block is longer than its records", expected=decoder.tell(), found=len(block)
        )


Keep = Callable[[DataFile, int | None], bool]
"""Whether a data file is read; with it comes the sequence number with which it was added, if that is known."""


class Evaluators:
    """pyiceberg's evaluators of one plan, for files of manifests that it does not open."""

    def __init__(self, planner: ManifestGroupPlanner) -> None:
        self._planner = planner
        self._partition = KeyDefaultDict(planner._build_partition_evaluator)
        self.metrics: Callable[[DataFile], bool] = planner._build_metrics_evaluator()

    def partition(self, spec_id: int) -> Callable[[DataFile], bool]:
        """That of the partition values of files of a spec."""
        evaluator: Callable[[DataFile], bool] = self._partition[spec_id]
        return evaluator

    def partition_field_ids(self, spec_id: int) -> list[int] | None:
        """The fields of a spec; ``None`` if their values rule nothing out."""
        if isinstance(self._planner.partition_filters[spec_id], AlwaysTrue):
            return None
        return [field.field_id for field in self._planner.table_metadata.specs()[spec_id].fields]

    def match(self, line: ManifestFile, file: DataFile) -> bool:
        """Whether pyiceberg keeps a data file of a manifest."""
        return bool(self.partition(line.partition_spec_id)(file) and self.metrics(file))


Known = Callable[[list[ManifestFile], Evaluators], Mapping[str, list[ManifestEntry]]]
"""Entries of those manifests, by path, that need not be opened: the live ones that match, in their order."""


def plan_tasks(
    scan: DataScan,
    manifests: Sequence[ManifestFile],
    keep: Keep,
    see: Callable[[ManifestEntry], None] | None = None,
    known: Known | None = None,
    use: ManifestUse | None = None,
) -> list[FileScanTask]:
    """pyiceberg's own scan tasks, those whose data file ``keep`` refuses left out before deletes are matched.

    ``manifests`` are the lines of the snapshot's manifest list, all of them; those that ``known`` answers for are not
    opened. Deletes are matched to files of both by pyiceberg's own index. pyiceberg raises for any equality delete.
    With ``see`` it is shown none: ``see`` gets them, and the data files that are kept. ``use`` is filled in. Where the
    catalog plans on the server, its tasks are taken and only filtered.
    """
    if scan.snapshot() is None:
        return []
    if scan._should_use_server_side_planning():
        return [task for task in scan.plan_files() if keep(task.file, None)]
    planner = _Planner(scan._manifest_planner, known, use or ManifestUse())

    def entry_filter(entry: ManifestEntry) -> bool:
        data = entry.data_file
        if data.content == DataFileContent.DATA:
            if not keep(data, entry.file_sequence_number):
                return False
            planner.kept(entry)
        elif data.content != DataFileContent.EQUALITY_DELETES:
            return True
        if see is not None:
            see(entry)
        return data.content == DataFileContent.DATA or see is None

    return list(planner.plan_files(manifests, manifest_entry_filter=entry_filter))


class _Planner(ManifestGroupPlanner):
    """pyiceberg's planner, told of manifests that need not be opened.

    It differs in one step only, which manifests are read. Given some of the manifests, pyiceberg takes the smallest
    sequence number of these and drops deletes that apply to files of the others; here it is that of the data files
    that are kept, whichever manifests they come from: a delete manifest that is older than all of them has no delete
    that applies, as no entry of it is younger than itself.
    """

    def __init__(self, planner: ManifestGroupPlanner, known: Known | None, use: ManifestUse) -> None:
        super().__init__(
            planner.table_metadata, planner.io, planner.row_filter, planner.case_sensitive, planner.options
        )
        self._known = known
        self._use = use
        self._oldest: int | None = None

    def kept(self, entry: ManifestEntry) -> None:
        """Be told of a data file that is kept; all of them are, before deletes are read."""
        sequence = entry.sequence_number or INITIAL_SEQUENCE_NUMBER
        self._oldest = sequence if self._oldest is None else min(self._oldest, sequence)

    def plan_manifest_entries(self, manifests: Iterable[ManifestFile]) -> Iterator[list[ManifestEntry]]:
        """Entries of the data manifests, in their order, then those of the deletes that may apply to what was kept."""
        lines = list(manifests)
        may_match = KeyDefaultDict(self._build_manifest_evaluator)
        nothing = isinstance(self.row_filter, AlwaysFalse)
        passing = [line for line in lines if not nothing and may_match[line.partition_spec_id](line)]
        data = [line for line in passing if line.content == ManifestContent.DATA]
        self._use.total = sum(line.content == ManifestContent.DATA for line in lines)
        self._use.deletes = len(lines) - self._use.total
        evaluators = Evaluators(self)
        known = self._known(data, evaluators) if self._known and data else {}
        unknown = [line for line in data if line.manifest_path not in known]
        self._use.listed, self._use.opened = len(data) - len(unknown), len(unknown)

        def read(chosen: Sequence[ManifestFile]) -> Iterator[list[ManifestEntry]]:
            asked = [
                (self.io, line, evaluators.partition(line.partition_spec_id), evaluators.metrics)
                for line in chosen
            ]
            return ExecutorFactory.get_or_create().map(lambda args: _open_manifest(*args), asked)

        opened = read(unknown)
        for line in data:
            yield known[line.manifest_path] if line.manifest_path in known else next(opened)
        if self._oldest is not None:
            oldest = self._oldest
            deletes = [line for line in passing if line.content == ManifestContent.DELETES]
            deletes = [line for line in deletes if self._check_sequence_number(oldest, line)]
            self._use.deletes_opened = len(deletes)
            yield from read(deletes)
