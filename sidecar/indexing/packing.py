"""Packs files into tasks of roughly equal size: large files are split by byte ranges, small ones combined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from sidecar.iceberg.listing import SnapshotFile
from sidecar.indexing.costs import LARGEST_TASK, SMALLEST_PIECE, SMALLEST_TASK, TASKS
from sidecar.indexing.stage_one.tasks import FilePiece, UnitsTask
from sidecar.results.choices import EngineKind


def make_tasks(groups: Sequence[Sequence[SnapshotFile]], engine: EngineKind) -> list[UnitsTask]:
    """Return tasks for an engine over the files of all ``groups``, in order. Sketches count the values of each group.

    The files of a group are neighbours, so few tasks have several groups: each task sends a sketch of each of its
    groups to the driver.
    """
    numbered = [(number, file) for number, files in enumerate(groups) for file in files]
    total = sum(file.file_size for _, file in numbered)
    size = min(max(total // TASKS, SMALLEST_TASK[engine]), LARGEST_TASK)
    tasks: list[UnitsTask] = []
    pieces: list[FilePiece] = []
    held = 0
    for piece in (piece for number, file in numbered for piece in _pieces(file, max(size, SMALLEST_PIECE), number)):
        length = piece.stop - piece.start
        if pieces and held + length > size:
            tasks.append(UnitsTask(len(tasks), tuple(pieces)))
            pieces, held = [], 0
        pieces.append(piece)
        held += length
    if pieces:
        tasks.append(UnitsTask(len(tasks), tuple(pieces)))
    return tasks


def _pieces(file: SnapshotFile, size: int, group: int) -> Iterator[FilePiece]:
    """Yield equal byte ranges of a file; a small file is one piece. A piece may own no row group."""
    length = max(file.file_size, 1)
    count = max(1, round(length / size))
    bounds = [length * i // count for i in range(count + 1)]
    for start, stop in pairwise(bounds):
        kind, identity = file.data_file.file_format, file.identity
        yield FilePiece(file.ordinal, file.path, file.file_size, start, stop, kind, identity, group)
