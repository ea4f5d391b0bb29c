"""Finds the data files on a table's storage that no retained snapshot names.

A delete that was committed leaves them behind, and so does a write that failed. Nobody reads rows from them, but the
values are still there. Hidden files and folders are listed too: writers put unfinished files there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from sidecar.access import Access
from sidecar.errors import SidecarError
from sidecar.iceberg.listing import live_entries
from sidecar.iceberg.manifests import read_manifests
from sidecar.many_files.find import DATA_ENDINGS, every_file_below
from sidecar.reports.finding.results import NotAsked
from sidecar.storage.locations import local_path

UNNAMED = "no retained snapshot names it"
_DATA_PATH = "write.data.path"


def find_orphans(table: Table, access: Access) -> tuple[list[DataFile], list[NotAsked]]:
    """Return the data files below a table's folders that no retained snapshot names, and what could not be listed."""
    missed: list[NotAsked] = []
    named = {_key(path) for path in _named_files(table, missed)}
    folders = dict.fromkeys([table.location(), table.properties.get(_DATA_PATH) or table.location()])
    found: dict[str, DataFile] = {}
    for folder in folders:
        try:
            for path in every_file_below(folder, access.io):
                if path.lower().endswith(DATA_ENDINGS) and _key(path) not in named:
                    found[_key(path)] = _data_file(path, access)
        except SidecarError as error:
            missed.append(NotAsked("folder", folder, error.what))
    return list(found.values()), missed


def _named_files(table: Table, missed: list[NotAsked]) -> Iterator[str]:
    """Yield the live data files and delete files of all retained snapshots."""
    seen: set[str] = set()
    for snapshot in table.metadata.snapshots:
        try:
            lines = read_manifests(table.io, snapshot.manifest_list)
        except SidecarError as error:
            missed.append(NotAsked("manifest list", snapshot.manifest_list, error.what))
            continue
        for line in lines:
            if line.manifest_path in seen:
                continue
            seen.add(line.manifest_path)
            try:
                yield from (entry.data_file.file_path for entry in live_entries(table.io, line))
            except SidecarError as error:
                missed.append(NotAsked("manifest", line.manifest_path, error.what))


def _key(path: str) -> str:
    """Return the same text for all ways to write a location."""
    local = local_path(path)
    return path.partition("://")[2] if local is None else local


def _data_file(path: str, access: Access) -> DataFile:
    with closing(access.open(path)) as source:
        size = source.size
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.ORC if path.lower().endswith(".orc") else FileFormat.PARQUET,
        partition=Record(),
        record_count=0,
        file_size_in_bytes=size,
    )
    file.spec_id = -1  # its partition is not known, so no partition value is taken for that of a column
    return file
