"""Iceberg tables as they lie in other projects' repositories: their paths are those of another machine.

A table is copied to where its location stands below a folder of its own, without scheme and bucket. pyiceberg opens
object stores there by :class:`ElsewhereIO`, Spark by mount tables of Hadoop's view file system. For a local path there
is a symbolic link at its first folder that this machine lacks, for as long as the table is asked about, and relative
paths begin in the present folder. No byte of a table is changed.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from sidecar.storage.locations import local_path
from tests.iceberg.rest_server import client, serving

ROOT = "torture.root"
"""The property that has the folder."""
SCHEMES = ("hdfs", "s3", "s3a", "s3n", "gs")


class ForeignTable(NamedTuple):
    """A table's newest metadata: its file, and the location that it names."""

    metadata: Path
    location: str

    @property
    def metadata_location(self) -> str:
        return f"{self.location.rstrip('/')}/metadata/{self.metadata.name}"


class ElsewhereIO(PyArrowFileIO):
    """Opens locations in object stores below the folder of the property :data:`ROOT`."""

    @staticmethod
    def parse_location(location: str, properties: Any = None) -> tuple[str, str, str]:
        is_local = "://" not in location or location.startswith("file:///")
        place = local_path(location) if is_local else f"{(properties or {})[ROOT]}/{within(location)}"
        return "file", "", os.path.abspath(place or location)


def within(location: str) -> str:
    """A location without scheme, bucket and leading slashes."""
    return os.path.normpath(re.sub(r"^\w+:(//[^/]*)?", "", location).lstrip("/"))


def tables_of(folder: Path) -> Iterator[tuple[str, ForeignTable]]:
    """The newest metadata of each folder ``metadata``, by the folder of the table."""
    for place in sorted(folder.rglob("metadata")):
        found = [(_read(path), path) for path in sorted(place.glob("*.metadata.json"))]
        known = [(read["last-updated-ms"], path, read["location"]) for read, path in found if "location" in read]
        if known:
            _, path, location = max(known)
            yield str(place.parent.relative_to(folder)), ForeignTable(path, location)


@contextmanager
def linked(location: str, root: Path) -> Iterator[None]:
    """Have the local paths of a table lead below ``root``. Raises ``OSError`` where something else is in the way."""
    os.chdir(root)
    place = local_path(location)
    if place is None or not place.startswith("/"):
        yield
        return
    above = [*reversed(Path(place).parents), Path(place)]
    link = next((path for path in above if not path.exists()), None)
    if link is None:
        raise FileExistsError(place)
    link.unlink(missing_ok=True)  # the process that made it has been ended
    link.symlink_to(root / within(str(link)))
    try:
        yield
    finally:
        link.unlink()


def _read(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    try:
        found = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        return found if "last-updated-ms" in found else {}
    except ValueError:
        return {}


@contextmanager
def opened(table: ForeignTable, root: Path) -> Iterator[Table]:
    """Copy a table below ``root``, with the folders beside it whose names begin as its own, and open the copy.

    The catalog takes commits to tables of all versions, and keeps what pyiceberg does not know.
    """
    source, target = table.metadata.parents[1], root / within(table.location)
    for beside in source.parent.glob(f"{source.name}*"):
        if beside.is_dir():
            shutil.copytree(beside, target.parent / beside.name.replace(source.name, target.name, 1))
    plain = target / "metadata" / f"{table.metadata.name.partition('.')[0]}.plain.metadata.json"
    plain.write_text(json.dumps(_read(table.metadata)))
    with serving() as (server, address):
        server.locations["t"] = str(plain)
        io = {"py-io-impl": f"{__name__}.{ElsewhereIO.__name__}", ROOT: str(root)}
        yield client(address, **io).load_table("db.t")


def mount(session: Any, tables: Iterable[ForeignTable], root: Path) -> None:
    """Have Spark find the paths of all tables below ``root``, for good: Iceberg keeps what it is told at first."""
    conf = session.sparkContext._jsc.hadoopConfiguration()
    conf.set("fs.defaultFS", "hdfs://elsewhere/")
    for scheme in SCHEMES:
        conf.set(f"fs.{scheme}.impl", "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme")
        conf.set(f"fs.{scheme}.impl.disable.cache", "true")
        conf.set(f"fs.viewfs.overload.scheme.target.{scheme}.impl", "org.apache.hadoop.fs.LocalFileSystem")
    buckets = (re.match(r"\w+://([^/:]+)", table.location) for table in tables)
    for name in {"elsewhere", *(bucket[1] for bucket in buckets if bucket)}:
        conf.set(f"fs.viewfs.mounttable.{name}.linkMergeSlash", f"file://{root}")
