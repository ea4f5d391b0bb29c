"""Makes the application of one worker: guard, routes, and the planner behind them."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from sidecar.errors import SidecarError
from sidecar.iceberg.catalog import load_identified, open_catalog
from sidecar.serving.answers import Planner
from sidecar.serving.catalog_routes import catalog_routes
from sidecar.serving.guards import Guard
from sidecar.serving.operations import observed
from sidecar.serving.operations.counters import Counters
from sidecar.serving.operations.observed import ObservedPlanner
from sidecar.serving.operations.routes import LoadForCaller, operations_routes
from sidecar.serving.planning.scan_planner import ScanPlanner
from sidecar.serving.protocol.errors import ErrorDocument, ErrorType, document_of, error_document, place_of
from sidecar.serving.settings import ServeSettings
from sidecar.serving.table_paths import TablePath

log = logging.getLogger(__name__)


def make_application(settings: ServeSettings) -> ASGIApp:
    """Return the application of a worker.

    Raises the errors of :func:`sidecar.open_table` for the catalog.
    """
    is_catalog = settings.upstream is None
    tables = settings.tables if is_catalog and settings.tables else None
    planner = ScanPlanner(
        settings.page_key,
        tables=tables,
        shares_manifests=is_catalog,
        is_read_only=is_catalog,
        encryption_keys=settings.encryption_keys,
    )
    return application_with(settings, planner)


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
        catalog = open_catalog(settings.catalog)
        app = Starlette(routes=[*operations_routes(_loader(catalog), counters), *catalog_routes(catalog, watched)])
    app.router.redirect_slashes = False  # a redirect would name the host that the client named
    for kind in (SidecarError, NoSuchTableError, NoSuchNamespaceError):
        app.add_exception_handler(kind, report_error)
    app.add_exception_handler(ClientDisconnect, _report_disconnect)
    app.add_exception_handler(HTTPException, _report_status)
    app.add_exception_handler(Exception, _report_bug)
    return Guard(app, settings)


def _loader(catalog: Catalog) -> LoadForCaller:
    async def load(request: Request, path: TablePath) -> Table:
        return await run_in_threadpool(load_identified, catalog, path.identifier)

    return load


def print_plan_lines() -> None:
    """Print a line for each plan to stderr, unless the program has configured logging."""
    if not observed.log.handlers:
        observed.log.addHandler(_LinePrinter())
        observed.log.propagate = False
        observed.log.setLevel(logging.INFO)


class _LinePrinter(logging.Handler):
    """Prints records on the present stderr, which may be replaced while the server runs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        with suppress(OSError):
            sys.stderr.write(f"{record.getMessage()}\n")
            sys.stderr.flush()


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


async def _report_disconnect(request: Request, error: Exception) -> Response:
    """Answer a request whose body ended too soon. Usually the client has left."""
    return as_response(error_document(ErrorType.BAD_REQUEST, "the connection was closed in the middle of the body"))


async def _report_bug(request: Request, error: Exception) -> Response:
    log.error("a request failed unexpectedly: %s", place_of(error))
    return as_response(document_of(error))
