"""Opens tables and catalogs by pyiceberg's configuration; error messages contain no secrets.

A table is named ``namespace.table`` (:mod:`sidecar.iceberg.table_names`) and loaded from a catalog that pyiceberg
configures (``.pyiceberg.yaml``, ``PYICEBERG_CATALOG__NAME__KEY`` variables, or properties given here). The path of a
``*.metadata.json`` file opens that one version of a table, read-only. If pyiceberg refuses a table because of
statistics that others registered, the table is opened without these, with a warning
(:mod:`sidecar.iceberg.partial_loading`).
"""

from __future__ import annotations

import copy
import difflib
import logging
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from pydantic import ValidationError
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    ForbiddenError,
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    UnauthorizedError,
)
from pyiceberg.exceptions import ValidationError as IcebergValidationError
from pyiceberg.table import StaticTable, Table
from pyiceberg.utils.config import Config

from sidecar.errors import (
    CATALOG_VARIABLE,
    DamagedFileError,
    SidecarError,
    StorageError,
    UnsupportedFeatureError,
    UsageError,
    causes_of,
    first_line,
    foreign_reason,
)
from sidecar.iceberg.engine_catalog import EngineCatalog
from sidecar.iceberg.partial_loading import (
    is_about_statistics,
    load_file_partly,
    load_partly,
    state_of_registrations,
)
from sidecar.iceberg.refs import one_version
from sidecar.iceberg.table_names import TableName, is_metadata_file, name_of, name_of_text, shown_name
from sidecar.many_files.find import has_data_ending
from sidecar.run import without_search_for_cycles
from sidecar.storage.locations import local_path
from sidecar.storage.stores import store_settings

log = logging.getLogger(__name__)

MOST_SHOWN = 10
"""Names that a hint lists."""
_SNAPSHOTS = "snapshot-loading-mode"


_UNKNOWN_TYPE = re.compile("Unsupported field type|Could not parse .* into|Unknown transform|not supported")


def open_table(name: str, catalog: str | Catalog | None = None, *, spark: Any = None, **properties: str) -> Table:
    """Open the table ``namespace.table`` of a catalog, or one version of a table by its ``*.metadata.json`` file.

        table = sidecar.open_table("sales.orders", "lake")

    ``name``: a part with a dot in it is in backticks or double quotes (``db.`a.b```).
    ``catalog``: an open catalog, or an entry of pyiceberg's configuration, by default its default.
    ``spark``: a session that opens the table; ``catalog``, or the first part of the name, is then a catalog of the
    session.
    ``properties``: settings that override those of the entry.

    Raises :class:`UsageError` for an unknown catalog, namespace or table, :class:`StorageError` if one cannot be
    reached, :class:`DamagedFileError` for invalid metadata, :class:`UnsupportedFeatureError` for metadata that
    pyiceberg does not understand.
    """
    if is_metadata_file(name):
        lent = open_catalog(catalog).properties if catalog is not None and local_path(name) is None else {}
        return _open_metadata_file(name, store_settings(name, {**lent, **properties}))
    if spark is not None and not isinstance(catalog, Catalog):
        from sidecar.spark.catalog import in_session, open_spark_catalog

        catalog, name = in_session(spark, name) if catalog is None else (catalog, name)
        identifier = name_of_text(name)  # before anything is opened
        return load_table(open_spark_catalog(spark, catalog, **properties), identifier)
    identifier = name_of_text(name)
    return load_table(open_catalog(catalog, **properties), identifier)


def load_table(opened: Catalog, name: TableName) -> Table:
    """Do what :func:`open_table` does for a table of an open catalog."""
    try:
        return load_identified(opened, name)
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise _missing(opened, name, error) from error
    except SidecarError:
        raise
    except Exception as error:
        raise foreign_error(f"cannot load the table '{shown_name(name)}'", error, opened.properties) from error


def load_identified(catalog: Catalog, name: TableName) -> Table:
    """Load a table, if need be without registered statistics that pyiceberg refuses. Raises pyiceberg's errors."""
    if _leaves_out_snapshots(catalog):
        catalog = copy.copy(catalog)
        catalog.properties = {**catalog.properties, _SNAPSHOTS: "all"}
    return _loaded(partial(catalog.load_table, name), partial(load_partly, catalog, name))


def _loaded(load: Callable[[], Table], load_without_statistics: Callable[[], Table | None]) -> Table:
    """Load a table; if pyiceberg refuses its registered statistics, load it without these and log a warning."""
    try:
        return load()
    except Exception as error:
        invalid = next((one for one in causes_of(error) if isinstance(one, ValidationError)), None)
        if invalid is None or not is_about_statistics(invalid):
            raise
        found = load_without_statistics()
        if found is None:
            raise
    for sentence in state_of_registrations(found):
        log.warning(sentence)
    return found


