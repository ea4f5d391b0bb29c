"""``extract``: filters, page indexes and row indexes of data files into one Puffin file, the bits as they are.

Taken is what may be believed: a filter that is *trusted* (:mod:`sidecar.parquet.bloom`, :mod:`sidecar.orc.trust`) and a
page index that nothing contradicts (:mod:`sidecar.parquet.page_bounds`). ORC files are for
:mod:`sidecar.convert.extract_orc`; what stands here is of Parquet. What is not taken has its reason in the report and
in the coverage of the Puffin file, where it means *keep*. Pages are not read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from sidecar.bundle.page_index_use import page_index_kind
from sidecar.convert.collection import Collection, Key, key_of
from sidecar.convert.extract_orc import OrcWanted, orc_keys, take_orc
from sidecar.convert.identity import file_entry, identity_of_parquet
from sidecar.convert.outcome import BLOOM, EXACT, NONE, PAGE_INDEX, Moved, ways_of
from sidecar.convert.protection import ENCRYPTED, REFUSED, Protection, refusal
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import DamagedFileError, SidecarError, StorageError, UsageError
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.orc.tail import is_orc, read_tail
from sidecar.parquet.bloom import FoundFilter, read_bloom_filters
from sidecar.parquet.decrypted import unlock
from sidecar.parquet.embed import check_embeddable
from sidecar.parquet.footer import ColumnChunk, Footer, RowGroup, read_footer
from sidecar.parquet.inspect import reason_of
from sidecar.parquet.page_bounds import column_index_problems, offset_index_problems
from sidecar.parquet.page_index import (
    ColumnIndex,
    ColumnIndexAnswer,
    OffsetIndex,
    OffsetIndexAnswer,
    read_page_indexes,
)
from sidecar.parquet.schema import Leaf
from sidecar.source import Source, open_source
from sidecar.target import create_target

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

Progress = Callable[[str, int, int], None]
L = TypeVar("L")


@dataclass
class ExtractReport:
    """What was taken out of which files."""

    files: list[str]
    target: str
    size: int
    fields: dict[str, int]
    """The number that stands for each column in the Puffin file: its field id, or one of its own."""
    units: list[Moved] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def damaged(self) -> bool:
        """Whether some index was left behind because bytes of a file are broken."""
        return any(unit.damaged for unit in self.units)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``sidecar extract --json`` prints it."""
        units = [asdict(unit) for unit in self.units]
        return {
            "files": self.files,
            "target": self.target,
            "size": self.size,
            "fields": self.fields,
            "ways": ways_of(self.units),
            "units": units,
            "warnings": self.warnings,
            "seconds": self.seconds,
        }


def extract_files(
    files: Sequence[str],
    target: str,
    *,
    bloom: bool = True,
    page_index: bool = True,
    columns: Sequence[str] | None = None,
    encryption_keys: EncryptionKeys | None = None,
    allow_plaintext: bool = False,
    io: FileIO | None = None,
    progress: Progress | None = None,
) -> ExtractReport:
    """Take the Bloom filters (``bloom``) and page indexes of Parquet and ORC ``files`` into the new Puffin ``target``.

    ``columns`` are dotted paths of leaves, all by default; a file need not have each of them. Filters keep their
    bits, odd bytes at their end included, page indexes their Thrift bytes, and row indexes, which are an ORC file's
    page indexes, their protobuf bytes; values are not read. ``encryption_keys`` open encrypted Parquet files. Of their
    encrypted columns nothing is taken, unless ``bundle_keys`` of the keys name them (then it is kept encrypted) or
    ``allow_plaintext`` says so; ``columns`` that name one are refused. Nothing is at ``target`` after an error:
    :class:`UsageError` if no file has anything to take, for unknown columns and a target that exists,
    :class:`UnsupportedFeatureError` for encrypted files without their footer key, :class:`DamagedFileError` for a
    broken footer, and :class:`StorageError`. A broken index costs that index alone.
    """
    start = time.monotonic()
    if not files:
        raise UsageError("no file to extract from")
    protection = Protection(encryption_keys, allow_plaintext)
    with closing(Collection(protection)) as collection:
        taken = Taker(collection, bloom, page_index, columns)
        for number, path in enumerate(files):
            if progress is not None:
                progress("files", number, len(files))
            with closing(open_source(path, io)) as source:
                taken.take(source)
        taken.check()
        protection.check(list(taken.paths))
        with create_target(target, io) as sink:
            written = collection.write(sink)
        numbers = collection.numbers()
        fields = {path: numbers[key] for path, key in taken.paths.items() if key in numbers}
    return ExtractReport(
        files=list(files),
        target=target,
        size=written.file_size,
        fields=fields,
        units=taken.units,
        seconds=time.monotonic() - start,
    )


