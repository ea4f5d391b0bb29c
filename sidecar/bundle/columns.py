"""Names and types of the columns of a sidecar file that is opened without its table.

A sidecar has field ids. It names a column only if the column was found by its name: this is so for data files without
field ids. Other names, and types, are in the table. People can give both, as ``{3: "user_id"}`` or
``{3: "user_id:long"}``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sidecar.bundle.segment import Segment
from sidecar.errors import UsageError
from sidecar.filters.column_types import ColumnType

ID_AND_NAME = "id=name or id=name:type"
_BY_NAME = "name:"
_NAMED = re.compile(r"(\d{1,10})\s*=(.*)", re.ASCII | re.DOTALL)
_COMMA = re.compile(r",(?![^()]*\))")


@dataclass(frozen=True)
class GivenColumn:
    """A name that was given for a field id, and the column's Iceberg type if it was given too."""

    name: str
    type: str | None = None

    @classmethod
    def parse(cls, text: str) -> GivenColumn:
        """Read ``name`` or ``name:type``. Text after the last colon that is not a type is part of the name.

        Raises :class:`UsageError` for an empty name.
        """
        name, colon, last = text.rpartition(":")
        kind = ColumnType.parse(last.strip())
        known = bool(colon) and bool(kind.family)
        found = cls(name.strip(), str(kind)) if known else cls(text.strip())
        if not found.name:
            raise UsageError("the name of a column is empty", found=repr(text))
        return found


class ColumnChoice(NamedTuple):
    """What ``--columns`` says: names by field id, and the columns to show."""

    names: dict[int, str]
    shown: list[str]


def column_choice(texts: Iterable[str]) -> ColumnChoice:
    """Read comma-separated lists of ``id=name`` or ``id=name:type``, which name columns, and of columns to show.

    Commas in parentheses are part of a type. Raises :class:`UsageError` for an empty list and for an id that occurs
    twice.
    """
    names: dict[int, str] = {}
    shown: dict[str, None] = {}
    for item in (item.strip() for text in texts for item in _items(text)):
        found = _NAMED.fullmatch(item)
        if found is None:
            shown[item] = None
        elif (field_id := int(found[1])) in names:
            raise UsageError("a field id is given twice", found=repr(item))
        else:
            names[field_id] = found[2]
    return ColumnChoice(names, list(shown))


def _items(text: str) -> list[str]:
    items = [item for item in _COMMA.split(text) if item.strip()]
    if not items:
        raise UsageError("the list of columns is empty", found=repr(text))
    return items


def columns_from(texts: Iterable[str]) -> dict[int, str]:
    """Read what :func:`column_choice` reads, and return the names by field id.

    Raises :class:`UsageError` for a column without a field id.
    """
    names, shown = column_choice(texts)
    if shown:
        raise UsageError(f"a column is given as {ID_AND_NAME}", found=repr(shown[0]))
    return names


@dataclass(frozen=True)
class NamedColumns:
    """The names of a sidecar's columns by field id: ``given`` by people, ``stored`` in the sidecar."""

    given: Mapping[int, GivenColumn]
    stored: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, segments: Iterable[Segment], given: Mapping[int, str] | None = None) -> NamedColumns:
        """Return the columns of ``segments``. Raises :class:`UsageError` for a malformed name."""
        stored: dict[int, dict[str, None]] = {}
        for segment in segments:
            for field_id, resolution in resolutions_of(segment):
                names = stored.setdefault(field_id, {})
                if resolution.startswith(_BY_NAME):
                    names[resolution.removeprefix(_BY_NAME)] = None
        return cls(
            {field_id: GivenColumn.parse(text) for field_id, text in (given or {}).items()},
            {field_id: tuple(names) for field_id, names in stored.items()},
        )

    def name(self, field_id: int) -> str | None:
        """Return the name of a field's column: the given one, else the first that is stored, else ``None``."""
        if field_id in self.given:
            return self.given[field_id].name
        return next(iter(self.stored.get(field_id, ())), None)

    def type(self, field_id: int) -> str | None:
        """Return the type that was given for a field's column, if any."""
        return self.given[field_id].type if field_id in self.given else None

    def find(self, column: str, file: str) -> list[int]:
        """Return the field ids with indexes whose column has this name, or the one field whose id is this text.

        Raises :class:`UsageError`, which names the columns that there are, if there is none.
        """
        found = [field_id for field_id in self.stored if column in self._names(field_id)]
        if not found and column.isdecimal() and len(column) <= 10 and int(column) in self.stored:
            found = [int(column)]
        if not found:
            raise UsageError(f"the sidecar has no column '{column}'", file=file, hint=self._hint(column))
        return found

    def _names(self, field_id: int) -> set[str]:
        """Return all names of a field. In a table's sidecar, a stored path ends at the first bar."""
        if field_id in self.given:
            return {self.given[field_id].name}
        return {name for path in self.stored[field_id] for name in (path, path.split("|")[0])}

    def _hint(self, column: str) -> str:
        names = [name for field_id in self.stored if (name := self.name(field_id)) is not None]
        unnamed = [field_id for field_id in self.stored if self.name(field_id) is None]
        near = difflib.get_close_matches(column, names)
        if near:
            return f"Did you mean {' or '.join(near)}?"
        parts = [f"It has: {', '.join(names[:20])}."] if names else []
        if unnamed:
            ids = ", ".join(map(str, unnamed[:20]))
            parts.append(
                f"The file does not name the fields {ids}: ask by id, or name one (--columns {unnamed[0]}={column})."
            )
        return " ".join(parts) or "It has no indexes."


def resolutions_of(segment: Segment) -> Iterator[tuple[int, str]]:
    """Yield (field id, how the column was found) of each group of indexes in a segment."""
    for field_id in segment.fields:
        yield from ((field_id, group.resolution) for group in segment.groups_of(field_id))
    for blobs in (segment.page_index_blobs, segment.row_index_blobs):
        for field_id, blob in blobs.items():
            yield from ((field_id, group.kind.resolution) for group in blob.toc.groups)
