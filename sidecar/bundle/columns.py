"""Names and types of the columns of a sidecar file that is opened without its table.

Each blob of a field names its column as it was when the blob was written, except for columns that are encrypted in a
data file. The newest segment that names a column is believed. Field ids decide, names are for people: a column can have
been renamed since, or another one can have its name now.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sidecar.bundle.model import BY_NAME, NO_TABLE, StoredColumn
from sidecar.bundle.segment import Segment, by_age
from sidecar.errors import UsageError


@dataclass(frozen=True)
class NamedColumns:
    """The columns of a sidecar that have indexes, by field id."""

    stated: Mapping[int, tuple[int, StoredColumn]]
    """The name and type of a column in the newest segment that names it, with the segment's place by age."""
    paths: Mapping[int, tuple[str, ...]]
    """The paths by which columns were found in data files without field ids; empty for others."""
    are_of_table: bool = False
    """Whether all segments are of a table."""

    @classmethod
    def of(cls, segments: Iterable[Segment]) -> NamedColumns:
        """Return the columns of ``segments``."""
        stated: dict[int, tuple[int, StoredColumn]] = {}
        paths: dict[int, dict[str, None]] = {}
        segments = by_age(segments)
        for age, segment in enumerate(segments):
            stated |= {i: (age, column) for i, column in segment.columns.items() if column is not None}
            for field_id, resolution in resolutions_of(segment):
                found = paths.setdefault(field_id, {})
                if resolution.startswith(BY_NAME):
                    # A table's name mapping has several paths, with bars between them.
                    found |= dict.fromkeys(resolution.removeprefix(BY_NAME).split("|")[:1])
        are_of_table = all(segment.header.table_uuid != NO_TABLE for segment in segments)
        return cls(stated, {field_id: tuple(found) for field_id, found in paths.items()}, are_of_table)

    def name(self, field_id: int) -> str | None:
        """Return the name of a field's column, else the first path by which it was found, else ``None``."""
        if field_id in self.stated:
            return self.stated[field_id][1].name
        return next(iter(self.paths.get(field_id, ())), None)

    def type(self, field_id: int) -> str | None:
        """Return the Iceberg type of a field's column, ``None`` if it is not stated."""
        return (self.stated[field_id][1].type or None) if field_id in self.stated else None

    def table_type(self, field_id: int) -> str | None:
        """Return :meth:`type` if it is a table's; a plain file can have texts in a column of type binary."""
        return self.type(field_id) if self.are_of_table else None

    def matching(self, column: str | int) -> list[int]:
        """Return the fields with indexes that ``column`` means: the one with this id, else those with this name.

        Of several with one name, those count that the newest segment names so. Files without a table may have several.
        """
        is_id = isinstance(column, int) or (column.isdecimal() and column.isascii() and len(column) <= 10)
        if is_id and int(column) in self.paths:
            return [int(column)]
        named = [field_id for field_id in self.paths if self.name(field_id) == column]
        newest = max((self.stated[i][0] for i in named if i in self.stated), default=None)
        return [i for i in named if i not in self.stated or self.stated[i][0] == newest]

    def find(self, column: str | int, file: str) -> list[int]:
        """Return :meth:`matching`. If it is empty, raise :class:`UsageError`, which names the columns of the
        sidecar."""
        found = self.matching(column)
        if not found:
            raise UsageError(f"the sidecar has no column '{column}'", file=file, hint=self._hint(str(column)))
        return found

    def _hint(self, column: str) -> str:
        names = [name for field_id in self.paths if (name := self.name(field_id)) is not None]
        unnamed = [field_id for field_id in self.paths if self.name(field_id) is None]
        near = difflib.get_close_matches(column, names)
        if near:
            return f"Did you mean {' or '.join(near)}?"
        parts = [f"It has: {', '.join(names[:20])}."] if names else []
        if unnamed:
            parts.append(f"The file does not name the fields {', '.join(map(str, unnamed[:20]))}: ask by id.")
        return " ".join(parts) or "It has no indexes."


def resolutions_of(segment: Segment) -> Iterator[tuple[int, str]]:
    """Yield (field id, how the column was found) of each group of indexes in a segment."""
    for blob in segment.blobs:
        yield from ((blob.toc.field_id, group.resolution) for group in blob.toc.groups)
