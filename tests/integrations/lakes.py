"""The tables that schedulers care for: one with rows and a declaration, and one without a snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.tables import configure, create_with_rows, new_catalog

ROWS = pa.table({"id": pa.array(range(100)), "customer": pa.array([n % 7 for n in range(100)])})


def make_shop(folder: Path, patch: pytest.MonkeyPatch) -> Any:
    """A catalog named ``lake`` that pyiceberg finds, with ``shop.orders`` and ``shop.refunds``, not indexed yet."""
    catalog = new_catalog(folder, "lake", "shop")
    configure(patch, catalog)
    create_with_rows(catalog, "shop.orders", [ROWS])
    create_with_rows(catalog, "shop.refunds", [], ROWS.schema)
    return catalog
