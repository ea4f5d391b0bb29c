"""Converts data files or sidecars into a new Puffin file; filters of data files may be rebuilt as another kind."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from sidecar.access import Access
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.conversion.collection import Collection
from sidecar.conversion.extract import Extractor, TakenIndexes, check_extracted, take_all
from sidecar.conversion.load import Loader
from sidecar.conversion.outcome import Outcome
from sidecar.conversion.rebuild_kind import take_rebuilt
from sidecar.conversion.reshape import TargetSizes, reshape
from sidecar.data_files.formats import open_file
from sidecar.data_files.open_orc import OpenOrc
from sidecar.data_files.open_parquet import OpenParquet
from sidecar.engines.work import WorkEngine
from sidecar.errors import SidecarError, located
from sidecar.filters.sizing import DEFAULT_FPP, check_fpp
from sidecar.results.choices import RebuiltKind
from sidecar.run import report_progress


@dataclass(frozen=True)
class Converted:
    """What a conversion wrote."""

    size: int
    """The size of the new file in bytes."""
    units: list[Outcome]
    """What became of each index."""
    failed: dict[str, SidecarError] = field(default_factory=dict)
    """The sources that could not be read, with the errors."""


@dataclass(frozen=True)
class PuffinOptions:
    """The content of the Puffin file: the indexes of ``columns`` (dotted paths, all by default) in ``sizes``.

    ``kind`` is ``parquet`` or ``orc``: filters of data files of the other format are rebuilt as this kind.
    """

    columns: Sequence[str] | None
    sizes: TargetSizes
    kind: RebuiltKind | None
    access: Access
    workers: WorkEngine
    """Where data files are read."""

    @property
    def reshaping(self) -> TargetSizes:
        """The sizes for existing filters. Rebuilt filters already have their rate, so they are not folded again."""
        return self.sizes if self.kind is None else replace(self.sizes, fpp=None)


def sidecars_to_puffin(sources: Sequence[str], target: str, options: PuffinOptions) -> Converted:
    """Write everything in the sidecars ``sources`` to ``target``, except those that cannot be read."""
    failed: dict[str, SidecarError] = {}
    while True:
        with closing(Collection()) as given:
            loader = Loader(given, options.columns)
            bad = _load(loader, [path for path in sources if path not in failed], options)
            failed |= bad
            if len(failed) == len(sources):
                raise next(iter(failed.values()))
            if bad:
                continue  # a part of a bad sidecar may have been loaded: begin anew without it
            loader.finish()
            if not loader.units:
                check_extracted(options.columns, frozenset(), loader.units)
            return _write(given, loader.units, target, options, failed)


def _load(loader: Loader, sources: Sequence[str], options: PuffinOptions) -> dict[str, SidecarError]:
    """Load one sidecar after the other; return the errors of those that cannot be read."""
    failed: dict[str, SidecarError] = {}
    for number, path in enumerate(sources):
        report_progress("files", number, len(sources))
        try:
            with closing(options.access.open(path)) as source, located(path):
                loader.load(SidecarFile.open(source))
        except SidecarError as error:
            failed[path] = error
    return failed


def data_files_to_puffin(sources: Sequence[str], target: str, options: PuffinOptions) -> Converted:
    """Write the indexes of the data files ``sources`` to ``target``, except those that cannot be read."""
    with closing(Collection()) as given:
        fpp = DEFAULT_FPP if options.sizes.fpp is None else options.sizes.fpp
        work = _TakeFile(options.access, options.columns, options.kind, check_fpp(fpp))
        taken = take_all(work, sources, given, options.workers)
        if len(taken.failed) == len(sources):
            raise next(iter(taken.failed.values()))
        outcomes = taken.units + taken.rebuilt
        check_extracted(options.columns, taken.seen, outcomes)
        return _write(given, outcomes, target, options, taken.failed)


@dataclass(frozen=True)
class _TakeFile:
    """The work for one data file: take its indexes, with filters of the other ``kind`` rebuilt for the rate ``fpp``."""

    access: Access
    columns: Sequence[str] | None
    kind: RebuiltKind | None
    fpp: float

    def __call__(self, file: str) -> TakenIndexes:
        collection = Collection()
        try:
            with closing(self.access.open(file)) as source:
                return self._take(open_file(source), collection)
        except BaseException:
            collection.close()
            raise

    def _take(self, file: OpenParquet | OpenOrc, collection: Collection) -> TakenIndexes:
        is_whole = self.kind in (None, file.format)
        extractor = Extractor(collection, bloom=is_whole, page_index=True, columns=self.columns)
        if is_whole:
            extractor.take(file)
            return TakenIndexes(collection, extractor.units, extractor.seen)
        take_rebuilt(file, collection, extractor, self.columns, self.fpp)
        return TakenIndexes(collection, seen=extractor.seen, rebuilt=extractor.units)


def _write(
    given: Collection,
    outcomes: list[Outcome],
    target: str,
    options: PuffinOptions,
    failed: dict[str, SidecarError],
) -> Converted:
    sizes = options.reshaping
    with closing(Collection()) as reshaped:
        result = given
        if sizes.changes:
            outcomes, result = reshape(given, reshaped, sizes), reshaped
        with options.access.create(target) as sink:
            return Converted(result.write(sink).file_size, outcomes, failed)
