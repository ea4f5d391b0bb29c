"""Writes a table through the server, indexes it, and reads it by the server's plans: reader.py URL FOLDER."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError

import sidecar


def main(url: str, folder: Path) -> None:
    """Print which files a lookup opens, planned without and with the sidecar."""
    os.environ["REQUESTS_CA_BUNDLE"] = str(folder / "cert.pem")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3")
    catalog = load_catalog(
        "trial",
        type="rest",
        uri=url,
        **{"header.X-Sidecar-Token": (folder / "token").read_text().strip()},
        **({"s3.endpoint": endpoint} if endpoint else {}),
    )
    with contextlib.suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace("shop")
    if catalog.table_exists("shop.orders"):
        catalog.drop_table("shop.orders")
    files = [pa.table({"id": pa.array(range(part, 20_000, 20), pa.int64())}) for part in range(20)]
    table = catalog.create_table("shop.orders", files[0].schema)
    for rows in files:
        table.append(rows)
    lookup = "id = 4242"
    print("before ", len(list(table.scan(lookup).plan_files())), "of", len(files), "files")
    sidecar.build(table, ["id"])
    table = table.refresh()
    print("after  ", len(list(table.scan(lookup).plan_files())), "of", len(files), "files")
    print("rows   ", table.scan(lookup).to_arrow().to_pylist())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
