"""Counts the files whose bounds and partitions in the manifests admit a value of one column."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import UnknownTransform, VoidTransform
from pyiceberg.types import PrimitiveType

from sidecar.filters.column_types import ColumnType
from sidecar.iceberg.listing import Listing, SnapshotFile
from sidecar.planning.file_bounds import FileBounds
from sidecar.planning.partition_projection import exact_transform
from sidecar.questions.bounds import Comparable
from sidecar.reports.advising.values import literal

ValueRange = tuple[Any, Any]
Partition = tuple[bytes | None, ...]
"""The values of the partition fields that are made of the column, as single-value serializations."""
SpecAndPartition = tuple[int, Partition]
"""A partition spec, and a partition in it."""

_STEPPED = ("integer", "date", "time", "timestamp", "decimal")
"""Families of types whose values are whole numbers of a unit."""


@dataclass
class _Ranges:
    """The ranges of some files. A lookup of the number of ranges that hold a value takes two binary searches."""

    lower: list[Any] = field(default_factory=list)
    upper: list[Any] = field(default_factory=list)
    unknown: int = 0
    """The files without known bounds, which admit every value."""

    def sort(self) -> None:
        self.lower.sort()
        self.upper.sort()

    def overlapping(self, low: Comparable, high: Comparable) -> int:
        """Return the number of files whose range overlaps ``low`` to ``high``."""
        return bisect_right(self.lower, high) - bisect_left(self.upper, low) + self.unknown

    def beside(self, value: Comparable) -> int:
        """Return the number of files whose range holds values just above ``value``."""
        return bisect_right(self.lower, value) - bisect_right(self.upper, value) + self.unknown


class AdmittedFiles:
    """The ranges of a column in all files of a listing."""

    def __init__(
        self, listing: Listing, specs: Mapping[int, PartitionSpec], field_id: int, iceberg_type: PrimitiveType
    ) -> None:
        self._type = iceberg_type
        self._kind = ColumnType.parse(str(iceberg_type))
        self._fields = {
            spec_id: [
                (place, one)
                for place, one in enumerate(spec.fields)
                if one.source_id == field_id and not isinstance(one.transform, VoidTransform | UnknownTransform)
            ]
            for spec_id, spec in specs.items()
        }
        bounds = FileBounds({field_id: str(iceberg_type)})
        self._ranges: dict[int, ValueRange | None] = {}
        """The range of each file that may have values by its ordinal; ``None`` if it is not known."""
        self._groups: dict[SpecAndPartition, _Ranges] = {}
        self._partitions: dict[Comparable, dict[int, Partition]] = {}
        for file in listing.files:
            found = bounds.of(file.data_file, field_id)
            low, high = found.lower[0], found.upper[0]
            # A file without values is kept by no lookup of a value.
            if found.all_null[0]:
                continue
            group = self._groups.setdefault(self._key(file), _Ranges())
            if low is None or high is None:
                group.unknown += 1
                self._ranges[file.ordinal] = None
            else:
                group.lower.append(low)
                group.upper.append(high)
                self._ranges[file.ordinal] = low, high
        for group in self._groups.values():
            group.sort()
        self._keys = {file.ordinal: self._key(file) for file in listing.files}

    def count(self, value: Comparable) -> int:
        """Return the number of files that admit a value."""
        return sum(group.overlapping(value, value) for group in self._groups_of(value))

    def count_beside(self, value: Comparable) -> int:
        """Return the number of files that admit a value that is only just greater and in the same partitions."""
        return sum(group.beside(value) for group in self._groups_of(value))

    def values_between(self) -> int | None:
        """Return how many values the type has from the lowest bound to the highest; ``None`` if it is not known.

        It is known for types whose values are whole numbers of a unit, such as days or cents.
        """
        ranges = [found for found in self._ranges.values() if found is not None]
        if self._kind.family not in _STEPPED or len(ranges) < len(self._ranges) or not ranges:
            return None
        return int(max(high for _, high in ranges) - min(low for low, _ in ranges) + 1)

    def admits(self, file: int, value: Comparable) -> bool:
        """Return whether a file, by its ordinal, admits a value."""
        if file not in self._ranges:
            return False
        spec_id, stored = self._keys[file]
        found = self._ranges[file]
        inside = found is None or bool(found[0] <= value <= found[1])
        return inside and _fits(stored, self._partitions_of(value)[spec_id])

    def overlap(self) -> float | None:
        """Return the share of the other files whose range overlaps that of a file; ``None`` for fewer than two files.

        Partitions are left out of it.
        """
        together = _Ranges()
        for found in self._ranges.values():
            if found is None:
                together.unknown += 1
            else:
                together.lower.append(found[0])
                together.upper.append(found[1])
        together.sort()
        files = len(self._ranges)
        if files < 2:
            return None
        counts = (files if found is None else together.overlapping(*found) for found in self._ranges.values())
        return (sum(counts) - files) / (files * (files - 1))

    def _key(self, file: SnapshotFile) -> SpecAndPartition:
        fields = self._fields.get(file.spec_id, ())
        return file.spec_id, tuple(file.partition[place] for place, _ in fields)

    def _groups_of(self, value: Comparable) -> Iterator[_Ranges]:
        """Yield the ranges of the files in whose partition a value can be."""
        wanted = self._partitions_of(value)
        return (group for (spec_id, stored), group in self._groups.items() if _fits(stored, wanted[spec_id]))

    def _partitions_of(self, value: Comparable) -> dict[int, Partition]:
        """Return the partition values that a value of the column has, by partition spec."""
        if value not in self._partitions:
            given = literal(value, self._kind)
            self._partitions[value] = {
                spec_id: tuple(self._transformed(one, given) for _, one in fields)
                for spec_id, fields in self._fields.items()
            }
        return self._partitions[value]

    def _transformed(self, partition_field: PartitionField, value: Any) -> bytes | None:
        """Return the partition value that a value of the column has; ``None`` if it is not known."""
        transform = exact_transform(partition_field.transform)
        try:
            return to_bytes(transform.result_type(self._type), transform.transform(self._type)(value))  # type: ignore[arg-type]
        except (TypeError, ValueError, struct.error):
            return None


def _fits(stored: Partition, wanted: Partition) -> bool:
    return all(b is None or a == b for a, b in zip(stored, wanted, strict=True))
