"""Encrypted bundles beside plain ones: what a lookup of an absent value costs, and what making them costs.

For each number of units and kind of filter, two sidecars of the same random filters. Plain and encrypted lookups take
turns, each in a file that was opened anew, so that finding and unwrapping the key is counted; the median of the time on
the CPU is shown, apart from opening the file, which is the same. Making is slicing and sealing, in bytes of filters a
second. Target: a lookup in an encrypted bundle costs at most twice what it costs in the plain one.
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
from sidecar.bundle.encryption import FieldKey
from sidecar.bundle.filters.positions import BundleGroup, GroupMember, plan_groups
from sidecar.bundle.filters.rules import SPLIT_BLOCK, IndexRule, OrcRule
from sidecar.bundle.filters.slicing import slice_blocks
from sidecar.bundle.model import UNLISTED, FileEntry, SegmentHeader, UnitEntry, UnitsTable
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.toc import write_toc
from sidecar.bundle.writer import FieldBundle, write_segment
from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys
from sidecar.filters.probes import AnyEncoding
from sidecar.filters.values import Probe
from sidecar.puffin.writer import PuffinWriter
from sidecar.source import LocalSource

PLACE = {"snapshot_id": 1, "sequence_number": 1}
SEGMENT, TABLE = bytes(16), "5f1d2c3b-0a49-4e58-8b6d-7c6f5e4d3c2b"
MOST = 2.0
"""Times the plain lookup that the encrypted one may cost."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bundle_encrypted", description=__doc__)
    parser.add_argument("--units", type=int, nargs="*", default=[20, 658, 2_047, 3_000, 100_000])
    parser.add_argument("--values", type=int, default=201)
    parser.add_argument("--blocks", type=int, default=32, help="Blocks of 32 bytes of each filter.")
    parser.add_argument("--key-bytes", type=int, default=16, choices=(16, 24, 32))
    options = parser.parse_args(arguments)
    print(
        f"{'units':>8} {'filters':<13} {'plain us':>9} {'encrypted us':>13} {'times':>6} "
        f"{'plain MB/s':>11} {'encrypted MB/s':>15} {'bytes read':>21} {'size':>6}"
    )
    missed = False
    for units in options.units:
        for name, rule in (("split blocks", SPLIT_BLOCK), ("ORC, k = 7", OrcRule(7, options.blocks * 256))):
            missed |= compare(units, name, rule, options) > MOST
    print(f"target of at most {MOST:g} times: {'missed' if missed else 'met'}")
    return int(missed)


def compare(units: int, name: str, rule: IndexRule, options: argparse.Namespace) -> float:
    """Print one line; how many times a lookup's cost is that of the plain one."""
    master = bytes(range(options.key_bytes))
    keys = EncryptionKeys(ExplicitKeys({b"m": master}))
    with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as folder:
        paths = Path(folder) / "plain.stats", Path(folder) / "encrypted.stats"
        own = None, FieldKey(master, b"m", TABLE, SEGMENT, 1)
        made = [write(path, units, options.blocks, rule, key) for path, key in zip(paths, own, strict=True)]
        times: tuple[list[float], list[float]] = [], []
        read = [0, 0]
        for value in np.random.default_rng(2).integers(0, 2**64, options.values, dtype=np.uint64).tolist():
            kept = []
            for number, path in enumerate(paths):
                seconds, num_bytes, keep = look_up(path, value, keys)
                times[number].append(seconds)
                read[number] = max(read[number], num_bytes)
                kept.append(keep)
            if kept[0] != kept[1]:
                raise SystemExit("the answers differ")
        sizes = [path.stat().st_size for path in paths]
    plain, encrypted = (statistics.median(own[1:]) * 1e6 for own in times)
    filters = units * options.blocks * 32 / 1e6
    print(
        f"{units:>8,} {name:<13} {plain:>9.1f} {encrypted:>13.1f} {encrypted / plain:>6.2f} "
        f"{filters / made[0]:>11.0f} {filters / made[1]:>15.0f} {read[0]:>10,} {read[1]:>10,} "
        f"{sizes[1] / sizes[0]:>6.3f}"
    )
    return encrypted / plain


def write(path: Path, units: int, blocks: int, rule: IndexRule, key: FieldKey | None) -> float:
    """A sidecar of one file with so many units; seconds that slicing and sealing took."""
    encoding = "int64" if rule is SPLIT_BLOCK else "orc/long"
    place = BlobContext(SEGMENT, 1) if key is None else key.place
    members = (GroupMember(unit, encoding, "id", blocks * 32, rule=rule) for unit in range(units))
    (group,) = plan_groups(members, place.sealing)
    entries = tuple(UnitEntry(unit, unit, 1) for unit in range(units))
    table = UnitsTable([FileEntry("file:/a.parquet", 1, units, 0, UNLISTED, b"", entries)])
    header = SegmentHeader(TABLE, 1, 1, "2026-01-02T03:04:05+00:00", SEGMENT)
    spent = [0.0]
    slice_blocks(group, 0, np.zeros((units, group.block_step, 8), np.uint32), place)  # compiles
    with path.open("wb") as sink:
        puffin = PuffinWriter(sink)
        bundle = FieldBundle(1, [group], pages(group, place, spent), key=key)
        write_toc(puffin, write_segment(puffin, header, table, [bundle], **PLACE), **PLACE)
        puffin.finish()
    return spent[0]


def pages(group: BundleGroup, place: BlobContext, spent: list[float]) -> Iterator[bytes]:
    """Random bits, half of them set; adds the seconds of slicing to ``spent``."""
    random = np.random.default_rng(1)
    step = group.block_step
    for first in range(0, group.blocks, step):
        count = min(step, group.blocks - first)
        blocks = random.integers(0, 2**32, (len(group.units), count, 8), dtype=np.uint32)
        start = time.thread_time()
        sliced = slice_blocks(group, first, blocks, place)
        spent[0] += time.thread_time() - start
        yield sliced


def look_up(path: Path, value: int, keys: EncryptionKeys) -> tuple[float, int, int]:
    """Seconds of one lookup, bytes that it read, and units that it kept."""

    def probe(encoding: AnyEncoding) -> Probe:
        return Probe("probe", (value,))

    sidecar = SidecarFile.open(LocalSource(str(path)), encryption_keys=keys)
    before = sidecar.index_bytes
    start = time.thread_time()
    keep = sidecar.segments[0].might_match(1, probe)
    seconds = time.thread_time() - start
    read = sidecar.index_bytes - before
    if sidecar.warnings:
        raise SystemExit(f"the file is doubted: {sidecar.warnings}")
    sidecar.close()
    return seconds, read, int(keep.sum())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
