"""Judges the sizes of row groups and pages by the advice of the Parquet format.

Its page "Configurations" recommends row groups of 512 MB to 1 GB, and pages of 8 kB. Writers of Iceberg tables make row
groups of 128 MB and pages of 1 MB by default.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low

from sidecar.reports.advising.report import SizeOfParts

ADVISED_ROW_GROUP = (512 << 20, 1 << 30)
ADVISED_PAGE = 8 << 10
USUAL_ROW_GROUP = 128 << 20


def judged_sizes(row_groups: Sequence[int], pages: Sequence[int], mean_file: float) -> SizeOfParts:
    """Judge sampled row groups and pages by their sizes in bytes; ``mean_file`` is the mean size of the data files."""
    remarks: list[str] = []
    row_group = median_low(row_groups) if row_groups else None
    page = median_low(pages) if pages else None
    if row_group is not None:
        remarks.append(_of_row_groups(row_group, mean_file))
    if page is not None:
        remarks.append(_of_pages(page))
    return SizeOfParts(row_group, page, remarks)


def _of_row_groups(size: int, mean_file: float) -> str:
    text = f"row groups have {_size(size)}; the format advises 512 MB to 1 GB, Iceberg's writers make 128 MB"
    if size >= ADVISED_ROW_GROUP[0]:
        return f"{text}: a lookup that opens one reads whole column chunks of it, unless page indexes narrow it"
    if size >= USUAL_ROW_GROUP // 4:
        return text
    if mean_file < USUAL_ROW_GROUP:
        return f"{text}: files have {_size(mean_file)} on average; compacting them makes fewer and larger filters"
    return f"{text}: each has filters and a part of the footer of its own, which every reader of the file reads"


def _of_pages(size: int) -> str:
    text = f"pages have {_size(size)}; the format advises 8 kB for lookups of single rows, Iceberg's writers make 1 MB"
    return text if size > 2 * ADVISED_PAGE else f"pages have {_size(size)}, as the format advises for lookups"


def _size(number: float) -> str:
    for unit, scale in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if number >= scale:
            return f"{number / scale:.3g} {unit}"
    return f"{number:.0f} B"