class Taker:
    """Takes indexes out of one file after the other into a collection.

    ``units`` is what became of each, ``paths`` the keys of the columns by their paths.
    """

    def __init__(
        self, collection: Collection, bloom: bool, page_index: bool, columns: Sequence[str] | None
    ) -> None:
        self.units: list[Moved] = []
        self.paths: dict[str, Key] = collection.paths
        self._collection = collection
        self._bloom = bloom
        self._page_index = page_index
        self._wanted = None if columns is None else dict.fromkeys(columns)
        self._seen: set[str] = set()

    def take(self, source: Source) -> None:
        """Everything that is asked for of one file, Parquet or ORC."""
        if is_orc(source):
            self._take_orc(source)
        else:
            self._take_parquet(source)

    def _take_orc(self, source: Source) -> None:
        tail = read_tail(source)
        columns = self._named([column for column in tail.columns if not column.is_compound], tail.column)
        what = OrcWanted(columns, self._bloom, self._page_index)
        keys = orc_keys(tail)
        self.paths.update({column.path: keys[column.id] for column in columns})
        for unit, key, moved in take_orc(source, tail, self._collection, what, keys):
            self.note(moved, key, unit)

    def _take_parquet(self, source: Source) -> None:
        source = unlock(source, self._collection.protection.keys)
        footer = read_footer(source)
        check_embeddable(source, footer)
        leaves = self._named(footer.columns, footer.leaf)
        keys = parquet_keys(footer)
        self.paths.update({leaf.path: keys[leaf.index] for leaf in leaves})
        first = self._collection.add_file(file_entry(identity_of_parquet(footer)))
        protected = self._protected(footer, leaves, keys)
        for group in footer.row_groups:
            unit = first + group.ordinal
            self._leave(group, protected, keys, unit, source.name)
            chunks = [group.columns[leaf.index] for leaf in leaves if leaf.index not in protected]
            if self._bloom:
                for chunk, moved in self._filters(source, chunks, keys, unit):
                    self.note(moved, keys[chunk.leaf.index], unit)
            if self._page_index:
                for chunk, moved in self._page_indexes(source, footer, group, chunks, keys, unit):
                    self.note(moved, keys[chunk.leaf.index], unit)

    def _protected(self, footer: Footer, leaves: Sequence[Leaf], keys: dict[int, Key]) -> dict[int, str]:
        """Why nothing of a leaf may be taken, by the indexes of those of which nothing may."""
        found: dict[int, str] = {}
        protection = self._collection.protection
        for leaf in leaves:
            chunks = [group.columns[leaf.index] for group in footer.row_groups]
            if not any(map(footer.is_encrypted, chunks)):
                continue
            if any(chunk.encrypted for chunk in chunks):
                found[leaf.index] = ENCRYPTED
            elif protection.seals(leaf.path):
                pass
            elif protection.allow_plaintext:
                self._collection.in_clear.add(keys[leaf.index])
            elif self._wanted is not None:
                raise refusal([leaf.path])
            else:
                found[leaf.index] = REFUSED
        return found

    def _leave(
        self, group: RowGroup, protected: dict[int, str], keys: dict[int, Key], unit: int, name: str
    ) -> None:
        """Report the indexes of a row group that are left behind."""
        for leaf, reason in protected.items():
            chunk = group.columns[leaf]
            place = name, group.ordinal, chunk.leaf.path
            if self._bloom and (chunk.bloom_filter_offset or chunk.encrypted):
                self.note(Moved(*place, BLOOM, NONE, reason=reason), keys[leaf], unit)
            if self._page_index and (chunk.offset_index_offset or chunk.encrypted):
                self.note(Moved(*place, PAGE_INDEX, NONE, reason=reason), keys[leaf], unit)

    def check(*takers: Taker) -> None:
        """Raise :class:`UsageError` if nothing was there to be taken by any of them, or a column is in no file."""
        for name in takers[0]._wanted or ():
            if not any(name in taker._seen for taker in takers):
                raise UsageError(f"no file has a column '{name}'")
        units = [unit for taker in takers for unit in taker.units]
        if all(unit.way == NONE for unit in units):
            raise UsageError(
                "the files have no index to extract",
                found=units[0].reason if units else None,
                hint="Build indexes with sidecar embed.",
            )

    def _named(self, leaves: Sequence[L], find: Callable[[str], L | None]) -> list[L]:
        """The leaves that are wanted, as far as a file has them."""
        if self._wanted is None:
            return list(leaves)
        found = {name: find(name) for name in self._wanted}
        here = {name: leaf for name, leaf in found.items() if leaf in leaves and leaf is not None}
        self._seen.update(here)
        return list(here.values())

    def note(self, moved: Moved, key: Key, unit: int) -> None:
        """Report an index of a unit, and keep the reason where it is missing."""
        self.units.append(moved)
        if moved.way == NONE:
            self._collection.columns[key].reasons[moved.kind, unit] = moved.reason

    def _filters(
        self, source: Source, chunks: Sequence[ColumnChunk], keys: dict[int, Key], unit: int
    ) -> Iterator[tuple[ColumnChunk, Moved]]:
        having = [chunk for chunk in chunks if chunk.bloom_filter_offset]
        for chunk, found in read_bloom_filters(source, having):
            place = (source.name, chunk.row_group, chunk.leaf.path, BLOOM)
            if isinstance(found, StorageError):
                raise found
            if isinstance(found, SidecarError):
                damaged = isinstance(found, DamagedFileError)
                yield chunk, Moved(*place, NONE, reason=reason_of(found), damaged=damaged)
                continue
            if found is None:
                continue
            reason = _not_taken(found)
            rate = found.filter.estimated_fpp()
            if reason or not isinstance(found.filter, SplitBlockBloomFilter):
                yield chunk, Moved(*place, NONE, rate_before=rate, reason=reason)
                continue
            key = keys[chunk.leaf.index]
            self._collection.add_filter(key, unit, chunk.leaf.encoding.name, found.filter)
            yield chunk, Moved(*place, EXACT, found.bitset_length, rate, rate)

    def _page_indexes(
        self,
        source: Source,
        footer: Footer,
        group: RowGroup,
        chunks: Sequence[ColumnChunk],
        keys: dict[int, Key],
        unit: int,
    ) -> Iterator[tuple[ColumnChunk, Moved]]:
        with_columns = [chunk for chunk in chunks if chunk.column_index_offset]
        with_offsets = [chunk for chunk in chunks if chunk.offset_index_offset]
        answers = read_page_indexes(source, footer, with_columns, with_offsets)
        columns = dict(zip((chunk.leaf.index for chunk in with_columns), answers[0], strict=True))
        offsets = dict(zip((chunk.leaf.index for chunk in with_offsets), answers[1], strict=True))
        for leaf in sorted(columns.keys() | offsets.keys()):
            chunk = group.columns[leaf]
            sound = sound_page_index(footer, chunk, columns.get(leaf), offsets.get(leaf))
            place = (source.name, group.ordinal, chunk.leaf.path, PAGE_INDEX)
            if sound.offset_index is None:
                yield chunk, Moved(*place, NONE, reason=sound.reason, damaged=sound.damaged)
                continue
            column = b"" if sound.column_index is None else sound.column_index.raw
            offset = sound.offset_index.raw
            kind = page_index_kind(footer, chunk.leaf, keys[leaf].resolution)
            self._collection.add_page_index(keys[leaf], unit, kind, column, offset)
            yield (
                chunk,
                Moved(*place, EXACT, len(column) + len(offset), reason=sound.reason, damaged=sound.damaged),
            )


