"""``convert``: chooses the conversion by the formats of the source and the target.

| from | to | what is done |
| --- | --- | --- |
| Parquet, ORC files | Puffin | their filters, page and row indexes, taken out by :mod:`sidecar.conversion.extract` |
| Parquet, ORC files, with a kind | Puffin | the same, filters rebuilt as it (:mod:`sidecar.conversion.rebuild_kind`) |
| Puffin files | Puffin | one sidecar with everything in them, sliced anew |
| Puffin file and a data file | Parquet, ORC | embedded, as :mod:`sidecar.embedding.from_sidecar` does |
| Parquet file | Parquet | its filters in another size |
| ORC file | ORC | filters that only Java reads, for all readers (:mod:`sidecar.embedding.filters_like`) |
| Parquet, ORC file and a data file | ORC, Parquet | the data file with filters on the same columns, at the same rates |

Filters for a Puffin file may also be merged, folded and widened (:mod:`sidecar.conversion.reshape`).

:mod:`sidecar.conversion.to_puffin` writes Puffin files. The choice is made here, in the layer above, because three of
the conversions embed.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sidecar.conversion.outcome import Outcome, counted_ways, ways_of
from sidecar.conversion.rebuild_kind import REBUILT_KINDS, RebuiltKind
from sidecar.conversion.refold import refold_file
from sidecar.conversion.reshape import TargetSizes
from sidecar.conversion.to_puffin import PuffinOptions, data_files_to_puffin, sidecars_to_puffin
from sidecar.embedding.filters_like import convert_legacy, filters_like
from sidecar.embedding.from_sidecar import embed_from
from sidecar.engines.choice import BuildEngine, asked_engine, work_engine
from sidecar.engines.work import FileIOs, LocalWork, WorkEngine, estimated_size
from sidecar.errors import UnsupportedFeatureError, UsageError, enough_memory, located, refuse_text
from sidecar.files import BLOOM_FILTER, ORC, PARQUET, PUFFIN, format_of
from sidecar.parquet.encrypted.footer import read_declaration
from sidecar.results import Summarized
from sidecar.run_log import logged
from sidecar.source import AnyPath, Source, open_source

if TYPE_CHECKING:
    from pyiceberg.io import FileIO


log = logging.getLogger(__name__)

UNDIVIDED = "only the way from data files to Puffin is divided among workers"
"""The reason for the engine of all other conversions."""

_ENDINGS = {".parquet": PARQUET, ".parq": PARQUET, ".orc": ORC, ".puffin": PUFFIN, ".stats": PUFFIN}


@dataclass(repr=False)
class ConvertReport(Summarized):
    """The result of :func:`convert_files`."""

    sources: list[str]
    """The paths of the files that were converted."""
    target: str
    """The path of the new file."""
    conversion: str
    """The formats, such as ``parquet to puffin``."""
    size: int
    """The size of the new file in bytes."""
    units: list[Outcome] = field(default_factory=list)
    """What became of each index."""
    seconds: float = 0.0
    """The time that the conversion took."""
    engine: str = "local"
    """Where the sources were read: ``local`` or ``spark``."""
    engine_reason: str = ""
    """Why this engine was chosen."""

    @property
    def damaged(self) -> bool:
        """Whether some index was left behind because bytes of a file are broken."""
        return any(unit.damaged for unit in self.units)

    def log_line(self) -> str:
        """What was converted, for the log."""
        done = f"{self.conversion}: {len(self.sources):,} files converted to {self.target}"
        return f"{done}: {counted_ways(self.units)}; {self.seconds:.3f} s"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as ``sidecar convert --json`` prints it."""
        return {
            "sources": self.sources,
            "target": self.target,
            "conversion": self.conversion,
            "size": self.size,
            "ways": ways_of(self.units),
            "units": [unit.to_dict() for unit in self.units],
            "seconds": self.seconds,
            "engine": self.engine,
            "engine_reason": self.engine_reason,
        }


