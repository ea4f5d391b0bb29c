"""Sidecars of random filters over one file with very many units: plain, encrypted, split blocks or ORC's bits."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.envelopes.encryption import FieldKey
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.filters.field_bundle import FieldBundle
from sidecar.bundle.filters.positions import BundleGroup, GroupMember, plan_groups
from sidecar.bundle.filters.rules import SPLIT_BLOCK, IndexRule
from sidecar.bundle.filters.slicing import slice_blocks
from sidecar.bundle.model import UNLISTED, FileEntry, SegmentHeader, UnitEntry, UnitsTable
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.toc import write_toc
from sidecar.bundle.writer import write_segment
from sidecar.crypto.keys import EncryptionKeys
from sidecar.filters.probes import FieldQuestion
from sidecar.filters.values import Probe
from sidecar.puffin.writer import PuffinWriter
from sidecar.storage.local import LocalSource

PLACE = {"snapshot_id": 1, "sequence_number": 1}
SEGMENT, TABLE = bytes(16), "5f1d2c3b-0a49-4e58-8b6d-7c6f5e4d3c2b"


def write_bundle(
    path: Path, units: int, blocks: int, rule: IndexRule = SPLIT_BLOCK, key: FieldKey | None = None
) -> float:
    """Write a sidecar with filters of ``blocks`` blocks of 32 bytes; return the seconds of slicing and sealing."""
    encoding = "int64" if rule is SPLIT_BLOCK else "orc/long"
    place = BlobContext(SEGMENT, 1) if key is None else key.place
    members = (GroupMember(unit, encoding, "id", blocks * 32, rule=rule) for unit in range(units))
    (group,) = plan_groups(members, place.sealing)
    entries = tuple(UnitEntry(unit, unit, 1) for unit in range(units))
    table = UnitsTable([FileEntry(DataFileIdentity("file:/a.parquet", 1, units), 0, UNLISTED, b"", entries)])
    header = SegmentHeader(TABLE, 1, 1, "2026-01-02T03:04:05+00:00", SEGMENT)
    spent = [0.0]
    slice_blocks(group, 0, np.zeros((units, group.block_step, 8), np.uint32), place)  # compiles
    with path.open("wb") as sink:
        puffin = PuffinWriter(sink)
        bundle = FieldBundle(1, [group], _pages(group, place, spent), key=key)
        write_toc(puffin, write_segment(puffin, header, table, [bundle], **PLACE), **PLACE)
        puffin.finish()
    return spent[0]


def _pages(group: BundleGroup, place: BlobContext, spent: list[float]) -> Iterator[bytes]:
    """Random bits, half of them set, as in filters that hold as many values as they are for."""
    random = np.random.default_rng(1)
    for first in range(0, group.blocks, group.block_step):
        count = min(group.block_step, group.blocks - first)
        blocks = random.integers(0, 2**32, (len(group.units), count, 8), dtype=np.uint32)
        start = time.thread_time()
        sliced = slice_blocks(group, first, blocks, place)
        spent[0] += time.thread_time() - start
        yield sliced


class OneLookup:
    """Looks one hash up in a sidecar that is opened anew, so that finding and unwrapping keys is counted."""

    def __init__(self, path: Path, key_hash: int, keys: EncryptionKeys | None = None) -> None:
        """Look it up. Raises ``RuntimeError`` if the sidecar warns of anything."""
        sidecar = SidecarFile.open(LocalSource(str(path)), encryption_keys=keys)
        question = FieldQuestion(1, defaultdict(lambda: [Probe("probe", (key_hash,))]))
        start = time.thread_time()
        keep = sidecar.segments[0].might_match(question)
        self.cpu = time.thread_time() - start
        """Seconds of CPU of the lookup, without opening the file."""
        self.num_bytes, self.reads = sidecar.index_bytes, sidecar.index_reads
        self.kept = int(keep.sum())
        warnings = sidecar.warnings
        sidecar.close()
        if warnings:
            raise RuntimeError(f"the file is doubted: {warnings}")


def random_hashes(count: int) -> list[int]:
    """Return hashes that no filter was given."""
    return np.random.default_rng(2).integers(0, 2**64, count, dtype=np.uint64).tolist()
