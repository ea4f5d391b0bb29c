"""Checks what a segment records of a manifest's data files: entries, fingerprints, bounds and partitions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table

from sidecar.bundle.model import ListedManifest
from sidecar.errors import Problem, problem_in
from sidecar.iceberg.listing import entry_bounds, partition_values
from sidecar.iceberg.manifests import ManifestContents, RawEntry, identity_of, read_manifest
from sidecar.iceberg.statistics_files.sidecar_files import SidecarFiles
from sidecar.planning.verify_registration import column_names


class RecordedColumns:
    """The files of a sidecar, and what plans compare with a predicate for many files at once, each read once."""

    def __init__(self, files: SidecarFiles) -> None:
        self.files = files
        self._numbers = np.arange(files.num_files)

    @cached_property
    def bounds(self) -> dict[int, pa.Table]:
        """The bounds of all files by field id, except those that cannot be read."""
        tables = {field_id: self.files.bounds(field_id, self._numbers) for field_id in self.files.bounded_fields}
        return {field_id: table for field_id, table in tables.items() if table is not None}

    @cached_property
    def partitions(self) -> pa.Table | None:
        """The partition tuples of all files; ``None`` if they cannot be read."""
        return self.files.partitions(self._numbers)


def manifest_problems(table: Table, line: ManifestFile, columns: RecordedColumns, path: str) -> list[Problem] | None:
    """Check a manifest against each segment that lists it; ``None`` if no segment does.

    ``path`` is that of the sidecar.
    """
    listing = columns.files.listings(line)
    if not listing:
        return None
    contents = read_manifest(table.io, line)
    problems: list[Problem] = []
    for listed in listing:
        problems += _entry_problems(contents, listed, columns.files, path)
        problems += _recorded_column_problems(table, contents, listed, columns, path)
    return problems


def _entry_problems(
    contents: ManifestContents, listed: ListedManifest, files: SidecarFiles, path: str
) -> list[Problem]:
    """Compare the entries of a listed manifest with the segment's records of them."""
    live = live_entries(contents)
    if len(live) != listed.live_files:
        return [problem_in(path, f"lists {listed.live_files} files of {listed.path}, which has {len(live)}")]
    problems = []
    stored = files.entries(range(listed.first_file, listed.first_file + listed.live_files))
    for number, (raw, entry) in enumerate(zip(live, stored, strict=True), listed.first_file):
        file, identity = raw.entry.data_file, identity_of(raw.entry)
        if entry is None:
            problems.append(problem_in(path, f"the entry of {file.file_path} cannot be read"))
        elif entry.entry != raw.raw or entry.identity != identity:
            problems.append(problem_in(path, f"the entry of {file.file_path} differs from the one in its manifest"))
        elif (found := files.numbers_of(identity)) and number not in found:  # listed twice: never found
            problems.append(problem_in(path, f"the fingerprint of {file.file_path} differs from that of its entry"))
        elif (rows := sum(unit.rows for unit in entry.units)) != file.record_count and entry.units:
            text = f"the row groups of {file.file_path} have {rows} rows, the file has {file.record_count}"
            problems.append(problem_in(path, text))
    return problems


def _recorded_column_problems(
    table: Table, contents: ManifestContents, listed: ListedManifest, columns: RecordedColumns, path: str
) -> Iterator[Problem]:
    """Compare the bounds and partitions that a segment records of a manifest's files with the entries.

    A segment may record fewer files than the manifest has. :func:`_entry_problems` reports that.
    """
    first = listed.first_file
    live = [raw.entry.data_file for raw in live_entries(contents)]
    known = [entry_bounds(file) for file in live]
    for field_id, bounds_of_all in columns.bounds.items():
        rows = zip(*(column.to_pylist() for column in bounds_of_all.slice(first, len(live)).columns), strict=True)
        for file, bounds, row in zip(live, known, rows, strict=False):
            # A merged segment lacks bounds of files whose segments had no bounds of the field.
            if any(value is not None for value in row) and (field_id not in bounds or row != bounds[field_id]):
                text = f"the bounds of {file.file_path} differ from those in its manifest"
                yield problem_in(path, text, column=column_names(table, [field_id]))
    spec = table.specs().get(listed.spec_id)
    if columns.partitions is None or spec is None:
        return
    for file, recorded in zip(live, columns.partitions.slice(first, len(live)).to_pylist(), strict=False):
        values = partition_values(file, contents.partition_fields, spec)
        if (recorded["spec_id"], tuple(recorded["partition"])) != (listed.spec_id, values):
            yield problem_in(path, f"the partition of {file.file_path} differs from the one in its manifest")


def live_entries(contents: ManifestContents) -> list[RawEntry]:
    """Return the entries of a manifest that are not deleted."""
    return [raw for raw in contents.entries if raw.entry.status != ManifestEntryStatus.DELETED]
