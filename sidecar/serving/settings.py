"""The settings of a server, and the checks that refuse some of them."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import pickle
import re
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import StorageError, UsageError, refuse_text, without_credentials
from sidecar.iceberg.table_names import parts_of
from sidecar.storage.locations import CONTROL

DEFAULT_PORT = 8181
MOST_BODY = 32 << 20
"""Bytes that the body of a request may have. A commit through the proxy is the longest request."""
MOST_PLAN = 8 << 20
"""Bytes that the body of a plan request may have, which is read whole, and of any request that is not passed on."""
REQUEST_SECONDS = 60.0
"""The time in which the body of a request must arrive."""
SEND_SECONDS = 30.0
"""The time in which a client must take a piece of an answer that is passed on."""
LARGE_BODY = 1 << 20
"""Bodies of plan requests from so many bytes on are parsed one at a time: in memory they are 30 times as long."""
UPSTREAM_SECONDS = 120.0
"""The time that an upstream may let pass before it answers, and between two pieces of its answer."""
STOP_SECONDS = 30
"""The time that requests have to end after the server was told to stop."""
MOST_CONNECTIONS = 1_000
"""Connections that a worker has at once. Others are answered with 503, after which clients try again."""
MOST_WORKERS = 64
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")
_AMAZON = re.compile(r"(^|\.)(glue|s3tables)\.[a-z0-9-]+\.(amazonaws\.com(\.cn)?|api\.aws)$")


@dataclass(frozen=True)
class ServeSettings:
    """The settings of a server: its address, the catalog or upstream, and the clients that it answers. Each worker
    process gets a copy."""

    catalog: str | None = None
    """The catalog of pyiceberg's configuration that is served; ``None``: the configured one."""
    upstream: str | None = None
    """The address of the REST catalog that is served instead."""
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0: any free port."""
    workers: int = 1
    token_file: str | os.PathLike[str] | None = None
    tls_cert: str | os.PathLike[str] | None = None
    tls_key: str | os.PathLike[str] | None = None
    public_url: str | None = None
    """The address by which clients reach the server, if it is not the one on which it listens."""
    tables: Sequence[str] = ()
    """Names and globs of the tables whose scans the server plans by itself; none: all tables."""
    storage: Sequence[str] = ()
    """Locations that a proxy reads with its own credentials."""
    encryption_keys: EncryptionKeys | None = field(default=None, repr=False)
    """What opens encrypted sidecars."""
    token_digest: bytes | None = field(default=None, repr=False)
    """The SHA-256 of the token that each request must have; ``None``: no token is asked for."""
    page_key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """Signs the tokens of result pages. All workers have the same."""
    folder: str | None = None
    """Where the workers count; ``None``: there is one worker, which counts in its memory."""

    @property
    def scheme(self) -> str:
        """``https`` if the server has a certificate."""
        return "https" if self.tls_cert else "http"

    def checked(self) -> ServeSettings:
        """Return the settings as workers take them: paths and lists in one form, with the digest of the token.

        Raises :class:`UsageError` for settings that are wrong, contradict each other or are not safe, and
        :class:`StorageError` if the file of the token cannot be read.
        """
        refuse_text(tables=self.tables, storage=self.storage)
        for pattern in self.tables:
            _check_pattern(pattern)
        if self.catalog is not None and self.upstream is not None:
            found = "catalog and upstream"
            raise UsageError("a server is before a catalog or before an upstream, not both", found=found)
        if not 0 <= self.port <= 65_535:
            raise UsageError("the port is a number from 0 to 65535", found=self.port)
        if not 1 <= self.workers <= MOST_WORKERS:
            raise UsageError(f"the number of workers is from 1 to {MOST_WORKERS}", found=self.workers)
        if self.workers > 1:
            _check_reach_workers(self.encryption_keys)
        self._check_files()
        if self.upstream is not None:
            check_upstream(self.upstream)
        if self.storage and self.upstream is None:
            what = "storage locations are for a proxy: a catalog's tables are read as pyiceberg is configured"
            raise UsageError(what)
        for location in self.storage:
            _check_storage(location)
        if self.public_url is not None:
            _split_url(self.public_url, "the public address")
        self._check_address()
        return replace(
            self,
            upstream=None if self.upstream is None else self.upstream.rstrip("/"),
            token_file=None if self.token_file is None else os.fspath(self.token_file),
            tls_cert=None if self.tls_cert is None else os.fspath(self.tls_cert),
            tls_key=None if self.tls_key is None else os.fspath(self.tls_key),
            public_url=None if self.public_url is None else self.public_url.rstrip("/"),
            tables=tuple(self.tables),
            storage=tuple(self.storage),
            token_digest=None if self.token_file is None else _token_digest(self.token_file),
        )

    def _check_files(self) -> None:
        """Raise :class:`UsageError` for files of secrets and certificates that are missing or that everybody may
        write."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UsageError("a certificate and its key belong together", hint="Give tls_cert and tls_key.")
        for path in (self.tls_cert, self.tls_key):
            if path is not None and not os.path.isfile(path):
                raise UsageError("the file of the certificate or key does not exist", file=os.fspath(path))
        for path in (self.tls_key, self.token_file):
            if path is not None and os.path.exists(path) and stat.S_IMODE(os.stat(path).st_mode) & 0o002:
                raise UsageError(
                    "everybody may write the file of a secret",
                    file=os.fspath(path),
                    hint=f"Run: chmod 600 {os.fspath(path)}",
                )

    def _check_address(self) -> None:
        """Raise :class:`UsageError` for an address that other machines reach without a token and a certificate."""
        if is_loopback(self.host):
            return
        if self.token_file is None or self.tls_cert is None:
            raise UsageError(
                f"the address {self.host} is reached from other machines",
                expected="a token and a certificate",
                hint="Give token_file, tls_cert and tls_key, or listen on 127.0.0.1.",
            )
        if self.host in ("0.0.0.0", "::") and self.public_url is None:
            raise UsageError(
                f"the address {self.host} is no name that clients call",
                hint="Give public_url, the address that clients use.",
            )


