"""Limits what one plan may compare: predicates times partitions, or times files, each a visit of an expression.

The caller of a plan sets the limits for a block of code (:func:`limited_by`). Outside of such a block a plan has no
limits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pyiceberg.expressions import And, BooleanExpression, Not, Or, SetPredicate

_LITERALS_A_PREDICATE = 8


class PlanStopped(BaseException):
    """A plan exceeds its limits. It is no ``Exception``, because a plan continues after each ``Exception`` of a
    sidecar."""


class OutOfTime(PlanStopped):
    """The time of the plan is over, or nobody waits for it any more. A later plan may be in time."""


class Budget:
    """What is left of the limits of one plan: ``comparisons`` of a predicate with a partition or file, and seconds."""

    def __init__(self, comparisons: int, seconds: float) -> None:
        self._left = comparisons
        self._until = time.monotonic() + seconds
        self.is_wanted = True
        """Whether somebody waits for the plan."""

    def spend(self, comparisons: int) -> None:
        """Take comparisons from what is left. Raises :class:`PlanStopped` beyond it."""
        self.check_time()
        self._left -= comparisons
        if self._left < 0:
            raise PlanStopped("the filter has too many predicates for so many partitions and files")

    def has(self, comparisons: int) -> bool:
        """Return whether ``comparisons`` are left."""
        return self._left >= comparisons

    def check_time(self) -> None:
        """Raise :class:`OutOfTime` if the time is over or nobody waits."""
        if not self.is_wanted:
            raise OutOfTime("the client has left")
        if time.monotonic() > self._until:
            raise OutOfTime("the plan takes too long")


_present: ContextVar[Budget | None] = ContextVar("_present", default=None)


def present_budget() -> Budget | None:
    """Return the limits of the block; ``None`` without :func:`limited_by`."""
    return _present.get()


@contextmanager
def limited_by(budget: Budget) -> Iterator[None]:
    """Let the plans of the block have these limits together."""
    before = _present.set(budget)
    try:
        yield
    finally:
        _present.reset(before)


def cost_of(expression: BooleanExpression) -> int:
    """Return how many predicates an expression has. Long lists of literals count as several."""
    cost, waiting = 0, [expression]
    while waiting:
        node = waiting.pop()
        if isinstance(node, And | Or):
            waiting += [node.left, node.right]
        elif isinstance(node, Not):
            waiting.append(node.child)
        else:
            cost += 1 + (len(node.literals) // _LITERALS_A_PREDICATE if isinstance(node, SetPredicate) else 0)
    return cost
