"""Looking absent values up in a bundle over 100,000 units: split-block filters, and ORC filters of two sizes.

One sidecar for each kind, its filters random bits. Figures: bytes and reads of opening the file and of one lookup
together (the most of --values lookups), and the lookup's own time on the CPU (medians; what else runs on the machine
counts little). Targets for ORC filters of one (m, k): at most k bit rows and 64 KB, and under 5 ms.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from sidecar.bundle.checksum import BlobContext
from sidecar.bundle.filters.positions import BundleGroup, GroupMember, plan_groups
from sidecar.bundle.filters.rules import SPLIT_BLOCK, IndexRule, OrcRule
from sidecar.bundle.filters.slicing import slice_blocks
from sidecar.bundle.model import UNLISTED, FileEntry, SegmentHeader, UnitEntry, UnitsTable
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.toc import write_toc
from sidecar.bundle.writer import FieldBundle, write_segment
from sidecar.filters.orc_bloom import size_for
from sidecar.filters.probes import AnyEncoding
from sidecar.filters.values import Probe
from sidecar.puffin.writer import PuffinWriter
from sidecar.source import LocalSource

PLACE = {"snapshot_id": 1, "sequence_number": 1}
SEGMENT = bytes(16)
STRIDE = 10_000


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bundle_lookup", description=__doc__)
    parser.add_argument("--units", type=int, default=100_000)
    parser.add_argument("--values", type=int, default=41)
    options = parser.parse_args(arguments)
    print(f"{'filters':<24} {'file':>15} {'index bytes':>12} {'reads':>6} {'compute ms':>11} {'units kept':>11}")
    missed = False
    for name, encoding, num_bytes, rule in filters():
        with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as folder:
            path = Path(folder) / "many.stats"
            write(path, options.units, encoding, num_bytes, rule)
            read, reads, seconds, kept = measure(path, options.values)
            size = path.stat().st_size
        print(f"{name:<24} {size:>15,} {read:>12,} {reads:>6} {seconds * 1000:>11.2f} {kept:>11.1f}")
        if isinstance(rule, OrcRule):
            missed |= read > rule.k * options.units / 8 + 64 * 1024 or seconds >= 0.005
    print(f"targets: {'missed' if missed else 'met'}")
    return int(missed)


def filters() -> Iterator[tuple[str, str, int, IndexRule]]:
    """Name, encoding, bytes of one filter, rule."""
    yield "split blocks, z = 256", "int64", 256 * 32, SPLIT_BLOCK
    for fpp in (0.05, 0.01):
        bits, k = size_for(STRIDE, fpp)
        yield f"ORC, m = {bits}, k = {k}", "orc/long", bits // 8, OrcRule(k, bits)


def write(path: Path, units: int, encoding: str, num_bytes: int, rule: IndexRule) -> None:
    """A sidecar of one file with so many units, written region by region."""
    (group,) = plan_groups(GroupMember(unit, encoding, "id", num_bytes, rule=rule) for unit in range(units))
    entries = tuple(UnitEntry(unit, unit * STRIDE, STRIDE) for unit in range(units))
    table = UnitsTable([FileEntry("file:/a.orc", 1, units * STRIDE, 0, UNLISTED, b"", entries)])
    header = SegmentHeader("a table", 1, 1, "2026-01-02T03:04:05+00:00", SEGMENT)
    with path.open("wb") as sink:
        puffin = PuffinWriter(sink)
        bundle = FieldBundle(1, [group], regions(group))
        write_toc(puffin, write_segment(puffin, header, table, [bundle], **PLACE), **PLACE)
        puffin.finish()


def regions(group: BundleGroup) -> Iterator[bytes]:
    """Random bits, half of them set, which is the fill of an ORC filter that holds as many values as it is for."""
    random = np.random.default_rng(1)
    for region in range(group.blocks):
        blocks = random.integers(0, 2**32, (len(group.units), 1, 8), dtype=np.uint32)
        yield slice_blocks(group, region, blocks, BlobContext(SEGMENT, 1))


def measure(path: Path, values: int) -> tuple[int, int, float, float]:
    """Most bytes and reads, median seconds of compute, mean number of units kept."""
    found: list[tuple[int, int, float, int]] = []
    for value in np.random.default_rng(2).integers(0, 2**64, values, dtype=np.uint64).tolist():

        def probe(encoding: AnyEncoding, value: int = value) -> Probe:
            return Probe("probe", (value,))

        sidecar = SidecarFile.open(LocalSource(str(path)))
        start = time.thread_time()
        keep = sidecar.segments[0].might_match(1, probe)
        seconds = time.thread_time() - start
        found.append((sidecar.index_bytes, sidecar.index_reads, seconds, int(keep.sum())))
        if sidecar.warnings:
            raise SystemExit(f"the file is doubted: {sidecar.warnings}")
        sidecar.close()
    read, reads, seconds_of_all, kept = zip(*found, strict=True)
    return max(read), max(reads), statistics.median(seconds_of_all[1:]), statistics.mean(kept)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
