"""Checks the options of a build, and computes the rate for ``auto``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from pyiceberg.manifest import FileFormat

from sidecar.convert.harvest import HARVEST_RULES
from sidecar.convert.outcome import BLOOM, PAGE_INDEX
from sidecar.errors import UsageError
from sidecar.filters.sizing import DEFAULT_FPP, MAX_BITS_PER_VALUE, auto_fpp, check_fpp
from sidecar.iceberg.listing import Listing
from sidecar.indexing.assemble import THETA
from sidecar.indexing.columns import Options

BuildKind: TypeAlias = Literal["bloom", "theta", "page-index"]
"""A kind of index that a build makes."""
FilterFormat: TypeAlias = Literal["auto", "parquet", "orc"]
"""The filters of ORC files in a sidecar."""
BuildEngine: TypeAlias = Literal["auto", "spark", "local"]
"""Where a build runs."""

KINDS: tuple[BuildKind, ...] = (BLOOM, THETA, PAGE_INDEX)
USUAL_KINDS: tuple[BuildKind, ...] = (BLOOM, THETA)
FILTER_FORMATS: tuple[FilterFormat, ...] = ("auto", "parquet", "orc")
ENGINES: tuple[BuildEngine, ...] = ("auto", "spark", "local")

ORC_STRIDE = 10_000
"""Rows of an ORC row group by default of ORC writers."""


def check_options(kinds: Sequence[str], harvest: str, filter_format: str, engine: str) -> None:
    """Raise :class:`UsageError` for an unknown option value."""
    if not kinds:
        raise UsageError("nothing to build", hint=f"Name kinds: {', '.join(KINDS)}.")
    for what, value, known in (
        *(("kind", kind, KINDS) for kind in kinds),
        ("harvest rule", harvest, HARVEST_RULES),
        ("format of filters", filter_format, FILTER_FORMATS),
        ("engine", engine, ENGINES),
    ):
        if value not in known:
            raise UsageError(f"unknown {what} '{value}'", expected=" or ".join(known))


def options_of(
    listing: Listing, kinds: Sequence[str], fpp: float | str, harvest: str, filter_format: str, lg_k: int
) -> Options:
    """Return the options of stage 1 with the final rate. Raises :class:`UsageError` for numbers out of range."""
    auto = fpp == "auto"
    if isinstance(fpp, str) and not auto:
        raise UsageError("a false-positive rate is a number or 'auto'", found=fpp)
    if not 7 <= lg_k <= 20:
        raise UsageError("lg_k is out of range", expected="7 to 20", found=lg_k)
    rate = auto_fpp(_units_expected(listing)) if auto else check_fpp(float(fpp))
    return Options(
        bloom=BLOOM in kinds,
        theta=THETA in kinds,
        page_index=PAGE_INDEX in kinds,
        fpp=rate,
        filter_format=filter_format,
        orc_fpp=DEFAULT_FPP if auto else rate,
        max_bits=MAX_BITS_PER_VALUE if auto else None,
        harvest=harvest,
        lg_k=lg_k,
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