@dataclass(frozen=True)
class SoundPageIndex:
    """The structures of a chunk that nothing contradicts; ``reason`` says why one of them is missing."""

    column_index: ColumnIndex | None
    offset_index: OffsetIndex | None
    reason: str = ""
    damaged: bool = False


def sound_page_index(
    footer: Footer, chunk: ColumnChunk, columns: ColumnIndexAnswer, offsets: OffsetIndexAnswer
) -> SoundPageIndex:
    """What of a chunk's page index may be carried: an OffsetIndex without problems, then a ColumnIndex."""
    if offsets is None:
        return SoundPageIndex(None, None, "a column index without an offset index")
    if not isinstance(offsets, OffsetIndex):
        return SoundPageIndex(None, None, reason_of(offsets), isinstance(offsets, DamagedFileError))
    problem = next(offset_index_problems(footer, chunk, offsets), "")
    if problem:
        return SoundPageIndex(None, None, problem, damaged=True)
    if columns is None:
        return SoundPageIndex(None, offsets)
    if not isinstance(columns, ColumnIndex):
        damaged = isinstance(columns, DamagedFileError)
        return SoundPageIndex(None, offsets, f"no column index: {reason_of(columns)}", damaged)
    problem = next(column_index_problems(footer, chunk, columns, offsets), "")
    if problem:
        return SoundPageIndex(None, offsets, f"no column index: {problem}", damaged=True)
    return SoundPageIndex(columns, offsets)


def parquet_keys(footer: Footer) -> dict[int, Key]:
    """The key of each leaf by its index: by field id where that is the leaf's alone and above 0, else by path."""
    ids = [leaf.field_id for leaf in footer.columns if leaf.field_id is not None]
    keys = {}
    for leaf in footer.columns:
        own = leaf.field_id
        certain = own is not None and own > 0 and ids.count(own) == 1
        keys[leaf.index] = key_of(own if certain else None, leaf.path)
    return keys


def _not_taken(found: FoundFilter) -> str:
    return "" if found.trusted else found.reason
