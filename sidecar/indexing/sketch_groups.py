"""Divides files into groups, each of which gets a sketch, and describes the groups of a new segment.

A sketch cannot forget a value, so after removals a whole group is read again. Tables lose files by partition (old days
are deleted, partitions are overwritten and compacted) and by commit. So the files of one partition and of one commit
are neighbours. A group ends before the next partition if it has a quarter of the most files or bytes, and before the
next commit if it has half; without a least size, a table of small commits would get a sketch of 32 KiB for each file.
In a table of one partition it also ends there if it has as many files as follow it: a rollback of few files then leaves
most groups as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from sidecar.bundle.sketches.group_table import SketchGroup
from sidecar.bundle.sketches.regrouping import MOST_BYTES, MOST_FILES
from sidecar.bundle.sketches.sketch_blob import FieldSketches
from sidecar.conversion.protection import properties_of
from sidecar.filters.theta import ThetaSketch
from sidecar.iceberg.listing import SnapshotFile
from sidecar.iceberg.resolve import TableColumn
from sidecar.indexing.assemble import Selection, StageResults
from sidecar.indexing.columns import Options

_PARTITION_SHARE, _COMMIT_SHARE = 4, 2
"""A group ends with its partition or commit if it has one of so many parts of the most files or bytes."""

PartitionOfSpec = tuple[int, tuple[bytes | None, ...]]


def sketched_columns(columns: Iterable[TableColumn], options: Options) -> list[TableColumn]:
    """Return the columns that get sketches; encrypted bundles have none."""
    asked = [column for column in columns if column.field_id not in options.encrypted]
    return [column for column in asked if options.of(column.field_id).theta]


def group_files(files: Sequence[SnapshotFile]) -> list[list[SnapshotFile]]:
    """Return the groups of ``files``, at most 256 files and 8 GB each; a larger file is a group of its own."""
    first: dict[PartitionOfSpec, tuple[int, int]] = {}
    for file in files:
        age = _age(file)
        first[_partition(file)] = min(age, first.get(_partition(file), age))
    ordered = sorted(files, key=lambda file: (first[_partition(file)], _age(file)))
    groups: list[list[SnapshotFile]] = []
    held = 0
    for at, file in enumerate(ordered):
        if not groups or _ends_before(groups[-1], held, file, len(ordered) - at if len(first) == 1 else len(ordered)):
            groups.append([])
            held = 0
        groups[-1].append(file)
        held += file.file_size
    return groups


def _partition(file: SnapshotFile) -> PartitionOfSpec:
    return file.spec_id, file.partition


def _age(file: SnapshotFile) -> tuple[int, int]:
    """Return what orders files by commit; files of one commit are in the order of its manifests."""
    return file.known_as.file_sequence_number, file.ordinal


def _ends_before(group: Sequence[SnapshotFile], held: int, following: SnapshotFile, newer: int) -> bool:
    """Return whether a group of ``held`` bytes ends before the ``following`` file.

    A group of ``newer`` files ends before the next commit.
    """
    if len(group) >= MOST_FILES or held + following.file_size > MOST_BYTES:
        return True
    share = max(len(group) / MOST_FILES, held / MOST_BYTES)
    if _partition(group[-1]) != _partition(following):
        return share >= 1 / _PARTITION_SHARE
    return _commit(group[-1]) != _commit(following) and (share >= 1 / _COMMIT_SHARE or len(group) >= newer)


def _commit(file: SnapshotFile) -> int | None:
    return file.known_as.added_snapshot_id


def segment_sketches(
    groups: Sequence[Sequence[SnapshotFile]],
    selection: Selection,
    indexed: StageResults,
    columns: Sequence[TableColumn],
    options: Options,
) -> list[FieldSketches]:
    """Return the sketches of each field of a new segment with the files of ``selection``.

    ``groups`` are those that stage 1 counted. A file that was counted in part because it failed is not in its group,
    but its rows are, so that the group counts as one with removed rows.
    """
    places = {file.ordinal: place for place, file in enumerate(selection.files)}
    counted = {
        (unit.file, column.field_id)
        for column in sketched_columns(columns, options)
        for unit in indexed.units
        if not unit.columns[column.field_id].theta_reason
    }
    plaintext = indexed.encrypted.fields & options.plaintext
    found = []
    for column in sketched_columns(columns, options):
        made = list(_field_groups(groups, places, counted, indexed, column))
        if made:
            found.append(FieldSketches(column.field_id, made, properties_of(column.field_id in plaintext)))
    return found


def _field_groups(
    groups: Sequence[Sequence[SnapshotFile]],
    places: dict[int, int],
    counted: set[tuple[int, int]],
    indexed: StageResults,
    column: TableColumn,
) -> Iterator[SketchGroup]:
    for number, files in enumerate(groups):
        members = [file for file in files if (file.ordinal, column.field_id) in counted]
        if members:
            sketch = indexed.group_sketches.get((number, column.field_id), ThetaSketch())
            in_part = [file for file in files if file.ordinal in indexed.in_part]
            yield sketch_group([places[file.ordinal] for file in members], [*members, *in_part], column, sketch)


def sketch_group(
    places: Sequence[int], counted: Sequence[SnapshotFile], column: TableColumn, sketch: ThetaSketch
) -> SketchGroup:
    """Return a group of the files with the ordinals ``places`` in a segment; ``counted`` are all that are counted."""
    return SketchGroup(
        files=np.array(sorted(places), np.int64),
        counted=len(counted),
        rows=sum(file.record_count for file in counted),
        size=sum(file.file_size for file in counted),
        type=column.type,
        sketch=sketch.to_bytes(),
    )
