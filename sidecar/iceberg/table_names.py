"""Names of tables and globs as text: parts with dots between them, ``namespace.table``.

A part in backticks or double quotes is taken as it is: ``db.`a.b``` and ``db."a.b"`` are the table ``a.b`` in ``db``,
and ``db.a.b`` is the table ``b`` in ``db.a``. A quote in a quoted part is doubled. Everywhere else a name is a tuple of
parts, as in pyiceberg. :func:`shown_name` makes the text that is printed, and :func:`name_of_text` reads it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from sidecar.errors import UsageError
from sidecar.many_files.find import GLOB_CHARACTERS, has_data_ending

if TYPE_CHECKING:
    from pyiceberg.table import Table

TableName: TypeAlias = tuple[str, ...]
"""The parts of a table's name: the levels of its namespace, and its own name."""

METADATA_FILE = ".metadata.json"
"""The ending of metadata files, each of which is one version of a table."""

STATIC = "static-table"
"""The first part of the name that pyiceberg gives to a version in a metadata file. The second part is the path."""

ANY_NAMESPACES = "**"
_PART = re.compile(r'`((?:[^`]|``)*)`|"((?:[^"]|"")*)"|([^.`"][^.]*)')
_TO_QUOTE = re.compile(r'[`"-]|.*[.*?\[/]', re.DOTALL)
"""Parts that would be read as something else: an option, two parts, a glob, a path."""


@dataclass(frozen=True)
class NamePart:
    """A part of a name or a glob."""

    text: str
    is_quoted: bool

    @property
    def is_glob(self) -> bool:
        """Whether it stands for several names."""
        return not self.is_quoted and GLOB_CHARACTERS.search(self.text) is not None

    @property
    def typed(self) -> str:
        """The part as it is typed."""
        return _quoted(self.text) if self.is_quoted else self.text

    @property
    def is_any_depth(self) -> bool:
        """Whether it stands for any number of parts."""
        return not self.is_quoted and self.text == ANY_NAMESPACES

    def matches(self, name: str) -> bool:
        """Return whether the pattern matches this part of a name."""
        return name == self.text or (self.is_glob and fnmatchcase(name, self.text))


ANY_NAME = NamePart("*", is_quoted=False)


@lru_cache(maxsize=1024)
def parts_of(text: str) -> tuple[NamePart, ...]:
    """Return the parts of a name or a glob. Raises :class:`UsageError` if the text is none."""
    found = _split(text)
    if found is None:
        raise _no_name(text, "Write it as namespace.table, a part with a dot in backticks (db.`a.b`)")
    return found


def _no_name(text: str, forms: str) -> UsageError:
    hint = f"{forms}, and a file as ./name."
    if "/" in text and os.path.isdir(text):
        place = os.path.join(text, "metadata", "<version>.metadata.json")
        hint = f"It is a folder. Name the table as its catalog does, or by its metadata file: {place}."
    return UsageError(f"'{text}' is not a table name", hint=hint)


def _split(text: str) -> tuple[NamePart, ...] | None:
    parts: list[NamePart] = []
    position = 0
    while (found := _PART.match(text, position)) is not None:
        backticks, double, plain = found.groups()
        if plain is not None:
            parts.append(NamePart(plain, is_quoted=False))
        elif backticks is not None:
            parts.append(NamePart(backticks.replace("``", "`"), is_quoted=True))
        else:
            parts.append(NamePart(double.replace('""', '"'), is_quoted=True))
        position = found.end()
        if position == len(text):
            return tuple(parts)
        if text[position] != ".":
            return None
        position += 1
    return None


def is_metadata_file(text: str) -> bool:
    """Return whether a text names a metadata file, and no table of a catalog."""
    return text.endswith(METADATA_FILE)


def is_table_glob(text: str) -> bool:
    """Return whether a text is a glob of tables."""
    parts = None if is_metadata_file(text) else _split(text)
    return parts is not None and any(part.is_glob for part in parts)


def is_quoted_name(text: str) -> bool:
    """Return whether a text is the name of a table with a part in quotes. A path has slashes outside of quotes."""
    parts = _split(text) or ()
    is_path = any("/" in part.text for part in parts if not part.is_quoted)
    return len(parts) > 1 and not is_path and any(part.is_quoted for part in parts)


def refuse_data_file(text: str) -> None:
    """Raise :class:`UsageError` for the path or glob of data files where a table is named."""
    if has_data_ending(text) and ("/" in text or os.path.exists(text)) and not is_quoted_name(text):
        hint = "Commands for files: scan FILE PREDICATE, probe, inspect, verify, embed."
        raise UsageError("the command is for tables, and files were given", found=text, hint=hint)


def name_of_text(text: str) -> TableName:
    """Return the name that a text says. Raises :class:`UsageError` for a text without a namespace and for a file."""
    refuse_data_file(text)
    parts = parts_of(text)
    if len(parts) < 2:
        raise _no_name(text, f"Write it as namespace.table, all tables of a namespace as '{text}.*'")
    return tuple(part.text for part in parts)


def shown_name(name: TableName) -> str:
    """Return a name as text that, typed as an argument, names this table and nothing else."""
    text = ".".join(_quoted(part) if not part or _TO_QUOTE.match(part) else part for part in name)
    if has_data_ending(text) or is_metadata_file(text):
        text = f"{text.removesuffix(name[-1])}{_quoted(name[-1])}"
    return text


def _quoted(part: str) -> str:
    return "`" + part.replace("`", "``") + "`"


def name_of(table: Table) -> str:
    """Return the name of an open table as text; of a version in a metadata file, the path of the file."""
    name = table.name()
    return name[-1] if name == (STATIC, table.metadata_location) else shown_name(name)


def is_match(name: TableName, pattern: tuple[NamePart, ...]) -> bool:
    """Return whether a name is one of those that a glob stands for."""
    if not pattern:
        return not name
    if pattern[0].is_any_depth:
        rest = pattern[1:] or (ANY_NAME,)
        return any(is_match(name[start:], rest) for start in range(len(name)))
    return bool(name) and pattern[0].matches(name[0]) and is_match(name[1:], pattern[1:])
