"""Defines what readers need of an open data file; a module for each format implements it.

A file is divided into *units*, which get an index each: row groups in Parquet, row groups (strides) in ORC, numbered
over the file. Columns are decoded by *parts*: row groups in Parquet, stripes in ORC.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sidecar.bundle.filters.filter_toc import StoredGroup
    from sidecar.bundle.filters.rules import AnyFilter, IndexRule
    from sidecar.bundle.indexes.row_indexes import EntryKind
    from sidecar.bundle.kinds.declared import IndexKind
    from sidecar.bundle.model import UnitEntry
    from sidecar.data_files.chunk_check import ChunkCheck
    from sidecar.filters.block_filter import BlockFilter
    from sidecar.filters.layouts import ArrayLike
    from sidecar.filters.leaf import ComparedColumn
    from sidecar.filters.probes import AnyEncoding
    from sidecar.questions.bounds import Bounds, Unknown
    from sidecar.questions.value_check import ValueCheck
    from sidecar.storage.source import Source


class DataLeaf(Protocol):
    """A leaf column of a file. Paths have Parquet's style in both formats: ``a.list.element``, ``m.key_value.key``."""

    @property
    def index(self) -> int:
        """The number of the column: Parquet counts leaves, ORC has ids of columns."""

    @property
    def path(self) -> str:
        """The dotted path in the file."""

    @property
    def own_path(self) -> str:
        """The path in the style of the file's format, for messages: ``a.element`` in ORC."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of :attr:`own_path`."""

    @property
    def iceberg_type(self) -> str:
        """The Iceberg type of the column by the file alone; empty if there is none."""

    @property
    def field_id(self) -> int | None:
        """The field id in the file, ``None`` without one."""


def unique_leaves(leaves: Sequence[Any]) -> dict[str, Any]:
    """Return leaves by their paths in the style of their format, without those that share theirs with another one."""
    times = Counter(leaf.own_path for leaf in leaves)
    return {leaf.own_path: leaf for leaf in leaves if times[leaf.own_path] == 1}


@dataclass(frozen=True)
class PartValues:
    """Some values of a part of a file."""

    unit: int
    """The number of the unit in the part."""
    values: ArrayLike
    is_run_of_rows: bool
    """Whether they are the values of consecutive rows, and as many as a page may have."""


@dataclass(frozen=True)
class OwnIndex:
    """An index of a unit that the file itself has."""

    unit: int
    leaf: Any
    kind: IndexKind
    is_sound: bool
    """Whether it can be believed."""
    filter: AnyFilter | BlockFilter | None = None
    encoding: str = ""
    """The encoding of the filter."""
    pieces: tuple[bytes, ...] = ()
    """The bytes of a page index or row index, as a sidecar keeps them."""
    reason: str = ""
    """The reason not to believe the index, or the parts of it that are left out."""
    damaged: bool = False
    """Whether broken bytes are the reason."""


class ColumnPart(Protocol):
    """A leaf column of a part of a file, whose indexes are compared with its values.

    Units are asked for in rising order, because values are decoded once. All methods raise the errors of reading.
    """

    def filter_problems(self, unit: int, found: AnyFilter, encoding: AnyEncoding, check: ValueCheck) -> Iterator[str]:
        """Yield the problems of a filter of ``encoding`` that denies values of a unit; ``check`` counts these."""

    def index_problems(self, unit: int, stored: Any, is_proven: bool, check: ValueCheck) -> Iterator[str]:
        """Yield what contradicts a page index or row index of a unit out of a sidecar.

        ``is_proven`` says that the file is certainly the one that was indexed.
        """

    def first_values(self, found: OwnIndex) -> ChunkCheck | None:
        """Compare one of the file's own indexes with the first values; ``None`` if that is not cheap."""


