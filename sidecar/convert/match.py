"""Which file of a sidecar a Parquet file is; a wrong answer would give it filters that deny its rows.

First by path, size and record count together, as planning does. A file that was moved, or that has lost its indexes
since, is found by what its footer says:

- in a sidecar of plain files by the fingerprint of its pages (:mod:`sidecar.parquet.identity`), provided that the
  footer has statistics, without which files of one shape all look the same;
- in a table's sidecar by name, size, record count and row groups, as the names of a table's data files are unique.

In each case the row groups must be those that were indexed. Whatever is in doubt is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from sidecar.bundle.model import FileEntry
from sidecar.bundle.sections import FILES_PER_BATCH
from sidecar.bundle.sidecar_file import Segment, SidecarFile
from sidecar.convert.collection import NO_TABLE
from sidecar.errors import UsageError
from sidecar.parquet.footer import Footer
from sidecar.parquet.identity import is_distinctive, pages_fingerprint
from sidecar.source import local_path


@dataclass(frozen=True)
class Match:
    """A file as one segment lists it; ``units`` are unit ordinals by row group."""

    segment: Segment
    entry: FileEntry
    units: tuple[int, ...]


def is_plain(segment: Segment) -> bool:
    """Whether a segment speaks of plain files, not of a table's."""
    return segment.header.table_uuid == NO_TABLE


def listed_files(sidecar: SidecarFile) -> list[FileEntry]:
    """All files that a sidecar speaks of, each path once. Raises :class:`UsageError` for what cannot be read."""
    found = {entry.path: entry for segment in sidecar.segments for _, entry in _entries(segment)}
    return list(found.values())


def find_file(sidecar: SidecarFile, footer: Footer) -> list[Match]:
    """The file with this footer, in every segment that lists it, the oldest first.

    Raises :class:`UsageError` if no segment does, or if it cannot be told which file it is.
    """
    matches = [match for segment in sidecar.segments for match in _in_segment(segment, footer)]
    if not matches:
        raise _unknown(sidecar, footer)
    return matches


def _in_segment(segment: Segment, footer: Footer) -> Iterator[Match]:
    for path in _spellings(footer.name):
        ordinal = segment.file_ordinal(path, footer.size, footer.num_rows)
        if ordinal is not None:
            (entry,) = segment.files([ordinal])
            if entry is None:
                raise UsageError("the sidecar's list of files cannot be read", found=segment.id)
            if not _same_pages(segment, entry, footer):
                raise UsageError("the file was written anew since it was indexed", file=footer.name)
            yield _match(segment, ordinal, entry)
            return
    found = [(i, entry) for i, entry in _entries(segment) if _is_moved(segment, entry, footer)]
    named = [(i, entry) for i, entry in found if _name(entry.path) == _name(footer.name)]
    certain = named or found
    if len(certain) > 1:
        raise UsageError(
            "several files of the sidecar look like this one",
            file=footer.name,
            found=", ".join(entry.path for _, entry in certain[:3]),
        )
    for ordinal, entry in certain:
        yield _match(segment, ordinal, entry)


def _match(segment: Segment, ordinal: int, entry: FileEntry) -> Match:
    first, stop = segment.unit_ranges[ordinal : ordinal + 2].tolist()
    if stop - first != len(entry.units):
        raise UsageError("the sidecar contradicts itself on the units of a file", file=entry.path)
    return Match(segment, entry, tuple(range(first, stop)))


def _entries(segment: Segment) -> Iterator[tuple[int, FileEntry]]:
    for first in range(0, segment.num_files, FILES_PER_BATCH):
        wanted = range(first, min(first + FILES_PER_BATCH, segment.num_files))
        for ordinal, entry in zip(wanted, segment.files(wanted), strict=True):
            if entry is None:
                raise UsageError("the sidecar's list of files cannot be read", found=segment.id)
            yield ordinal, entry


def _same_pages(segment: Segment, entry: FileEntry, footer: Footer) -> bool:
    groups = [(group.ordinal, group.first_row, group.num_rows) for group in footer.row_groups]
    if entry.record_count != footer.num_rows or [tuple(unit) for unit in entry.units] != groups:
        return False
    return not is_plain(segment) or entry.entry in (b"", pages_fingerprint(footer))


def _is_moved(segment: Segment, entry: FileEntry, footer: Footer) -> bool:
    if not _same_pages(segment, entry, footer):
        return False
    if is_plain(segment):
        return bool(entry.entry) and is_distinctive(footer)
    return entry.file_size == footer.size and _name(entry.path) == _name(footer.name)


def _unknown(sidecar: SidecarFile, footer: Footer) -> UsageError:
    """Say why, where a file of that name is there."""
    for segment in sidecar.segments:
        for _, entry in _entries(segment):
            if _name(entry.path) != _name(footer.name):
                continue
            if _same_pages(segment, entry, footer) and is_plain(segment):
                return UsageError(
                    "the file may be another one than was indexed: its footer has no statistics to tell by",
                    file=footer.name,
                    expected=f"the path {entry.path}",
                )
            return UsageError(
                "the file is not the one that was indexed",
                file=footer.name,
                expected=_facts(entry.file_size, entry.record_count, len(entry.units)),
                found=_facts(footer.size, footer.num_rows, len(footer.row_groups)),
            )
    return UsageError("the sidecar does not speak of this file", file=footer.name)


def _facts(size: int, rows: int, groups: int) -> str:
    return f"{size} bytes, {rows} rows, {groups} row groups"


def _name(path: str) -> str:
    return PurePosixPath(path).name


def _spellings(path: str) -> list[str]:
    """A local path as different writers spell it."""
    local = local_path(path)
    if local is None:
        return [path]
    full = os.path.abspath(local)
    return list(dict.fromkeys([path, local, full, f"file://{full}", f"file:{full}"]))
