"""``sidecar serve``: a REST endpoint that plans scans with the sidecars."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sidecar.cli.options import KeyPlace, encryption_keys
from sidecar.cli.output import escaped, facts, output

if TYPE_CHECKING:
    pass


ListenAddress = Annotated[
    str,
    typer.Option("--host", metavar="ADDRESS", help="Where to listen. Other machines need a token and TLS."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="A file with the token that each request must have."),
]
TlsCert = Annotated[
    Path | None, typer.Option("--tls-cert", metavar="FILE", help="The server's certificate and its chain, as PEM.")
]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of the certificate, as PEM.")]
PublicUrl = Annotated[
    str | None,
    typer.Option("--public-url", metavar="URL", help="The address that clients use [where it listens]."),
]
TablesToServe = Annotated[
    list[str] | None,
    typer.Option("--tables", metavar="PATTERN", help="Plan only these tables or globs: 'db.*', 'db.**' [all]. Repeat."),
]
OwnStorage = Annotated[
    list[str] | None,
    typer.Option(
        "--storage",
        metavar="LOCATION",
        help="With --upstream: read files below it with the server's own credentials. Repeat.",
    ),
]


def serve(
    upstream: Annotated[
        str | None,
        typer.Option("--upstream", metavar="URL", help="Serve this REST catalog, instead of --catalog."),
    ] = None,
    host: ListenAddress = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", help="The port; 0 is any free one.")] = 8181,
    workers: Annotated[int, typer.Option("--workers", metavar="N", help="The number of processes.")] = 1,
    token_file: TokenFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    public_url: PublicUrl = None,
    tables: TablesToServe = None,
    storage: OwnStorage = None,
    encryption: KeyPlace = None,
) -> None:
    """Serve tables to engines, and plan their scans with the sidecars.

    Engines need no setting but the address. With --catalog the tables are served read-only; with --upstream all
    requests go to that REST catalog, and only scans are planned here. Each plan is one line of JSON on stderr.

    \b
    Examples:
      sidecar serve --catalog demo
      sidecar serve --upstream https://rest.example.com --storage s3://lake/
    """
    out = output()
    from sidecar import serve as serve_tables

    def announce(url: str) -> None:
        serves = upstream or out.choices.catalog_or_variable
        lines = [("serves", escaped(serves or "the default catalog")), ("at", escaped(url))]
        out.result({"url": url, "serves": serves}, lambda to, _: to.print(facts(lines)))
        sys.stdout.flush()

    serve_tables(
        catalog=out.choices.catalog_or_variable,
        upstream=upstream,
        host=host,
        port=port,
        workers=workers,
        token_file=token_file,
        tls_cert=tls_cert,
        tls_key=tls_key,
        public_url=public_url,
        tables=tables or (),
        storage=storage or (),
        encryption_keys=encryption_keys(encryption),
        on_start=announce,
    )
