"""Measures what a lookup reads of a sidecar, by asking its filters about hashes that no value has."""

from __future__ import annotations

import random
from collections import defaultdict

from pyiceberg.table import Table

from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.filters.probes import FieldQuestion
from sidecar.filters.values import Probe
from sidecar.iceberg.statistics_files.find_sidecar import FoundSidecar, open_registered
from sidecar.questions.bounds import Unknown
from sidecar.reports.status.results import LookupCost
from sidecar.storage.source import BytesSource

SMALL = 4 << 20
"""Up to this many bytes, a sidecar is read whole, and asked about many hashes."""
FEW_PROBES = 4
MOST_PROBES = 256
ENOUGH = 4096
"""Answers of single filters that are enough for an estimate of their rate."""

MOST_TOGETHER = 16_384
"""Hashes that all columns are asked about, about 40 µs each: half a second, whatever the number of columns."""

_RANDOM = random.Random("sidecar")
_HASHES = [_RANDOM.getrandbits(64) for _ in range(MOST_PROBES)]


def measure_lookups(table: Table, found: FoundSidecar, warnings: list[str]) -> dict[str, LookupCost]:
    """Return what a lookup in each column with filters reads, by the column's name. No data file is read.

    The sidecar is opened once more, as a plan opens it. Columns whose filters are encrypted are left out.
    """
    entry = found.statistics
    sidecar = open_registered(table, entry)
    if isinstance(sidecar, Unknown):
        warnings.append(sidecar.reason)
        return {}
    try:
        _ = sidecar.listed_manifests, sidecar.unit_ranges  # which a plan reads once, whatever the column
        opened = sidecar.index_reads, sidecar.index_bytes
        fields = sidecar.filtered_fields
        asked = _in_memory(sidecar) if sidecar.source.size <= SMALL else sidecar
        costs = {}
        for field_id in fields:
            name = table.schema().find_column_name(field_id)
            if name is None or any(bundle.toc.lock is not None for bundle, _, _ in sidecar.groups_of(field_id)):
                continue
            before = sidecar.index_reads, sidecar.index_bytes
            _may_match(sidecar, field_id, _HASHES[0])
            reads, size = sidecar.index_reads - before[0], sidecar.index_bytes - before[1]
            total = int(sidecar.units_with_filters(field_id).sum())
            probes = _probes(total, len(fields)) if asked is not sidecar else FEW_PROBES
            kept = sum(_may_match(asked, field_id, value) for value in _HASHES[:probes])
            rate = kept / (total * probes) if total else None
            costs[name] = LookupCost(
                sidecar.count_segments(field_id), opened[0] + reads, opened[1] + size, total, rate, probes
            )
        warnings += sidecar.warnings
        return costs
    finally:
        sidecar.close()


def _in_memory(sidecar: SidecarFile) -> SidecarFile:
    """Return the same sidecar over a copy of its bytes."""
    source = sidecar.source.inner
    return SidecarFile.open(BytesSource(source.read(0, source.size), source.name))


def _probes(row_groups: int, columns: int) -> int:
    """Return how many hashes a column of ``row_groups`` filters is asked in memory, where ``columns`` are asked."""
    return min(MOST_PROBES, max(FEW_PROBES, min(ENOUGH // max(row_groups, 1), MOST_TOGETHER // columns)))


def _may_match(sidecar: SidecarFile, field_id: int, value: int) -> int:
    """Return how many row groups with filters may have the hash."""
    may_match = sidecar.might_match(FieldQuestion(field_id, defaultdict(lambda: [Probe("probe", (value,))])))
    return int((may_match & sidecar.units_with_filters(field_id)).sum())