def _check_pattern(pattern: str) -> None:
    """Raise :class:`UsageError` for a glob that no table of a catalog can match."""
    parts = parts_of(pattern)
    if len(parts) == 1 and not parts[0].is_any_depth:
        raise UsageError(
            f"no table matches '{pattern}': it has no namespace",
            hint="db.* are the tables of db, and ** are all tables.",
        )


def _check_storage(location: str) -> None:
    """Raise :class:`UsageError` for a location that parsers may read in different ways."""
    from sidecar.serving.proxy.storage import plain_location

    if plain_location(location) is None:
        raise UsageError(
            "a storage location is a folder or a URL, without control characters and parts that are . or ..",
            found=location,
            expected="s3://bucket/folder/ or /folder/",
        )


def _check_reach_workers(keys: EncryptionKeys | None) -> None:
    """Raise :class:`UsageError` for keys that cannot be sent to another process."""
    try:
        pickle.dumps(keys)
    except Exception as error:  # a retriever and a rule for prefixes can be any objects of the caller
        raise UsageError(
            f"the encryption keys cannot be sent to workers: {type(error).__name__}",
            expected="a retriever and a rule for AAD prefixes that can be pickled",
            hint="Make them of classes and functions of a module, or run one worker.",
        ) from error


def check_upstream(url: str) -> None:
    """Raise :class:`UsageError` for an address that cannot be an upstream."""
    parts = _split_url(url, "the upstream")
    if parts.query or parts.fragment:
        raise UsageError("the address of an upstream has no query", found=without_credentials(url))
    if _AMAZON.search(parts.hostname or ""):
        raise UsageError(
            "the upstream asks for requests that are signed for its own name (SigV4), which a proxy cannot pass on",
            found=parts.hostname,
            hint="Describe the catalog in ~/.pyiceberg.yaml and serve it with --catalog.",
        )


def _split_url(url: str, what: str) -> SplitResult:
    try:
        if CONTROL.search(url):
            raise ValueError("urlsplit drops some control characters")
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise UsageError(f"{what} is not a URL", found=repr(without_credentials(url))) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{what} is not a URL", expected="http://... or https://...", found=without_credentials(url))
    if parts.username is not None or parts.password is not None:
        raise UsageError(f"{what} has a user name or password in it", hint="Clients send their own credentials.")
    return parts


def _token_digest(path: str | os.PathLike[str]) -> bytes:
    try:
        token = Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError("cannot read the token", file=os.fspath(path)) from error
    if len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            "the token is at least 16 ASCII characters in one line, without spaces",
            file=os.fspath(path),
            hint="Make one with: python -c 'import secrets; print(secrets.token_urlsafe())'",
        )
    return digest_of(token.encode())


def digest_of(token: bytes) -> bytes:
    """Return the digest of a token, which is kept and compared."""
    return hashlib.sha256(token).digest()


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def names_of(settings: ServeSettings) -> frozenset[str]:
    """Return the names by which clients may call the server in the header ``Host``, without ports, in small letters.

    A page in a browser reaches a server on the loopback through a name of its own (DNS rebinding), but then its
    requests have that name.
    """
    names = {"localhost", "127.0.0.1", "[::1]"} if is_loopback(settings.host) else set()
    names.add(f"[{settings.host}]" if ":" in settings.host else settings.host)
    if settings.public_url is not None:
        host = urlsplit(settings.public_url).hostname or ""
        names.add(f"[{host}]" if ":" in host else host)
    return frozenset(name.lower() for name in names if _HOST.fullmatch(name))
