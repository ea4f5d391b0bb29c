"""pyiceberg's private names and attributes, all that sidecar uses.

Functions and classes are loaded when they are first imported from here: reading a file needs none of them. Overrides
of private methods stay where their class is (``_Planner``, ``ListedDataFile``). The tests of the modules that use
these names also compare what pyiceberg does with what they were written for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.avro.file import _SCHEMA_KEY as SCHEMA_KEY
    from pyiceberg.catalog import Catalog
    from pyiceberg.catalog.rest import RestCatalog, TableResponse
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.expressions.visitors import ResidualEvaluator
    from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator as InclusiveMetricsEvaluator
    from pyiceberg.expressions.visitors import _StrictMetricsEvaluator as StrictMetricsEvaluator
    from pyiceberg.io import FileIO
    from pyiceberg.io.pyarrow import _get_column_projection_values as column_projection_values
    from pyiceberg.io.pyarrow import _get_file_format as arrow_file_format
    from pyiceberg.io.pyarrow import _read_deletes as position_deletes
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.manifest import _inherit_from_manifest as inherit_from_manifest
    from pyiceberg.table import DataScan, ManifestGroupPlanner, Table, Transaction
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from pyiceberg.typedef import Identifier, Record

_HOMES = {
    "SCHEMA_KEY": ("avro.file", "_SCHEMA_KEY"),
    "InclusiveMetricsEvaluator": ("expressions.visitors", "_InclusiveMetricsEvaluator"),
    "StrictMetricsEvaluator": ("expressions.visitors", "_StrictMetricsEvaluator"),
    "arrow_file_format": ("io.pyarrow", "_get_file_format"),
    "column_projection_values": ("io.pyarrow", "_get_column_projection_values"),
    "inherit_from_manifest": ("manifest", "_inherit_from_manifest"),
    "position_deletes": ("io.pyarrow", "_read_deletes"),
}
"""The module of pyiceberg and the private name of each name here."""

__all__ = [
    "SCHEMA_KEY",
    "InclusiveMetricsEvaluator",
    "StrictMetricsEvaluator",
    "arrow_file_format",
    "column_projection_values",
    "inherit_from_manifest",
    "position_deletes",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    module, private = _HOMES[name]
    return getattr(import_module(f"pyiceberg.{module}"), private)


# --- plans ---


def manifest_planner(scan: DataScan) -> ManifestGroupPlanner:
    """Return the planner that a scan plans with."""
    return scan._manifest_planner


def plans_on_server(scan: DataScan) -> bool:
    """Return whether the catalog plans a scan."""
    return scan._should_use_server_side_planning()


def manifest_evaluator(planner: ManifestGroupPlanner, spec_id: int) -> Callable[[ManifestFile], bool]:
    """Return the evaluator of partition summaries for manifests of a spec."""
    return planner._build_manifest_evaluator(spec_id)


def partition_evaluator(planner: ManifestGroupPlanner, spec_id: int) -> Callable[[DataFile], bool]:
    """Return the evaluator of partition values for files of a spec."""
    return planner._build_partition_evaluator(spec_id)


def residual_evaluator(planner: ManifestGroupPlanner, spec_id: int) -> Callable[[DataFile], ResidualEvaluator]:
    """Return what makes the residuals of a file of a spec."""
    return planner._build_residual_evaluator(spec_id)


def metrics_evaluator(planner: ManifestGroupPlanner) -> Callable[[DataFile], bool]:
    """Return the evaluator of the bounds of files."""
    return planner._build_metrics_evaluator()


def may_have_deletes(planner: ManifestGroupPlanner, oldest: int, line: ManifestFile) -> bool:
    """Return whether a manifest may have deletes for data files of sequence number ``oldest`` and younger ones."""
    return planner._check_sequence_number(oldest, line)


def record_values(record: Record) -> list[Any]:
    """Return the values of a record, which are its own list."""
    return record._data


# --- catalogs and commits ---


def apply_updates(
    transaction: Transaction, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...]
) -> None:
    """Add updates to a transaction, and what they need."""
    transaction._apply(updates, requirements)


def hive_client(catalog: Catalog) -> Any:
    """Return the client of a Hive metastore, ``None`` for another catalog."""
    client: Any = getattr(catalog, "_client", None)
    return client if hasattr(client, "__enter__") else None


def io_of_sql_table(catalog: SqlCatalog, properties: Mapping[str, str], location: str) -> FileIO:
    """Return what reads and writes the files of a table of an SQL catalog."""
    return catalog._load_file_io(dict(properties), location)


def rest_answer(catalog: RestCatalog, path: str, identifier: Identifier) -> Any:
    """Return the JSON that a REST catalog answers about a table. ``path`` is an endpoint, with places for its name.

    Raises the errors of requests.
    """
    place = catalog._split_identifier_for_path(identifier)
    response = catalog._session.get(catalog.url(path, prefixed=True, **place))
    response.raise_for_status()
    return response.json()


def table_of_answer(catalog: RestCatalog, identifier: Identifier, answer: TableResponse) -> Table:
    """Return the table of what a REST catalog answered."""
    return catalog._response_to_table(identifier, answer)


# --- files ---


def fsspec_of(file: Any) -> Any:
    """Return the fsspec file system behind a file of a ``FileIO``, ``None`` if there is none."""
    filesystem: Any = getattr(file, "_fs", None)
    return filesystem if hasattr(filesystem, "cat_file") else None


def path_in_fsspec(filesystem: Any, location: str) -> str:
    """Return the path of a location in an fsspec file system."""
    return str(filesystem._strip_protocol(location))


def arrow_place(file: Any) -> tuple[Any, str] | None:
    """Return Arrow's file system behind a file of a ``FileIO`` and the path in it, ``None`` if there is none."""
    return (file._filesystem, str(file._path)) if hasattr(file, "_filesystem") else None
