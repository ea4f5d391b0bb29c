"""Copies filters, page indexes and row indexes of data files into one Puffin file, bit for bit.

Only indexes that can be believed are taken: a filter that is *trusted* (:mod:`sidecar.parquet.bloom`,
:mod:`sidecar.orc.trust`) and a page index that nothing contradicts (:mod:`sidecar.conversion.sound_page_index`).
:mod:`sidecar.conversion.extract_parquet` and :mod:`sidecar.conversion.extract_orc` take them. Every other index
gets a reason in the report and in the coverage of the Puffin file, where a reason means *keep the unit*.

For local files it records the digest of all stored pages, which later proves that a file is the one that was
indexed. It also decodes one page of each Parquet column and does not take a filter that denies its values. Remote files
are not read for either purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeVar

from sidecar.access import Access
from sidecar.conversion.collection import Collection, Key
from sidecar.conversion.extract_orc import OrcWanted, orc_keys, take_orc
from sidecar.conversion.extract_parquet import ParquetWanted, parquet_keys, take_parquet
from sidecar.conversion.matching.witness import Witness
from sidecar.conversion.outcome import NONE, Outcome
from sidecar.conversion.protection import Protection
from sidecar.data_files.formats import opened_file
from sidecar.data_files.open_orc import OpenOrc
from sidecar.data_files.open_parquet import OpenParquet
from sidecar.engines.work import WorkEngine
from sidecar.errors import SidecarError, UsageError
from sidecar.parquet.embed import check_embeddable
from sidecar.storage.local import check_unchanged

L = TypeVar("L")


@dataclass
class TakenIndexes:
    """The indexes of a file, or of several, and what became of each."""

    collection: Collection
    """The indexes. Those of several files are in the collection of the caller."""
    units: list[Outcome] = field(default_factory=list)
    """What became of each index."""
    seen: set[str] = field(default_factory=set)
    """The columns that were asked for and that some file has."""
    witness: Witness = field(default_factory=Witness)
    """The values that were compared with the indexes."""
    rebuilt: list[Outcome] = field(default_factory=list)
    """What became of each index of the files whose filters are rebuilt as another kind."""
    failed: dict[str, SidecarError] = field(default_factory=dict)
    """The files that could not be read, with the errors."""

    def absorb(self, other: TakenIndexes) -> None:
        """Add the indexes of another file."""
        self.collection.absorb(other.collection)
        self.units += other.units
        self.seen |= other.seen
        self.witness.add_all(other.witness)
        self.rebuilt += other.rebuilt


@dataclass(frozen=True)
class TakeIndexes:
    """The work for one file: take its indexes. The parameters are those of :class:`Extractor`."""

    access: Access
    protection: Protection
    bloom: bool
    page_index: bool
    columns: Sequence[str] | None

    def __call__(self, file: str) -> TakenIndexes:
        """Return the indexes of ``file``. Raises the errors of :meth:`Extractor.take`."""
        collection = Collection(self.protection)
        extractor = Extractor(collection, self.bloom, self.page_index, self.columns)
        try:
            with opened_file(self.access, file) as opened:
                extractor.take(opened)
        except BaseException:
            collection.close()
            raise
        return TakenIndexes(collection, extractor.units, extractor.seen, extractor.witness)


def take_all(
    work: Callable[[str], TakenIndexes],
    files: Sequence[str],
    collection: Collection,
    workers: WorkEngine,
) -> TakenIndexes:
    """Add the indexes of ``files`` to ``collection``, in their order."""
    all_taken = TakenIndexes(collection)
    with closing(workers.run(work, files)) as answers:
        for file, taken in zip(files, answers, strict=True):
            if isinstance(taken, SidecarError):
                all_taken.failed[file] = taken
            else:
                all_taken.absorb(taken)
    return all_taken


class Extractor:
    """Copies the indexes of one file after the other into a collection.

    ``units`` lists what became of each index. ``paths`` has the keys of the columns by path.
    """

    def __init__(
        self,
        collection: Collection,
        bloom: bool,
        page_index: bool,
        columns: Sequence[str] | None,
    ) -> None:
        self.units: list[Outcome] = []
        self.paths: dict[str, Key] = collection.paths
        self._collection = collection
        self._bloom = bloom
        self._page_index = page_index
        self.witness = Witness()
        """The values of all files that were compared with the indexes."""
        self._wanted = None if columns is None else dict.fromkeys(columns)
        self.seen: set[str] = set()
        """The names in ``columns`` that some file has."""

    def take(self, file: OpenParquet | OpenOrc) -> None:
        """Take the wanted indexes of one file.

        Raises :class:`StorageError` if the file changes while it is read.
        """
        if isinstance(file, OpenOrc):
            self._take_orc(file)
        else:
            self._take_parquet(file)
        check_unchanged(file.source)  # or the digest could be of other pages than the indexes

    def _take_orc(self, file: OpenOrc) -> None:
        tail = file.tail
        columns = self._named([leaf.column for leaf in file.leaves], tail.column)
        what = OrcWanted(columns, self._bloom, self._page_index)
        keys = orc_keys(tail)
        self.paths.update({column.path: keys[column.id] for column in columns})
        for unit, key, outcome in take_orc(file, self._collection, what, keys):
            self.note(outcome, key, unit)

    def _take_parquet(self, file: OpenParquet) -> None:
        footer = file.footer
        check_embeddable(file.source, footer)
        leaves = self._named(footer.columns, footer.leaf)
        what = ParquetWanted(leaves, self._bloom, self._page_index, self._wanted is not None, self.witness)
        keys = parquet_keys(footer)
        self.paths.update({leaf.path: keys[leaf.index] for leaf in leaves if not footer.is_ambiguous(leaf)})
        for unit, key, outcome in take_parquet(file, self._collection, what, keys):
            self.note(outcome, key, unit)

    def _named(self, leaves: Sequence[L], find: Callable[[str], L | None]) -> list[L]:
        """Return the wanted leaves that the file has."""
        if self._wanted is None:
            return list(leaves)
        found = {name: find(name) for name in self._wanted}
        here = {name: leaf for name, leaf in found.items() if leaf in leaves and leaf is not None}
        self.seen.update(here)
        return list(here.values())

    def note(self, outcome: Outcome, key: Key, unit: int) -> None:
        """Add an outcome to the report. If the unit has no index, keep the reason for the coverage too."""
        self.units.append(outcome)
        if outcome.way == NONE:
            self._collection.columns[key].reasons[outcome.kind, unit] = outcome.reason


def check_extracted(columns: Sequence[str] | None, seen: AbstractSet[str], outcomes: Sequence[Outcome]) -> None:
    """Raise :class:`UsageError` if no index was taken, or if no file has one of ``columns``."""
    for name in columns or ():
        if name not in seen:
            raise UsageError(f"no file has a column '{name}'")
    if all(outcome.way == NONE for outcome in outcomes):
        raise UsageError(
            "the files have no index to extract",
            found=outcomes[0].reason if outcomes else None,
            hint="Build indexes with sidecar embed.",
        )