class OpenFile(Protocol):
    """An open data file whose metadata was read. Close it; the source stays open."""

    source: Source
    """Where the file is read from. An encrypted Parquet file is shown as a plain one."""
    name: str
    size: int
    num_rows: int
    leaves: Sequence[Any]
    """All leaf columns of the file, each a :class:`DataLeaf`."""
    page_sizes: list[int]
    """The sizes of the pages that were met, in bytes as stored."""

    @property
    def index_blobs(self) -> str:
        """The type of the blobs that have page indexes (row indexes) of files of the format."""

    @property
    def units(self) -> Sequence[UnitEntry]:
        """The units of the file, in order."""

    @property
    def parts(self) -> int:
        """The number of parts."""

    def part_units(self, part: int) -> range:
        """Return the numbers of the units of a part."""

    def is_encrypted(self, leaf: Any) -> bool:
        """Return whether the leaf is encrypted in the file, with or without its key at hand."""

    def is_locked(self, leaf: Any) -> bool:
        """Return whether the leaf is encrypted and its key is missing."""

    def has_index(self, part: int, leaf: Any, kind: IndexKind) -> bool:
        """Return whether the file has an index of a column of a part, or may have one that is locked."""

    def own_indexes(self, part: int, leaves: Sequence[Any], kinds: Collection[IndexKind]) -> Iterator[OwnIndex]:
        """Yield the file's own indexes of some leaves in a part. Raises the errors of reading, but not of damage."""

    def index_kind(self, part: int, leaf: Any, resolution: str) -> EntryKind:
        """Return what a sidecar records of the page indexes or row indexes of a leaf."""

    def filter_bytes(self, part: int, leaf: Any) -> int | None:
        """Return the bytes of the file's own filters of a column of a part: 0 if they are unknown, ``None`` without
        filters."""

    def part_size(self, part: int) -> int:
        """Return the size of a part in bytes, as stored."""

    def cost(self, part: int, leaf: Any) -> int:
        """Return the bytes that :meth:`values` reads of a column of a part."""

    def values(self, part: int, leaf: Any, iceberg_type: str) -> Iterator[PartValues]:
        """Yield the values of a column of a part. Raises the errors of reading."""

    def number_of(self, path: str) -> int:
        """Return the number of the column with this path. Raises :class:`UsageError` for an unknown one."""

    def check_embeddable(self) -> None:
        """Raise :class:`UnsupportedFeatureError` for a file that cannot be rewritten with other indexes."""

    def can_hold(self, rule: IndexRule) -> bool:
        """Return whether files of the format can have filters of this kind."""

    def may_have_new_filters(self, leaf: Any) -> bool:
        """Return whether new filters may be built for the leaf."""

    def values_size(self, part: int, leaf: Any) -> int:
        """Return the bytes of a leaf's values in a part, as stored."""

    def fits(self, leaf: Any, made: StoredGroup | EntryKind) -> bool:
        """Return whether an index of a sidecar with this description can be one of the leaf's values."""

    def column_part(self, part: int, leaf: Any) -> ColumnPart:
        """Return a leaf column of a part, to compare indexes with its values."""

    def page_bounds(self, part: int, leaf: Any) -> Bounds | None:
        """Return the bounds of the pages of a column of a part, if the file has a page index for it."""

    def compared(self, leaf: Any, iceberg_type: str) -> ComparedColumn:
        """Return what bounds are compared as. Raises :class:`UnsupportedFeatureError` if they cannot be compared."""

    def stated_bounds(self, leaf: Any) -> Iterator[tuple[str, Bounds | Unknown]]:
        """Yield where bounds of a column are, and what the file says there, believed or not."""

    def doubt(self, leaf: Any, iceberg_type: str, values: Iterable[Any]) -> str:
        """Return why readers may disagree on where a column has one of ``values``; empty if they agree."""

    @property
    def is_unique(self) -> bool:
        """Whether no other file has the fingerprint, as for encrypted files."""

    def fingerprint(self) -> bytes:
        """Return 16 bytes that are the same for all files with the same data, wherever their indexes are."""

    def is_distinctive(self) -> bool:
        """Return whether the fingerprint tells files of the same shape apart."""

    def digest(self, *, check: bool) -> bytes:
        """Return the digest of all stored values. It is empty for an encrypted file. A second call reads nothing.

        With ``check``, raises :class:`sidecar.errors.WrongChecksumError` for a page that is not as it was written.
        """

    def close(self) -> None:
        """Close what was opened for decoding."""
