"""A lake in an S3 bucket, which commands reach through a proxy that breaks a request."""

from __future__ import annotations

import filecmp
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

from pyarrow.fs import AwsStandardS3RetryStrategy, FileSelector, S3FileSystem, S3RetryStrategy
from pyiceberg.catalog.sql import SqlCatalog

from tests.faults.faults import Mode
from tests.faults.s3_proxy import BREAKS, S3Proxy

CLIENTS = {"s3 arrow": "pyiceberg.io.pyarrow.PyArrowFileIO", "s3 fsspec": "pyiceberg.io.fsspec.FsspecFileIO"}
WHOLE_SECOND = 1.1
"""Servers say in whole seconds when an object was written."""
TIMEOUT = 0.5
"""Seconds that the clients of these tests wait for an answer."""


def ask_twice() -> S3RetryStrategy:
    """Arrow asks twice, and does not wait in between for long. It takes what makes a strategy by its name."""
    return AwsStandardS3RetryStrategy(max_attempts=2)


@contextmanager
def impatience() -> Iterator[None]:
    """Have s3fs and botocore ask once: they would wait half a minute before they say that a server refuses."""
    from s3fs import S3FileSystem as ByS3fs

    with mock.patch.object(ByS3fs, "retries", 1), mock.patch.dict(os.environ, {"AWS_MAX_ATTEMPTS": "1"}):
        ByS3fs.clear_instance_cache()
        yield
        ByS3fs.clear_instance_cache()


class S3Place:
    """A place for a lake: a prefix of a bucket, reached by one of :data:`CLIENTS`; its catalog is a local file.

    ``settings`` are pyiceberg's properties of the server; those of its catalog are not used.
    """

    modes = tuple(BREAKS)

    def __init__(self, client: str, settings: dict[str, str], bucket: str, folder: Path) -> None:
        self.name, self._folder, self._bucket = client, folder, bucket
        self._folder.mkdir(parents=True)
        self._prefix = f"{bucket}/{uuid.uuid4().hex}"
        address = urlsplit(settings["s3.endpoint"])
        self.faults = S3Proxy(address.port or 80, hold=2 * TIMEOUT)
        through = {
            "s3.endpoint": f"http://127.0.0.1:{self.faults.port}",
            "s3.connect-timeout": str(TIMEOUT),
            "s3.request-timeout": str(TIMEOUT),
            "py-io-impl": CLIENTS[client],
            "s3.retry-strategy-impl": f"{__name__}.{ask_twice.__name__}",
        }
        self._settings = {**settings, **through}
        self._patched = ExitStack()
        if client == "s3 fsspec":
            self._patched.enter_context(impatience())
        self._store = S3FileSystem(
            access_key=settings["s3.access-key-id"],
            secret_key=settings["s3.secret-access-key"],
            endpoint_override=settings["s3.endpoint"],
            region=settings["s3.region"],
        )
        self._kept: dict[str, bytes] = {}
        self._times: dict[str, Any] = {}
        self._last = self._newest = ""

    def catalog(self) -> SqlCatalog:
        path = self._folder / "cat.db"
        is_new = not path.exists()
        own = {"uri": f"sqlite:///{path}", "init_catalog_tables": str(is_new).lower()}
        catalog = SqlCatalog("s3", **{**self._settings, **own, "warehouse": f"s3://{self._prefix}/wh"})
        if is_new:
            catalog.create_namespace("db")
        return catalog

    def location(self, name: str) -> str:
        return f"s3://{self._prefix}/wh/files/{name}"

    def io(self, table: Any) -> Any:
        return table.io

    def _key(self, location: str) -> str:
        """The path in the bucket of a location, or of the path of a request."""
        return location.removeprefix("s3://").lstrip("/").partition("?")[0]

    def put(self, location: str, data: bytes) -> None:
        self._last = self._key(location)
        with self._store.open_output_stream(self._last) as out:
            out.write(data)

    def get(self, location: str) -> bytes:
        with self._store.open_input_file(self._key(location)) as file:
            return file.read()  # type: ignore[no-any-return]

    def exists(self, location: str) -> bool:
        return self._store.get_file_info(self._key(location)).is_file

    def delete(self, location: str) -> None:
        self._store.delete_file(self._key(location))

    def _listed(self) -> dict[str, Any]:
        found = self._store.get_file_info(FileSelector(self._prefix, recursive=True))
        return {info.path: (info.mtime_ns, info.size) for info in found if info.is_file}

    def keep(self) -> None:
        """Remember the state of all objects; the one that was put last is the newest ever after."""
        self._times, self._newest = self._listed(), self._last
        self._kept = {path: self.get(path) for path in self._times}
        shutil.copyfile(self._folder / "cat.db", self._folder / "kept.db")

    def restore(self) -> None:
        shutil.copyfile(self._folder / "kept.db", self._folder / "cat.db")
        now = self._listed()
        for path in now.keys() - self._kept.keys():
            self.delete(path)
        again = [path for path in self._kept if now.get(path) != self._times[path]]
        for path in again:
            self.put(path, self._kept[path])
        if again:
            time.sleep(WHOLE_SECOND)
            self.put(self._newest, self._kept[self._newest])
            self._times = self._listed()

    def is_as_kept(self) -> bool:
        """Return whether the catalog and the bucket have exactly what was kept, unchanged."""
        return filecmp.cmp(self._folder / "kept.db", self._folder / "cat.db", False) and self._listed() == self._times

    @contextmanager
    def breaking(self, mode: Mode, turn: int) -> Iterator[None]:
        with self.faults.armed(mode, turn):
            yield

    def close(self) -> None:
        """End the proxy, and delete the lake."""
        self._patched.close()
        self.faults.close()
        for path in self._listed():
            self._store.delete_file(path)
