"""Finds tables by names and globs, and does the same work for each of them.

In a glob, ``*``, ``?`` and ``[abc]`` stand for characters of one part of a name, and ``**`` for any number of parts:
``db.*`` are the tables of the namespace ``db``, ``db.**`` also those of the namespaces below it, ``*.orders`` the
tables ``orders`` of all namespaces, and ``**`` all tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Generic, TypeVar

from pyiceberg.exceptions import NoSuchNamespaceError

from sidecar.errors import SidecarError, UsageError, advisory
from sidecar.iceberg.catalog import foreign_error, load_table, open_catalog, open_table

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

R = TypeVar("R")

ANY_NAMESPACES = "**"
_MAGIC = re.compile(r"[*?\[]")


def is_table_glob(name: str) -> bool:
    """Whether a name has a character that globs have."""
    return _MAGIC.search(name) is not None


def find_tables(names: str | Iterable[str], catalog: str | None = None, **properties: str) -> list[str]:
    """Return the names of the tables that ``names`` name: ``namespace.table``, or globs such as ``db.*``.

    Tables come sorted for each name, in the order of the names, without repeats. A name without glob characters is
    returned as it is, without a look at the catalog. ``catalog`` and ``properties`` are those of
    :func:`sidecar.open_table`. Raises :class:`UsageError` for a glob that matches no table and for no name at all, and
    the errors of :func:`sidecar.open_table`.
    """
    return _OneCatalog(catalog, properties).find([names] if isinstance(names, str) else list(names))


@dataclass(frozen=True)
class TableOutcome(Generic[R]):
    """What became of the work for one table: a result, or the error that ended it."""

    table: str
    result: R | None
    error: SidecarError | None


def each_table(
    names: str | Iterable[str],
    work: Callable[[Table], R],
    catalog: str | None = None,
    **properties: str,
) -> Iterator[TableOutcome[R]]:
    """Yield what ``work`` returns for each table that ``names`` name, as :func:`find_tables` finds them.

    An error in one table is its outcome and does not stop the others. The catalog is opened once. Errors of the catalog
    and of globs raise.
    """
    tables = _OneCatalog(catalog, properties)
    found = tables.find([names] if isinstance(names, str) else list(names))
    if any(map(_is_in_catalog, found)):
        tables.opened()  # an error of the catalog is not one of each table
    for name in found:
        try:
            yield TableOutcome(name, work(tables.open(name)), None)
        except SidecarError as error:
            yield TableOutcome(name, None, error)
        except Exception as error:
            yield TableOutcome(name, None, SidecarError(f"unexpected: {advisory(error)}"))


class _OneCatalog:
    """A catalog that is opened when the first name needs it."""

    def __init__(self, name: str | None, properties: dict[str, str]) -> None:
        self._name = name
        self._properties = properties
        self._catalog: Catalog | None = None

    def open(self, name: str) -> Table:
        if _is_in_catalog(name):
            return load_table(self.opened(), name)
        return open_table(name, self._name, **self._properties)

    def find(self, names: Sequence[str]) -> list[str]:
        if not names:
            raise UsageError("no table was named")
        found: dict[str, None] = {}
        for name in names:
            found |= dict.fromkeys(self._matches(name) if _is_pattern(name) else [name])
        return list(found)

    def opened(self) -> Catalog:
        """Return the open catalog."""
        if self._catalog is None:
            self._catalog = open_catalog(self._name, **self._properties)
        return self._catalog

    def _matches(self, pattern: str) -> list[str]:
        catalog = self.opened()
        try:
            found = sorted(set(_tables(catalog, (), tuple(pattern.split(".")))))
        except Exception as error:
            raise foreign_error("cannot list tables", error, catalog.properties) from error
        if not found:
            raise UsageError(
                f"no table of the catalog '{catalog.name}' matches '{pattern}'",
                hint="db.* are the tables of the namespace db, db.** also those of the namespaces in it; "
                f"./{pattern} are files.",
            )
        return found


def _is_in_catalog(name: str) -> bool:
    return not name.endswith(".metadata.json") and "." in name.strip(".")


def _is_pattern(name: str) -> bool:
    return is_table_glob(name) and not name.endswith(".metadata.json")


def _tables(catalog: Catalog, namespace: tuple[str, ...], pattern: tuple[str, ...]) -> Iterator[str]:
    """Yield the tables below ``namespace`` that match the parts of a pattern."""
    here, rest = pattern[0], pattern[1:]
    if here == ANY_NAMESPACES:
        yield from _tables(catalog, namespace, rest or ("*",))
        below = catalog.list_namespaces(namespace)
        for child in below:
            yield from _tables(catalog, tuple(child), pattern)
    elif not rest:
        yield from _in_namespace(catalog, namespace, here)
    elif not is_table_glob(here):
        yield from _tables(catalog, (*namespace, here), rest)
    else:
        for child in catalog.list_namespaces(namespace):
            if _matches_part(child[-1], here):
                yield from _tables(catalog, tuple(child), rest)


def _in_namespace(catalog: Catalog, namespace: tuple[str, ...], pattern: str) -> Iterator[str]:
    try:
        found = catalog.list_tables(namespace) if namespace else []
    except NoSuchNamespaceError:
        return
    for identifier in found:
        if _matches_part(identifier[-1], pattern):
            yield ".".join(identifier)


def _matches_part(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)
