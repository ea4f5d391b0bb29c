"""Merging segments: what a lookup costs after many builds, what is written, and the memory of a merge.

    scripts/bench segments [--builds 60] [--files 1] [--megabytes 256]

The first part builds a table of FILES files, then appends one small file and builds, BUILDS times. For each build it
counts the reads and bytes of a lookup of an absent value, and the bytes of segments that passed through a merge. It
ends with the same table built from nothing.

The second part merges a base and a delta of random filters, MEGABYTES and an eighth of it, in a process of its own. It
prints the time, and how much the largest resident set grew beyond that before the merge.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

FIELD, BLOCKS = 1, 2048
TABLE = "11111111-2222-3333-4444-555555555555"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--builds", type=int, default=60)
    parser.add_argument("--files", type=int, default=1)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--merge-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.merge_only:
        measure_merge(options.megabytes)
        return
    if options.builds:
        measure_builds(options.builds, options.files)
    if options.megabytes:
        command = [sys.executable, __file__, "--merge-only", "--megabytes", str(options.megabytes)]
        subprocess.run(command, check=True)


def measure_builds(builds: int, files: int) -> None:
    """Print the cost of a lookup after each tenth build, and the bytes that were merged."""
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    import sidecar
    from sidecar.indexing.previous import carrying

    merged = [0]
    merge = carrying.merge_segments

    def counting(*arguments: Any, **named: Any) -> Any:
        entries = merge(*arguments, **named)
        merged[0] += sum(entry.length for entry in entries)
        return entries

    carrying.merge_segments = counting
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/c.db", warehouse=f"file:{folder}/lake")
        catalog.create_namespace("db")
        table = catalog.create_table("db.t", pa.schema([("k", pa.int64())]))

        def append() -> None:
            table.append(pa.table({"k": rng.integers(0, 2**60, 300)}))

        def build(**more: Any) -> Any:
            report = sidecar.build(table, ["k"], kinds=["bloom"], engine="local", **more)
            table.refresh()
            return report

        def lookup() -> tuple[int, int]:
            plan = sidecar.plan(table, "k = 5")
            assert (plan.files_kept, plan.files_covered) == (0, plan.files_total)
            return plan.index_reads, plan.index_bytes_read

        for _ in range(files):
            append()
        base = build().file_size
        written, most = 0, (0, 0)
        for number in range(1, builds + 1):
            append()
            written += build().file_size
            found = lookup()
            most = max(most[0], found[0]), max(most[1], found[1])
            if number % 10 == 0:
                print(f"build {number:4}: {found[0]} reads, {found[1]:,} bytes; merged so far {merged[0]:,} bytes")
        grown = build(full=True).file_size
        added = (grown - base) or 1
        print(f"at most {most[0]} reads and {most[1]:,} bytes; fresh: {lookup()[0]} reads, {lookup()[1]:,} bytes")
        print(
            f"files written: {written:,} bytes; merged: {merged[0]:,} bytes, {merged[0] / added:.1f} for each added one"
        )


def measure_merge(megabytes: int) -> None:
    """Print time and memory of one fold."""
    from sidecar.bundle.merging.merge import MergedFile, merge_segments
    from sidecar.bundle.merging.source_segment import SourceSegment, check_segment
    from sidecar.bundle.sidecar_file import SidecarFile
    from sidecar.bundle.toc import write_toc
    from sidecar.puffin.writer import PuffinWriter
    from sidecar.source import LocalSource

    members = max(megabytes * 1_000_000 // (BLOCKS * 32), 64)
    place = {"snapshot_id": 1, "sequence_number": 1}
    with tempfile.TemporaryDirectory() as folder:
        old, new = Path(folder, "old.stats"), Path(folder, "new.stats")
        writer = multiprocessing.Process(target=write_old, args=(old, members, place))
        writer.start()  # a process of its own, so that its memory is not counted
        writer.join()
        sidecar = SidecarFile.open(LocalSource(str(old)), strict=True)
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        checked = [check_segment(SourceSegment(sidecar, segment)) for segment in sidecar.segments]
        seen = time.monotonic()
        files = [
            MergedFile(file, {number: ordinal})
            for number, segment in enumerate(sidecar.segments)
            for ordinal, file in enumerate(segment.files(range(segment.num_files)))
            if file is not None
        ]
        with new.open("wb") as sink:
            puffin = PuffinWriter(sink)
            write_toc(puffin, merge_segments(puffin, checked, files, [], [], **place), **place)
            puffin.finish()
        end = time.monotonic()
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        size = old.stat().st_size
    print(f"a fold of {size:,} bytes, {members + members // 8:,} filters: verified in {seen - start:.1f} s, ", end="")
    print(f"merged in {end - seen:.1f} s, {size / (end - start) / 1e6:.0f} MB/s; memory grew by {grown:,} bytes")


def write_old(path: Path, members: int, place: dict[str, int]) -> None:
    """Write a sidecar with a base and a delta."""
    from sidecar.bundle.toc import write_toc
    from sidecar.puffin.writer import PuffinWriter

    with path.open("wb") as sink:
        puffin = PuffinWriter(sink)
        entries = write_random(puffin, b"\1" * 16, range(members), place)
        entries += write_random(puffin, b"\2" * 16, range(members, members + members // 8), place)
        write_toc(puffin, entries, **place)
        puffin.finish()


def write_random(puffin: Any, segment: bytes, files: range, place: dict[str, int]) -> Any:
    """Write a segment of random filters, one for each of ``files``, with blocks that repeat to be quick."""
    from sidecar.bundle.checksum import BlobContext
    from sidecar.bundle.filters.positions import GroupMember, plan_groups
    from sidecar.bundle.filters.slicing import group_pages
    from sidecar.bundle.model import UNLISTED, FileEntry, SegmentHeader, UnitEntry, UnitsTable
    from sidecar.bundle.writer import FieldBundle, write_segment

    rng = np.random.default_rng(files.start)
    groups = plan_groups(GroupMember(n, "int64", "id", BLOCKS * 32) for n in range(len(files)))
    block = rng.integers(0, 1 << 32, (len(files), 1, 8), np.uint32)
    where = BlobContext(segment, FIELD)
    pages = (
        page
        for group in groups
        for page in group_pages(group, where, lambda first, count: np.repeat(block, count, axis=1))
    )
    entries = [
        FileEntry(f"file:/lake/part-{n}.parquet", 1000, 100, 0, UNLISTED, b"x" * 300, (UnitEntry(0, 0, 100),),
                  added_snapshot_id=5, file_sequence_number=1)
        for n in files
    ]  # fmt: skip
    header = SegmentHeader(TABLE, 1, 1, "2026-01-01T00:00:00Z", segment)
    return write_segment(puffin, header, UnitsTable(entries), [FieldBundle(FIELD, groups, pages)], **place)


if __name__ == "__main__":
    main()
