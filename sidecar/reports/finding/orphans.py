"""Finds the data files on a table's storage that no retained snapshot names.

A delete that was committed leaves them behind, and so does a write that failed. Nobody reads rows from them, but the
values are still there. Hidden files and folders are listed too: writers put unfinished files there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from sidecar.access import Access
from sidecar.data_files.formats import opened_file
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.files import ORC, PARQUET, format_of
from sidecar.iceberg.listing import live_entries
from sidecar.iceberg.manifests import read_manifests
from sidecar.many_files.find import DATA_ENDINGS, every_file_below
from sidecar.reports.finding.results import NotAsked
from sidecar.reports.finding.values import Questions
from sidecar.storage.locations import local_path

UNNAMED = "no retained snapshot names it"
_DATA_PATHS = ("write.data.path", "write.object-storage.path", "write.folder-storage.path")
"""Properties that name folders of data files; Iceberg still takes the older two."""
_OTHER_ENDINGS = (".json", ".json.gz", ".avro", ".puffin", ".stats", ".crc", ".text")
"""Endings of files that a table has beside its data. All other files are known by their first bytes."""
_OTHER_IDS = "no snapshot names the file, and its columns have other field ids than those of the table"


def find_orphans(table: Table, access: Access) -> tuple[list[DataFile], list[NotAsked]]:
    """Return the data files below a table's folders that no retained snapshot names, and what could not be listed."""
    missed: list[NotAsked] = []
    named = {_key(path) for path in _named_files(table, missed)}
    folders = dict.fromkeys([table.location(), *filter(None, map(table.properties.get, _DATA_PATHS))])
    found: dict[str, DataFile] = {}
    for folder in folders:
        try:
            paths = [path for path in every_file_below(folder, access) if _key(path) not in named]
        except SidecarError as error:
            missed.append(NotAsked("folder", folder, error.what))
            continue
        for path in paths:
            try:
                file = _data_file(path, access)
            except SidecarError as error:
                missed.append(NotAsked("data file", path, error.what))
                continue
            if file is not None:
                found[_key(path)] = file
    return list(found.values()), missed


def other_ids(file: DataFile, questions: Questions, access: Access) -> list[NotAsked]:
    """Return for which asked names a file without a snapshot has the column under another field id.

    A table that was dropped and made anew in the same folder may number its columns in another way. What is read by a
    field id in a file of the older one is another column then, or none.
    """
    missed = []
    asked = questions.columns_by_name
    try:
        with opened_file(access, file.file_path) as opened:
            leaves = [(leaf.path.lower(), leaf.field_id) for leaf in opened.leaves]
    except SidecarError as error:
        return [NotAsked("data file", file.file_path, error.what, name) for name, (ids, _) in asked.items() if not ids]
    for name, (field_ids, paths) in asked.items():
        for path, field_id in leaves:
            is_unread = field_id not in field_ids and (field_id is not None or not field_ids)
            if (path in paths and is_unread) or (path not in paths and field_id in field_ids):
                missed.append(NotAsked("data file", file.file_path, _OTHER_IDS, name))
                break
    return missed


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
    """Return the same text for all ways to write a location, and for all links to a file."""
    local = local_path(path)
    return path.partition("://")[2] if local is None else os.path.realpath(local)


def _data_file(path: str, access: Access) -> DataFile | None:
    """Return a Parquet or ORC file: those of Hive have no ending, and a damaged one may have only that."""
    name = path.lower()
    if name.endswith(_OTHER_ENDINGS):
        return None
    kind = PARQUET
    with closing(access.open(path)) as source:
        size = source.size
        try:
            kind = format_of(source)
            is_data = kind in (PARQUET, ORC)
        except DamagedFileError:
            is_data = name.endswith(DATA_ENDINGS)
    if not is_data:
        return None
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat(kind.upper()),
        partition=Record(),
        record_count=0,
        file_size_in_bytes=size,
    )
    file.spec_id = -1  # its partition is unknown, so no column takes its value from it
    return file
