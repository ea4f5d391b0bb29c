"""Copies filters, page indexes and row indexes of data files into one Puffin file, bit for bit.

Only indexes that can be believed are taken: a filter that is *trusted* (:mod:`sidecar.parquet.bloom`,
:mod:`sidecar.orc.trust`) and a page index that nothing contradicts
(:mod:`sidecar.parquet.page_indexes.sound_page_index`). Every other index gets a reason in the report and in the
coverage of the Puffin file, where a reason means *keep the unit*. A damaged row index costs only itself.

Indexes of encrypted columns are left out unless they stay encrypted or the caller allows plaintext
(:mod:`sidecar.conversion.protection`).

For local files it records the digest of all stored pages, which later proves that a file is the one that was
indexed. It also decodes one page of each Parquet column and does not take a filter that denies its values. Remote files
are not read for either purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, field
from itertools import product

from sidecar.access import Access
from sidecar.bundle.filters.rules import AnyFilter
from sidecar.bundle.kinds.declared import BLOOM, PAGE_INDEX, IndexKind
from sidecar.bundle.model import StoredColumn, UnitState
from sidecar.conversion.collection import Collection, Key, keys_of
from sidecar.conversion.matching.identity import file_entry, identity_of
from sidecar.conversion.matching.witness import FileWitness, Witness
from sidecar.conversion.outcome import EXACT, NONE, IndexPlace, Outcome
from sidecar.conversion.protection import Protection, refusal
from sidecar.data_files.formats import opened_file
from sidecar.data_files.open_file import DataLeaf, OpenFile, OwnIndex, unique_leaves
from sidecar.engines.work import WorkEngine
from sidecar.errors import SidecarError, UsageError
from sidecar.storage.local import check_unchanged

AMBIGUOUS = "another column of the file has the same path, and neither has a field id"


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
        kinds: dict[IndexKind, bool] = {BLOOM: bloom, PAGE_INDEX: page_index}
        self._kinds = [kind for kind, asked in kinds.items() if asked]
        self.witness = Witness()
        """The values of all files that were compared with the indexes."""
        self._wanted = None if columns is None else dict.fromkeys(columns)
        self.seen: set[str] = set()
        """The names in ``columns`` that some file has."""

    def take(self, file: OpenFile) -> None:
        """Take the wanted indexes of one file, and add the file to the collection.

        Raises :class:`StorageError` if the file changes while it is read, :class:`UsageError` if the caller names an
        encrypted column that may be kept neither encrypted nor in plaintext, and the errors of reading; of a damaged
        index there is only an outcome.
        """
        file.check_embeddable()
        by_path, keys = unique_leaves(file.leaves), keys_of(file.leaves)
        leaves = self._named(file, by_path)
        self.paths.update({leaf.own_path: keys[leaf.index] for leaf in leaves if leaf.own_path in by_path})
        first = self._collection.add_file(file_entry(identity_of(file)))
        left_out = self._left_out(file, leaves, keys, by_path)
        for leaf in leaves:
            name = None if file.is_encrypted(leaf) else StoredColumn(leaf.parts, leaf.iceberg_type)
            self._collection.name_column(keys[leaf.index], name)
        witness = FileWitness(file, self.witness)
        taken = [leaf for leaf in leaves if leaf.index not in left_out]
        refused = [leaf for leaf in leaves if leaf.index in left_out]
        for part in range(file.parts):
            for leaf, kind in product(refused, self._kinds):
                for unit in file.part_units(part) if file.has_index(part, leaf, kind) else ():
                    outcome = IndexPlace(file.name, unit, leaf.own_path, kind).without_index(left_out[leaf.index])
                    self.note(outcome, keys[leaf.index], first + unit)
            for found in file.own_indexes(part, taken, self._kinds):
                key = keys[found.leaf.index]
                contradiction = witness.contradiction(part, found) if found.is_sound else ""
                if found.is_sound and not contradiction:
                    self._keep(file, part, found, key, first + found.unit)
                self.note(_outcome(file, found, contradiction), key, first + found.unit)
        check_unchanged(file.source)  # otherwise the digest could be of other pages than the indexes

    def _keep(self, file: OpenFile, part: int, found: OwnIndex, key: Key, unit: int) -> None:
        if isinstance(found.filter, AnyFilter):
            self._collection.add_filter(key, unit, found.encoding, found.filter)
        else:
            kind = file.index_kind(part, found.leaf, key.resolution)
            self._collection.add_entry(key, unit, kind, found.pieces)

    def _left_out(
        self, file: OpenFile, leaves: Sequence[DataLeaf], keys: Mapping[int, Key], by_path: Mapping[str, DataLeaf]
    ) -> dict[int, str]:
        """Return the leaves whose indexes must not be taken: the reason by number of the leaf."""
        found: dict[int, str] = {}
        protection = self._collection.protection
        for leaf in leaves:
            if leaf.own_path not in by_path and not keys[leaf.index].field_id:
                found[leaf.index] = AMBIGUOUS
            elif file.is_locked(leaf):
                found[leaf.index] = UnitState.ENCRYPTED
            elif not file.is_encrypted(leaf) or protection.seals(leaf.own_path):
                pass
            elif protection.allow_plaintext:
                self._collection.plaintext.add(keys[leaf.index])
            elif self._wanted is not None:
                raise refusal([leaf.own_path])
            else:
                found[leaf.index] = UnitState.REFUSED
        return found

    def _named(self, file: OpenFile, by_path: Mapping[str, DataLeaf]) -> Sequence[DataLeaf]:
        """Return the wanted leaves that the file has."""
        if self._wanted is None:
            return file.leaves
        here = {name: by_path[name] for name in self._wanted if name in by_path}
        self.seen.update(here)
        return list(here.values())

    def note(self, outcome: Outcome, key: Key, unit: int) -> None:
        """Add an outcome to the report. If the unit has no index, keep the reason for the coverage too."""
        self.units.append(outcome)
        if outcome.way == NONE:
            self._collection.columns[key].reasons[outcome.kind, unit] = outcome.reason


def _outcome(file: OpenFile, found: OwnIndex, contradiction: str) -> Outcome:
    """Return what became of an index: a sound one that nothing contradicts is taken."""
    place = IndexPlace(file.name, found.unit, found.leaf.own_path, found.kind)
    rate = None if found.filter is None else found.filter.estimated_fpp()
    if contradiction:
        return place.without_index(contradiction, rate_before=rate)
    if not found.is_sound:
        return place.without_index(found.reason, found.damaged, rate)
    length = sum(map(len, found.pieces)) if found.filter is None else found.filter.num_bytes
    return Outcome(*place, EXACT, length, rate, rate, found.reason, found.damaged)


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
