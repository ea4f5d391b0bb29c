"""``extract``: copies the indexes of data files into one Puffin file (:mod:`sidecar.conversion.extract`)."""

from __future__ import annotations

import logging
import os
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sidecar.access import Access
from sidecar.conversion.collection import Collection
from sidecar.conversion.extract import TakeIndexes, check_extracted, take_all
from sidecar.conversion.matching.witness import Witness
from sidecar.conversion.outcome import Outcome, counted_ways, ways_of
from sidecar.conversion.protection import Protection
from sidecar.crypto.keys import EncryptionKeys
from sidecar.engines.choice import work_engine
from sidecar.engines.work import estimated_size
from sidecar.errors import SidecarError, enough_memory, refuse_text
from sidecar.many_files.find import DATA_ENDINGS, Paths, find_files
from sidecar.results.base import Summarized, plain_data
from sidecar.results.choices import BuildEngine, NameList
from sidecar.run_log import log_run
from sidecar.storage.source import AnyPath

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

log = logging.getLogger(__name__)


@dataclass(repr=False)
class ExtractReport(Summarized):
    """The result of :func:`extract`."""

    files: list[str]
    """The paths of the data files."""
    target: str
    """The path of the Puffin file."""
    size: int
    """The size of the Puffin file in bytes."""
    fields: dict[str, int]
    """Field number of each column in the Puffin file, by path: its field id, or a number of its own."""
    units: list[Outcome] = field(default_factory=list)
    """What became of each index."""
    failed: dict[str, SidecarError] = field(default_factory=dict)
    """The files and folders that could not be read, with the errors."""
    warnings: list[str] = field(default_factory=list)
    """What the caller should know."""
    seconds: float = 0.0
    """The time that it took."""
    witness: Witness = field(default_factory=Witness)
    """The values that were compared with the indexes."""
    engine: str = "local"
    """Where the files were read: ``local`` or ``spark``."""
    engine_reason: str = ""
    """Why this engine was chosen."""

    @property
    def damaged(self) -> bool:
        """Whether some index was left behind because bytes of a file are broken."""
        return any(unit.damaged for unit in self.units)

    def log_line(self) -> str:
        """What was taken, for the log."""
        done = f"{len(self.files):,} files extracted to {self.target}"
        failed = f", {len(self.failed):,} failed" if self.failed else ""
        return f"{done}: {counted_ways(self.units)}{failed}; {self.seconds:.3f} s"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as ``sidecar extract --json`` prints it."""
        return {
            "files": self.files,
            "failed": plain_data(self.failed),
            "target": self.target,
            "size": self.size,
            "fields": self.fields,
            "ways": ways_of(self.units),
            "units": plain_data(self.units),
            "warnings": self.warnings,
            "seconds": self.seconds,
            "witness": self.witness.to_dict(),
            "engine": self.engine,
            "engine_reason": self.engine_reason,
        }


@enough_memory()
def extract(
    paths: Paths,
    target: AnyPath,
    *,
    bloom: bool = True,
    page_index: bool = True,
    columns: NameList | None = None,
    allow_plaintext: bool = False,
    io: FileIO | None = None,
    encryption_keys: EncryptionKeys | None = None,
    engine: BuildEngine | None = None,
    spark: Any = None,
) -> ExtractReport:
    """Copy the indexes of Parquet and ORC files, bit for bit, into the new Puffin file ``target``.

    Example: ``sidecar.extract("lake/*.parquet", "indexes.puffin")``
    ``paths``: a file, folder, glob or a list of them; failures of some are in ``failed``.
    ``bloom``, ``page_index``: which kinds are taken; row indexes are the page indexes of ORC.
    ``columns``: dotted paths of leaves, all by default; a file need not have all.
    ``allow_plaintext``: whether indexes of encrypted columns may be written in plaintext.
    ``io``: opens and writes files.
    ``encryption_keys``: open encrypted files; columns that ``bundle_keys`` name stay encrypted.
    ``engine``, ``spark``: where files are read, as for :func:`sidecar.build`.

    Raises :class:`UsageError` if there is no index to take, for unknown columns and if the target exists. A broken
    index costs that index alone.
    """
    start = time.monotonic()
    refuse_text(columns=columns)
    access, target = Access(io, encryption_keys), os.fspath(target)
    found = find_files(paths, access, endings=DATA_ENDINGS)
    protection = Protection(encryption_keys, allow_plaintext)
    workers = work_engine(engine, spark, lambda: estimated_size(found.files, access))
    work = TakeIndexes(access, protection, bloom, page_index, columns)
    with closing(Collection(protection)) as collection:
        taken = take_all(work, found.files, collection, workers)
        if len(taken.failed) == len(found.files):
            raise next(iter(taken.failed.values()))
        check_extracted(columns, taken.seen, taken.units)
        protection.check(list(collection.paths))
        with access.create(target) as sink:
            written = collection.write(sink)
        numbers = collection.numbers()
    report = ExtractReport(
        files=[path for path in found.files if path not in taken.failed],
        target=target,
        size=written.file_size,
        fields={path: numbers[key] for path, key in collection.paths.items() if key in numbers},
        units=taken.units,
        failed=found.failed | taken.failed,
        seconds=time.monotonic() - start,
        witness=taken.witness,
        warnings=[f"not taken: {text}" for text in taken.witness.contradictions],
        engine=workers.name,
        engine_reason=workers.reason,
    )
    log_run(log, report.log_line, report.warnings)
    return report
