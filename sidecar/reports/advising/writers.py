"""The settings of filters for writers of new files: the table's properties, and the statement that sets them.

The properties are Iceberg's; its Java writers follow them, such as Spark's. In Parquet there is one for each column; in
ORC one names all columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pyiceberg.table import Table

from sidecar.filters.sizing import BLOCK_BYTES, DEFAULT_FPP, blocks_for
from sidecar.reports.advising.report import AdvisedColumn

PARQUET = "write.parquet.bloom-filter-"
ENABLED = f"{PARQUET}enabled.column."
RATE = f"{PARQUET}fpp.column."
DISTINCT = f"{PARQUET}ndv.column."
LARGEST = f"{PARQUET}max-bytes"
USUAL_LARGEST = 1 << 20
"""Bytes of the largest filter that writers make if the table does not say it."""
ORC_COLUMNS = "write.orc.bloom.filter.columns"
ORC = "write.orc.bloom.filter."
FORMAT = "write.format.default"


def filter_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return a table's properties about filters in new files."""
    return {name: value for name, value in sorted(properties.items()) if name.startswith((PARQUET, ORC))}


def alter_table(table: Table, advised: Sequence[AdvisedColumn], distinct: Mapping[str, int]) -> str | None:
    """Return the statement after which new files bring filters of the advised columns; ``None`` if they do already.

    ``distinct`` has the distinct values that a row group of a usual file has, by column.
    """
    wanted = _orc(table.properties, advised) if _is_orc(table.properties) else _parquet(table, advised, distinct)
    missing = {name: value for name, value in wanted.items() if table.properties.get(name) != value}
    if not missing:
        return None
    pairs = ", ".join(f"{quoted_text(name)}={quoted_text(value)}" for name, value in missing.items())
    return f"ALTER TABLE {'.'.join(map(identifier, table.name()))} SET TBLPROPERTIES ({pairs})"


def enabled_in_vain(properties: Mapping[str, str], columns: Sequence[AdvisedColumn]) -> list[str]:
    """Return a warning for each column that new files bring filters of, although they are not worth it."""
    if _is_orc(properties):
        enabled = {name.strip() for name in properties.get(ORC_COLUMNS, "").split(",")}
    else:
        enabled = {
            name.removeprefix(ENABLED)
            for name, value in properties.items()
            if name.startswith(ENABLED) and value.lower() == "true"
        }
    return [
        f"new files bring filters of {column.name} by the table's properties, but {column.reason}"
        for column in columns
        if column.filters == "no" and column.name in enabled
    ]


def _parquet(table: Table, advised: Sequence[AdvisedColumn], distinct: Mapping[str, int]) -> dict[str, str]:
    properties = table.properties
    wanted, needed = {}, 0
    for column in advised:
        if properties.get(ENABLED + column.name, "").lower() == "true":
            continue
        wanted[ENABLED + column.name] = "true"
        values = max(distinct[column.name], 1)
        wanted[DISTINCT + column.name] = str(values)
        rate = _rate(properties.get(RATE + column.name, "")) or DEFAULT_FPP
        needed = max(needed, blocks_for(values, rate) * BLOCK_BYTES)
    if needed > (_bytes(properties.get(LARGEST, "")) or USUAL_LARGEST):
        wanted[LARGEST] = str(needed)
    return wanted


def invalid(properties: Mapping[str, str]) -> list[str]:
    """Return a warning for each property about filters whose value is no rate or no number of bytes."""
    faults = [name for name, value in properties.items() if name.startswith(RATE) and _rate(value) is None]
    faults += [LARGEST] if LARGEST in properties and _bytes(properties[LARGEST]) is None else []
    return [f"the property {name} of the table is invalid: {properties[name]!r}" for name in sorted(faults)]


def _rate(text: str) -> float | None:
    try:
        rate = float(text)
    except ValueError:
        return None
    return rate if 0 < rate < 1 else None


def _bytes(text: str) -> int | None:
    return int(text) if re.fullmatch(r"0*[1-9][0-9]*", text) else None


def _orc(properties: Mapping[str, str], advised: Sequence[AdvisedColumn]) -> dict[str, str]:
    before = [name.strip() for name in properties.get(ORC_COLUMNS, "").split(",") if name.strip()]
    names = dict.fromkeys([*before, *(column.name for column in advised)])
    return {ORC_COLUMNS: ",".join(names)} if names else {}


def _is_orc(properties: Mapping[str, str]) -> bool:
    return properties.get(FORMAT, "parquet").lower() == "orc"


def quoted_text(value: str) -> str:
    """Return a text as Spark SQL reads it. Spark 3 takes two quotes for the end of a text and the start of another."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def identifier(name: str) -> str:
    """Return a name as Spark SQL reads it."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else "`" + name.replace("`", "``") + "`"
