"""Sizes of the sketches of groups of files, for a column of a table of many files, and how well their union estimates.

Tables differ in the size of their files, in partitions and in commits. Each group gets a full sketch, as of a column
with more distinct values in each group than a sketch keeps. The error of the union is one standard deviation of the
table's count.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.timing import Clock
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.model import FileEntry, SegmentHeader, UnitEntry, UnitsTable
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.sketches.group_table import SketchGroup
from sidecar.bundle.sketches.sketch_blob import FieldSketches
from sidecar.bundle.toc import write_toc
from sidecar.bundle.writer import write_segment
from sidecar.filters.theta import MAX_THETA, ThetaSketch
from sidecar.indexing.sketch_groups import group_files
from sidecar.puffin.writer import PuffinWriter
from sidecar.storage.source import BytesSource

MB = 1 << 20
SHAPES = [(10, 1, 1), (10, 100, 100), (128, 1, 1), (128, 100, 100), (128, 3_650, 1), (128, 1, 10_000), (512, 1, 1)]
"""Megabytes of a file, partitions, commits."""
LG_K = (10, 11, 12)
PLACE = {"snapshot_id": 1, "sequence_number": 1}


def measure(bench: Bench) -> None:
    """Measure each shape with each size of sketches."""
    files = bench.size(10_000, quick=500)
    for megabytes, partitions, commits in SHAPES:
        listing = [listed(i, megabytes * MB, i % partitions, i * commits // files) for i in range(files)]
        groups = group_files(listing)
        for lg_k in LG_K:
            what = f"{megabytes} MB a file, {partitions:,} partitions, {commits:,} commits, lg_k {lg_k}"
            one_shape(bench, what, groups, lg_k, files)


def listed(ordinal: int, size: int, partition: int, commit: int) -> Any:
    identity = SimpleNamespace(file_sequence_number=commit, added_snapshot_id=commit)
    partition_values = (partition.to_bytes(8, "little"),)
    return SimpleNamespace(
        ordinal=ordinal,
        spec_id=0,
        partition=partition_values,
        known_as=identity,
        file_size=size,
        record_count=1_000_000,
    )


def one_shape(bench: Bench, what: str, groups: Sequence[Sequence[Any]], lg_k: int, files: int) -> None:
    rng = np.random.default_rng(1)
    given = []
    for group in groups:
        sketch = full(rng, lg_k)
        ordinals = np.sort(np.array([file.ordinal for file in group]))
        size, rows = sum(f.file_size for f in group), sum(f.record_count for f in group)
        given.append(SketchGroup(ordinals, len(group), rows, size, "long", sketch.to_bytes()))
    sink = io.BytesIO()
    puffin = PuffinWriter(sink)
    entries = [
        FileEntry(DataFileIdentity(f"file {i}", 1, 1, 1), 0, -1, b"", (UnitEntry(0, 0, 1),)) for i in range(files)
    ]
    header = SegmentHeader("5f1d2c3b-0a49-4e58-8b6d-7c6f5e4d3c2b", 1, 1, "")
    written = write_segment(puffin, header, UnitsTable(entries), [FieldSketches(1, given)], **PLACE)
    write_toc(puffin, written, **PLACE)
    puffin.finish()
    (segment,) = SidecarFile.open(BytesSource(sink.getvalue())).segments
    blob = segment.sketch_blobs[1]

    def read() -> ThetaSketch:
        found = [sketch for _, sketch in blob.read(blob.groups(), lg_k) if isinstance(sketch, ThetaSketch)]
        return ThetaSketch.union(found, 12)

    taken, union = Clock().time(read)
    length, toc = written[0].length, len(written[0].toc)
    note = f"{len(groups):,} groups, the largest of {max(map(len, groups))} files; table of contents {toc} bytes"
    bench.row(f"sketches a file: {what}", length / files, "bytes", note=note)
    bench.row(f"reading and uniting (CPU): {what}", taken.cpu * 1000, "ms")
    bench.row(f"error of the union, same values: {what}", 100 * error(full(rng, lg_k)), "%")
    bench.row(f"error of the union, no shared values: {what}", 100 * error(union), "%")


def full(rng: np.random.Generator, lg_k: int) -> ThetaSketch:
    """The sketch of a million random values."""
    sketch = ThetaSketch(lg_k)
    sketch.theta = int(MAX_THETA * 2**lg_k / 1e6)
    values = np.sort(rng.integers(1, sketch.theta, 2**lg_k, dtype=np.uint64))
    sketch.retained = cast("Any", np.unique(values))
    return sketch


def error(sketch: ThetaSketch) -> float:
    return (sketch.upper_bound(1) - sketch.lower_bound(1)) / 2 / sketch.estimate
