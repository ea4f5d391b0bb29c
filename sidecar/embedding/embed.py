"""``embed``: writes data files again with filters and page indexes, new ones or those of a sidecar.

Files are written anew (:mod:`sidecar.embedding.many`), with new indexes (:mod:`sidecar.embedding.file`) or with those
of a sidecar (:mod:`sidecar.embedding.from_sidecar`). The files of a table are replaced in one commit
(:mod:`sidecar.embedding.table`).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, cast, overload

from sidecar.access import Access
from sidecar.conversion.reuse import GOOD
from sidecar.embedding.file import IndexedFileWriter, NewIndexes, check_formats
from sidecar.embedding.many import NewFiles, WrittenFiles
from sidecar.engines.choice import asked_engine, work_engine
from sidecar.errors import UsageError, refuse_text
from sidecar.filters.sizing import DEFAULT_FPP
from sidecar.many_files.find import Paths
from sidecar.results.choices import BuildEngine, NameList, Placement, ReuseRule
from sidecar.storage.source import AnyPath

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table
    from typing_extensions import Unpack

    from sidecar.bundle.sidecar_file import SidecarFile
    from sidecar.crypto.keys import EncryptionKeys
    from sidecar.embedding.table_report import EmbedTableReport


class EmbeddingOptions(TypedDict, total=False):
    """The options of :func:`embed`, as type checkers see them behind its overloads."""

    into: AnyPath | None
    bloom: NameList
    page_index: bool
    fpp: float
    placement: Placement
    reuse: ReuseRule
    from_: AnyPath | SidecarFile | Table | None
    refresh: bool
    dry_run: bool
    threads: int | None
    io: FileIO | None
    encryption_keys: EncryptionKeys | None
    engine: BuildEngine | None
    spark: Any


@overload
def embed(source: Table, **options: Unpack[EmbeddingOptions]) -> EmbedTableReport: ...
@overload
def embed(source: Paths | None = None, **options: Unpack[EmbeddingOptions]) -> WrittenFiles: ...
def embed(
    source: Paths | Table | None = None,
    *,
    into: AnyPath | None = None,
    bloom: NameList = (),
    page_index: bool = False,
    fpp: float = DEFAULT_FPP,
    placement: Placement = "end",
    reuse: ReuseRule = GOOD,
    from_: AnyPath | SidecarFile | Table | None = None,
    refresh: bool = True,
    dry_run: bool = False,
    threads: int | None = None,
    io: FileIO | None = None,
    encryption_keys: EncryptionKeys | None = None,
    engine: BuildEngine | None = None,
    spark: Any = None,
) -> WrittenFiles | EmbedTableReport:
    """Write Parquet and ORC files again with filters and page indexes; their data is copied as it is.

    Example: ``sidecar.embed("in/*.parquet", into="out", bloom=["id"])``
    ``source``: a file, folder, glob or list of them, or a table, whose files are replaced in one commit. By default
    all files that the sidecar ``from_`` lists.
    ``into``: the new file, or the folder of several. A file that exists is never overwritten.
    ``bloom``: columns that get filters, by dotted paths.
    ``page_index``: whether every column gets a page index.
    ``fpp``: the false-positive rate of new filters.
    ``placement``: filters at the ``end`` of the file, or after each ``row-group``.
    ``reuse``: the file's own indexes: ``good`` ones, ``always`` or ``never``.
    ``from_``: a sidecar, a Puffin file, or a table; its indexes are taken, all by default.
    ``refresh``: whether the table's sidecar is refreshed afterwards.
    ``dry_run``: for a table, only report which files would be replaced.
    ``threads``: how many build new indexes; by default one a core, at most four.
    ``io``: opens and writes files.
    ``encryption_keys``: open encrypted files, which keep their keys.
    ``engine``, ``spark``: where files are written, as for :func:`sidecar.build`.

    A failure of one file of many is in ``failed``. Damage costs the index that it hits.
    """
    refuse_text(bloom=bloom)
    indexes = NewIndexes(tuple(bloom), page_index, fpp, placement, reuse)
    table = _as_table(source)
    if table is not None:
        from sidecar.embedding.table import embed_table
        from sidecar.indexing.request import BuildMeans

        if into is not None or from_ is not None:
            raise UsageError("a table's files are replaced, with new indexes: into and from_ are for files")
        indexes.check()
        means = BuildMeans(engine, spark, threads, encryption_keys)
        return embed_table(table, means, indexes, refresh=refresh, dry_run=dry_run)
    paths = cast("Paths | None", source)
    if dry_run or not refresh:
        raise UsageError("dry_run and refresh are for tables", hint="Files are never overwritten.")
    if into is None:
        raise UsageError("files are written anew: into names the new file, or the folder of several")
    access = Access(io, encryption_keys)
    if from_ is not None:
        from sidecar.embedding.from_sidecar import embed_from

        asked_engine(engine, spark)
        return embed_from(access, from_, paths, into, indexes)
    if paths is None:
        raise UsageError("no file was named")
    indexes.check()
    new = NewFiles.of(access, paths, into)
    check_formats(new.found.files, indexes, access)
    workers = work_engine(engine, spark, new.size)
    indexes = replace(indexes, threads=threads or 1 if workers.name == "spark" else threads)
    return new.write(IndexedFileWriter(indexes), workers)


def _as_table(source: Any) -> Table | None:
    """Return ``source`` if it is a table of pyiceberg, which is not loaded for files."""
    module = sys.modules.get("pyiceberg.table")
    return source if module is not None and isinstance(source, module.Table) else None
