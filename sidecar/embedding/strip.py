"""``strip``: writes data files again without filters and page indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidecar.access import Access
from sidecar.embedding.file import strip_file
from sidecar.embedding.many import NewFiles, WrittenFiles
from sidecar.engines.choice import work_engine
from sidecar.many_files.each import threads_for
from sidecar.many_files.find import Paths
from sidecar.results.choices import BuildEngine
from sidecar.storage.source import AnyPath

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from sidecar.crypto.keys import EncryptionKeys


def strip(
    source: Paths,
    into: AnyPath,
    *,
    threads: int = 1,
    io: FileIO | None = None,
    encryption_keys: EncryptionKeys | None = None,
    engine: BuildEngine | None = None,
    spark: Any = None,
) -> WrittenFiles:
    """Write Parquet and ORC files again without filters and page indexes; their data is copied as it is.

    Example: ``sidecar.strip("in/*.parquet", "out")``
    ``source``: a file, a folder, a glob, or a list of them.
    ``into``: the new file, or the folder of several.
    ``threads``: how many files are written at the same time.
    ``io``: opens and writes files.
    ``encryption_keys``: open encrypted files; a column without its key keeps its indexes.
    ``engine``, ``spark``: where files are written, as for :func:`sidecar.build`.

    Filters between row groups stay as dead bytes. An ORC file keeps its row index.
    """
    new = NewFiles.of(Access(io, encryption_keys), source, into)
    workers = work_engine(engine, spark, new.size, threads=threads_for(new.found.files, threads))
    return new.write(strip_file, workers)
