"""Extracts filters from a bundle, bit for bit as they were in the data files.

A bundle is sliced across its members, so the bits of one filter are spread over its whole group. Extracting one filter
reads ``group.layout.length`` bytes. Extracting many at once costs the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from sidecar.bundle.filters.filter_bundle import FilterBundle
from sidecar.bundle.filters.filter_toc import StoredGroup
from sidecar.bundle.filters.pages import (
    PIECE_BYTES,
    bare_group,
    open_pages,
    read_own_blocks,
    read_tails,
    walk_pages,
)
from sidecar.bundle.filters.slicing import unslice_pages
from sidecar.errors import DamagedFileError


def extract_filters(
    bundle: FilterBundle, group: StoredGroup, units: Sequence[int] | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield (unit ordinal, bitset) of ``units`` (default: all of the group), in rising order of units.

    Reads the whole group once, in region order. Memory: the requested filters and a few megabytes.
    Raises :class:`DamagedFileError` for a wrong checksum and :class:`UsageError` if the key of an encrypted bundle is
    missing, both before the first filter.
    """
    ordinals = group.ordinals()
    chosen = np.arange(len(ordinals)) if units is None else np.flatnonzero(np.isin(ordinals, list(units)))
    own_blocks = read_own_blocks(group, bundle.place, bundle.read_ranges)
    tails = read_tails(group, bundle.place, bundle.read_ranges)
    filters = [np.empty((own_blocks[position], 8), np.uint32) for position in chosen]
    for first, blocks in extract_blocks(bundle, group):
        for position, target in zip(chosen, filters, strict=True):
            take_own_blocks(blocks[position], first, group.layout.blocks // len(target), target)
    for position, bitset in zip(chosen, filters, strict=True):
        yield int(ordinals[position]), group.rule.join(bitset.tobytes(), tails[position])


def extract_blocks(
    bundle: FilterBundle, group: StoredGroup, piece_bytes: int = PIECE_BYTES
) -> Iterator[tuple[int, npt.NDArray[np.uint32]]]:
    """Yield (first block, blocks uint32[N, r, 8]) of all members of a group in block order. Memory is bounded."""
    whole = bare_group(group)
    for stored in walk_pages(group, bundle.read_ranges, piece_bytes):
        pages, bad = open_pages(group, bundle.place, stored)
        for name in bad:
            raise DamagedFileError(
                f"the filters are damaged in group {group.ordinal}, {name}", column=f"field {bundle.toc.field_id}"
            )
        yield pages.first_block, unslice_pages(whole, pages.first_block, pages.blocks, pages.data)


def take_own_blocks(blocks: npt.NDArray[np.uint32], first: int, factor: int, target: npt.NDArray[np.uint32]) -> None:
    """Undo widening: copy every ``factor``-th block of ``blocks``, which begin at block ``first``, to ``target``."""
    start = -first % factor
    kept = blocks[start::factor]
    at = (first + start) // factor
    target[at : at + len(kept)] = kept
