"""Files that the JVM of a Spark session opens: HDFS, S3A, signed requests, whatever Spark is configured for.

:class:`JvmFiles` is a file system of fsspec over Iceberg's FileIO, so that files are read, listed and looked for as
those of other fsspec file systems are. py4j sends bytes as text, which is slow. So ranges from :data:`BY_FILE` bytes on
go over a file in memory, which the JVM of the same machine writes.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Literal

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem  # type: ignore[import-untyped]
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.fsspec import FsspecInputFile, FsspecOutputFile
from pyiceberg.typedef import Properties

from sidecar.dependencies.pyspark import gateway_of, jvm_of
from sidecar.spark.costs import BY_FILE, WRITTEN_AT_ONCE
from sidecar.spark.jvm import ICEBERG, iceberg_class, java_errors

MEMORY = "/dev/shm"
"""The folder for ranges that go over a file, where the system has it."""


class JvmFiles(AbstractFileSystem):  # type: ignore[misc]
    """The files that an Iceberg FileIO in the JVM opens. Locations keep their scheme."""

    cachable = False

    def __init__(self, spark: Any, java: Any) -> None:
        """``java`` is the FileIO."""
        super().__init__()
        self._java = java
        self._jvm = jvm_of(spark)
        self._limit = iceberg_class(spark, "relocated.com.google.common.io.ByteStreams").limit
        options = self._jvm.java.nio.file.StandardCopyOption
        self._replace = gateway_of(spark).new_array(self._jvm.java.nio.file.CopyOption, 1)
        self._replace[0] = options.REPLACE_EXISTING
        self._is_hadoop = java.getClass().getName() == f"{ICEBERG}.hadoop.HadoopFileIO"

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Return a range of a file. Each call has a stream of its own, as a stream has one position."""
        with java_errors(path):
            file = self._java.newInputFile(path)
            first = start or 0
            length = max((file.getLength() if end is None else end) - first, 0)
            with closing(file.newStream()) as stream:
                stream.seek(first)
                return bytes(stream.readNBytes(length)) if length < BY_FILE else self._over_file(stream, length)

    def _over_file(self, stream: Any, length: int) -> bytes:
        folder = MEMORY if os.path.isdir(MEMORY) else None
        with tempfile.NamedTemporaryFile(dir=folder, prefix="sidecar-") as file:
            path = self._jvm.java.io.File(file.name).toPath()
            self._jvm.java.nio.file.Files.copy(self._limit(stream, length), path, self._replace)
            with open(file.name, "rb") as written:  # the copy took the name over, not the open file
                return written.read()

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return length, type and time of a file or folder. Raises :class:`FileNotFoundError`."""
        with java_errors(path):
            if self._is_hadoop:
                return _of_status(path, self._hadoop(path).getFileStatus(self._jvm.org.apache.hadoop.fs.Path(path)))
            file = self._java.newInputFile(path)
            if file.exists():
                return {"name": path, "size": file.getLength(), "type": "file"}
            if self._java.listPrefix(f"{path.rstrip('/')}/").iterator().hasNext():
                return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """Return what is in a folder. Raises :class:`FileNotFoundError`.

        ``listPrefix`` of HadoopFileIO asks about each file by itself, so Hadoop is asked directly. That of a store goes
        through all folders below.
        """
        folder = f"{path.rstrip('/')}/"
        with java_errors(path):
            found = list(self._listed_by_hadoop(folder) if self._is_hadoop else self._listed_by_store(folder))
        return found if detail else [one["name"] for one in found]

    def _listed_by_hadoop(self, folder: str) -> Iterator[dict[str, Any]]:
        for one in self._hadoop(folder).listStatus(self._jvm.org.apache.hadoop.fs.Path(folder)):
            yield _of_status(folder + one.getPath().getName(), one)

    def _listed_by_store(self, folder: str) -> Iterator[dict[str, Any]]:
        folders = set()
        each = self._java.listPrefix(folder).iterator()
        while each.hasNext():
            one = each.next()
            name, _, below = one.location().removeprefix(folder).partition("/")
            if not below:
                seconds = one.createdAtMillis() / 1000
                yield {"name": folder + name, "size": one.size(), "type": "file", "mtime": seconds}
            elif name not in folders:
                folders.add(name)
                yield {"name": folder + name, "size": 0, "type": "directory"}

    def _hadoop(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path).getFileSystem(self._java.getConf())

    def rm_file(self, path: str) -> None:
        """Delete a file; one that is not there is no error."""
        with java_errors(path):
            self._java.deleteFile(path)

    def created(self, path: str, *, overwrite: bool) -> io.BufferedWriter:
        """Return a stream into a new file, which appears when it is closed. Raises :class:`FileExistsError`."""
        with java_errors(path):
            file = self._java.newOutputFile(path)
            stream = file.createOrOverwrite() if overwrite else file.create()
        return io.BufferedWriter(_JvmStream(path, stream), WRITTEN_AT_ONCE)

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **options: Any) -> AbstractBufferedFile:
        options.pop("autocommit", None)
        return AbstractBufferedFile(self, path, mode, block_size or "default", **options)


def _of_status(path: str, status: Any) -> dict[str, Any]:
    kind = "directory" if status.isDirectory() else "file"
    return {"name": path, "size": status.getLen(), "type": kind, "mtime": status.getModificationTime() / 1000}


class _JvmStream(io.RawIOBase):
    """An output stream of the JVM."""

    def __init__(self, path: str, java: Any) -> None:
        self._path = path
        self._java = java

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with java_errors(self._path):
            self._java.write(bytearray(data))
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            with java_errors(self._path):
                self._java.close()


class JvmOutputFile(FsspecOutputFile):
    """A file that the JVM writes."""

    def create(self, overwrite: bool = False) -> Any:
        """Return a stream. The JVM refuses a file that exists, and not a look before."""
        return self._fs.created(self.location, overwrite=overwrite)


class JvmFileIO(FileIO):
    """Opens a table's files through the FileIO of the session's catalog. It cannot leave the driver."""

    stays_in_driver: Literal[True] = True

    def __init__(self, spark: Any, java: Any, properties: Properties) -> None:
        super().__init__(properties)
        self._files = JvmFiles(spark, java)

    def new_input(self, location: str) -> FsspecInputFile:
        """See pyiceberg's class."""
        return FsspecInputFile(location, self._files)

    def new_output(self, location: str) -> JvmOutputFile:
        """See pyiceberg's class."""
        return JvmOutputFile(location, self._files)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """See pyiceberg's class."""
        self._files.rm_file(location if isinstance(location, str) else location.location)

    def __reduce__(self) -> str:
        raise TypeError("files that the JVM of the driver opens cannot be opened by another process")
