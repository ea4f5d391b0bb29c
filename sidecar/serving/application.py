"""Makes the application of one worker: guard, routes, and the planner behind them."""

from __future__ import annotations

import logging
import sys

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from sidecar.errors import SidecarError
from sidecar.serving.answers import Planner
from sidecar.serving.guards import Guard
from sidecar.serving.operations import observed
from sidecar.serving.operations.counters import Counters
from sidecar.serving.operations.observed import ObservedPlanner
from sidecar.serving.operations.routes import operations_routes
from sidecar.serving.protocol.errors import ErrorDocument, ErrorType, document_of, error_document
from sidecar.serving.settings import ServeSettings

log = logging.getLogger(__name__)


def application_with(settings: ServeSettings, planner: Planner) -> ASGIApp:
    """Return the application for ``settings``, in which ``planner`` answers plan requests."""
    print_plan_lines()
    counters = Counters(settings.folder)
    watched = ObservedPlanner(planner, counters)
    if settings.upstream is not None:
        from sidecar.serving.proxy.routes import Proxy

        proxy = Proxy(settings, watched, counters)
        app = Starlette(routes=[*operations_routes(proxy.load_for, counters), *proxy.routes()], lifespan=proxy.lifespan)
    else:
        from sidecar.serving.catalog import load_for, opened_catalog, routes_of

        catalog = opened_catalog(settings)
        app = Starlette(routes=[*operations_routes(load_for(catalog), counters), *routes_of(catalog, watched)])
    app.router.redirect_slashes = False  # a redirect would name the host that the client named
    app.add_exception_handler(SidecarError, report_error)
    app.add_exception_handler(HTTPException, _report_status)
    app.add_exception_handler(Exception, _report_bug)
    return Guard(app, settings)


def print_plan_lines() -> None:
    """Let a line for each plan go to stderr, unless the program has decided where such lines go."""
    if not observed.log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s"))
        observed.log.addHandler(handler)
        observed.log.propagate = False
        observed.log.setLevel(logging.INFO)


def as_response(document: ErrorDocument) -> Response:
    """Return an error as a response."""
    return Response(document.body, document.status, media_type="application/json")


async def report_error(request: Request, error: Exception) -> Response:
    """Answer a request that was refused or failed."""
    return as_response(document_of(error))


async def _report_status(request: Request, error: Exception) -> Response:
    """Answer a request that fits no route."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    answer = ErrorType.METHOD_NOT_ALLOWED if status == 405 else ErrorType.NOT_FOUND
    return as_response(error_document(answer, f"the server has no {request.method} of this path"))


async def _report_bug(request: Request, error: Exception) -> Response:
    log.error("a request failed unexpectedly", exc_info=error)
    return as_response(document_of(error))
