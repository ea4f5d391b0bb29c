"""Sizes of the sketches of groups of files, for a column of a table of many files, and how well their union estimates.

Tables differ in the size of their files, in partitions and in commits. Each group gets a full sketch, as of a column
with more distinct values in each group than a sketch keeps. *union* is the error (one standard deviation) of the
table's count if all groups have the same values, and if no two groups share a value.
"""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from sidecar.bundle.model import FileEntry, SegmentHeader, UnitEntry, UnitsTable
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.sketches.group_table import SketchGroup
from sidecar.bundle.sketches.sketch_blob import FieldSketches
from sidecar.bundle.toc import write_toc
from sidecar.bundle.writer import write_segment
from sidecar.filters.theta import MAX_THETA, ThetaSketch
from sidecar.indexing.sketch_groups import group_files
from sidecar.puffin.writer import PuffinWriter
from sidecar.source import BytesSource

MB = 1 << 20
SHAPES = [(10, 1, 1), (10, 100, 100), (128, 1, 1), (128, 100, 100), (128, 3_650, 1), (128, 1, 10_000), (512, 1, 1)]
"""Megabytes of a file, partitions, commits."""
PLACE = {"snapshot_id": 1, "sequence_number": 1}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="sketch_groups", description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--lg-k", type=int, nargs="+", default=[10, 11, 12])
    options = parser.parse_args(arguments)
    print(
        f"{options.files:,} files\n{'file':>7} {'partitions':>10} {'commits':>8} {'groups':>7} {'largest':>8}", end=""
    )
    print(f" {'lg_k':>5} {'blob':>9} {'a file':>8} {'toc':>6} {'write':>8} {'read, union':>12} {'union':>16}")
    for megabytes, partitions, commits in SHAPES:
        files = [listed(i, megabytes * MB, i % partitions, i * commits // options.files) for i in range(options.files)]
        groups = group_files(files)
        for lg_k in options.lg_k:
            print(f"{megabytes:>4} MB {partitions:>10,} {commits:>8,} {len(groups):>7,}", end="")
            print(f" {max(map(len, groups)):>8} {lg_k:>5}", end="")
            measure(groups, lg_k, options.files)
    return 0


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


def measure(groups: Sequence[Sequence[Any]], lg_k: int, files: int) -> None:
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
        FileEntry(f"file {i}", 1, 1, 0, -1, b"", (UnitEntry(0, 0, 1),), added_snapshot_id=1) for i in range(files)
    ]
    header = SegmentHeader("5f1d2c3b-0a49-4e58-8b6d-7c6f5e4d3c2b", 1, 1, "")
    start = time.perf_counter()
    written = write_segment(puffin, header, UnitsTable(entries), (), (), [FieldSketches(1, given)], **PLACE)
    taken = time.perf_counter() - start
    write_toc(puffin, written, **PLACE)
    puffin.finish()
    (segment,) = SidecarFile.open(BytesSource(sink.getvalue())).segments
    blob = segment.sketch_blobs[1]
    start = time.perf_counter()
    found = [sketch for _, sketch in blob.read(blob.groups(), lg_k) if isinstance(sketch, ThetaSketch)]
    union = ThetaSketch.union(found, 12)
    read = time.perf_counter() - start
    length, toc = written[0].length, len(written[0].toc)
    print(
        f" {length / 1e6:>6.2f} MB {length / files:>6.0f} B {toc:>4} B {1e3 * taken:>5.0f} ms {1e3 * read:>9.0f} ms",
        end="",
    )
    print(f" {error(full(rng, lg_k)):>7.2%} {error(union):>7.2%}")


def full(rng: np.random.Generator, lg_k: int) -> ThetaSketch:
    """The sketch of a million random values."""
    sketch = ThetaSketch(lg_k)
    sketch.theta = int(MAX_THETA * 2**lg_k / 1e6)
    values = np.sort(rng.integers(1, sketch.theta, 2**lg_k, dtype=np.uint64))
    sketch.retained = cast("Any", np.unique(values))
    return sketch


def error(sketch: ThetaSketch) -> float:
    return (sketch.upper_bound(1) - sketch.lower_bound(1)) / 2 / sketch.estimate


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
