"""``convert``: which conversion is meant, by what the files are.

| from | to | what is done |
| --- | --- | --- |
| Parquet files | Puffin | their filters and page indexes, as :mod:`sidecar.convert.extract` takes them out |
| Puffin files | Puffin | one sidecar with everything in them, sliced anew |
| Puffin file and a data file | Parquet | embedded, as :mod:`sidecar.embedding.from_sidecar` does |
| Parquet file | Parquet | its filters in another size |

On the way into a Puffin file, filters may be merged, folded and widened (:mod:`sidecar.convert.reshape`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.convert.collection import Collection, Key
from sidecar.convert.extract import Taker
from sidecar.convert.load import Loader
from sidecar.convert.outcome import Moved, ways_of
from sidecar.convert.refold import refold
from sidecar.convert.reshape import Shape, reshape
from sidecar.embedding.from_sidecar import embed_from
from sidecar.errors import UsageError
from sidecar.files import BLOOM_FILTER, PARQUET, PUFFIN, format_of
from sidecar.parquet.footer import read_footer
from sidecar.parquet.inspect import find_leaf
from sidecar.source import open_source
from sidecar.target import create_target

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

Progress = Callable[[str, int, int], None]

_ENDINGS = {".parquet": PARQUET, ".parq": PARQUET, ".puffin": PUFFIN, ".stats": PUFFIN}


@dataclass
class ConvertReport:
    """What was made of what."""

    sources: list[str]
    target: str
    conversion: str
    """``parquet to puffin`` and the like."""
    size: int
    units: list[Moved] = field(default_factory=list)
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
    io: FileIO | None = None,
    progress: Progress | None = None,
) -> ConvertReport:
    """Convert the indexes of ``sources`` to what the new file ``target`` is by its name; see the module.

    ``data`` is the Parquet file that a sidecar's indexes go into. ``columns`` are dotted paths (or field ids, of a
    sidecar that knows no paths). ``fpp`` folds each filter to the smallest size whose bits show at most that
    rate, ``widen`` makes a column's filters as large as its largest, ``merge`` and ``merge_all`` make one filter of
    those of a file, or of all files. ``measure`` also measures each rate with random hashes.

    Raises :class:`UsageError` for what does not go together, and as :func:`sidecar.convert.extract.extract_files`.
    """
    start = time.monotonic()
    if not sources:
        raise UsageError("nothing to convert")
    shape = Shape(fpp, widen, merge, merge_all, measure)
    if len(sources) == 1 and is_filter_file(sources[0], io):
        raise UsageError("a single filter is converted by convert_filter", file=sources[0])
    source_format, target_format = _format_of_all(sources, io), _format_by_name(target)
    conversion = f"{source_format} to {target_format}"
    if target_format == PUFFIN:
        if data is not None:
            raise UsageError("a data file is only needed to make a Parquet file of a sidecar")
        size, units = _to_puffin(sources, source_format, target, columns, shape, io, progress)
    elif len(sources) > 1:
        raise UsageError("a Parquet file is made of one source", found=len(sources))
    elif source_format == PARQUET:
        if data is not None:
            raise UsageError("a data file is only needed to make a Parquet file of a sidecar")
        size, units = _refold(sources[0], target, columns, shape, io)
    else:
        size, units = _embed(sources[0], data, target, columns, shape, io)
    return ConvertReport(list(sources), target, conversion, size, units, time.monotonic() - start)


def is_filter_file(path: str, io: FileIO | None = None) -> bool:
    """Whether a file is a single Bloom filter and nothing else."""
    with closing(open_source(path, io)) as source:
        return format_of(source) == BLOOM_FILTER


def _format_of_all(sources: Sequence[str], io: FileIO | None) -> str:
    formats = set()
    for path in sources:
        with closing(open_source(path, io)) as source:
            formats.add(format_of(source))
    if len(formats) > 1:
        raise UsageError("sources of different formats", found=" and ".join(sorted(formats)))
    return formats.pop()


def _format_by_name(target: str) -> str:
    for ending, name in _ENDINGS.items():
        if target.lower().endswith(ending):
            return name
    raise UsageError(
        "the name of the target does not say what it is to be", found=target, expected=" or ".join(_ENDINGS)
    )


def _to_puffin(
    sources: Sequence[str],
    source_format: str,
    target: str,
    columns: Sequence[str] | None,
    shape: Shape,
    io: FileIO | None,
    progress: Progress | None,
) -> tuple[int, list[Moved]]:
    with closing(Collection()) as given, closing(Collection()) as into:
        collected = _collect(given, sources, source_format, columns, io, progress)
        units, result = collected.units, given
        if shape.changes or shape.measure:
            units, result = reshape(given, into, shape, collected.names), into
        with create_target(target, io) as sink:
            return result.write(sink).file_size, units


@dataclass(frozen=True)
class _Collected:
    units: list[Moved]
    names: Mapping[Key, str]


def _collect(
    given: Collection,
    sources: Sequence[str],
    source_format: str,
    columns: Sequence[str] | None,
    io: FileIO | None,
    progress: Progress | None,
) -> _Collected:
    taker = Taker(given, bloom=True, page_index=True, columns=columns)
    loader = Loader(given, columns)
    for number, path in enumerate(sources):
        if progress is not None:
            progress("files", number, len(sources))
        with closing(open_source(path, io)) as source:
            if source_format == PARQUET:
                taker.take(source)
            else:
                loader.load(SidecarFile.open(source))
    if source_format == PARQUET:
        taker.check()
        return _Collected(taker.units, {key: path for path, key in taker.paths.items()})
    return _Collected(loader.units, {})


def _refold(
    source: str, target: str, columns: Sequence[str] | None, shape: Shape, io: FileIO | None
) -> tuple[int, list[Moved]]:
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
    shape: Shape,
    io: FileIO | None,
) -> tuple[int, list[Moved]]:
    if data is None:
        raise UsageError("a sidecar has no rows: name the Parquet file with --data", file=sidecar)
    if shape.changes or shape.measure:
        raise UsageError("embedding puts indexes back as they are", hint="Convert the sidecar first.")
    report = embed_from(sidecar, data, target, bloom=columns, page_index=columns, io=io)
    units = [
        Moved(
            file=data,
            row_group=outcome.row_group,
            column=outcome.column,
            kind=outcome.kind,
            way=outcome.way,
            bytes=outcome.bytes,
            rate_before=outcome.rate_before,
            rate_after=outcome.rate_after,
            reason=outcome.reason,
            damaged=outcome.damaged,
        )
        for outcome in report.outcomes
    ]
    return report.written.size, units
