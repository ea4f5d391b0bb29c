"""The three servers together: what was started is in a folder, beside a configuration of pyiceberg with catalogs."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from scripts.servers import iceberg_rest, postgres, s3
from scripts.servers.processes import Begun, Process, ServerError

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("SIDECAR_SERVICES") or ROOT / ".work" / "services")
"""Where the servers' files are, and what was started. The configuration is ``.pyiceberg.yaml`` in it."""
FSSPEC = "pyiceberg.io.fsspec.FsspecFileIO"


class Service(NamedTuple):
    """A server that was started.

    Attributes:
        process: the process.
        what: what it is and where it listens, in one line.
        folders: its files, which go when it ends.
        catalogs: catalogs of pyiceberg, by name, with their properties; none while the server is starting.
    """

    process: Process
    what: str
    folders: list[str]
    catalogs: dict[str, dict[str, str]]


def _start_rest(folder: Path, _: dict[str, Service], begun: Begun) -> Service:
    process, address = iceberg_rest.start_server(folder, begun)
    what = f"Iceberg's REST server {iceberg_rest.ICEBERG} at {address}"
    return Service(process, what, [str(folder)], {"rest": {"type": "rest", "uri": address}})


def _start_postgres(folder: Path, _: dict[str, Service], begun: Begun) -> Service:
    process, address, home = postgres.start_server(folder, begun)
    warehouse = f"file:{folder}/warehouse"
    what = f"PostgreSQL at {address.rpartition('@')[2]}"
    catalogs = {"postgres": {"type": "sql", "uri": address, "warehouse": warehouse}}
    return Service(process, what, [str(folder), str(home)], catalogs)


def _start_s3(folder: Path, started: dict[str, Service], begun: Begun) -> Service:
    """Tables in S3 are named by a catalog on PostgreSQL."""
    process, settings = s3.start_server(folder, begun)
    uri = started["postgres"].catalogs["postgres"]["uri"]
    properties = {"type": "sql", "uri": uri, "warehouse": f"s3://{s3.BUCKET}/tables", **settings}
    catalogs = {"s3": properties, "s3-fsspec": {**properties, "py-io-impl": FSSPEC}}
    return Service(process, f"SeaweedFS, an S3 server, at {settings['s3.endpoint']}", [str(folder)], catalogs)


STARTERS: dict[str, Callable[[Path, dict[str, Service], Begun], Service]] = {
    "rest": _start_rest,
    "postgres": _start_postgres,
    "s3": _start_s3,
}


def running() -> dict[str, Service]:
    """The servers that were started and still run, by name."""
    return {name: found for name, found in _remembered().items() if found.catalogs and found.process.is_alive}


def up() -> dict[str, Service]:
    """Start the servers that do not run; return all, by name.

    If one does not start, those that do run go on.

    Raises:
        ServerError: if one does not start.
    """
    with _alone():
        found = running()
        if set(found) != set(STARTERS):
            _end()  # they know each other's addresses
            found = {}
        for name, starter in STARTERS.items():
            if name not in found:
                found[name] = starter(FOLDER / name, found, _Beginning(name, found))
                _remember(found)
        return found


def down() -> dict[str, Service]:
    """End all servers, also those that did not finish starting, and remove their files; return those that ran."""
    with _alone():
        return _end()


@contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other command starts or ends the servers of this folder."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _Beginning:
    """Remembers a server from its beginning, so that ``down`` finds it if ``up`` is killed while it starts."""

    def __init__(self, name: str, started: dict[str, Service]) -> None:
        self._name = name
        self._started = started

    def __call__(self, process: Process, *folders: Path) -> None:
        service = Service(process, f"{self._name}, while it started", [str(folder) for folder in folders], {})
        _remember({**self._started, self._name: service})


def _end() -> dict[str, Service]:
    ran = running()
    for service in reversed(_remembered().values()):
        service.process.stop()
    for service in _remembered().values():
        for folder in service.folders:
            shutil.rmtree(folder, ignore_errors=True)
    for name in STARTERS:
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    for path in (_state(), FOLDER / ".pyiceberg.yaml"):
        path.unlink(missing_ok=True)
    return ran


def _state() -> Path:
    return FOLDER / "state.json"


def _remembered() -> dict[str, Service]:
    if not _state().is_file():
        return {}
    try:
        plain: dict[str, Any] = json.loads(_state().read_text())
        return {name: Service(Process(*value[0]), *value[1:]) for name, value in plain.items()}
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        hint = "end the servers that it names, then delete it"
        raise ServerError(f"{_state()} is not what this version writes: {hint}") from error


def _remember(services: dict[str, Service]) -> None:
    _write_private(_state(), json.dumps(services, indent=1))
    lines = ["catalog:"]
    for service in services.values():
        for name, properties in service.catalogs.items():
            lines += [f"  {name}:", *(f"    {key}: {json.dumps(value)}" for key, value in properties.items())]
    _write_private(FOLDER / ".pyiceberg.yaml", "\n".join(lines) + "\n")


def _write_private(path: Path, text: str) -> None:
    """Write a file that others cannot read, and publish it when it is whole."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.touch(0o600)
    partial.write_text(text)
    partial.replace(path)
