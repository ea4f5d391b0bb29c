"""The data of a segment: what the build writes about a table's files and planning reads back.

Files are in the order of the listed manifests, with the live files of one manifest side by side. A file's ordinal is
its place in that order. Units are in the order of the files; a unit's ordinal is its place among all units.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.filters.encoding import OF_BOOLEANS

NO_TABLE = str(uuid.UUID(int=0))
"""The table UUID of a sidecar of plain files."""
BY_ID, BY_NAME = "id", "name:"
"""Resolutions: how a column was found in a file. Paths follow the second one, with bars between them."""
UNLISTED = -1
"""The manifest ordinal of files whose manifest is not listed. These files come last."""


class UnitState(str, Enum):
    """States of a (unit, field, kind) that code recognises, as they are written into the coverage.

    Any other state is a text: the reason why there is no entry.
    """

    INDEXED = "indexed"
    """There is an entry."""
    ENCRYPTED = "the column is encrypted"
    """The key of the column is not at hand."""
    REFUSED = "the column is encrypted, and nothing of it goes into a plaintext sidecar unasked"
    """The column could be read, but the caller did not allow plaintext."""
    ABSENT = "column absent from the file"
    BOOLEANS = OF_BOOLEANS
    """The column has two values, of which no filter is built."""
    NOT_BUILT = "no index was built"
    """The file was listed for other columns or kinds."""
    DAMAGED = "the index was damaged"
    """The entry was left out when segments were merged, because it was damaged."""

    __str__ = str.__str__


class UnitEntry(NamedTuple):
    """A row group: its ordinal in the file, the row number of its first row in the file, and its number of rows."""

    row_group: int
    first_row: int
    rows: int


class FieldBounds(NamedTuple):
    """Statistics of one field in a manifest entry: serialized values and counts, ``None`` where they are missing.

    The values are bounds, which may be cut short.
    """

    lower: bytes | None = None
    upper: bytes | None = None
    value_count: int | None = None
    null_count: int | None = None
    nan_count: int | None = None


@dataclass(frozen=True)
class FileEntry:
    """A data file as its manifest has it; ``identity`` is compared with a live file.

    ``entry`` is the bytes of the Avro record. ``manifest`` is the ordinal of a listed manifest or :data:`UNLISTED`.
    ``partition`` has the serialized single values of the partition tuple, ``bounds`` those of the fields by id.
    """

    identity: DataFileIdentity
    spec_id: int
    manifest: int
    entry: bytes
    units: tuple[UnitEntry, ...]
    partition: tuple[bytes | None, ...] = ()
    bounds: Mapping[int, FieldBounds] = field(default_factory=dict, hash=False)

    @property
    def path(self) -> str:
        """The path of the file, spelt as in the manifest."""
        return self.identity.path


@dataclass(frozen=True)
class ListedManifest:
    """A manifest whose live entries are all in the segment: ``live_files`` files from ``first_file`` on.

    ``schema`` is the ordinal of the Avro schema of its entries.
    """

    path: str
    length: int
    spec_id: int
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int
    live_files: int
    live_rows: int
    first_file: int
    schema: int
    content: int = 0


class CoverageState(NamedTuple):
    """State of a (unit, field, kind): a :class:`UnitState` or the reason why not, and how the column was found."""

    state: str
    resolution: str = ""


@dataclass(frozen=True)
class Coverage:
    """States of all units of a segment for one field and kind (``bloom``, ``theta``, ...).

    ``codes``: int32[units], indexes into ``states``.
    """

    field_id: int
    kind: str
    states: tuple[CoverageState, ...]
    codes: npt.NDArray[np.int32] = field(repr=False)

    @classmethod
    def of(cls, field_id: int, kind: str, units: Iterable[CoverageState]) -> Coverage:
        """Build the coverage from one state for each unit, in unit order."""
        places: dict[CoverageState, int] = {}
        codes = [places.setdefault(CoverageState(*state), len(places)) for state in units]
        return cls(field_id, kind, tuple(places), np.array(codes, np.int32))

    @property
    def indexed(self) -> npt.NDArray[np.bool_]:
        """bool[units]: which units have an entry."""
        return self.units_in({UnitState.INDEXED})

    def units_in(self, states: Collection[str]) -> npt.NDArray[np.bool_]:
        """Return bool[units]: which units are in one of these states."""
        chosen = np.array([state.state in states for state in self.states], np.bool_)
        return chosen[self.codes] if len(chosen) else np.zeros(len(self.codes), np.bool_)

    def files_with_entries(self, first_units: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return bool[files]: which files have a unit with an entry.

        ``first_units``: int64[files + 1], the units of file i are ``[first_units[i], first_units[i + 1])``.
        """
        before = np.concatenate(([0], np.cumsum(self.indexed)))
        return np.asarray(before[first_units[1:]] > before[first_units[:-1]])

    def counts(self) -> dict[str, int]:
        """Return the number of units by state."""
        counts: dict[str, int] = {}
        for state, count in zip(self.states, np.bincount(self.codes, minlength=len(self.states)), strict=True):
            counts[state.state] = counts.get(state.state, 0) + int(count)
        return counts


class StoredColumn(NamedTuple):
    """A column in a sidecar, for people: its ``path``, outermost name first, and its Iceberg type."""

    path: tuple[str, ...]
    type: str

    @property
    def name(self) -> str:
        """The names of the path joined by dots."""
        return ".".join(self.path)


@dataclass(frozen=True)
class SegmentHeader:
    """Identity of a segment. ``segment_id`` is 16 random bytes; ``created_at`` is ISO 8601 in UTC."""

    table_uuid: str
    snapshot_id: int
    sequence_number: int
    created_at: str
    segment_id: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    columns: Mapping[int, StoredColumn] = field(default_factory=dict, hash=False, compare=False)
    """Columns to name in plaintext blobs, by field id: none of them is encrypted in a data file. Readers leave it
    empty, see :attr:`sidecar.bundle.segment.Segment.columns`."""


@dataclass(frozen=True)
class UnitsTable:
    """The content of a units blob, apart from the identity of its segment."""

    files: Sequence[FileEntry]
    manifests: Sequence[ListedManifest] = ()
    schemas: Sequence[str] = ()
    coverage: Sequence[Coverage] = ()

    @property
    def num_units(self) -> int:
        """Units of all files."""
        return sum(len(file.units) for file in self.files)
