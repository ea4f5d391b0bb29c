"""Reads the properties of a table that pyiceberg reads too; one that makes no sense is named."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from pyiceberg.table import Table, TableProperties
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.name_mapping import NameMapping

from sidecar.errors import UsageError, first_line

_WHOLE_NUMBERS = (
    TableProperties.COMMIT_NUM_RETRIES,
    TableProperties.COMMIT_MIN_RETRY_WAIT_MS,
    TableProperties.COMMIT_MAX_RETRY_WAIT_MS,
    TableProperties.COMMIT_TOTAL_RETRY_TIME_MS,
)
"""Properties that pyiceberg parses when it commits."""


def name_mapping_of(table: Table) -> NameMapping | None:
    """Return the table's name mapping, ``None`` without one. A field without names has none, as in Iceberg's Java.

    Raises :class:`UsageError` for a property that is no name mapping.
    """
    name = TableProperties.DEFAULT_NAME_MAPPING
    text = table.metadata.properties.get(name)
    if text is None:
        return None
    try:
        return NameMapping.model_validate(_with_names(json.loads(text)))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        _refuse(name, "a list of fields with names and field ids", text, error)


def _with_names(fields: Any) -> list[dict[str, Any]]:
    """Return the fields of a name mapping with names, which pyiceberg expects but does not check."""
    return [{**one, "names": one.get("names") or [], "fields": _with_names(one.get("fields") or [])} for one in fields]


def check_commit_properties(table: Table) -> None:
    """Raise :class:`UsageError` for a property that would make every commit fail, before any file is written."""
    location_provider_of(table)
    for name in _WHOLE_NUMBERS:
        text = table.metadata.properties.get(name)
        try:
            int(text or 0)
        except ValueError as error:
            _refuse(name, "a whole number", text, error)


def location_provider_of(table: Table) -> LocationProvider:
    """Return what makes the paths of new files. Raises :class:`UsageError` if the table's own one cannot be loaded."""
    try:
        return table.location_provider()
    except Exception as error:  # it imports what the property names
        name = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL
        _refuse(name, "a class that can be imported", table.metadata.properties.get(name), error)


def _refuse(name: str, expected: str, text: object, error: Exception) -> NoReturn:
    raise UsageError(
        f"the table property {name} makes no sense ({type(error).__name__}: {first_line(error)})",
        expected=expected,
        found=repr(str(text)[:80]),
        hint="Set it anew, or remove it from the table.",
    ) from error
