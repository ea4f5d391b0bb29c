"""The demo's table: TPC-H's lineitem in many small files, and a FileIO that counts what is read of them."""

from __future__ import annotations

import math
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile


def make_table(folder: Path, scale: float, files: int) -> tuple[SqlCatalog, Any]:
    """A new table ``db.lineitem`` under ``folder``/lake; the generated files are kept for the next time."""
    parts = generate(folder / "tpch", scale)
    lake = folder / "lake"
    lake.mkdir(parents=True)
    catalog = SqlCatalog("demo", uri=f"sqlite:///{lake}/cat.db", warehouse=f"file:{lake}/warehouse")
    catalog.create_namespace("db")
    schema = plain_strings(pq.read_schema(parts[0]))
    table = catalog.create_table("db.lineitem", schema)
    with table.transaction() as transaction:
        for part in parts:
            rows = pq.read_table(part).cast(schema).combine_chunks()
            # pyiceberg cuts by the size in memory, in the order of the rows: l_orderkey stays clustered.
            target = max(1, math.ceil(rows.nbytes * len(parts) / files))
            transaction.set_properties({"write.target-file-size-bytes": str(target)})
            transaction.append(rows)
    return catalog, catalog.load_table("db.lineitem")


def generate(folder: Path, scale: float) -> list[Path]:
    """Parquet files of lineitem in the order of l_orderkey, about a million orders each."""
    done = folder / "done"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        tool = shutil.which("tpchgen-cli", path=sysconfig.get_path("scripts")) or "tpchgen-cli"
        command = [tool, "parquet", "-s", f"{scale:g}", "--tables=lineitem", f"--output-dir={folder}"]
        parts = math.ceil(scale)
        subprocess.run([*command, f"--parts={parts}"] if parts > 1 else command, check=True, capture_output=True)
        done.touch()
    # lineitem.parquet, or lineitem/lineitem.1.parquet and so on.
    found = sorted(folder.rglob("*.parquet"), key=lambda p: (len(p.name), p.name))
    assert found, f"tpchgen-cli wrote nothing into {folder}"
    return found


def plain_strings(schema: pa.Schema) -> pa.Schema:
    """The columns with plain strings: the generator's files ask for views, which Arrow cannot filter."""
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return pa.schema([(field.name, views.get(field.type, field.type)) for field in schema])


class CountingIO(FileIO):
    """Another FileIO, and a count of the data files opened and bytes read through it."""

    def __init__(self, inner: FileIO) -> None:
        super().__init__(inner.properties)
        self.inner = inner
        self.data_files: set[str] = set()
        self.data_bytes = 0

    def new_input(self, location: str) -> InputFile:
        return _CountingInput(self.inner.new_input(location), self)

    def new_output(self, location: str) -> OutputFile:
        return self.inner.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self.inner.delete(location)


class _CountingInput(InputFile):
    def __init__(self, inner: InputFile, counter: CountingIO) -> None:
        super().__init__(inner.location)
        self._inner = inner
        self._counter = counter

    def __len__(self) -> int:
        return len(self._inner)

    def exists(self) -> bool:
        return self._inner.exists()

    def open(self, seekable: bool = True) -> InputStream:
        stream = self._inner.open(seekable)
        if not self.location.endswith(".parquet"):
            return stream
        self._counter.data_files.add(self.location)
        return pa.PythonFile(_CountingStream(stream, self._counter), mode="r")  # type: ignore[return-value]


class _CountingStream:
    """What :class:`pyarrow.PythonFile` needs of a file; nothing is delegated that could read uncounted."""

    def __init__(self, inner: Any, counter: CountingIO) -> None:
        self._inner = inner
        self._counter = counter

    @property
    def closed(self) -> bool:
        return bool(self._inner.closed)

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._inner.read(size)
        self._counter.data_bytes += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._inner.seek(offset, whence))

    def tell(self) -> int:
        return int(self._inner.tell())

    def close(self) -> None:
        self._inner.close()
