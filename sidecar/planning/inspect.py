"""Lists the indexes of a table: coverage by column and kind, segments, sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from pyiceberg.table import Table

from sidecar.bundle.model import Coverage, UnitState
from sidecar.bundle.sidecar_file import Segment
from sidecar.iceberg.find_sidecar import FoundSidecar, find_sidecar
from sidecar.iceberg.listing import Listing, list_snapshot
from sidecar.iceberg.refs import generations, snapshot_id_of
from sidecar.planning.filter_answers import BLOOM
from sidecar.planning.relocated import RelocatedFiles

THETA = "theta"


def inspect_table(table: Table, snapshot_id: int | None = None, *, ref: str | None = None) -> dict[str, Any]:
    """List the indexes of a snapshot (of branch or tag ``ref``, or the current one).

    ``files``: the number of ``live`` and ``listed`` files. ``coverage``: for each column and kind, the number of
    indexed ``files`` and ``units``, ``bytes`` of filters or ``ndv``, and ``not_indexed``, the number of units by
    reason. ``segments``: what each build added. ``sidecar``: the sidecar file, ``None`` if there is none. Errors in the
    sidecar are in ``warnings``. Raises the errors of :func:`sidecar.iceberg.listing.list_snapshot`.
    """
    listing = list_snapshot(table, snapshot_id_of(table, snapshot_id, ref))
    warnings: list[str] = []
    with opened_sidecar(table, listing, warnings) as found:
        segments = found.sidecar.segments if found else []
        live = live_files(table, segments, listing)
        data: dict[str, Any] = {
            "table": ".".join(table.name()),
            "table_uuid": listing.table_uuid,
            "snapshot_id": listing.snapshot_id,
            "sidecar": None if found is None else _describe(table, listing, found),
            "files": {
                "live": len(listing.files),
                "listed": len(set().union(*(set(files) for files in live))),
            },
            "coverage": {},
            "segments": [
                {
                    "id": segment.id,
                    "snapshot_id": segment.snapshot_id,
                    "created": segment.header.created_at,
                    "files": segment.num_files,
                    "live_files": len(files),
                    "units": segment.num_units,
                    "bytes": sum(entry.length for entry in segment.entries),
                }
                for segment, files in zip(segments, live, strict=True)
            ],
        }
        if found is not None:
            _add_coverage(data["coverage"], table, found, live)
            warnings += found.sidecar.warnings
    return {**data, "warnings": list(dict.fromkeys(warnings))}


@contextmanager
def opened_sidecar(table: Table, listing: Listing, warnings: list[str]) -> Iterator[FoundSidecar | None]:
    """Open the sidecar that answers for a listed snapshot, and close it afterwards. Errors in it go to ``warnings``."""
    found = find_sidecar(table, listing.snapshot_id, warnings=warnings)
    try:
        yield found
    finally:
        if found is not None:
            found.sidecar.close()


def _describe(table: Table, listing: Listing, found: FoundSidecar) -> dict[str, Any]:
    entry = found.statistics
    return {
        "path": entry.statistics_path,
        "snapshot_id": found.snapshot_id,
        "snapshots_behind": generations(table, listing.snapshot_id, found.snapshot_id),
        "file_size": entry.file_size_in_bytes,
        "footer_size": entry.file_footer_size_in_bytes,
    }


def live_files(table: Table, segments: Sequence[Segment], listing: Listing) -> list[dict[int, int]]:
    """Return for each segment the live files that it lists: their ordinals in the listing, and in the segment."""
    moved = RelocatedFiles(segments, table.location())
    live: list[dict[int, int]] = [{} for _ in segments]
    for file in listing.files:
        asked = [(number, segment.file_ordinal(file.known_as)) for number, segment in enumerate(segments)]
        places = [(number, ordinal) for number, ordinal in asked if ordinal is not None]
        for number, ordinal in places or moved.places(file.known_as):
            live[number][file.ordinal] = ordinal
    return live


def _add_coverage(
    coverage: dict[str, Any], table: Table, found: FoundSidecar, live: list[dict[int, int]]
) -> None:
    """Add up the coverage of live files in all segments; a file in two segments counts in the newer one only."""
    schema = table.schema()
    counted: dict[tuple[int, str], set[int]] = {}
    for segment, files in reversed(list(zip(found.sidecar.segments, live, strict=True))):
        for states in segment.coverages:
            column = schema.find_column_name(states.field_id) or f"field {states.field_id}"
            kind = coverage.setdefault(column, {}).setdefault(
                states.kind, {"files": 0, "units": 0, "not_indexed": {}}
            )
            before = counted.setdefault((states.field_id, states.kind), set())
            new = [ordinal for number, ordinal in files.items() if number not in before]
            before.update(files)
            _add_states(kind, states, segment.unit_ranges, new)
            if states.kind == BLOOM:
                groups = segment.fields.get(states.field_id, ())
                kind["bytes"] = kind.get("bytes", 0) + sum(group.layout.length for group in groups)
    for blob in found.statistics.blob_metadata:
        ndv = (blob.properties or {}).get("ndv", "")
        name = schema.find_column_name(blob.fields[0]) if len(blob.fields) == 1 else None
        if name is not None and ndv.isascii() and ndv.isdigit():
            coverage.setdefault(name, {}).setdefault(THETA, {})["ndv"] = int(ndv)


def _add_states(
    kind: dict[str, Any], states: Coverage, ranges: npt.NDArray[np.int64], files: Sequence[int]
) -> None:
    """Add the units of these files of a segment to the counts of ``kind``."""
    for ordinal in files:
        units = slice(ranges[ordinal], ranges[ordinal + 1])
        indexed = int(states.indexed[units].sum())
        kind["units"] += indexed
        kind["files"] += indexed > 0
        for reason, count in Counter(
            states.states[code].state for code in states.codes[units].tolist()
        ).items():
            if reason != UnitState.INDEXED:
                kind["not_indexed"][reason] = kind["not_indexed"].get(reason, 0) + count
