"""Limits what one plan request costs the server, and ends the work for a client that has left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from typing import ParamSpec, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from sidecar.planning.budget import Budget, OutOfTime, PlanStopped, limited_by, present_budget
from sidecar.serving.protocol.errors import ErrorType, RefusedRequestError
from sidecar.serving.settings import LARGE_BODY

MOST_COMPARISONS = 2_000_000
"""Predicates of a filter, times the partitions and files that are compared one by one. A million take 3 s."""
PLAN_SECONDS = 120.0
P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def within_limits() -> Iterator[None]:
    """Let the plans of the block have the present limits, or new ones. Raises :class:`RefusedRequestError` beyond."""
    try:
        with limited_by(present_budget() or Budget(MOST_COMPARISONS, PLAN_SECONDS)):
            yield
    except OutOfTime as stopped:
        raise RefusedRequestError(str(stopped), ErrorType.UNAVAILABLE) from stopped
    except PlanStopped as stopped:
        hint = "Set scan-planning-mode to client for the catalog, or ask for less"
        raise RefusedRequestError(f"{stopped}. {hint}", ErrorType.UNSUPPORTED) from stopped


class Turns:
    """Lets requests with large bodies wait for one another."""

    def __init__(self) -> None:
        self._large = asyncio.Semaphore(1)

    def of(self, body: bytes) -> AbstractAsyncContextManager[None]:
        """Return what a request holds while its body is parsed."""
        return self._large if len(body) >= LARGE_BODY else nullcontext()


async def run_while_wanted(request: Request, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run ``work`` in a thread. Plans in it end when the client leaves. The body of the request has been read."""
    budget = Budget(MOST_COMPARISONS, PLAN_SECONDS)

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        budget.is_wanted = False

    watching = asyncio.create_task(watch())
    try:
        with limited_by(budget):  # threads get a copy of the context
            return await run_in_threadpool(work, *args, **kwargs)
    finally:
        watching.cancel()
