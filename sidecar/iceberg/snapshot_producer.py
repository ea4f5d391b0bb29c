"""Writes and commits a snapshot with the operation ``replace``, which pyiceberg does not support.

Only format version 2 is supported.

Each manifest with replaced files becomes two new ones:

- The first has the replaced files as DELETED and all other files as EXISTING, with unchanged sequence numbers.
- The second has the new files as ADDED **with the data sequence number of the file that they replace**. So commits in
  between, above all deletes, apply to the new files as they applied to the old ones. The file sequence number is
  inherited from the new snapshot, as for every ADDED entry.

Partition records are written with the types in the old manifest. The spec alone no longer gives the types if a source
column was dropped.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from pydantic import PrivateAttr
from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DataFile,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    Summary,
    UpdateMetrics,
    update_snapshot_summaries,
)
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StructType

from sidecar.dependencies.pyiceberg import apply_updates
from sidecar.errors import DamagedFileError
from sidecar.iceberg.manifests import ManifestContents
from sidecar.iceberg.table_properties import location_provider_of

FORMAT_VERSION: Literal[2] = 2
_FIELDS = {part.name: position for position, part in enumerate(DATA_FILE_TYPE[FORMAT_VERSION].fields)}
_CHANGED_PARTITIONS = "changed-partition-count"


@dataclass(frozen=True)
class NewFile:
    """The fields in which the entry of a new file differs from that of the file that it replaces."""

    path: str
    size: int
    split_offsets: tuple[int, ...] | None


class ReplaceProducer:
    """One attempt to commit a ``replace`` to the ``main`` branch of ``table``, in the loaded version."""

    def __init__(self, table: Table, parent: Snapshot) -> None:
        self._table = table
        self._parent = parent
        self.snapshot_id = table.metadata.new_snapshot_id()
        self.sequence_number = table.metadata.next_sequence_number()
        self.may_be_committed = False
        """Whether the commit was tried and is not known to have failed, so that no file of it may be deleted."""
        self._uuid = uuid.uuid4()
        self._list = ""
        self._written: list[str] = []
        self._metrics = UpdateMetrics()
        self._partitions: set[tuple[int, str]] = set()

    def replace(
        self, line: ManifestFile, contents: ManifestContents, new_files: Mapping[str, NewFile]
    ) -> list[ManifestFile]:
        """Write the two manifests that replace the manifest ``line``, and return their lines for the manifest list."""
        spec, order = _spec_as_written(self._table, line, contents)
        live = [e.entry for e in contents.entries if e.entry.status != ManifestEntryStatus.DELETED]
        added = self._manifest(spec, lambda writer: self._write_added(writer, live, new_files, order))
        rest = self._manifest(spec, lambda writer: self._write_rest(writer, live, new_files, order))
        return [added, rest]

    def write_list(self, lines: Iterable[ManifestFile]) -> None:
        """Write the manifest list."""
        self._list = path = self._new_path(f"snap-{self.snapshot_id}-0-{self._uuid}.avro")
        with write_manifest_list(
            format_version=FORMAT_VERSION,
            output_file=self._table.io.new_output(path),
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=self._parent.snapshot_id,
            sequence_number=self.sequence_number,
            avro_compression=self._compression(),
        ) as writer:
            writer.add_manifests(list(lines))

    def commit(self) -> None:
        """Commit on the condition that ``main`` has not changed. Raises the errors of pyiceberg."""
        metadata = self._table.metadata
        parent, main = self._parent.snapshot_id, metadata.refs[MAIN_BRANCH]
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": self.snapshot_id,
                "parent-snapshot-id": parent,
                "sequence-number": self.sequence_number,
                "manifest-list": self._list,
                "summary": self._summary(),
                "schema-id": metadata.current_schema_id,
            }
        )
        kept = main.model_dump(by_alias=True)  # retention settings of the branch
        head = SetSnapshotRefUpdate.model_validate({**kept, "ref-name": MAIN_BRANCH, "snapshot-id": self.snapshot_id})
        unmoved = AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": parent})
        with self._table.transaction() as transaction:
            apply_updates(transaction, (AddSnapshotUpdate(snapshot=snapshot), head), (unmoved,))

    def delete_written(self) -> None:
        """Delete the manifests and the manifest list of an attempt that certainly failed."""
        for path in self._written:
            with contextlib.suppress(Exception):  # orphan metadata files do no harm
                self._table.io.delete(path)
        self._written.clear()

    def _new_path(self, name: str) -> str:
        path = location_provider_of(self._table).new_metadata_location(name)
        self._written.append(path)
        return path

    def _compression(self) -> AvroCompressionCodec:
        return cast(
            AvroCompressionCodec,
            self._table.metadata.properties.get(
                TableProperties.WRITE_AVRO_COMPRESSION, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT
            ),
        )

    def _manifest(self, spec: PartitionSpec, write: Callable[[ManifestWriter], None]) -> ManifestFile:
        path = self._new_path(f"{self._uuid}-m{len(self._written)}.avro")
        with write_manifest(
            format_version=FORMAT_VERSION,
            spec=spec,
            schema=self._table.schema(),
            output_file=self._table.io.new_output(path),
            snapshot_id=self.snapshot_id,
            avro_compression=self._compression(),
        ) as writer:
            write(writer)
        return writer.to_manifest_file()

    def _write_added(
        self,
        writer: ManifestWriter,
        live: Sequence[ManifestEntry],
        new_files: Mapping[str, NewFile],
        order: Sequence[int],
    ) -> None:
        for entry in live:
            new = new_files.get(entry.data_file.file_path)
            if new is not None:
                file = _copy(entry.data_file, order)
                file[_FIELDS["file_path"]] = new.path
                file[_FIELDS["file_size_in_bytes"]] = new.size
                file[_FIELDS["split_offsets"]] = None if new.split_offsets is None else [*new.split_offsets]
                writer.add(_entry(ManifestEntryStatus.ADDED, self.snapshot_id, entry.sequence_number, None, file))
                self._metrics.add_file(file)
                self._partitions.add((file.spec_id, repr(file.partition)))

    def _write_rest(
        self,
        writer: ManifestWriter,
        live: Sequence[ManifestEntry],
        new_files: Mapping[str, NewFile],
        order: Sequence[int],
    ) -> None:
        for entry in live:
            file = _copy(entry.data_file, order)
            numbers = entry.sequence_number, entry.file_sequence_number
            if file.file_path in new_files:
                writer.delete(_entry(ManifestEntryStatus.DELETED, self.snapshot_id, *numbers, file))
                self._metrics.remove_file(file)
            else:
                writer.existing(_entry(ManifestEntryStatus.EXISTING, entry.snapshot_id, *numbers, file))

    def _summary(self) -> Summary:
        """Return the summary. pyiceberg computes totals for an overwrite, which are the same for a replace."""
        changed = {_CHANGED_PARTITIONS: str(len(self._partitions))} if self._partitions else {}
        counted = Summary(Operation.OVERWRITE, **self._metrics.to_dict(), **changed)
        totals = update_snapshot_summaries(counted, self._parent.summary)
        return Summary(Operation.REPLACE, **totals.additional_properties)


def is_live(line: ManifestFile) -> bool:
    """Return whether a manifest has live files. One with DELETED entries only is not carried over."""
    return line.has_added_files() or line.has_existing_files()


class _SpecAsWritten(PartitionSpec):
    """A spec with the partition type of an existing manifest."""

    _type: StructType = PrivateAttr(default_factory=StructType)

    def partition_type(self, schema: Schema) -> StructType:
        """Return the partition type of the existing manifest; ``schema`` is not used."""
        return self._type


def _spec_as_written(table: Table, line: ManifestFile, contents: ManifestContents) -> tuple[PartitionSpec, list[int]]:
    """Return the spec of a manifest, and the position of each spec field in the manifest's partition records."""
    spec = table.metadata.specs()[line.partition_spec_id]
    positions = {part.field_id: position for position, part in enumerate(contents.partition_fields)}
    if positions.keys() != {part.field_id for part in spec.fields}:
        raise DamagedFileError(
            "the fields of a manifest's partition record differ from its spec",
            file=line.manifest_path,
            expected=sorted(part.field_id for part in spec.fields),
            found=sorted(positions),
        )
    order = [positions[part.field_id] for part in spec.fields]
    types = [contents.partition_fields[position].field_type for position in order]
    written = _SpecAsWritten.model_validate({"spec-id": spec.spec_id, "fields": spec.fields})
    written._type = StructType(
        *(
            NestedField(part.field_id, part.name, kind, required=False)
            for part, kind in zip(spec.fields, types, strict=True)
        )
    )
    return written, order


def _copy(file: DataFile, order: Sequence[int]) -> DataFile:
    copied = DataFile(*(file[position] for position in range(len(_FIELDS))))
    copied[_FIELDS["partition"]] = Record(*(file.partition[position] for position in order))
    copied.spec_id = file.spec_id
    return copied


def _entry(
    status: ManifestEntryStatus,
    snapshot_id: int | None,
    sequence_number: int | None,
    file_sequence_number: int | None,
    file: DataFile,
) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=sequence_number,
        file_sequence_number=file_sequence_number,
        data_file=file,
    )