def open_catalog(name: str | Catalog | None = None, **properties: str) -> Catalog:
    """Open the catalog ``name`` of pyiceberg's configuration (``None``: the default). One that is open is returned.

    Raises :class:`UsageError` and :class:`StorageError`.
    """
    if isinstance(name, Catalog):
        return name
    shown = f"the catalog '{name}'" if name else "the default catalog"
    try:
        with without_search_for_cycles(True):  # in the modules of a kind of catalog
            return load_catalog(name, **properties)
    except (NotInstalledError, ImportError) as error:
        raise UsageError(f"{shown} needs a package that is not installed: {first_line(error)}") from error
    except (ValueError, TypeError, KeyError) as error:
        # The text of pyiceberg's error may quote all properties, secrets included, so it is not shown.
        raise UsageError(
            f"{shown} is not configured, or its configuration is incomplete",
            hint=_known_catalogs(),
        ) from error
    except Exception as error:
        raise foreign_error(f"cannot open {shown}", error, properties) from error


def _known_catalogs() -> str:
    known = ", ".join(sorted(Config().get_known_catalogs())) or "none"
    where = "Describe it in ~/.pyiceberg.yaml or in PYICEBERG_CATALOG__<NAME>__URI"
    spark = "Catalogs of Spark's configuration are opened by --spark-catalog NAME, in Python by spark=session"
    return f"pyiceberg's configuration has: {known}. {where}. {spark}."


def reload_table(table: Table) -> Table:
    """Load the table from its catalog again, as a new object.

    Raises :class:`UsageError` if the table is gone or was opened from a metadata file; other errors are those of
    :func:`open_table`.
    """
    name = name_of(table)
    try:
        return load_identified(table.catalog, table.name())
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise UsageError(f"the table '{name}' no longer exists") from error
    except NotImplementedError as error:
        raise UsageError(
            f"'{name}' was opened from a metadata file and cannot be changed",
            hint="Open the table through its catalog.",
        ) from error
    except SidecarError:
        raise
    except Exception as error:
        raise foreign_error(f"cannot load the table '{name}'", error, table.catalog.properties) from error


def is_static(table: Table) -> bool:
    """Return whether a table was opened from a metadata file."""
    from pyiceberg.catalog.noop import NoopCatalog

    return isinstance(table.catalog, NoopCatalog) and not isinstance(table.catalog, EngineCatalog)


def command_for(table: Table, verb: str, *options: str) -> str:
    """Return the command line ``sidecar VERB TABLE`` with ``options``, as it can be typed in a shell.

    It names the catalog unless it is the one that a command takes by default.
    """
    if isinstance(table.catalog, EngineCatalog):
        return shlex.join(["sidecar", verb, name_of(table), *options, *table.catalog.options])
    name = table.catalog.name
    is_default = name == Config().get_default_catalog_name() and os.environ.get(CATALOG_VARIABLE) in (None, "", name)
    return shlex.join(["sidecar", verb, name_of(table), *options, *([] if is_default else ["--catalog", name])])


def with_all_snapshots(table: Table) -> Table:
    """Return the table, loaded again if it was loaded without the snapshots that no branch and no tag names.

    A REST catalog leaves them and their statistics entries out if pyiceberg is configured so. Such snapshots look as if
    they had expired. Tables of :func:`open_table` and :func:`reload_table` have them. Raises the errors of the latter.
    """
    return reload_table(table) if _leaves_out_snapshots(table.catalog) else table


def _leaves_out_snapshots(catalog: Catalog) -> bool:
    return catalog.properties.get(_SNAPSHOTS) == "refs"


@contextmanager
def held(table: Table) -> Iterator[Table]:
    """Yield a copy of a caller's ``table``, which keeps its version of the metadata if the caller refreshes the table.

    If a commit changes the copy, the caller's table is refreshed at the end. Raises :class:`UsageError` for a table
    that is not open.
    """
    own = one_version(table)
    before = own.metadata
    try:
        yield own
    finally:
        if own.metadata is not before:
            show_commit(table, own)


def show_commit(table: Table, later: Table | None = None) -> None:
    """Refresh a caller's ``table`` after a commit: from ``later``, a version that was loaded after the commit, else
    from its catalog.

    The commit has succeeded, even if this fails.
    """
    if later is not None:
        vars(table).update(vars(later) | {"catalog": table.catalog})
        return
    with suppress(Exception):
        table.refresh()


def _open_metadata_file(path: str, properties: Mapping[str, str]) -> Table:
    try:
        return _load_file(path, properties)
    except FileNotFoundError as error:
        raise UsageError("the metadata file does not exist", file=path) from error
    except Exception as error:
        raise foreign_error("cannot read the metadata file", error, properties, file=path) from error


