"""What one segment's filters say of its units, and so of its files: one answer to the whole question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sidecar.filters.probes import AnyEncoding, probe_for
from sidecar.filters.values import Probe
from sidecar.planning.funnel import KeptBecause
from sidecar.questions.conditions import Condition, HoldsAny
from sidecar.questions.narrowing import Units, matching_units

if TYPE_CHECKING:
    from sidecar.bundle.sidecar_file import Segment

Files = npt.NDArray[np.bool_]
"""One flag for each file of a segment."""


@dataclass(frozen=True)
class SegmentAnswer:
    """What one segment says of its units and files: may they match, can it say no at all, and why it does not."""

    units: Units
    keep: Files
    indexed: Files
    kept_because: KeptBecause


def answer_of(
    segment: Segment,
    question: Condition | None,
    resolution_holds: Callable[[int, str], bool],
    warnings: Sequence[str],
) -> SegmentAnswer:
    """What a segment says of its units and files; ``warnings`` grows where the sidecar finds damage."""
    units, warned = np.ones(segment.num_units, np.bool_), len(warnings)
    if question is None:  # filters are not asked
        none = np.zeros(segment.num_files, np.bool_)
        return SegmentAnswer(units, ~none, none, KeptBecause.MAY_MATCH)
    # A unit without a filter cannot be ruled out by it. So ask first which units would match if every filter said no.
    unable = matching_units(question, lambda leaf: ~indexed_units(segment, leaf), segment.num_units)
    if not unable.all():
        units = matching_units(question, _asker(segment, resolution_holds), segment.num_units)
    without = np.diff(segment.unit_ranges) == 0  # listed, but no row group of it is known: kept
    why = KeptBecause.DAMAGED if len(warnings) > warned else KeptBecause.MAY_MATCH
    indexed = ~(_any_unit(segment, unable) | without)
    return SegmentAnswer(units, _any_unit(segment, units) | without, indexed, why)


def _asker(segment: Segment, resolution_holds: Callable[[int, str], bool]) -> Callable[[HoldsAny], Units]:
    def ask(leaf: HoldsAny) -> Units:
        def holds(resolution: str) -> bool:
            return resolution_holds(leaf.column.index, resolution)

        return segment.might_match(leaf.column.index, partial(_probe, leaf), holds)

    return ask


def _probe(leaf: HoldsAny, encoding: AnyEncoding) -> Probe:
    """All values of a leaf in one probe; one that is unknown makes it unknown."""
    hashes: list[int] = []
    for value in leaf.values:
        found = probe_for(value, leaf.column.iceberg_type, encoding)
        if found.verdict == "unknown":
            return found
        hashes += found.hashes
    return Probe("probe", tuple(hashes)) if hashes else Probe("cannot-exist")


def indexed_units(segment: Segment, leaf: HoldsAny) -> Units:
    """The units that have a filter of the leaf's column."""
    units = np.zeros(segment.num_units, np.bool_)
    for group in segment.fields.get(leaf.column.index, ()):
        units[group.units] = True
    return units


def _any_unit(segment: Segment, units: Units) -> Files:
    """For each file whether a flag of its units is set; a file without units has one nowhere."""
    counts = np.concatenate(([0], np.cumsum(units)))
    starts = np.asarray(segment.unit_ranges)
    found: Files = counts[starts[1:]] > counts[starts[:-1]]
    return found
