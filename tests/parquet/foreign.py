"""What the foreign files hold: values as written, and filters as parquet-java reads them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from sidecar.parquet.page_indexes.page_index import ColumnIndex

DATA = Path(__file__).resolve().parents[1] / "data" / "parquet"
ORDERS = ["UNORDERED", "ASCENDING", "DESCENDING"]
WRITERS = sorted(
    path.stem
    for path in (DATA / "expected").glob("*.json")
    if (DATA / f"{path.stem}.parquet").read_bytes()[-4:] == b"PAR1" and "_enc_" not in path.stem
)
"""Files that are not encrypted, by name."""


@cache
def expected(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / "expected" / f"{name}.json").read_text())
    return found


@cache
def written() -> dict[str, list[Any]]:
    """Column -> cells in row order: PLAIN bytes, ``None``, or for lists a list of those."""
    columns = json.loads((DATA / "values.json").read_text())["columns"]
    return {column["name"]: [_bytes(cell) for cell in column["values"]] for column in columns}


def _bytes(cell: Any) -> Any:
    if isinstance(cell, list):
        return [_bytes(item) for item in cell]
    return None if cell is None else bytes.fromhex(cell)


def leaf_values(path: str, first: int, rows: int) -> list[bytes]:
    """Non-null PLAIN values of a leaf in rows ``first`` to ``first + rows``."""
    out: list[bytes] = []
    for cell in written()[path.split(".")[0]][first : first + rows]:
        out += [item for item in (cell if isinstance(cell, list) else [cell]) if item is not None]
    return out


def same_column_index(found: ColumnIndex, want: dict[str, Any]) -> None:
    assert ORDERS[found.boundary_order] == want["boundary_order"]
    assert found.null_pages == want["null_pages"]
    assert found.null_counts == want["null_counts"]
    assert found.nan_counts == want["nan_counts"]
    assert [bound.hex() for bound in found.min_values] == want["min"]
    assert [bound.hex() for bound in found.max_values] == want["max"]
    assert (found.repetition_level_histograms or []) == want["rep_hist"]
    assert (found.definition_level_histograms or []) == want["def_hist"]
