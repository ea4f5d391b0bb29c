"""Makes the files and tables that pages of the guide take as given, in the current folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog

EACH = 5000
"""Rows of a file."""


def orders(count: int) -> pa.Table:
    """Rows of orders, whose ids are in no order."""
    n = np.arange(count)
    customers = [f"customer-{k}" for k in n * 31 % 997]
    return pa.table({"id": n * 7919 % count, "customer": customers, "amount": n % 700 / 10})


def make_shop() -> None:
    """The namespace ``shop``: two tables of four files, and one without any. The catalog is in ``lake.db``."""
    catalog = load_catalog("lake", uri="sqlite:///lake.db")
    catalog.create_namespace("shop", {"location": Path("warehouse/shop").absolute().as_uri()})
    rows = orders(4 * EACH)
    for name in ("orders", "refunds"):
        table = catalog.create_table(f"shop.{name}", rows.schema)
        for start in range(0, len(rows), EACH):
            table.append(rows.slice(start, EACH))
    catalog.create_table("shop.returns", rows.schema)


def make_folder() -> None:
    """The folder ``lake``: three days of Parquet files with filters and page indexes, and a day of ORC."""
    rows = orders(4 * EACH)
    days = [rows.slice(start, EACH) for start in range(0, len(rows), EACH)]
    for day, part in enumerate(days, start=1):
        Path(f"lake/day={day}").mkdir(parents=True)
        if day == len(days):
            orc.write_table(part, f"lake/day={day}/part-0.orc", bloom_filter_columns=[1, 2])
        else:
            pq.write_table(
                part,
                f"lake/day={day}/part-0.parquet",
                row_group_size=EACH // 2,
                write_page_index=True,
                bloom_filter_options={"id": {"ndv": EACH // 2}, "customer": {"ndv": 1000}},
            )


def make_nothing() -> None:
    """README and some guides make their tables by themselves."""


PREPARED = {
    "README": make_nothing,
    "schedule": make_shop,
    "upkeep": make_shop,
    "conversions": make_folder,
    "find": make_nothing,
}
"""What makes the files of a page, by its name."""
