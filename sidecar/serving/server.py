"""Runs the server: one process, or several workers that share an address and nothing else.

The socket is opened here, before any worker starts, so that an address in use is an error of the call.
"""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import StorageError, UsageError
from sidecar.serving.settings import (
    DEFAULT_PORT,
    MOST_CONNECTIONS,
    STOP_SECONDS,
    ServeSettings,
)

if TYPE_CHECKING:
    import uvicorn

IDLE_SECONDS = 75
"""How long a connection may be idle. It is longer than pools of clients keep theirs, so that no commit is sent into a
connection that is being closed."""
QUEUED_CONNECTIONS = 1_024
"""How many connections may wait to be accepted."""
SPARE_SECONDS = 30.0
"""How much longer than :data:`STOP_SECONDS` the thread of a server is waited for when it ends."""


def serve(
    *,
    catalog: str | None = None,
    upstream: str | None = None,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    workers: int = 1,
    token_file: str | os.PathLike[str] | None = None,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    public_url: str | None = None,
    tables: list[str] | tuple[str, ...] = (),
    storage: list[str] | tuple[str, ...] = (),
    encryption_keys: EncryptionKeys | None = None,
    on_start: Callable[[str], None] | None = None,
) -> None:
    """Serve a catalog with Iceberg's REST protocol and plan scans with the sidecars, until SIGINT or SIGTERM.

    Example: ``sidecar.serve(catalog="lake", port=8181)``
    ``catalog``: the catalog of pyiceberg's configuration to serve, read-only; by default its default.
    ``upstream``: the address of a REST catalog to serve instead, which gets all other requests.
    ``host``, ``port``: where to listen. Port 0 is any free port. Addresses that other machines reach need a token and a
    certificate.
    ``workers``: the number of processes. With more than one, a script needs ``if __name__ == "__main__":``.
    ``token_file``: a file with the token that each request must have.
    ``tls_cert``, ``tls_key``: files with the certificate chain and its key, as PEM.
    ``public_url``: the address for clients, if it differs.
    ``tables``: names or globs of tables to plan, by default all; clients plan other tables themselves.
    ``storage``: locations (``s3://lake/``) that a server before an upstream may read with its own credentials. Others
    need credentials that the upstream gives to the caller.
    ``encryption_keys``: open encrypted sidecars. Whoever may load a table then learns which files may hold a value,
    also of encrypted columns.
    ``on_start``: called with the server's address when it listens.

    Raises :class:`UsageError` without the extra ``[serve]``, for settings that contradict each other or are not safe,
    and for an address in use; and the errors of :func:`sidecar.open_table`.
    """
    settings = ServeSettings(
        catalog=catalog,
        upstream=upstream,
        host=host,
        port=port,
        workers=workers,
        token_file=token_file,
        tls_cert=tls_cert,
        tls_key=tls_key,
        public_url=public_url,
        tables=tables,
        storage=storage,
        encryption_keys=encryption_keys,
    ).checked()
    require_extra()
    _try_catalog(settings)
    with listening(settings) as (listener, address):
        if on_start is not None:
            on_start(address)
        if settings.workers == 1:
            _run_alone(settings, listener)
        else:
            _run_workers(settings, listener)


def require_extra() -> None:
    """Raise :class:`UsageError` if the packages of the extra ``[serve]`` are missing."""
    try:
        import httpx  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"the server needs the package {error.name}, which is not installed",
            hint="In a copy of the repository run: pip install '.[serve]'",
        ) from error


@contextmanager
def running(settings: ServeSettings, application: Any) -> Iterator[str]:
    """Run an application in a thread of this process until the block ends; yield its address.

    The application is that of :mod:`sidecar.serving.application` for ``settings``.
    """
    with listening(settings) as (listener, address):
        server = _uvicorn(settings, application)
        ended = threading.Event()

        def run() -> None:
            try:
                server.run(sockets=[listener])
            finally:
                ended.set()

        thread = threading.Thread(target=run, name="sidecar-serve", daemon=True)
        thread.start()
        try:
            while not server.started:
                if ended.wait(0.005):
                    raise StorageError("the server did not start")
            yield address
        finally:
            server.should_exit = True
            thread.join(SPARE_SECONDS + STOP_SECONDS)


def _run_alone(settings: ServeSettings, listener: socket.socket) -> None:
    from sidecar.serving.application import make_application

    with signals_end_the_server():
        _uvicorn(settings, make_application(settings)).run(sockets=[listener])


@contextmanager
def signals_end_the_server() -> Iterator[None]:
    """Let SIGINT and SIGTERM stop the server and not the program: uvicorn raises them again after it has stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {one: signal.signal(one, lambda *_: None) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _run_workers(settings: ServeSettings, listener: socket.socket) -> None:
    from uvicorn.supervisors import Multiprocess

    from sidecar.serving.application import make_application

    with tempfile.TemporaryDirectory(prefix="sidecar-serve-") as folder:
        settings = replace(settings, folder=folder)
        config = _config(settings, partial(make_application, settings), factory=True)
        Multiprocess(config, sockets=[listener]).run()


def _uvicorn(settings: ServeSettings, application: Any) -> uvicorn.Server:
    import uvicorn

    return uvicorn.Server(_config(settings, application))


def _config(settings: ServeSettings, application: Any, *, factory: bool = False) -> uvicorn.Config:
    import uvicorn

    return uvicorn.Config(
        application,
        factory=factory,
        workers=settings.workers,
        http="h11",  # the strictest parser, which limits the length of headers
        ws="none",
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,  # a proxy passes on the upstream's
        proxy_headers=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        limit_concurrency=MOST_CONNECTIONS,
    )


def _try_catalog(settings: ServeSettings) -> None:
    """Open the catalog once, so that a wrong configuration is an error of the call and not of a worker."""
    if settings.upstream is None:
        from sidecar.iceberg.catalog import open_catalog

        open_catalog(settings.catalog)


@contextmanager
def listening(settings: ServeSettings) -> Iterator[tuple[socket.socket, str]]:
    """Open the socket of a server; yield it and its address."""
    host = settings.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small packets at once only if the protocol is named; else each answer takes 40 ms longer
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, settings.port))
        listener.listen(QUEUED_CONNECTIONS)
    except OSError as error:
        listener.close()
        raise UsageError(f"cannot listen on {host}, port {settings.port}: {error.strerror or error}") from error
    with listener:
        port = listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        yield listener, settings.public_url or f"{settings.scheme}://{shown}:{port}"