def _load_file(path: str, properties: Mapping[str, str]) -> Table:
    return _loaded(
        partial(StaticTable.from_metadata, path, dict(properties)), partial(load_file_partly, path, properties)
    )


def _missing(catalog: Catalog, name: TableName, error: Exception) -> UsageError:
    """Return an error that says what is missing, the namespace or the table, with similar names."""
    namespace, shown = name[:-1], shown_name(name)
    try:
        if not catalog.namespace_exists(namespace):
            hint = "For a file, use inspect, verify, probe or scan." if has_data_ending(f".{name[-1]}") else None
            hint = hint or _near_namespaces(catalog, namespace)
            return UsageError(f"the catalog '{catalog.name}' has no namespace '{shown_name(namespace)}'", hint=hint)
        if isinstance(error, NoSuchIcebergTableError):
            return UsageError(f"'{shown}' in the catalog '{catalog.name}' is not an Iceberg table")
        near = difflib.get_close_matches(name[-1], [i[-1] for i in catalog.list_tables(namespace)], n=3)
    except Exception:  # not every catalog can list tables; then there is no hint
        near = []
    hint = f"Did you mean {' or '.join(shown_name((*namespace, one)) for one in near)}?" if near else None
    return UsageError(f"the catalog '{catalog.name}' has no table '{shown}'", hint=hint)


def _near_namespaces(catalog: Catalog, namespace: TableName) -> str | None:
    """Return a hint with the namespaces beside one that is missing; it may begin with the catalog's own name."""
    with suppress(Exception):  # not every catalog can list namespaces
        if namespace[0] == catalog.name and namespace[1:] and catalog.namespace_exists(namespace[1:]):
            return f"Leave the name of the catalog out: {shown_name(namespace[1:])}."
        known = [tuple(one) for one in catalog.list_namespaces(namespace[:-1])]
        shown = ", ".join(map(shown_name, known[:MOST_SHOWN])) + (", ..." if len(known) > MOST_SHOWN else "")
        return f"It has: {shown}." if known else None
    return None


def foreign_error(what: str, error: Exception, properties: Mapping[str, Any], file: str | None = None) -> SidecarError:
    """Turn any other exception of pyiceberg into a :class:`SidecarError` about a ``file``."""
    found = _foreign_error(what, error, properties)
    found.file = file
    return found


def _foreign_error(what: str, error: Exception, properties: Mapping[str, Any]) -> SidecarError:
    invalid = next((one for one in causes_of(error) if isinstance(one, ValidationError)), None)
    if invalid is not None:
        if any("blob-metadata" in fault["loc"] for fault in invalid.errors()):
            return UnsupportedFeatureError(
                f"{what}: its metadata registers statistics blobs of a type that pyiceberg does not know",
                hint="Remove that snapshot's statistics entry with Spark; a repair needs an SQL or REST catalog.",
            )
        return _invalid(what, invalid)
    if isinstance(error, IcebergValidationError):
        return UnsupportedFeatureError(f"{what}: {foreign_reason(error)}")
    if isinstance(error, UnauthorizedError | ForbiddenError | OAuthError):
        return StorageError(f"{what}: access was denied ({type(error).__name__})", hint="Check the credentials.")
    return StorageError(f"{what}: {foreign_reason(error, properties)}")


def _invalid(what: str, invalid: ValidationError) -> SidecarError:
    """Return the error for metadata that pyiceberg refuses: types that it does not know, and manifests without a list,
    as version 1 has them, are no damage."""

    def is_sound(fault: Any) -> bool:
        in_place_of_list = fault["loc"][-1:] == ("manifest-list",) and "manifests" in fault["input"]
        return in_place_of_list or _UNKNOWN_TYPE.search(fault["msg"]) is not None

    faults: list[Any] = list(invalid.errors())
    kind = UnsupportedFeatureError if all(map(is_sound, faults)) else DamagedFileError
    place = ".".join(map(str, faults[0]["loc"]))
    return kind(f"{what}: pyiceberg refuses its metadata: {place}: {faults[0]['msg']}"[:300])


def storage_error(what: str, error: Exception, table: Table, path: str | None) -> StorageError:
    """Return a foreign error as :class:`StorageError`, without secrets of the catalog and its storage.

    It names the file ``path``, or the table.
    """
    properties = {**table.catalog.properties, **table.io.properties}
    reason = foreign_reason(error, properties)
    hint = f"Look at the table '{name_of(table)}', then try again." if path is None else None
    return StorageError(f"{what}: {reason}", file=path, hint=hint)
