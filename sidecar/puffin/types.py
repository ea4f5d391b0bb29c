"""Names of the blob types that sidecar reads or writes."""

from __future__ import annotations

THETA = "apache-datasketches-theta-v1"
"""A compact theta sketch; the one type that is registered in a table's metadata too."""
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
TOC = "sidecar-toc-v1"
"""The tables of contents of all our blobs, the last blob of a sidecar file."""

_OURS = frozenset({UNITS, SBBF, ORC_BLOOM, PAGE_INDEX, ROW_INDEX, TOC})


def is_ours(blob_type: str) -> bool:
    """True for the types that this version of sidecar owns and may replace.

    Theta blobs are everybody's. A type of a later sidecar is not ours either: like any type that is not
    known, it is carried over byte for byte.
    """
    return blob_type in _OURS
