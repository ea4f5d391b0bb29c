"""``convert``: which conversion is meant, by what the files are.

| from | to | what is done |
| --- | --- | --- |
| Parquet, ORC files | Puffin | their filters, page and row indexes, as :mod:`sidecar.convert.extract` takes them out |
| the same, with a kind | Puffin | the same, filters rebuilt as the other kind (:mod:`sidecar.embedding.rebuild_kind`) |
| Puffin files | Puffin | one sidecar with everything in them, sliced anew |
| Puffin file and a data file | Parquet, ORC | embedded, as :mod:`sidecar.embedding.from_sidecar` does |
| Parquet file | Parquet | its filters in another size |
| ORC file | ORC | filters that only Java asks, as all readers ask them (:mod:`sidecar.embedding.filters_like`) |
| Parquet, ORC file and a data file | ORC, Parquet | the data file with filters of the same columns and rates (same) |

On the way into a Puffin file, filters may be merged, folded and widened (:mod:`sidecar.convert.reshape`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.convert.collection import Collection, Key
from sidecar.convert.extract import Extractor
from sidecar.convert.load import Loader
from sidecar.convert.outcome import Outcome, ways_of
from sidecar.convert.refold import refold
from sidecar.convert.reshape import TargetSizes, reshape
from sidecar.embedding.filters_like import convert_legacy, filters_like
from sidecar.embedding.from_sidecar import embed_from
from sidecar.embedding.rebuild_kind import RebuildTarget, take_as_orc, take_as_parquet
from sidecar.errors import UnsupportedFeatureError, UsageError, enough_memory
from sidecar.files import BLOOM_FILTER, ORC, PARQUET, PUFFIN, format_of
from sidecar.filters.sizing import DEFAULT_FPP, check_fpp
from sidecar.parquet.encrypted.footer import read_declaration
from sidecar.parquet.footer import read_footer
from sidecar.parquet.inspect import find_leaf
from sidecar.source import Source, open_source
from sidecar.target import create_target

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

Progress = Callable[[str, int, int], None]

_ENDINGS = {".parquet": PARQUET, ".parq": PARQUET, ".orc": ORC, ".puffin": PUFFIN, ".stats": PUFFIN}


@dataclass
class ConvertReport:
    """What was made of what."""

    sources: list[str]
    target: str
    conversion: str
    """``parquet to puffin`` and the like."""
    size: int
    units: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def damaged(self) -> bool:
        """Whether some index was left behind because bytes of a file are broken."""
        return any(unit.damaged for unit in self.units)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``sidecar convert --json`` prints it."""
        return {
            "sources": self.sources,
            "target": self.target,
            "conversion": self.conversion,
            "size": self.size,
            "ways": ways_of(self.units),
            "units": [asdict(unit) for unit in self.units],
            "seconds": self.seconds,
        }


@enough_memory()
def convert_files(
    sources: Sequence[str],
    target: str,
    *,
    data: str | None = None,
    columns: Sequence[str] | None = None,
    fpp: float | None = None,
    widen: bool = False,
    merge: bool = False,
    merge_all: bool = False,
    measure: bool = False,
    kind: str | None = None,
    io: FileIO | None = None,
    progress: Progress | None = None,
) -> ConvertReport:
    """Convert the indexes of ``sources`` to what the new file ``target`` is by its name; see the module.

    ``data`` is the file that a sidecar's indexes go into, or one that gets filters as a file of the other format has
    them. ``columns`` are dotted paths (or field ids, of a sidecar that knows no paths). ``fpp`` folds each filter to
    the smallest size whose bits show at most that rate, or is the rate of filters that are rebuilt; ``widen`` makes a
    column's filters as large as its largest, ``merge`` and ``merge_all`` make one filter of those of a file, or of all
    files. ``measure`` also measures each rate with random hashes. ``kind``: into a Puffin file, filters of ORC files
    are rebuilt as split-block ones (``parquet``), or those of Parquet files as ORC ones (``orc``).

    Raises :class:`UsageError` for what does not go together, :class:`UnsupportedFeatureError` for encrypted files,
    and as :func:`sidecar.convert.extract.extract_files`.
    """
    start = time.monotonic()
    if not sources:
        raise UsageError("nothing to convert")
    shape = TargetSizes(fpp, widen, merge, merge_all, measure)
    if len(sources) == 1 and is_filter_file(sources[0], io):
        raise UsageError("a single filter is converted by convert_filter", file=sources[0])
    formats, target_format = _formats_of(sources, io), _format_by_name(target)
    conversion = f"{' and '.join(formats)} to {target_format}"
    if data is not None:
        with closing(open_source(data, io)) as opened:
            _refuse_encrypted(opened)
    if kind is not None and (kind not in _KINDS or target_format != PUFFIN or PUFFIN in formats):
        raise UsageError(
            "filters of a data file get another kind in a Puffin file", expected=" or ".join(_KINDS)
        )
    if target_format == PUFFIN:
        if data is not None:
            raise UsageError("a data file is only needed to make a data file")
        given = _Given(columns, shape, kind, io, progress)
        size, units = _to_puffin(sources, target, given)
    elif len(sources) > 1:
        raise UsageError("a data file is made of one source", found=len(sources))
    elif formats == [PUFFIN]:
        size, units = _embed(sources[0], data, target, columns, shape, io)
    elif formats == [target_format]:
        if data is not None:
            raise UsageError("a data file is only needed where source and target are of different formats")
        change = _refold if target_format == PARQUET else _convert_legacy
        size, units = change(sources[0], target, columns, shape, io)
    else:
        size, units = _filters_like(sources[0], data, target, columns, shape, io)
    return ConvertReport(list(sources), target, conversion, size, units, time.monotonic() - start)


