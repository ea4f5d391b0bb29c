"""Merging segments: what a lookup costs after many builds, what is written, and the memory of a merge.

A table of one file gets one small file more and is built again, sixty times. For each build the reads and bytes of a
lookup of an absent value are counted, and the bytes of segments that passed through a merge; the same table built from
nothing is compared. Then a base and a delta of random filters are merged in a process of its own.
"""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import sidecar
from scripts.benchmarks.harness import data
from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.processes import own_memory
from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.filters.field_bundle import FieldBundle
from sidecar.bundle.filters.positions import GroupMember, plan_groups
from sidecar.bundle.filters.slicing import group_pages
from sidecar.bundle.merging.checking import check_segment
from sidecar.bundle.merging.merge import MergedFile, merge_segments
from sidecar.bundle.merging.source_segment import SourceSegment
from sidecar.bundle.model import UNLISTED, FileEntry, SegmentHeader, UnitEntry, UnitsTable
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.toc import write_toc
from sidecar.bundle.writer import write_segment
from sidecar.indexing.previous import carrying
from sidecar.puffin.writer import PuffinWriter
from sidecar.storage.local import LocalSource

FIELD, BLOCKS = 1, 2048
TABLE = "11111111-2222-3333-4444-555555555555"
PLACE = {"snapshot_id": 1, "sequence_number": 1}


def measure(bench: Bench) -> None:
    """Measure builds, then one merge."""
    many_builds(bench, bench.size(60, quick=6))
    megabytes = bench.size(256, quick=16, large=2048)
    with data.scratch() as folder:
        command = [sys.executable, "-m", "scripts.benchmarks.segments", str(folder), str(megabytes)]
        done = subprocess.run(command, cwd=data.ROOT, check=True, stdout=subprocess.PIPE)
    found = json.loads(done.stdout)
    what = f"merge of {found['bytes'] / 1e6:,.0f} MB"
    bench.row(f"{what}: verifying", found["verified"], "s")
    bench.row(f"{what}: merging", found["merged"], "s")
    bench.row(f"{what}: memory grew by", found["grown"] / 1e6, "MB")


def many_builds(bench: Bench, builds: int) -> None:
    merged = [0]
    merge = carrying.merge_segments

    def counting(*arguments: Any, **named: Any) -> Any:
        entries = merge(*arguments, **named)
        merged[0] += sum(entry.length for entry in entries)
        return entries

    carrying.merge_segments = counting
    rng = np.random.default_rng(1)
    with data.scratch() as folder:
        catalog = data.open_catalog(folder)
        catalog.create_namespace("db")
        table = catalog.create_table("db.t", pa.schema([("k", pa.int64())]))

        def build(**more: Any) -> Any:
            report = sidecar.build(table, ["k"], kinds=["bloom"], engine="local", **more)
            table.refresh()
            return report

        def lookup() -> Any:
            plan = sidecar.plan(table, "k = 5")
            assert (plan.files_kept, plan.files_covered) == (0, plan.files_total)
            return plan

        table.append(pa.table({"k": rng.integers(0, 2**60, 300)}))
        base, written, plans = build().file_size, 0, []
        for _ in range(builds):
            table.append(pa.table({"k": rng.integers(0, 2**60, 300)}))
            written += build().file_size
            plans.append(lookup())
        added = (build(full=True).file_size - base) or 1
        fresh = lookup()
    carrying.merge_segments = merge
    what = f"a lookup after each of {builds} builds"
    bench.row(
        f"{what}: most reads", max(plan.index_reads for plan in plans), "reads", note=f"fresh {fresh.index_reads}"
    )
    most = max(plan.index_bytes_read for plan in plans)
    bench.row(f"{what}: most bytes", most / 1024, "KiB", note=f"fresh {fresh.index_bytes_read / 1024:.1f}")
    bench.row(f"{builds} builds: written", written / 1e6, "MB")
    bench.row(f"{builds} builds: merged for each added byte", merged[0] / added, "bytes")


def merge_once(folder: Path, megabytes: int) -> None:
    """Merge a base and a delta of an eighth of it; print times and memory as JSON."""
    members = max(megabytes * 1_000_000 // (BLOCKS * 32), 64)
    old, new = folder / "old.stats", folder / "new.stats"
    writer = multiprocessing.Process(target=write_old, args=(old, members))
    writer.start()  # a process of its own, so that its memory is not counted
    writer.join()
    opened = SidecarFile.open(LocalSource(str(old)), strict=True)
    before, start = own_memory()[1], time.monotonic()
    checked = [check_segment(SourceSegment(opened, segment)) for segment in opened.segments]
    seen = time.monotonic()
    files = [
        MergedFile(file, {number: ordinal})
        for number, segment in enumerate(opened.segments)
        for ordinal, file in enumerate(segment.files(range(segment.num_files)))
        if file is not None
    ]
    with new.open("wb") as sink:
        puffin = PuffinWriter(sink)
        write_toc(puffin, merge_segments(puffin, checked, files, [], [], **PLACE), **PLACE)
        puffin.finish()
    end = time.monotonic()
    found = {"bytes": old.stat().st_size, "verified": seen - start, "merged": end - seen}
    print(json.dumps(found | {"grown": own_memory()[1] - before}))


def write_old(path: Path, members: int) -> None:
    """Write a sidecar with a base and a delta."""
    with path.open("wb") as sink:
        puffin = PuffinWriter(sink)
        entries = write_random(puffin, b"\1" * 16, range(members))
        entries += write_random(puffin, b"\2" * 16, range(members, members + members // 8))
        write_toc(puffin, entries, **PLACE)
        puffin.finish()


def write_random(puffin: Any, segment: bytes, files: range) -> Any:
    """Write a segment of random filters, one for each of ``files``, with blocks that repeat to be quick."""
    rng = np.random.default_rng(files.start)
    groups = plan_groups(GroupMember(n, "int64", "id", BLOCKS * 32) for n in range(len(files)))
    block = rng.integers(0, 1 << 32, (len(files), 1, 8), np.uint32)
    where = BlobContext(segment, FIELD)
    pages = (
        page
        for group in groups
        for page in group_pages(group, where, lambda first, count: np.repeat(block, count, axis=1))
    )
    units = (UnitEntry(0, 0, 100),)
    names = [DataFileIdentity(f"file:/lake/part-{n}.parquet", 1000, 100, 5, 1) for n in files]
    entries = [FileEntry(name, 0, UNLISTED, b"x" * 300, units) for name in names]
    header = SegmentHeader(TABLE, 1, 1, "2026-01-01T00:00:00Z", segment)
    return write_segment(puffin, header, UnitsTable(entries), [FieldBundle(FIELD, groups, pages)], **PLACE)


if __name__ == "__main__":
    merge_once(Path(sys.argv[1]), int(sys.argv[2]))
