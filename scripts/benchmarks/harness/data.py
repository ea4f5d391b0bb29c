"""Data that is made once, under ``.work/bench``, and found again as it was made.

A benchmark may append to its table and register sidecars: :func:`table` takes all of that away again, by the times of
the files and by a copy of the catalog.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

ROOT = Path(__file__).resolve().parents[3]
WORK = ROOT / ".work" / "bench"
DONE = ".done"
CATALOG, CATALOG_AS_MADE = "cat.db", "cat.db.made"


def made(name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder ``name``, which ``make`` fills the first time. The name says all that ``make`` depends on.

    A folder that was moved is made again: metadata of tables has absolute paths.
    """
    folder = WORK / "data" / name
    done = folder / DONE
    if not done.exists() or done.read_text("utf-8") != str(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        done.write_text(str(folder), "utf-8")
    return folder


def table(name: str, make: Callable[[Path, SqlCatalog], None]) -> SqlCatalog:
    """Return a catalog in the folder ``name`` whose tables ``make`` made the first time, as it made them."""

    def make_all(folder: Path) -> None:
        catalog = open_catalog(folder)
        catalog.create_namespace("db")
        make(folder, catalog)
        catalog.engine.dispose()
        shutil.copy(folder / CATALOG, folder / CATALOG_AS_MADE)

    folder = made(name, make_all)
    as_made = (folder / DONE).stat().st_mtime_ns
    for path in folder.rglob("*"):
        if path.is_file() and path.name != CATALOG and path.stat().st_mtime_ns > as_made:
            path.unlink()
    (folder / CATALOG).unlink(missing_ok=True)
    shutil.copy(folder / CATALOG_AS_MADE, folder / CATALOG)
    return open_catalog(folder)


def open_catalog(folder: Path) -> SqlCatalog:
    """Return the catalog of a folder, which is its SQLite file and its warehouse."""
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog("bench", uri=f"sqlite:///{folder}/{CATALOG}", warehouse=f"file:{folder}/wh")


def folder_of(catalog: SqlCatalog) -> Path:
    """Return the folder of a catalog of :func:`open_catalog`."""
    return Path(catalog.properties["warehouse"].removeprefix("file:")).parent


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a folder that is gone afterwards."""
    WORK.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="scratch-", dir=WORK) as name:
        yield Path(name)


def catalog_environment(folder: Path) -> dict[str, str]:
    """Return the variables that tell a process of the catalog ``bench`` of a folder."""
    prefix = "PYICEBERG_CATALOG__BENCH__"
    return {
        f"{prefix}TYPE": "sql",
        f"{prefix}URI": f"sqlite:///{folder}/{CATALOG}",
        f"{prefix}WAREHOUSE": f"file:{folder}/wh",
        "SIDECAR_CATALOG": "bench",
    }