def is_filter_file(path: str, io: FileIO | None = None) -> bool:
    """Whether a file is a single Bloom filter and nothing else."""
    with closing(open_source(path, io)) as source:
        return format_of(source) == BLOOM_FILTER


def _formats_of(sources: Sequence[str], io: FileIO | None) -> list[str]:
    """The formats of the sources: Parquet and ORC may come together."""
    formats = set()
    for path in sources:
        with closing(open_source(path, io)) as source:
            formats.add(format_of(source))
            _refuse_encrypted(source)
    if len(formats) > 1 and not formats <= {PARQUET, ORC}:
        raise UsageError("sources of different formats", found=" and ".join(sorted(formats)))
    return sorted(formats)


def _refuse_encrypted(source: Source) -> None:
    """Nothing here takes keys; what is told of the other commands does."""
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
        "the name of the target does not say what it is to be", found=target, expected=" or ".join(_ENDINGS)
    )


@dataclass(frozen=True)
class _Given:
    """What was asked for of a Puffin file."""

    columns: Sequence[str] | None
    shape: TargetSizes
    kind: str | None
    io: FileIO | None
    progress: Progress | None

    @property
    def reshape(self) -> TargetSizes:
        """What is to be done to filters once they are there: rebuilt ones have their rate."""
        return self.shape if self.kind is None else replace(self.shape, fpp=None)


def _to_puffin(sources: Sequence[str], target: str, asked: _Given) -> tuple[int, list[Outcome]]:
    with closing(Collection()) as given, closing(Collection()) as into:
        collected = _collect(given, sources, asked)
        units, result, shape = collected.units, given, asked.reshape
        if shape.changes or shape.measure:
            units, result = reshape(given, into, shape, collected.names), into
        with create_target(target, asked.io) as sink:
            return result.write(sink).file_size, units


@dataclass(frozen=True)
class _Collected:
    units: list[Outcome]
    names: Mapping[Key, str]


def _collect(given: Collection, sources: Sequence[str], asked: _Given) -> _Collected:
    taker = Extractor(given, bloom=True, page_index=True, columns=asked.columns)
    bare = Extractor(given, bloom=False, page_index=True, columns=asked.columns)
    rebuilt = RebuildTarget(
        given, bare, check_fpp(DEFAULT_FPP if asked.shape.fpp is None else asked.shape.fpp)
    )
    loader = Loader(given, asked.columns)
    takers = [taker] if asked.kind is None else [taker, bare]
    for number, path in enumerate(sources):
        if asked.progress is not None:
            asked.progress("files", number, len(sources))
        with closing(open_source(path, asked.io)) as source:
            found = format_of(source)
            if found == PUFFIN:
                loader.load(SidecarFile.open(source))
            elif asked.kind in (None, found):
                taker.take(source)
            else:
                _KINDS[asked.kind or ""](source, rebuilt, asked.columns)
    loader.finish()
    if loader.units:
        return _Collected(loader.units, {})
    Extractor.check(*takers)
    paths = {key: path for one in takers for path, key in one.paths.items()}
    return _Collected([unit for one in takers for unit in one.units], paths)


_KINDS = {PARQUET: take_as_parquet, ORC: take_as_orc}


def _refold(
    source: str, target: str, columns: Sequence[str] | None, shape: TargetSizes, io: FileIO | None
) -> tuple[int, list[Outcome]]:
    if not shape.changes:
        raise UsageError(
            "nothing to convert: name another rate (--fpp) or --widen",
            hint="sidecar embed gives a file the indexes that it lacks.",
        )
    with closing(open_source(source, io)) as opened:
        footer = read_footer(opened)
        wanted = None if columns is None else {find_leaf(footer, name).index for name in columns}
        with create_target(target, io) as sink:
            done = refold(opened, footer, sink, shape, wanted)
    return done.written.size, done.units


def _embed(
    sidecar: str,
    data: str | None,
    target: str,
    columns: Sequence[str] | None,
    shape: TargetSizes,
    io: FileIO | None,
) -> tuple[int, list[Outcome]]:
    if data is None:
        raise UsageError("a sidecar has no rows: name the data file with --data", file=sidecar)
    if shape.changes or shape.measure:
        raise UsageError("embedding puts indexes back as they are", hint="Convert the sidecar first.")
    report = embed_from(sidecar, data, target, bloom=columns, page_index=columns, io=io)
    return report.written.size, report.outcomes


def _convert_legacy(
    source: str, target: str, columns: Sequence[str] | None, shape: TargetSizes, io: FileIO | None
) -> tuple[int, list[Outcome]]:
    if shape.changes or shape.measure:
        raise UsageError(
            "filters of ORC have no other size", hint="sidecar embed builds them at another rate."
        )
    report = convert_legacy(source, target, columns, io)
    return report.written.size, report.outcomes


def _filters_like(
    source: str,
    data: str | None,
    target: str,
    columns: Sequence[str] | None,
    shape: TargetSizes,
    io: FileIO | None,
) -> tuple[int, list[Outcome]]:
    if data is None:
        raise UsageError(
            "a file of another format has other rows: name the one to get such filters with --data",
            file=source,
        )
    if shape.widen or shape.merge or shape.merge_all or shape.measure:
        raise UsageError("filters of another data file are rebuilt: only their rate can be chosen")
    report, missing = filters_like(source, data, target, columns, shape.fpp, io)
    return report.written.size, [*report.outcomes, *missing]
