"""``convert``: chooses the conversion by the formats of the sources and the target.

| from | to | what is done |
| --- | --- | --- |
| Parquet, ORC files | Puffin | their filters, page and row indexes, taken out by :mod:`sidecar.conversion.extract` |
| Parquet, ORC files, with a kind | Puffin | the same, filters rebuilt as it (:mod:`sidecar.conversion.rebuild_kind`) |
| Puffin files | Puffin | one sidecar with everything in them, sliced anew |
| Puffin file, onto a data file | Parquet, ORC | embedded, as :mod:`sidecar.embedding.from_sidecar` does |
| Parquet file | Parquet | its filters in another size |
| ORC file | ORC | filters that only Java reads, for all readers (:mod:`sidecar.embedding.filters_like`) |
| Parquet, ORC file, onto a data file | ORC, Parquet | the data file with such filters |
| historical filter, onto its Parquet file | any | the filter with XXH64 (:mod:`sidecar.conversion.filter_file`) |

Filters for a Puffin file may also be merged and folded (:mod:`sidecar.conversion.reshape`).

:mod:`sidecar.conversion.to_puffin` writes Puffin files. The choice is made here, in the layer above, because three of
the conversions embed.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from sidecar.access import Access
from sidecar.conversion.filter_file import convert_filter
from sidecar.conversion.outcome import Outcome, count_lost, counted_ways, ways_of
from sidecar.conversion.refold import refold_file
from sidecar.conversion.reshape import TargetSizes
from sidecar.conversion.to_puffin import Converted, PuffinOptions, data_files_to_puffin, sidecars_to_puffin
from sidecar.embedding.filters_like import convert_legacy, filters_like
from sidecar.embedding.from_sidecar import restore_file
from sidecar.engines.choice import asked_engine, work_engine
from sidecar.engines.work import LocalWork, WorkEngine, estimated_size
from sidecar.errors import SidecarError, UnsupportedFeatureError, UsageError, enough_memory, located, refuse_text
from sidecar.files import BLOOM_FILTER, ORC, PARQUET, PUFFIN, format_of
from sidecar.filters.sizing import DEFAULT_FPP, check_fpp
from sidecar.many_files.find import find_files
from sidecar.parquet.encrypted.footer import read_declaration
from sidecar.results.base import Summarized, plain_data
from sidecar.results.choices import BuildEngine, NameList, RebuiltKind
from sidecar.run_log import log_run
from sidecar.storage.source import AnyPath, Source

if TYPE_CHECKING:
    from pyiceberg.io import FileIO


log = logging.getLogger(__name__)

UNDIVIDED = "only the way from data files to Puffin is divided among workers"
"""The reason for the engine of all other conversions."""

_ENDINGS = {".parquet": PARQUET, ".parq": PARQUET, ".orc": ORC, ".puffin": PUFFIN, ".stats": PUFFIN}


@dataclass(repr=False)
class ConvertReport(Summarized):
    """The result of :func:`convert`."""

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
    failed: dict[str, SidecarError] = field(default_factory=dict)
    """The files and folders that could not be read, with the errors."""
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

    @property
    def lost(self) -> int:
        """The number of indexes of the sources that the new file lacks; ``units`` says why."""
        return count_lost(self.units).total()

    def log_line(self) -> str:
        """What was converted, for the log."""
        done = f"{self.conversion}: {len(self.sources):,} files converted to {self.target}"
        failed = f", {len(self.failed):,} failed" if self.failed else ""
        return f"{done}: {counted_ways(self.units)}{failed}; {self.seconds:.3f} s"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as ``sidecar convert --json`` prints it."""
        return {
            "sources": self.sources,
            "failed": plain_data(self.failed),
            "target": self.target,
            "conversion": self.conversion,
            "size": self.size,
            "ways": ways_of(self.units),
            "lost": self.lost,
            "units": plain_data(self.units),
            "seconds": self.seconds,
            "engine": self.engine,
            "engine_reason": self.engine_reason,
        }


