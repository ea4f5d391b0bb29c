"""Manifests as bytes and records: what reads them by pyiceberg's private API; its test fails when that changes.

Its counterparts: :mod:`sidecar.planning.task_planner` for plans, :mod:`sidecar.iceberg.snapshot_producer` for writing.

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, KNOWN_CODECS
from pyiceberg.avro.decoder import BinaryDecoder, StreamingBinaryDecoder
from pyiceberg.avro.file import _SCHEMA_KEY, MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
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
from pyiceberg.types import NestedField, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, foreign_reason
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
