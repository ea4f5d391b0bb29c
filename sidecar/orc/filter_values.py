"""Filters that their writer's habits speak against, held against the values that they are of.

C++ writers hash tinyint, char and float by keys that may be others than the values' (:mod:`sidecar.orc.trust`); whether
they did so in a file at hand, and whether somebody has replaced its filters since, only the values tell.
"""

from __future__ import annotations

from collections.abc import Sequence

from sidecar.errors import SidecarError, StorageError
from sidecar.orc.decode import read_row_groups
from sidecar.orc.index_streams import BLOOM_FILTER_UTF8, FoundOrcFilter
from sidecar.orc.schema import OrcColumn
from sidecar.orc.stripe import read_stripe_footer
from sidecar.orc.tail import CPP, OrcTail, Stripe
from sidecar.source import Source

_DOUBTED = ("BYTE", "CHAR", "FLOAT")


def deny_nothing(
    source: Source, tail: OrcTail, stripe: Stripe, column: OrcColumn, filters: Sequence[FoundOrcFilter]
) -> bool:
    """Whether doubted filters of a column, one a row group, hold every value of the stripe by the right key.

    False for filters with another defect, and where the values cannot be read. Reads the column's data in the stripe.
    """
    from sidecar.filters.orc_array_hash import hash_orc

    doubted = tail.writer == CPP and column.kind in _DOUBTED and not column.nested_in_repeated
    if not doubted or any(f.filter is None or f.stream_kind != BLOOM_FILTER_UTF8 for f in filters):
        return False
    try:
        groups = read_row_groups(source, tail, stripe, read_stripe_footer(source, tail, stripe), column)
        for found, values in zip(filters, groups, strict=True):
            if found.filter is None or found.encoding is None:
                return False
            if not found.filter.check(hash_orc(values, found.encoding, twins=False)).all():
                return False
    except StorageError:
        raise
    except SidecarError:
        return False
    return True
