"""An object store that is a folder: its locations are no local paths, and nothing but ``FileIO`` reaches them.

A table of the same catalog may have a local location instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT

SCHEME = "folder://"


def open_store(folder: Path) -> StoreCatalog:
    """The catalog of a store in ``folder``, with the namespace ``db``. A copy of the folder is the same store."""
    catalog = StoreCatalog(
        "folder",
        **{
            "uri": f"sqlite:///{folder}/cat.db",
            "warehouse": f"{SCHEME}wh",
            "folder": str(folder),
            "py-io-impl": f"{__name__}.FolderIO",
        },
    )
    catalog.create_namespace_if_not_exists("db")
    return catalog


class StoreCatalog(SqlCatalog):
    """The catalog, whose requests fail with those of the store."""

    def load_table(self, identifier: Any) -> Any:
        FolderIO.on_request("load", str(identifier))
        return super().load_table(identifier)

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
        FolderIO.on_request("commit", str(table.name()))
        done = super().commit_table(table, requirements, updates)
        FolderIO.on_request("committed", str(table.name()))
        return done


class FolderIO(PyArrowFileIO):
    """The store. A new file appears when its stream is closed."""

    on_request: ClassVar[Callable[[str, str], object]] = lambda request, location: None
    """Called with each request and its location; what it raises is the answer.

    Requests that change nothing: ``open``, ``exists``, ``length``, ``write``, ``load``. Requests that change something
    have two names, before and after it happened: ``close`` and ``closed``, ``delete`` and ``deleted``, ``commit`` and
    ``committed``.
    """

    def __init__(self, properties: Any = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._folder = self.properties["folder"]

    def _local(self, location: Any) -> str:
        location = location if isinstance(location, str) else location.location
        if not location.startswith(SCHEME):
            return location
        return f"{self._folder}/{location.removeprefix(SCHEME)}"

    def new_input(self, location: str) -> Any:
        file: Any = super().new_input(self._local(location))
        file.__class__, file.asked = StoredFile, location
        return file

    def new_output(self, location: str) -> Any:
        output: Any = super().new_output(self._local(location))
        output._location = location  # what a manifest is written down as
        final = self._local(location)

        def create_stream(overwrite: bool = False) -> Upload:
            if not overwrite and os.path.exists(final):
                raise FileExistsError(location)
            os.makedirs(os.path.dirname(final), exist_ok=True)
            return Upload(location, final)

        output.create = create_stream
        return output

    def delete(self, location: Any) -> None:
        FolderIO.on_request("delete", str(location))
        super().delete(self._local(location))
        FolderIO.on_request("deleted", str(location))


class StoredFile(PyArrowFile):
    """A file in the store."""

    asked: str

    def open(self, seekable: bool = True) -> Any:
        FolderIO.on_request("open", self.asked)
        return super().open(seekable)

    def exists(self) -> bool:
        FolderIO.on_request("exists", self.asked)
        return super().exists()

    def __len__(self) -> int:
        FolderIO.on_request("length", self.asked)
        return super().__len__()


class Upload:
    """A file that is being written. It is named when it is closed."""

    def __init__(self, location: str, final: str) -> None:
        self._location, self._final = location, final
        self._temporary = f"{final}.upload"
        self._file = open(self._temporary, "wb")  # noqa: SIM115
        self._wrote = False

    def write(self, data: Any) -> int:
        if not self._wrote:
            FolderIO.on_request("write", self._location)
            self._wrote = True
        return self._file.write(data)

    def close(self) -> None:
        if self._file.closed:
            return
        self._file.close()
        try:
            FolderIO.on_request("close", self._location)
        except BaseException:
            os.unlink(self._temporary)
            raise
        os.replace(self._temporary, self._final)
        FolderIO.on_request("closed", self._location)

    @property
    def closed(self) -> bool:
        return self._file.closed

    def __enter__(self) -> Upload:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.close()

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()
