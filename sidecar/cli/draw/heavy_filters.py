"""Points at filters that are much of a Parquet file, and at the command that makes them smaller."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sidecar.cli import humanize
from sidecar.filters.sizing import DEFAULT_FPP, HEAVY_SHARE, folded_bytes

if TYPE_CHECKING:
    from sidecar.results import FileInfo


def heavy_filters(files: Iterable[FileInfo], paths: Sequence[str]) -> list[str]:
    """Return a warning if the filters of Parquet files are large for what they hold. ``paths`` are as they were typed.

    Writers that do not know how many values a row group has make filters of one size, such as Spark of 1 MiB.
    """
    total = own = needed = count = 0
    names: dict[str, None] = {}
    for file in files:
        if file.format != "parquet":
            continue
        count, total = count + 1, total + file.size
        for unit in file.units:
            for name, column in unit.columns.items():
                found = column.bloom_filter
                if found is None or not found.trusted or not found.bytes or found.fill is None:
                    continue
                if 2 * (small := folded_bytes(found.bytes, found.fill)) <= found.bytes:
                    names[name] = None
                    own, needed = own + found.bytes, needed + small
    if not own or own < HEAVY_SHARE * total:
        return []
    given = " ".join(map(shlex.quote, paths))
    again = f"sidecar convert {given} NEW.parquet --fpp {DEFAULT_FPP}"
    if count > 1:
        columns = shlex.quote(",".join(names))
        again = f"sidecar embed {given} --into NEW --bloom {columns} --fpp {DEFAULT_FPP} --reuse never"
    share, rate = humanize.percent(own / total), humanize.percent(DEFAULT_FPP)
    what = f"filters of {', '.join(names)} are {share} of the bytes, {humanize.size(own)}"
    return [f"{what}; at a rate of {rate} they are about {humanize.size(needed)}: {again}"]
