"""Counts what is read of a table: openings and reads of files, by sidecar's local sources and pyiceberg's files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile

from sidecar.storage.local import LocalSource

KINDS = {".parquet": "data", ".stats": "sidecar", ".avro": "manifests", ".json": "metadata"}


class Requests:
    """Openings and reads, and the bytes read, by the kind of file, and which data files were opened.

    Bytes that the kernel copies from one sidecar to the next are not read.
    """

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.data_files: set[str] = set()

    def add(self, path: str, requests: int, length: int) -> None:
        """Count one opening or read."""
        kind = KINDS.get(Path(path).suffix, "others")
        self.requests[kind] += requests
        self.bytes[kind] += length
        if kind == "data":
            self.data_files.add(path)

    def __str__(self) -> str:
        return ", ".join(f"{kind} {n} in {self.bytes[kind]:,} bytes" for kind, n in sorted(self.requests.items()))


@contextmanager
def counted() -> Iterator[Requests]:
    """Count what is read within the block."""
    found = Requests()
    start, read, opened = LocalSource.__init__, LocalSource.read, PyArrowFile.open

    def counting_start(self: LocalSource, path: str) -> None:
        found.add(path, 1, 0)
        start(self, path)

    def counting_read(self: LocalSource, offset: int, length: int) -> bytes:
        found.add(self.name, 1, length)
        return read(self, offset, length)

    def counting_open(self: Any, *arguments: Any, **named: Any) -> Any:
        found.add(self.location, 1, len(self))
        return opened(self, *arguments, **named)

    LocalSource.__init__, LocalSource.read, PyArrowFile.open = counting_start, counting_read, counting_open  # type: ignore[method-assign]
    try:
        yield found
    finally:
        LocalSource.__init__, LocalSource.read, PyArrowFile.open = start, read, opened  # type: ignore[method-assign]
