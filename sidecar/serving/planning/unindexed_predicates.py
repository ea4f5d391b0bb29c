"""Remembers for which predicates a sidecar has no filters, so that large tables are not asked again in vain.

What counts is the form of a predicate: which columns it compares in which way, without the literals. A form is
remembered for one version of the table's metadata, because a new sidecar makes a new version.
"""

from __future__ import annotations

from collections.abc import Hashable

from pyiceberg.expressions import And, BooleanExpression, In, Not, Or, Reference, UnboundPredicate

from sidecar.planning.opened_sidecar import OpenedSidecar
from sidecar.questions.conditions import MAX_VALUES
from sidecar.serving.planning.bounded_cache import BoundedCache

_MOST = 10_000


class UnindexedPredicates:
    """Forms of predicates for which the sidecars of tables have no filters."""

    def __init__(self) -> None:
        self._forms: BoundedCache[Hashable, bool] = BoundedCache(_MOST, lambda _: 1)

    def knows(self, version: Hashable, row_filter: BooleanExpression) -> bool:
        """Return whether no filter helped a predicate of this form before. ``version`` is that of the table."""
        return self._forms.find((version, form_of(row_filter))) is not None

    def learn(
        self, version: Hashable, row_filter: BooleanExpression, opened: OpenedSidecar, indexed: int, *, is_locked: bool
    ) -> None:
        """Remember the form if the sidecar was read without any doubt and was indexed for no file."""
        if opened.used is not None and not opened.warnings and not is_locked and not indexed:
            self._forms.keep((version, form_of(row_filter)), True)


def form_of(expression: BooleanExpression) -> Hashable:
    """Return what a predicate compares, and how, without its literals."""
    kind = type(expression).__name__
    if isinstance(expression, And | Or):
        return kind, form_of(expression.left), form_of(expression.right)
    if isinstance(expression, Not):
        return kind, form_of(expression.child)
    if isinstance(expression, UnboundPredicate) and isinstance(expression.term, Reference):
        # Filters are not asked about long lists.
        return kind, expression.term.name, isinstance(expression, In) and len(expression.literals) > MAX_VALUES
    return kind
