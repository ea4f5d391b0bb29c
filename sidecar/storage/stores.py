"""Opens object stores for files that are named by URL: by given settings, and by the variables that others read too.

Settings are pyiceberg's (``s3.endpoint``); one that is given goes before a variable. Keys in variables are left to the
store's client, which looks for them itself, also in profiles and in the metadata of a cloud's machines. Before a client
is made, its server is asked for a connection: clients try for 10 seconds (S3) to 15 minutes (GCS) to reach one.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from sidecar.errors import StorageError
from sidecar.storage.locations import scheme_of

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

CONNECT_SECONDS = 2.5
"""Seconds in which a store's name must be found and its server must take a connection."""
CATALOG_HINT = "--catalog NAME (in Python io=) takes the settings of a catalog."
_DENIED = re.compile(
    r"ACCESS_DENIED|AccessDenied|Forbidden|\b40[13]\b|InvalidAccessKeyId|SignatureDoesNotMatch|PermissionError|"
    r"UNAUTHENTICATED|NoCredentials|[Uu]nable to locate credentials"
)
_PROXIES = ("s3.proxy-uri", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")

_OWN = "pyiceberg.io."
"""Where pyiceberg's clients are; another one may reach a store in ways of its own."""

Settings = Mapping[str, str]


class _Store(NamedTuple):
    """A kind of object store."""

    settings: Callable[[str, Settings], dict[str, str]]
    """The settings in the variables for a location, given the settings that go before them."""
    server: Callable[[str, Settings], str]
    """The URL of the server that is asked for a location."""
    way: str
    """The setting and the variables that name the server."""
    keys: str
    """The settings and the variables that hold the keys."""


def store_io(location: str, given: Settings | None = None) -> FileIO:
    """Return what opens the files of a store: pyiceberg's choice for a location, with ``given`` settings and variables.

    Raises :class:`StorageError` if the store's server cannot be reached.
    """
    from pyiceberg.io import load_file_io

    settings = store_settings(location, given or {})
    store = _store_of(location)
    has_proxy = any(settings.get(name) or os.environ.get(name) for name in _PROXIES)
    if store is not None and not has_proxy and settings.get("py-io-impl", _OWN).startswith(_OWN):
        _check_server(location, store.server(location, settings), store.way)
    return load_file_io(settings, location)


def store_settings(location: str, given: Settings) -> dict[str, str]:
    """Return ``given`` settings, and after them those of the usual variables for the store of a location."""
    store = _store_of(location)
    found = {} if store is None else store.settings(location, given)
    return {**{name: value for name, value in found.items() if value}, **given}


def store_setting_names() -> list[str]:
    """Return the names of the settings that pyiceberg's clients of stores take."""
    import pyiceberg.io

    kinds = ("s3.", "client.", "gcs.", "adls.", "hdfs.", "hf.")
    names = [value for value in vars(pyiceberg.io).values() if isinstance(value, str) and value.startswith(kinds)]
    return [*names, pyiceberg.io.PY_IO_IMPL]


def denied_hint(location: str, reason: str) -> str | None:
    """Return what to set if a store did not let its client in; ``None`` if ``reason`` says another thing."""
    store = _store_of(location)
    if store is None or not _DENIED.search(reason):
        return None
    return f"Check the keys: {store.keys}; {CATALOG_HINT}"


def _store_of(location: str) -> _Store | None:
    return _STORES.get(scheme_of(location)) if "://" in location else None


def _check_server(location: str, server: str, way: str) -> None:
    """Raise :class:`StorageError` unless the server takes a connection. A look-up of a name cannot be ended: a thread
    is left with it."""

    def refused(what: str) -> StorageError:
        return StorageError(what, file=location, hint=f"Name the store's server: {way}; {CATALOG_HINT}")

    if not server:
        raise refused("no setting says on which object store the file is")
    try:
        parts = urlsplit(server if "://" in server else f"https://{server}")
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError as error:  # not shown: it may have the password that is in the URL
        raise refused("the URL of the object store's server is none") from error
    failed: list[str] = ["no answer"]

    def connect() -> None:
        try:
            socket.create_connection((parts.hostname or "", port), CONNECT_SECONDS).close()
            failed.clear()
        except OSError as error:
            failed[:] = [error.strerror or str(error)]

    asking = threading.Thread(target=connect, name="sidecar-connect", daemon=True)
    asking.start()
    asking.join(CONNECT_SECONDS)
    if failed:
        raise refused(f"no connection to the object store at {parts.hostname}:{port}: {failed[0]}")


def _s3_settings(location: str, given: Settings) -> dict[str, str]:
    """A server of one's own needs no region, but a client without one asks Amazon's for that of the bucket."""
    profile = _aws_profile(given.get("s3.profile-name") or os.environ.get("AWS_PROFILE") or "default")
    endpoint = _first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL") or profile.get("endpoint_url", "")
    region = _first("AWS_REGION", "AWS_DEFAULT_REGION") or profile.get("region", "")
    if not region and (endpoint or given.get("s3.endpoint")):
        region = "us-east-1"
    return {"s3.endpoint": endpoint, "s3.region": "" if given.get("client.region") else region}


def _aws_profile(name: str) -> dict[str, str]:
    from configparser import ConfigParser, Error  # 1 ms, which local files do not need

    config = ConfigParser(interpolation=None, strict=False)
    try:
        config.read(os.environ.get("AWS_CONFIG_FILE") or os.path.expanduser("~/.aws/config"))
    except (Error, OSError, UnicodeDecodeError):  # the client says what is wrong with it, if it needs it
        return {}
    section = name if name == "default" else f"profile {name}"
    return dict(config[section]) if config.has_section(section) else {}


def _s3_server(location: str, settings: Settings) -> str:
    region = settings.get("s3.region") or settings.get("client.region")
    return settings.get("s3.endpoint") or f"https://s3.{region + '.' if region else ''}amazonaws.com"


def _gcs_settings(location: str, given: Settings) -> dict[str, str]:
    """An emulator takes any token; without one, the client looks for the keys of a user."""
    host = _first("STORAGE_EMULATOR_HOST")
    if not host:
        return {}
    server = {"gcs.service.host": host if "://" in host else f"http://{host}"}
    return server | {"gcs.oauth2.token": "emulator", "gcs.oauth2.token-expires-at": "4102444800000"}


def _gcs_server(location: str, settings: Settings) -> str:
    return settings.get("gcs.service.host") or "https://storage.googleapis.com"


def _azure_settings(location: str, given: Settings) -> dict[str, str]:
    """Arrow's client takes no connection string, so its parts are settings too; nor a key and a signature at once.

    Variables for another account than that of the URL say nothing: its own store may have a file of this name.
    """
    text = given.get("adls.connection-string") or _first("AZURE_STORAGE_CONNECTION_STRING")
    parts = {name.strip().lower(): value for name, _, value in (one.partition("=") for one in text.split(";"))}
    host = urlsplit(location).hostname or ""
    account = parts.get("accountname") or _first("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
    named = host.partition(".")[0] if ".dfs." in host or ".blob." in host else ""
    if named and account not in ("", named) and not given.get("adls.connection-string"):
        return {"adls.account-name": named, **_azure_client()}
    key = parts.get("accountkey") or _first("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY")
    signature = parts.get("sharedaccesssignature") or _first("AZURE_STORAGE_SAS_TOKEN")
    blobs = urlsplit(parts.get("blobendpoint", ""))
    found = {
        "adls.connection-string": text,
        "adls.account-name": account or (host.partition(".")[0] if "." in host else ""),
        "adls.account-key": key,
        "adls.sas-token": "" if key or given.get("adls.account-key") else signature,
        "adls.blob-storage-authority": blobs.netloc,
        "adls.blob-storage-scheme": blobs.scheme,
        "adls.dfs-storage-authority": blobs.netloc,
        "adls.dfs-storage-scheme": blobs.scheme,
    }
    return found | _azure_client()


def _azure_client() -> dict[str, str]:
    return {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"} if find_spec("adlfs") is None else {}


def _azure_server(location: str, settings: Settings) -> str:
    authority = settings.get("adls.blob-storage-authority")
    if authority:
        return f"{settings.get('adls.blob-storage-scheme') or 'https'}://{authority}"
    account = settings.get("adls.account-name")
    return f"https://{account}.blob.core.windows.net" if account else ""


def _first(*variables: str) -> str:
    """Return the value of the first variable that is set, else an empty text."""
    return next((value for value in map(os.environ.get, variables) if value), "")


_S3 = _Store(
    _s3_settings,
    _s3_server,
    "AWS_ENDPOINT_URL=URL, or AWS_REGION for Amazon's",
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
)
_GCS = _Store(
    _gcs_settings,
    _gcs_server,
    "STORAGE_EMULATOR_HOST=URL, unless it is Google's",
    "GOOGLE_APPLICATION_CREDENTIALS=FILE",
)
_AZURE = _Store(
    _azure_settings,
    _azure_server,
    "AZURE_STORAGE_ACCOUNT=NAME or AZURE_STORAGE_CONNECTION_STRING",
    "AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING",
)
_STORES = {
    **dict.fromkeys(("s3", "s3a", "s3n"), _S3),
    **dict.fromkeys(("gs", "gcs"), _GCS),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), _AZURE),
}