@logged(log, ConvertReport.log_line, lambda report: ())
@enough_memory()
def convert_files(
    sources: Sequence[AnyPath],
    target: AnyPath,
    *,
    data: AnyPath | None = None,
    columns: Sequence[str] | None = None,
    fpp: float | None = None,
    widen: bool = False,
    merge: bool = False,
    merge_all: bool = False,
    measure: bool = False,
    kind: RebuiltKind | None = None,
    io: FileIO | None = None,
    engine: BuildEngine | None = None,
    spark: Any = None,
) -> ConvertReport:
    """Convert the indexes of ``sources`` to the format that the ending of the new file ``target`` names.

    The module's table lists the conversions. ``data`` is the data file that a sidecar's indexes go into, or that gets
    filters like those of a file of the other format. ``columns`` are dotted paths (or field ids, for a sidecar without
    paths). ``fpp`` folds each filter to the smallest size whose bits show at most that rate; for rebuilt filters it is
    the target rate. ``widen`` makes a column's filters as large as its largest. ``merge`` makes one filter of those of
    a file, ``merge_all`` one of those of all files. ``measure`` also measures each rate with random hashes. ``kind``
    rebuilds filters for a Puffin file: those of ORC files as split-block filters (``parquet``), or those of Parquet
    files as ORC filters (``orc``). ``io`` opens and writes files, by default as the paths say.

    ``engine`` and ``spark`` say where data files are read on the way to a Puffin file, as for :func:`sidecar.build`.
    All other conversions run in this process, whatever is asked for, and the report says so.

    Raises :class:`UsageError` for arguments that do not go together, :class:`UnsupportedFeatureError` for encrypted
    files, and the errors of :func:`sidecar.conversion.extract.extract_files`.
    """
    start = time.monotonic()
    refuse_text(sources=sources, columns=columns)
    paths, target = [os.fspath(source) for source in sources], os.fspath(target)
    data = None if data is None else os.fspath(data)
    if not paths:
        raise UsageError("nothing to convert")
    sizes = TargetSizes(fpp, widen, merge, merge_all, measure)
    if len(paths) == 1 and is_filter_file(paths[0], io):
        raise UsageError("a single filter is converted by convert_filter", file=paths[0])
    formats, target_format = _formats_of(paths, io), _format_by_name(target)
    conversion = f"{' and '.join(formats)} to {target_format}"
    if data is not None:
        with closing(open_source(data, io)) as opened:
            _refuse_encrypted(opened)
    if kind is not None and (kind not in REBUILT_KINDS or target_format != PUFFIN or PUFFIN in formats):
        raise UsageError(
            "filters become another kind only on the way from data files to Puffin",
            expected=" or ".join(REBUILT_KINDS),
        )
    is_divided = target_format == PUFFIN and formats != [PUFFIN]
    workers = _workers(engine, spark, paths, io, is_divided)
    if target_format == PUFFIN:
        if data is not None:
            raise UsageError("a data file is only needed to make a data file")
        to_puffin = sidecars_to_puffin if formats == [PUFFIN] else data_files_to_puffin
        size, units = to_puffin(paths, target, PuffinOptions(columns, sizes, kind, io, workers))
    elif len(paths) > 1:
        raise UsageError("a data file is made of one source", found=len(paths))
    elif formats == [PUFFIN]:
        size, units = _embed(paths[0], data, target, columns, sizes, io)
    elif formats == [target_format]:
        if data is not None:
            raise UsageError("a data file is only needed where source and target are of different formats")
        change = refold_file if target_format == PARQUET else _convert_legacy
        size, units = change(paths[0], target, columns, sizes, io)
    else:
        size, units = _filters_like(paths[0], data, target, columns, sizes, io)
    seconds = time.monotonic() - start
    return ConvertReport(paths, target, conversion, size, units, seconds, workers.name, workers.reason)


def _workers(
    engine: BuildEngine | None, spark: Any, paths: Sequence[str], io: FileIO | None, is_divided: bool
) -> WorkEngine:
    if not is_divided:
        asked_engine(engine, spark)
        return LocalWork(reason=UNDIVIDED)
    ios = FileIOs(io)
    return work_engine(engine, spark, lambda: estimated_size(paths, ios))


def is_filter_file(path: str, io: FileIO | None = None) -> bool:
    """Return whether a file is a single Bloom filter and nothing else."""
    with closing(open_source(path, io)) as source:
        return format_of(source) == BLOOM_FILTER


def _formats_of(sources: Sequence[str], io: FileIO | None) -> list[str]:
    """Return the formats of the sources. Only Parquet and ORC may be mixed."""
    formats = set()
    for path in sources:
        with closing(open_source(path, io)) as source, located(path):
            formats.add(format_of(source))
            _refuse_encrypted(source)
    if len(formats) > 1 and not formats <= {PARQUET, ORC}:
        raise UsageError("sources of different formats", found=" and ".join(sorted(formats)))
    return sorted(formats)


def _refuse_encrypted(source: Source) -> None:
    """Raise :class:`UnsupportedFeatureError` for an encrypted Parquet file: conversions take no keys."""
    if format_of(source) == PARQUET and read_declaration(source) is not None:
        raise UnsupportedFeatureError(
            "the file is encrypted, and conversions do not open encrypted files",
            file=source.name,
            hint="embed and strip take its keys.",
        )


def _format_by_name(target: str) -> str:
    for ending, name in _ENDINGS.items():
        if target.lower().endswith(ending):
            return name
    raise UsageError("the target's name does not end with a known format", found=target, expected=" or ".join(_ENDINGS))


def _embed(
    sidecar: str,
    data: str | None,
    target: str,
    columns: Sequence[str] | None,
    sizes: TargetSizes,
    io: FileIO | None,
) -> tuple[int, list[Outcome]]:
    if data is None:
        raise UsageError("a sidecar has no rows: name the data file with --data", file=sidecar)
    if sizes.changes or sizes.measure:
        raise UsageError("embedding puts indexes back as they are", hint="Convert the sidecar first.")
    report = embed_from(sidecar, data, target, bloom=columns, page_index=columns, io=io)
    return report.written.size, report.outcomes


def _convert_legacy(
    source: str, target: str, columns: Sequence[str] | None, sizes: TargetSizes, io: FileIO | None
) -> tuple[int, list[Outcome]]:
    if sizes.changes or sizes.measure:
        raise UsageError("ORC filters cannot be resized", hint="sidecar embed builds them at another rate.")
    report = convert_legacy(source, target, columns, io)
    return report.written.size, report.outcomes


def _filters_like(
    source: str,
    data: str | None,
    target: str,
    columns: Sequence[str] | None,
    sizes: TargetSizes,
    io: FileIO | None,
) -> tuple[int, list[Outcome]]:
    if data is None:
        raise UsageError(
            "source and target have different formats: name the data file that gets such filters with --data",
            file=source,
        )
    if sizes.widen or sizes.merge or sizes.merge_all or sizes.measure:
        raise UsageError("filters like those of another file are built from values: only their rate can be chosen")
    report, missing = filters_like(source, data, target, columns, sizes.fpp, io)
    return report.written.size, [*report.outcomes, *missing]
