"""Row indexes of ORC units for the sidecar: the entries of the file's own, byte for byte."""

from __future__ import annotations

from sidecar.bundle.model import UnitState
from sidecar.bundle.row_index_toc import RowIndexKind
from sidecar.bundle.row_index_use import row_index_kind
from sidecar.indexing.data_file import PagesResult
from sidecar.indexing.fault import fault_of, reason_of
from sidecar.orc.index_streams import StripeIndex
from sidecar.orc.stripe import StripeFooter
from sidecar.orc.tail import OrcTail, Stripe

HARVESTED = "harvested"
NO_ROW_INDEX = "the file has no row index of the column"


def row_indexes(
    tail: OrcTail, footer: StripeFooter, index: StripeIndex, resolution: str
) -> list[PagesResult]:
    """The row index of a column of a stripe, row group by row group; the first one counts the bytes that it took."""
    if index.column.encrypted:
        return no_row_indexes(footer.stripe, resolution, UnitState.ENCRYPTED)
    if index.row_index_problem is not None:
        problem = index.row_index_problem
        return no_row_indexes(footer.stripe, resolution, reason_of(problem), fault_of(problem))
    if index.row_index is None:
        return no_row_indexes(footer.stripe, resolution, NO_ROW_INDEX)
    kind = row_index_kind(tail, footer, index.column, resolution)
    return [
        PagesResult(kind, (part,), HARVESTED) if part else PagesResult(kind, reason=NO_ROW_INDEX)
        for part in index.row_index.parts
    ]


def no_row_indexes(stripe: Stripe, resolution: str, reason: str, fault: str = "") -> list[PagesResult]:
    """None for any row group, for one reason."""
    kind = RowIndexKind(resolution, "", "", False, False, 0, 0)
    return [PagesResult(kind, reason=reason, fault=fault)] * stripe.num_row_groups
