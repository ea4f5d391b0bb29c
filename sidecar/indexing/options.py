"""Checks the options of a build, and computes the rate for ``auto``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from pyiceberg.manifest import FileFormat

from sidecar.bundle.kinds.declared import BUILT_KINDS
from sidecar.conversion.reuse import REUSE_RULES
from sidecar.errors import UsageError
from sidecar.filters.sizing import DEFAULT_FPP, MAX_BITS_PER_VALUE, auto_fpp, check_fpp
from sidecar.iceberg.listing import Listing
from sidecar.results.choices import FilterFormat

if TYPE_CHECKING:
    from sidecar.indexing.columns import Options


FILTER_FORMATS: tuple[FilterFormat, ...] = get_args(FilterFormat)

ORC_STRIDE = 10_000
"""Rows of an ORC row group by default of ORC writers."""


def check_options(kinds: Sequence[str], reuse: str, filter_format: str) -> None:
    """Raise :class:`UsageError` for an unknown option value."""
    if not kinds:
        raise UsageError("nothing to build", hint=f"Name kinds: {', '.join(BUILT_KINDS)}.")
    for what, value, known in (
        *(("kind", kind, BUILT_KINDS) for kind in kinds),
        ("rule of reuse", reuse, REUSE_RULES),
        ("format of filters", filter_format, FILTER_FORMATS),
    ):
        if value not in known:
            raise UsageError(f"unknown {what} '{value}'", expected=" or ".join(known))


def options_of(listing: Listing, wanted: Mapping[int, tuple[Sequence[str], float | str]], common: Options) -> Options:
    """Return the options of stage 1 with final rates.

    ``wanted`` has kinds and rate of each column by field id, ``common`` what all columns share. Raises
    :class:`UsageError` for numbers out of range.
    """
    auto = auto_fpp(_units_expected(listing))
    each = {field_id: _options_of_one(kinds, fpp, auto, common) for field_id, (kinds, fpp) in wanted.items()}
    if not each:
        return common
    first, *others = each.values()
    if all(other == first for other in others):
        return first
    return replace(
        first,
        kinds=frozenset[str]().union(*(one.kinds for one in each.values())),
        fpp=min(one.fpp for one in each.values()),
        own=each,
    )


def check_rate(fpp: float | str) -> float | None:
    """Return a rate that is asked for, ``None`` for ``auto``. Raises :class:`UsageError` for anything else."""
    if fpp == "auto":
        return None
    if isinstance(fpp, str):
        raise UsageError("a false-positive rate is a number or 'auto'", found=fpp)
    return check_fpp(float(fpp))


def _options_of_one(kinds: Sequence[str], fpp: float | str, auto_rate: float, common: Options) -> Options:
    requested = check_rate(fpp)
    rate = auto_rate if requested is None else requested
    return replace(
        common,
        kinds=frozenset(kinds),
        fpp=rate,
        any_rate=requested is None,
        orc_fpp=DEFAULT_FPP if requested is None else rate,
        max_bits=MAX_BITS_PER_VALUE if requested is None else None,
    )


def _units_expected(listing: Listing) -> int:
    """Estimate the row groups of the table from its manifests, before any footer is read.

    In Parquet files the split offsets are row groups. In ORC files they are stripes, so the rows are divided by the
    default stride.
    """
    orc = sum(
        -(-file.record_count // ORC_STRIDE) for file in listing.files if file.data_file.file_format == FileFormat.ORC
    )
    return orc + sum(max(len(file.data_file.split_offsets or ()), 1) for file in listing.files)