@enough_memory()
def convert(
    paths: AnyPath | Iterable[AnyPath],
    target: AnyPath,
    *,
    onto: AnyPath | None = None,
    columns: NameList | None = None,
    fpp: float | None = None,
    merge: bool = False,
    as_: RebuiltKind | None = None,
    column: str | None = None,
    io: FileIO | None = None,
    engine: BuildEngine | None = None,
    spark: Any = None,
) -> ConvertReport:
    """Convert the indexes of ``paths`` to the format that the ending of the new file ``target`` names.

    The guide ``conversions`` has a table of what each pair of formats does. ``paths`` are files, folders or globs; one
    bad file among many ends in ``failed``. ``onto`` is the data file that gets the indexes, or that a historical
    filter was built from; ``column`` is that filter's column. ``columns`` are dotted paths, all by default. ``fpp``
    folds filters up to this rate, and is the rate of rebuilt ones. ``merge`` makes one filter of those of a file.
    ``as_`` (``parquet`` or ``orc``) rebuilds filters for a Puffin file. ``io`` opens and writes files. ``engine`` and
    ``spark`` say where data files are read.

    Raises :class:`UsageError` for arguments that do not go together and an existing target, and for one bad file its
    error.

        sidecar.convert("lake", "indexes.puffin", fpp=0.05)
    """
    start = time.monotonic()
    refuse_text(columns=columns)
    named = [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    target, data = os.fspath(target), None if onto is None else os.fspath(onto)
    sizes = TargetSizes(fpp, merge)
    access = Access(io)
    found = find_files(named, access)
    failed = dict(found.failed)
    formats = _formats_of(access, found.files, failed)
    if failed and (not formats or found.is_one):
        raise next(iter(failed.values()))
    sources, kinds = list(formats), sorted(set(formats.values()))
    asked = _Conversion(access, sources, kinds, data, target, columns, sizes, as_)
    if kinds == [BLOOM_FILTER]:
        asked_engine(engine, spark)
        workers: WorkEngine = LocalWork(reason="there is one filter")
        conversion = "MurmurHash3 filter to XXH64 filter"
        if columns is not None or merge or as_ is not None:
            raise UsageError("a historical filter takes only onto, column and fpp")
        converted = asked.rebuild(column, DEFAULT_FPP if fpp is None else check_fpp(fpp))
    else:
        if column is not None:
            raise UsageError("only a file that is one filter needs its column", found=column)
        target_format = asked.check()
        conversion = f"{' and '.join(kinds)} to {target_format}"
        workers = _workers(engine, spark, sources, access, target_format == PUFFIN and kinds != [PUFFIN])
        converted = asked.run(target_format, workers)
    failed |= converted.failed
    report = ConvertReport(
        [path for path in sources if path not in failed],
        target,
        conversion,
        converted.size,
        converted.units,
        failed,
        time.monotonic() - start,
        workers.name,
        workers.reason,
    )
    log_run(log, report.log_line)
    return report


@dataclass(frozen=True)
class _Conversion:
    """A conversion of ``sources`` of the formats ``kinds`` into ``target``; a data file gets the rows of ``data``."""

    access: Access
    sources: Sequence[str]
    kinds: Sequence[str]
    data: str | None
    target: str
    columns: Sequence[str] | None
    sizes: TargetSizes
    as_: RebuiltKind | None

    @property
    def source(self) -> str:
        """The one source of a data file."""
        return self.sources[0]

    def check(self) -> str:
        """Return the format of the target. Raises :class:`UsageError` for formats that do not go together."""
        if len(self.kinds) > 1 and not set(self.kinds) <= {PARQUET, ORC}:
            raise UsageError("sources of different formats", found=" and ".join(self.kinds))
        target_format = _format_by_name(self.target)
        known = get_args(RebuiltKind) if target_format == PUFFIN and PUFFIN not in self.kinds else ()
        if self.as_ is not None and self.as_ not in known:
            raise UsageError(
                "filters become another kind only on the way from data files to Puffin",
                expected=" or ".join(get_args(RebuiltKind)),
            )
        return target_format

    def run(self, target_format: str, workers: WorkEngine) -> Converted:
        """Convert to a format that :meth:`check` returned."""
        if target_format == PUFFIN:
            if self.data is not None:
                raise UsageError("a data file is only needed to make a data file")
            to_puffin = sidecars_to_puffin if self.kinds == [PUFFIN] else data_files_to_puffin
            options = PuffinOptions(self.columns, self.sizes, self.as_, self.access, workers)
            return to_puffin(self.sources, self.target, options)
        if len(self.sources) > 1:
            raise UsageError("a data file is made of one source", found=len(self.sources))
        return Converted(*self._to_data_file(target_format))

    def _to_data_file(self, target_format: str) -> tuple[int, list[Outcome]]:
        """Choose the conversion; return the size of the new file, and what became of each index."""
        if self.data is not None:
            with closing(self.access.open(self.data)) as opened:
                _refuse_encrypted(opened)
        if self.kinds == [PUFFIN]:
            return self._embed()
        if self.kinds != [target_format]:
            return self._filters_like()
        if self.data is not None:
            raise UsageError("a data file is only needed where source and target are of different formats")
        return self._refold() if target_format == PARQUET else self._convert_legacy()

    def _embed(self) -> tuple[int, list[Outcome]]:
        if self.data is None:
            raise UsageError("a sidecar has no rows: name the data file with --onto", file=self.source)
        if self.sizes.changes:
            raise UsageError("embedding puts indexes back as they are", hint="Convert the sidecar first.")
        report = restore_file(self.access, self.source, self.data, self.target, self.columns)
        return report.written.size, report.outcomes

    def _filters_like(self) -> tuple[int, list[Outcome]]:
        if self.data is None:
            raise UsageError(
                "source and target have different formats: name the data file that gets such filters with --onto",
                file=self.source,
            )
        if self.sizes.merge:
            raise UsageError("filters like those of another file are built from values: only their rate can be chosen")
        report, missing = filters_like(self.access, self.source, self.data, self.target, self.columns, self.sizes.fpp)
        return report.written.size, [*report.outcomes, *missing]

    def _refold(self) -> tuple[int, list[Outcome]]:
        if self.sizes.merge:
            raise UsageError("a Parquet file has a filter for each row group", hint="Merge into a Puffin file.")
        if self.sizes.fpp is None:
            raise UsageError(
                "nothing to convert: name another rate (--fpp)",
                hint="sidecar embed gives a file the indexes that it lacks.",
            )
        return refold_file(self.access, self.source, self.target, self.columns, self.sizes.fpp)

    def _convert_legacy(self) -> tuple[int, list[Outcome]]:
        if self.sizes.changes:
            raise UsageError("ORC filters cannot be resized", hint="sidecar embed builds them at another rate.")
        report = convert_legacy(self.access, self.source, self.target, self.columns)
        return report.written.size, report.outcomes

    def rebuild(self, column: str | None, fpp: float) -> Converted:
        """Build a filter of today's form for the values of ``column`` from which a historical one was built."""
        if len(self.sources) > 1:
            raise UsageError("historical filters are converted one by one", found=len(self.sources))
        if self.data is None or not column:
            raise UsageError(
                "a historical filter can only be rebuilt: its bits say nothing about XXH64",
                file=self.source,
                hint="Name its Parquet file and column with --onto FILE --column NAME.",
            )
        size, outcome = convert_filter(self.access, self.source, self.data, column, self.target, fpp)
        return Converted(size, [outcome])


def _workers(
    engine: BuildEngine | None, spark: Any, paths: Sequence[str], access: Access, is_divided: bool
) -> WorkEngine:
    if not is_divided:
        asked_engine(engine, spark)
        return LocalWork(reason=UNDIVIDED)
    return work_engine(engine, spark, lambda: estimated_size(paths, access))


def _formats_of(access: Access, sources: Sequence[str], failed: dict[str, SidecarError]) -> dict[str, str]:
    """Return the formats of the sources; those that cannot be read are added to ``failed``."""
    formats: dict[str, str] = {}
    for path in sources:
        try:
            with closing(access.open(path)) as source, located(path):
                _refuse_encrypted(source)
                formats[path] = format_of(source)
        except SidecarError as error:
            failed[path] = error
    return formats


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
    raise UsageError(
        "the target's name does not end with a known format",
        found=target,
        expected=" or ".join(_ENDINGS),
        hint="One file is written. A folder of data files: embed FILES --into FOLDER --from PUFFIN.",
    )
