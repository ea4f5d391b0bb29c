"""Names of the blob types that sidecar reads or writes."""

from __future__ import annotations

THETA = "apache-datasketches-theta-v1"
"""A compact theta sketch. The only type that is also registered in the table's metadata."""
UNITS = "sidecar-units-v1"
"""The units table of one segment."""
SBBF = "sidecar-sbbf-v1"
"""A bundle of Parquet split-block Bloom filters of one field and segment."""
ORC_BLOOM = "sidecar-orc-bloom-v1"
"""A bundle of ORC Bloom filters of one field and segment."""
PAGE_INDEX = "sidecar-page-index-v1"
"""Parquet page indexes of one field and segment."""
ROW_INDEX = "sidecar-row-index-v1"
"""ORC row indexes of one field and segment."""
THETA_GROUPS = "sidecar-theta-groups-v1"
"""Theta sketches of groups of files, of one field and segment."""
TOC = "sidecar-toc-v1"
"""The tables of contents of all sidecar blobs; the last blob of a sidecar file."""

_OURS = frozenset({UNITS, SBBF, ORC_BLOOM, PAGE_INDEX, ROW_INDEX, THETA_GROUPS, TOC})


def is_ours(blob_type: str) -> bool:
    """Return True for the types that this version of sidecar owns and may replace.

    Theta blobs may come from any engine. Types of later sidecar versions are unknown here; like all unknown types,
    they are copied byte for byte.
    """
    return blob_type in _OURS
