"""Counts how full filters are. All filters of a group are read, because their bits are sliced into each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sidecar.bundle.filters.filter_bundle import FilterBundle
from sidecar.bundle.filters.filter_toc import StoredGroup
from sidecar.bundle.filters.layout import BLOCK_BITS
from sidecar.bundle.filters.rules import OrcRule
from sidecar.errors import SidecarError
from sidecar.results.base import Result

BINS = 10
"""Bars of the histogram, each for a tenth: share of set bits from 0 to 0.1, and so on; 1.0 is in the last."""


@dataclass(frozen=True, repr=False, slots=True)
class FillSpread(Result):
    """The least, the mean and the greatest of some shares."""

    min: float
    """The least share."""
    mean: float
    """The mean of the shares."""
    max: float
    """The greatest share."""


@dataclass(frozen=True, repr=False, slots=True)
class FilterFillInfo(Result):
    """How full some filters are."""

    filters_read: int
    """The number of filters that could be read."""
    bytes_read: int
    """The bytes that were read for it."""
    fill: FillSpread | None
    """The share of set bits; ``None`` if no filter could be read."""
    histogram: list[int]
    """The number of filters by share of set bits, in tenths."""
    estimated_fpp: FillSpread | None
    """The false-positive rates that the set bits give; ``None`` if no filter could be read."""
    reasons: list[str]
    """Why groups of filters are missing."""


def read_fill(bundles: Iterable[FilterBundle]) -> FilterFillInfo:
    """Read all filters of (segment, bundle) and count their bits. Memory is bounded; a damaged group fails alone.

    A bundle whose groups overlap is left out, so that no more bytes are read than the file has.
    """
    fills, rates = [np.empty(0)], [np.empty(0)]
    reasons: dict[str, None] = {}
    bytes_read = 0
    for bundle in bundles:
        if sum(group.layout.length for group in bundle.toc.groups) > bundle.toc.toc_offset:
            reasons["the groups of the bundle overlap"] = None
            continue
        for group in bundle.toc.groups:
            try:
                counted = count_bits(bundle, group)
            except SidecarError as error:
                reasons[error.what] = None
                continue
            fills.append(counted[0])
            rates.append(counted[1])
            bytes_read += group.layout.length
    return _fill_of(np.concatenate(fills), np.concatenate(rates), bytes_read, list(reasons))


def _fill_of(
    fills: npt.NDArray[np.float64], rates: npt.NDArray[np.float64], bytes_read: int, reasons: list[str]
) -> FilterFillInfo:
    return FilterFillInfo(
        filters_read=len(fills),
        bytes_read=bytes_read,
        fill=_spread(fills),
        histogram=np.histogram(fills, BINS, (0.0, 1.0))[0].tolist(),
        estimated_fpp=_spread(rates),
        reasons=reasons,
    )


def count_bits(bundle: FilterBundle, group: StoredGroup) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return float64[N], twice: the share of set bits of each filter, and the rate that its bits give.

    Filters that were widened have each block several times, which changes neither number.
    """
    from sidecar.bundle.extract import (
        extract_blocks,
    )  # imported here, because it loads numba, which other descriptions of a file do not need

    members, blocks_total = group.layout.members, group.layout.blocks
    set_bits, passing = np.zeros(members, np.int64), np.zeros(members)
    for _, blocks in extract_blocks(bundle, group):
        counts = np.bitwise_count(blocks)
        set_bits += counts.sum(axis=(1, 2), dtype=np.int64)
        passing += np.prod(counts.astype(np.float64), axis=2).sum(axis=1) / 2.0**40
    if isinstance(group.rule, OrcRule):
        fills = set_bits / group.rule.bits
        return fills, fills**group.rule.k
    return set_bits / (blocks_total * BLOCK_BITS), passing / blocks_total


def _spread(values: npt.NDArray[np.float64]) -> FillSpread | None:
    if not len(values):
        return None
    return FillSpread(float(values.min()), float(values.mean()), float(values.max()))
