"""A segment that is merged: as it is stored, and its sound parts once it was checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sidecar.bundle.field_blob import FieldBlob
from sidecar.bundle.filters.filter_bundle import FilterBundle
from sidecar.bundle.filters.filter_toc import StoredGroup
from sidecar.bundle.indexes.index_toc import GroupKind
from sidecar.bundle.kinds.declared import KIND_OF_BLOB, is_united
from sidecar.bundle.model import Coverage, FieldBounds, UnitEntry
from sidecar.bundle.segment import Segment
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.sketches.sketch_blob import FieldSketches
from sidecar.bundle.toc import TocEntry
from sidecar.errors import DamagedFileError

BlobOfField = tuple[str, int]
"""A blob type and a field id."""


@dataclass(frozen=True)
class SourceSegment:
    """A segment that is carried to a new file. ``keep`` says which of its blobs of fields are."""

    sidecar: SidecarFile
    segment: Segment
    keep: Callable[[TocEntry], bool] = lambda entry: True
    sketches: Sequence[FieldSketches] = ()
    """Sketches of groups that were counted again. ``keep`` leaves out the blobs that they replace."""
    has_damage: bool | None = None
    """Whether filters or indexes are damaged; ``None`` before a check. Damage is not copied."""

    @cached_property
    def entries(self) -> list[TocEntry]:
        """The blobs that are carried: those of fields, then the units blob."""
        return [*filter(self.keep, self.segment.entries[1:]), self.segment.entry]

    @property
    def size(self) -> int:
        """Bytes of the blobs that are carried."""
        return sum(entry.length for entry in self.entries)

    @cached_property
    def blobs(self) -> dict[BlobOfField, FieldBlob[Any]]:
        """The opened blobs of fields that are carried, without those that no key opens (sketches)."""
        wanted = {(entry.blob_type, entry.fields[0]) for entry in self.entries[:-1]}
        opened = {
            (blob_type, field_id): blob
            for blob_type, blobs in self.segment.opened.items()
            for field_id, blob in blobs.items()
            if isinstance(blob, FieldBlob)
        }
        return {key: blob for key, blob in opened.items() if key in wanted}

    @cached_property
    def key_metadata(self) -> dict[int, bytes | None]:
        """The metadata of the key of each field's blobs by field id, ``None`` for plaintext."""
        return {i: None if b.toc.lock is None else b.toc.lock.key_metadata for (_, i), b in self.blobs.items()}

    @property
    def has_its_keys(self) -> bool:
        """Whether all of :attr:`blobs` can be opened with the keys that the sidecar was given."""
        return all(blob.has_key for blob in self.blobs.values())

    @cached_property
    def rates(self) -> dict[int, float | None]:
        """The rate that filters were built for, by field id; ``None`` if it is not known or not the same for all."""
        found: dict[int, float | None] = {}
        for (_, field_id), blob in self.blobs.items():
            if isinstance(blob, FilterBundle):
                found[field_id] = blob.toc.fpp if found.get(field_id, blob.toc.fpp) == blob.toc.fpp else None
        return found

    @property
    def properties(self) -> dict[BlobOfField, Mapping[str, str]]:
        """The properties of each blob of a field in the Puffin footer."""
        stored = {blob.offset: blob.properties for blob in self.sidecar.puffin.metadata.blobs}
        return {(e.blob_type, e.fields[0]): stored.get(e.offset, {}) for e in self.entries[:-1]}

    def damaged_meanwhile(self, what: str, field_id: int) -> DamagedFileError:
        """Return the error for a part of a field's blob that was sound when :func:`check_segment` read it."""
        return DamagedFileError(
            f"{what} came damaged from the storage, and not so a moment ago",
            file=self.sidecar.source.name,
            column=self.sidecar.damage.known_column(field_id),
            hint="Try again; verify finds what is damaged in the file.",
        )

    @property
    def age(self) -> tuple[int, str]:
        """Sorts segments, oldest first: sequence number of the snapshot, and time."""
        return self.segment.header.sequence_number, self.segment.header.created_at


@dataclass(frozen=True)
class CheckedGroup:
    """A group of filters without damage. ``own_blocks`` and ``tails`` are by position."""

    source: SourceSegment
    bundle: FilterBundle
    group: StoredGroup
    own_blocks: npt.NDArray[np.int64]
    tails: Sequence[bytes]


class CheckedEntry(NamedTuple):
    """A sound entry of page or row indexes: what its group shares, and the lengths of its parts in bytes."""

    kind: GroupKind
    lengths: tuple[int, ...]


@dataclass
class CheckedSegment:
    """The parts of a segment that a merge can take. Units are ordinals in the segment."""

    source: SourceSegment
    units: list[tuple[UnitEntry, ...]]
    """The units of each file."""
    recorded: npt.NDArray[np.bool_]
    """bool[files]: whether the file's manifest entry is recorded; not if it has bounds of an encrypted column."""
    first_units: npt.NDArray[np.int64]
    coverage: dict[tuple[int, str], Coverage]
    bounds: dict[int, list[FieldBounds]] = field(default_factory=dict)
    """The bounds of each file, by field id."""
    filters: dict[int, list[CheckedGroup]] = field(default_factory=dict)
    """Groups without damage by field id."""
    entries: dict[BlobOfField, dict[int, CheckedEntry]] = field(default_factory=dict)
    """Sound entries of page and row indexes by unit."""
    damaged: dict[BlobOfField, npt.NDArray[np.bool_]] = field(default_factory=dict)
    """bool[units]: which units have a damaged filter or index. Blobs without damage are not in it."""
    sketches: dict[int, FieldSketches] = field(default_factory=dict)
    """The sound sketches of groups of files by field id. The next build counts the files of the others again."""
    uncountable: dict[int, npt.NDArray[np.bool_]] = field(default_factory=dict)
    """bool[files] by field id: which files are in a group whose sketch is damaged."""
    others: dict[BlobOfField, Any] = field(default_factory=dict)
    """The sound parts of blobs of other kinds, as :meth:`sidecar.bundle.merging.kind_merge.KindMerge.check` finds
    it."""

    @property
    def segment(self) -> Segment:
        """The segment itself."""
        return self.source.segment

    @contextmanager
    def noting_damage(self, key: BlobOfField) -> Iterator[npt.NDArray[np.bool_]]:
        """Give bool[units] of a blob, all ``False``, and note which of them were set."""
        damaged = np.zeros(self.segment.num_units, np.bool_)
        yield damaged
        if damaged.any():
            self.damaged[key] = damaged

    def uncounted(self) -> dict[int, npt.NDArray[np.bool_]]:
        """Return bool[files] by field id: which files were counted, and no sound sketch counts them any more.

        A field whose sketches are left out on purpose is not in it.
        """
        carried = {(entry.blob_type, entry.fields) for entry in self.source.entries}
        united = (entry for entry in self.segment.entries[1:] if KIND_OF_BLOB[entry.blob_type].merges == "united")
        left_out = {entry.fields[0] for entry in united if (entry.blob_type, entry.fields) not in carried}
        found = {}
        for (field_id, kind), coverage in self.coverage.items():
            given = self.sketches.get(field_id)
            if not is_united(kind) or (given is None and field_id in left_out):
                continue
            files = coverage.files_with_entries(self.first_units)
            for group in () if given is None else given.groups:
                files[group.files] = False
            found[field_id] = files
        return found
