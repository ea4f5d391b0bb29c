"""Finds tables by names and globs, and does the same work for each of them.

In a glob, ``*``, ``?`` and ``[abc]`` stand for characters of one part of a name, and ``**`` for any number of parts:
``db.*`` are the tables of the namespace ``db``, ``db.**`` also those of the namespaces below it, ``*.orders`` the
tables ``orders`` of all namespaces, and ``**`` all tables. In a quoted part they stand for themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError

from sidecar.errors import SidecarError, StorageError, UnsupportedFeatureError, UsageError, advisory
from sidecar.iceberg.catalog import foreign_error, load_table, open_catalog, open_table
from sidecar.iceberg.partial_loading import names_of_other_formats
from sidecar.iceberg.refs import check_table
from sidecar.iceberg.table_names import (
    ANY_NAME,
    NamePart,
    TableName,
    is_metadata_file,
    is_table_glob,
    name_of,
    name_of_text,
    parts_of,
    refuse_data_file,
    shown_name,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table

log = logging.getLogger(__name__)

R = TypeVar("R")
_OTHER_FORMAT = "Use its own engine, or name the Iceberg tables one by one."


def find_tables(
    names: str | Iterable[str], catalog: str | Catalog | None = None, *, spark: Any = None, **properties: str
) -> list[str]:
    """Return the names of the tables that ``names`` name: ``namespace.table``, or globs such as ``db.*``.

    Example: ``sidecar.find_tables("sales.*", "lake")``

    Tables come sorted for each name, in the order of the names, without repeats, as :func:`sidecar.open_table` takes
    them: a part with a dot is in backticks. A name without glob characters is returned without a look at the catalog.
    ``catalog``, ``spark`` and ``properties`` are those of :func:`sidecar.open_table`. Raises :class:`UsageError` for a
    glob that matches no table and for no name at all, and the errors of :func:`sidecar.open_table`.
    """
    given = [names] if isinstance(names, str) else list(names)
    if spark is None or isinstance(catalog, Catalog):
        return [_text(one) for one in _OneCatalog(catalog, properties).find(given)]
    from sidecar.spark.catalog import in_session, open_spark_catalog

    found: dict[str, None] = {}
    for text in given:
        name, pattern = in_session(spark, text) if catalog is None else (catalog, text)
        prefix = "" if catalog is not None else f"{shown_name((name,))}."
        tables = _OneCatalog(open_spark_catalog(spark, name, **properties), {}).find([pattern])
        found |= dict.fromkeys(prefix + _text(one) for one in tables)
    return list(found)


FoundTable: TypeAlias = TableName | str
"""A table of a catalog, or the given text if it names a metadata file or no table."""


@dataclass(frozen=True)
class TableOutcome(Generic[R]):
    """The outcome of the work for one table: a result, or the error that ended it."""

    table: str
    result: R | None
    error: SidecarError | None


def each_table(
    tables: str | Table | Iterable[str | Table],
    work: Callable[[Table], R],
    catalog: str | Catalog | None = None,
    left_out: dict[str, SidecarError] | None = None,
    **properties: str,
) -> Iterator[TableOutcome[R]]:
    """Yield what ``work`` returns for each of ``tables``: open ones, and those of names, as :func:`find_tables` finds
    them.

    An error in one table is its outcome and does not stop the others. The catalog is opened once. Errors of the catalog
    and of globs raise. Tables of other formats that a glob matches are in no outcome, but in ``left_out`` with the
    reason; so is ``namespace.*`` if the catalog does not say which there are.
    """
    names = _OneCatalog(catalog, properties, left_out)
    is_one = isinstance(tables, str) or hasattr(tables, "metadata")
    given: list[Any] = [tables] if is_one else list(tables)  # type: ignore[arg-type]
    found: list[FoundTable | Table] = []
    for one in given:
        if isinstance(one, str):
            found += [each for each in names.find([one]) if each not in found]
        else:
            check_table(one)
            found.append(one)
    if not found:
        raise UsageError("no table was named")
    if any(isinstance(one, tuple) for one in found):
        names.opened()  # an error of the catalog is not one of each table
    for one in found:
        text = _text(one) if isinstance(one, str | tuple) else name_of(one)
        try:
            yield TableOutcome(text, work(names.open(one) if isinstance(one, str | tuple) else one), None)
        except SidecarError as error:
            yield TableOutcome(text, None, error)
        except Exception as error:
            yield TableOutcome(text, None, SidecarError(f"unexpected: {advisory(error)}"))


def _text(found: FoundTable) -> str:
    return shown_name(found) if isinstance(found, tuple) else found


class _OneCatalog:
    """A catalog that is opened when the first name needs it."""

    def __init__(
        self, name: str | Catalog | None, properties: dict[str, str], left_out: dict[str, SidecarError] | None = None
    ) -> None:
        self._name = name
        self._properties = properties
        self._left_out = {} if left_out is None else left_out
        self._catalog: Catalog | None = None

    def open(self, found: FoundTable) -> Table:
        if isinstance(found, tuple):
            return load_table(self.opened(), found)
        return open_table(found, self._name, **self._properties)

    def find(self, names: Sequence[str]) -> list[FoundTable]:
        if not names:
            raise UsageError("no table was named")
        found: dict[FoundTable, None] = {}
        for name in names:
            found |= dict.fromkeys(self._matches(name) if is_table_glob(name) else [_named(name)])
        return list(found)

    def opened(self) -> Catalog:
        """Return the open catalog."""
        if self._catalog is None:
            self._catalog = open_catalog(self._name, **self._properties)
        return self._catalog

    def _matches(self, pattern: str) -> list[TableName]:
        refuse_data_file(pattern)
        catalog = self.opened()
        try:
            found = sorted(set(_tables(catalog, (), parts_of(pattern), self._left_out)))
        except SidecarError:
            raise
        except Exception as error:
            raise foreign_error("cannot list tables", error, catalog.properties) from error
        if not found:
            raise UsageError(
                f"no table of the catalog '{catalog.name}' matches '{pattern}'",
                found=_namespaces(catalog),
                hint="db.* are the tables of the namespace db, db.** also those of the namespaces in it; "
                f"./{pattern} are files.",
            )
        return found


MOST_NAMED = 8
"""The most namespaces that an error names."""


def _namespaces(catalog: Catalog) -> str | None:
    """Return the namespaces of a catalog as an error names them; ``None`` if they are unknown."""
    try:
        names = sorted(".".join(one) for one in catalog.list_namespaces())
    except Exception:
        return None
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"the namespaces {', '.join(names[:MOST_NAMED])}{more}" if names else "no namespace"


def _named(text: str) -> FoundTable:
    """Return the table that a text names; the text itself if opening it says what is wrong with it."""
    try:
        return text if is_metadata_file(text) else name_of_text(text)
    except UsageError:
        return text


def _tables(
    catalog: Catalog, namespace: TableName, pattern: tuple[NamePart, ...], left_out: dict[str, SidecarError]
) -> Iterator[TableName]:
    """Yield the tables below ``namespace`` that match the parts of a pattern. Names of other formats go to
    ``left_out``."""
    here, rest = pattern[0], pattern[1:]
    if here.is_any_depth:
        yield from _tables(catalog, namespace, rest or (ANY_NAME,), left_out)
        below = catalog.list_namespaces(namespace)
        for child in below:
            yield from _tables(catalog, tuple(child), pattern, left_out)
    elif not rest:
        yield from _in_namespace(catalog, namespace, here, left_out)
    elif not here.is_glob:
        yield from _tables(catalog, (*namespace, here.text), rest, left_out)
    else:
        for child in catalog.list_namespaces(namespace):
            if here.matches(child[-1]):
                yield from _tables(catalog, tuple(child), rest, left_out)


def _in_namespace(
    catalog: Catalog, namespace: TableName, pattern: NamePart, left_out: dict[str, SidecarError]
) -> Iterator[TableName]:
    if not namespace:
        return
    try:
        found = catalog.list_tables(namespace)
    except NoSuchNamespaceError:
        return
    for identifier in found:
        if pattern.matches(identifier[-1]):
            yield tuple(identifier)
    try:
        others = names_of_other_formats(catalog, namespace, {identifier[-1] for identifier in found})
    except Exception as error:  # it is an error of a namespace that is left out, so no glob fails for it
        name = f"{shown_name(namespace)}.*"
        left_out[name] = StorageError(f"the catalog did not list tables of other formats: {advisory(error)}")
        log.warning(f"{name}: {left_out[name].what}")
        return
    for name in (shown_name((*namespace, one)) for one in others if pattern.matches(one)):
        left_out[name] = UnsupportedFeatureError("the table is no Iceberg table", hint=_OTHER_FORMAT)
        log.warning(f"{name} is no Iceberg table, and is left out")
