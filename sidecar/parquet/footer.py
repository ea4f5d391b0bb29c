"""Reads and decodes the footer of a Parquet file, with one read if it is small, else with two.

A file ends with the Thrift structure ``FileMetaData``, its length in four bytes (little-endian) and the magic ``PAR1``.
The magic ``PARE`` means that the footer is encrypted: :mod:`sidecar.parquet.encrypted.plain_view` shows such a file as
a plain one. The length must fit into the file, and every count and length in the footer is checked before it is used.

Offsets and sizes of a column chunk are checked where the chunk is read, so a chunk that points outside the file makes
only that chunk unreadable.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, located
from sidecar.filters.leaf import Leaf
from sidecar.parquet.encrypted.modules import FileEncryption
from sidecar.parquet.schema import PHYSICAL, decode_leaves
from sidecar.parquet.thrift import BINARY, PADDING, Struct, decode_struct
from sidecar.parquet.trust import (
    counts_problem,
    histogram_problem,
    is_bounded,
    may_show_other_values,
    null_count_problem,
    why_not_believed,
)
from sidecar.run import without_search_for_cycles
from sidecar.storage.source import Source

MAGIC = b"PAR1"
"""The first and the last bytes of a file whose footer is not encrypted."""

TRAILER = 4 + len(MAGIC)
"""Bytes of the footer's length and of the magic, with which a file ends."""

TAIL = 64 * 1024
"""Bytes of the first read. Most footers are smaller."""

MAX_FOOTER = 512 << 20
"""Bytes of a footer, at most."""

CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")

LOCKED = "the column is encrypted (Parquet modular encryption), and its key was not given"
"""Why a column chunk is absent."""

KEYS_HINT = "Give its keys as encryption_keys, on the command line as --encryption-keys."

_SMALLEST = 12  # magic, an empty footer's length, magic
_MOST_ROWS = (1 << 63) - 1
_INTERVAL_KEY = "duckdb.interval_bloom_filter"


@dataclass(frozen=True)
class PageEncodingCount:
    """An entry of ``encoding_stats``: how many pages have this type and encoding (numbers of the specification)."""

    page_type: int
    encoding: int
    count: int


@dataclass(frozen=True)
class ColumnChunk:
    """The metadata of one column of one row group, with the names of the specification.

    Offsets and sizes are in bytes and unchecked. ``None`` means that the field is absent.
    """

    leaf: Leaf
    row_group: int
    file_path: str | None
    codec: str
    """A name of :data:`CODECS`, or the number of an unknown codec."""
    num_values: int
    total_compressed_size: int
    """From the first page to the end of the last one; see also :attr:`may_end_early`."""
    total_uncompressed_size: int
    data_page_offset: int
    dictionary_page_offset: int | None
    encodings: tuple[int, ...]
    encoding_stats: tuple[PageEncodingCount, ...] | None
    null_count: int | None
    """``None`` also if the stated number is not believed (:mod:`sidecar.parquet.trust`)."""
    bloom_filter_offset: int | None
    bloom_filter_length: int | None
    column_index_offset: int | None
    column_index_length: int | None
    offset_index_offset: int | None
    offset_index_length: int | None
    may_end_early: bool = False
    """Whether the file's writer is not believed about ``total_compressed_size``. Then the size reaches to where the
    next part of the file begins, and the pages end where they have all values."""

    may_show_other_values: bool = False
    """Whether the chunk may have integers beyond the column's annotation, for which readers show other numbers."""

    was_decrypted: bool = False
    """Whether the chunk is encrypted in the file, and this is what its key shows."""

    @property
    def start(self) -> int:
        """Offset of the first page. A dictionary page counts only if it is before the data pages, as in all readers.

        pyarrow leaves ``data_page_offset`` at 0 if a chunk without rows has only a dictionary page.
        """
        dictionary, data = self.dictionary_page_offset or 0, self.data_page_offset
        return dictionary if 0 < dictionary < data or (dictionary > 0 and data == 0) else data

    @property
    def stated_data_pages(self) -> int | None:
        """The number of data pages by ``encoding_stats``; ``None`` without them."""
        if self.encoding_stats is None:
            return None
        return sum(entry.count for entry in self.encoding_stats if entry.page_type in (0, 3))


@dataclass(frozen=True)
class ColumnChunks(Collection[ColumnChunk]):
    """The column chunks of a row group that can be read, in the order of the schema.

    An encrypted chunk whose key is missing is *locked*, and absent: iteration skips it, ``chunks[leaf index]`` raises
    :class:`UnsupportedFeatureError` with the reason, and :meth:`get` returns ``None``. So no reader takes a locked
    chunk for one without values, and none has to ask.
    """

    stored: tuple[ColumnChunk, ...]
    """All chunks as the plain part of the footer has them. For a locked chunk they may have its place, and prove
    nothing about its values. Use them to copy bytes and to list chunks, not to read."""
    _locked: frozenset[int] = frozenset()

    @property
    def locked(self) -> list[ColumnChunk]:
        """The entries of :attr:`stored` for chunks that are absent, because their columns are locked."""
        return [self.stored[leaf_index] for leaf_index in sorted(self._locked)]

    @cached_property
    def _readable(self) -> tuple[ColumnChunk, ...]:
        return tuple(c for c in self.stored if c.leaf.index not in self._locked) if self._locked else self.stored

    def __iter__(self) -> Iterator[ColumnChunk]:
        return iter(self._readable)

    def __len__(self) -> int:
        return len(self._readable)

    def __contains__(self, chunk: object) -> bool:
        return chunk in self._readable

    def __getitem__(self, leaf_index: int) -> ColumnChunk:
        if leaf_index in self._locked:
            raise UnsupportedFeatureError(LOCKED, column=self.stored[leaf_index].leaf.path, hint=KEYS_HINT)
        return self.stored[leaf_index]

    def get(self, leaf_index: int) -> ColumnChunk | None:
        """Return the chunk of a leaf; ``None`` if it is locked."""
        return None if leaf_index in self._locked else self.stored[leaf_index]


@dataclass(frozen=True)
class RowGroup:
    """A row group. ``ordinal`` is its place in the footer, ``first_row`` its first row in the file, both from 0."""

    ordinal: int
    num_rows: int
    first_row: int
    columns: ColumnChunks


@dataclass(frozen=True)
class Footer:
    """A decoded footer. ``metadata`` is the whole field tree with unknown fields."""

    name: str
    size: int
    offset: int
    """Offset of the footer in the file."""
    length: int
    metadata: Struct
    columns: list[Leaf]
    row_groups: list[RowGroup]
    num_rows: int
    """The rows of all row groups."""
    created_by: str | None
    key_value: dict[str, str]
    raw: bytes
    """The bytes of ``metadata`` in the file."""
    encryption: FileEncryption | None = None
    """How the file is encrypted, if it was unlocked (:func:`sidecar.parquet.encrypted.plain_view.unlock`)."""

    @cached_property
    def _by_path(self) -> dict[str, Leaf | None]:
        known: dict[str, Leaf | None] = {}
        for leaf in self.columns:
            known[leaf.path] = None if leaf.path in known else leaf
        return known

    @cached_property
    def _groups(self) -> list[Struct]:
        return self.metadata.structs(4) or []

    @property
    def stated_num_rows(self) -> int:
        """The footer's own ``num_rows``. Some writers leave 0 in it, and other readers take the row groups' rows."""
        return self.metadata.count(3, "the file's num_rows")

    def chunk_metadata(self, chunk: ColumnChunk) -> Struct:
        """Return the ColumnMetaData of a chunk from the footer; empty if the footer has none."""
        return (self._groups[chunk.row_group].structs(1) or [])[chunk.leaf.index].struct(3) or Struct()

    def leaf(self, path: str) -> Leaf | None:
        """Return the leaf with this dotted path; ``None`` if there is none, or more than one."""
        return self._by_path.get(path)

    def is_ambiguous(self, leaf: Leaf) -> bool:
        """Return whether another leaf has the same dotted path: ``a.b`` beside ``b`` in ``a``, or two columns ``x``."""
        return self._by_path[leaf.path] is None

    def label(self, leaf: Leaf) -> str:
        """Return a text that names no other leaf of the file: the path, with the leaf's number if it is ambiguous."""
        return f"{leaf.path} (leaf {leaf.index})" if self.is_ambiguous(leaf) else leaf.path

    @cached_property
    def locked(self) -> set[int]:
        """The indexes of the leaves that have a locked chunk."""
        return {chunk.leaf.index for group in self.row_groups for chunk in group.columns.locked}

    @cached_property
    def encrypted(self) -> set[int]:
        """The indexes of the leaves that are encrypted in a row group of the file, with or without a key."""
        chunks = (chunk for group in self.row_groups for chunk in group.columns)
        return {chunk.leaf.index for chunk in chunks if chunk.was_decrypted} | self.locked


class Tail(NamedTuple):
    """The bytes between a file's body and the length and magic at its end; ``offset`` is their place in the file."""

    data: bytes
    offset: int
    is_encrypted: bool


def read_footer(source: Source) -> Footer:
    """Read and decode the footer: one read, or two if it is longer than :data:`TAIL`.

    Raises :class:`DamagedFileError` for anything that contradicts the format, and
    :class:`UnsupportedFeatureError` for an encrypted footer.
    """
    with located(source.name):
        return decode_footer(source, read_tail(source))


def decode_footer(source: Source, tail: Tail) -> Footer:
    """Decode the footer in the ``tail`` of ``source``. Raises as :func:`read_footer`."""
    if tail.is_encrypted:
        raise UnsupportedFeatureError(
            "the footer is encrypted (Parquet modular encryption, magic PARE)",
            offset=source.size - 4,
            hint=KEYS_HINT,
        )
    with without_search_for_cycles(are_many=len(tail.data) > TAIL):
        metadata, _ = decode_struct(tail.data, base=tail.offset)
        metadata.fields.pop(PADDING, None)
        return footer_of(source, tail.offset, tail.data, metadata)


def read_tail(source: Source) -> Tail:
    """Read the footer's bytes, without decoding them. Raises :class:`DamagedFileError`."""
    size = source.size
    if size < _SMALLEST:
        raise DamagedFileError(
            "the file is too short for a Parquet file", expected=f"at least {_SMALLEST} bytes", found=size
        )
    encryption = getattr(source, "encryption", None)
    first = min(size, TAIL) if encryption is None else size - encryption.footer_offset
    tail = source.read(size - first, first)
    if tail[-4:] not in (b"PAR1", b"PARE"):
        raise _wrong_end(source, tail[-4:])
    length = int.from_bytes(tail[-8:-4], "little")
    if not 0 < length <= min(size - _SMALLEST, MAX_FOOTER):
        raise DamagedFileError(
            "the footer's length is out of range",
            offset=size - 8,
            expected=f"1 to {min(size - _SMALLEST, MAX_FOOTER)}",
            found=length,
        )
    offset = size - 8 - length
    data = tail[max(len(tail) - 8 - length, 0) : -8]
    if length > len(data):
        data = source.read(offset, length - len(data)) + data
    return Tail(data, offset, tail[-4:] == b"PARE")


def _wrong_end(source: Source, found: bytes) -> DamagedFileError:
    """Return the error for a file that does not end as a Parquet file: one that was cut begins as one."""
    is_cut = source.read(0, 4) in (b"PAR1", b"PARE")
    cut = "the file begins as a Parquet file and does not end as one: it was cut, or its writer did not finish it"
    return DamagedFileError(
        cut if is_cut else "not a Parquet file: it neither begins nor ends as one",
        offset=source.size - 4,
        expected="PAR1",
        found=repr(found)[1:],
        hint="Copy or write the file again." if is_cut else None,
    )


def footer_of(source: Source, offset: int, raw: bytes, metadata: Struct) -> Footer:
    """Return the footer of ``source`` whose field tree is ``metadata``, decoded from the bytes ``raw`` at ``offset``.

    Raises as :func:`read_footer`.
    """
    elements = metadata.structs(2)
    if elements is None:
        raise DamagedFileError("the footer has no schema")
    key_value = _key_value(metadata)
    columns = decode_leaves(elements, normalized_interval=_INTERVAL_KEY in key_value)
    metadata.count(3, "the file's num_rows")
    created_by = metadata.text(6)
    encryption: FileEncryption | None = getattr(source, "encryption", None)
    decrypted = {} if encryption is None else encryption.columns
    groups: list[RowGroup] = []
    first_row = 0
    for ordinal, group in enumerate(metadata.structs(4) or ()):
        groups.append(_row_group(group, ordinal, first_row, columns, created_by, decrypted))
        first_row += groups[-1].num_rows
        if first_row > _MOST_ROWS:
            raise DamagedFileError("the row groups have more rows than fit into a file", found=first_row)
    if columns and why_not_believed(created_by, "total_compressed_size", columns[0], ()):
        groups = _with_room(groups, offset)
    return Footer(
        name=source.name,
        size=source.size,
        offset=offset,
        length=len(raw),
        metadata=metadata,
        columns=columns,
        row_groups=groups,
        num_rows=first_row,
        created_by=created_by,
        key_value=key_value,
        raw=raw,
        encryption=encryption,
    )


def _with_room(groups: list[RowGroup], end: int) -> list[RowGroup]:
    """Return row groups whose chunks reach to where the next part of the file begins; the last one to ``end``."""
    chunks = [chunk for group in groups for chunk in group.columns.stored]
    places = {end}
    for chunk in chunks:
        named = (chunk.bloom_filter_offset, chunk.column_index_offset, chunk.offset_index_offset)
        places |= {chunk.start, *(offset for offset in named if offset)}
    known = sorted(places)

    def with_room(chunk: ColumnChunk) -> ColumnChunk:
        after = bisect_right(known, chunk.start)
        room = known[after] - chunk.start if after < len(known) else 0
        if chunk.file_path is not None or not chunk.num_values or room <= chunk.total_compressed_size:
            return chunk
        return replace(chunk, total_compressed_size=room, may_end_early=True)

    return [
        replace(group, columns=replace(group.columns, stored=tuple(map(with_room, group.columns.stored))))
        for group in groups
    ]


def _key_value(metadata: Struct) -> dict[str, str]:
    """Return the key-value metadata. Some writers store values that are not UTF-8, so those are replaced.

    Entries that are numbers are left out: fastparquet 0.8 wrote such, and readers of Thrift skip them.
    """
    fields = (entry.fields for entry in metadata.structs(5) or ())
    texts = ([found.get(number, (BINARY, b"")) for number in (1, 2)] for found in fields)
    pairs = ((bytes(key[1]), bytes(value[1])) for key, value in texts if key[0] == value[0] == BINARY)
    return {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in pairs}


def _row_group(
    group: Struct,
    ordinal: int,
    first_row: int,
    columns: list[Leaf],
    created_by: str | None,
    decrypted: Collection[tuple[int, int]],
) -> RowGroup:
    chunks = group.structs(1) or []
    if len(chunks) != len(columns):
        raise DamagedFileError(
            f"row group {ordinal} has a different number of column chunks than the schema has leaves",
            expected=len(columns),
            found=len(chunks),
        )
    num_rows = group.count(3, "a row group's num_rows")
    decoded = [_chunk(chunk, leaf, ordinal, num_rows, created_by) for chunk, leaf in zip(chunks, columns, strict=True)]
    if decrypted:
        decoded = [replace(c, was_decrypted=(ordinal, i) in decrypted) for i, c in enumerate(decoded)]
    locked = frozenset(i for i, chunk in enumerate(chunks) if _is_locked(chunk))
    return RowGroup(ordinal, num_rows, first_row, ColumnChunks(tuple(decoded), locked))


def _is_locked(chunk: Struct) -> bool:
    """Return whether a chunk says how it is encrypted. After unlocking, only chunks whose key is missing do."""
    return 8 in chunk.fields


def _chunk(chunk: Struct, leaf: Leaf, ordinal: int, num_rows: int, created_by: str | None) -> ColumnChunk:
    meta = chunk.struct(3)
    if meta is None:
        if not _is_locked(chunk):
            raise DamagedFileError(f"a column chunk of row group {ordinal} has no metadata", column=leaf.path)
        meta = Struct()
    elif meta.integer(1) != PHYSICAL.index(leaf.physical) or tuple(meta.texts(3) or ()) != leaf.parts:
        raise DamagedFileError(
            f"a column chunk of row group {ordinal} belongs to a different column",
            column=leaf.path,
            found=f"{'.'.join(meta.texts(3) or ())}, type {meta.integer(1)}",
        )
    # The plain part of a locked chunk may lack num_values. Nothing relies on it, because no values are read.
    number = meta.integer(4) or 0
    num_values = meta.count(5, "num_values") if not _is_locked(chunk) else meta.integer(5) or 0
    encodings = tuple(meta.integers(2) or ())
    null_count = _null_count(meta, leaf, num_values, num_rows)
    if null_count is not None and why_not_believed(created_by, "null_count", leaf, encodings):
        null_count = None
    return ColumnChunk(
        leaf=leaf,
        row_group=ordinal,
        file_path=chunk.text(1),
        codec=CODECS[number] if 0 <= number < len(CODECS) else str(number),
        num_values=num_values,
        total_compressed_size=meta.integer(7) or 0,
        total_uncompressed_size=meta.integer(6) or 0,
        data_page_offset=meta.integer(9) or 0,
        dictionary_page_offset=meta.integer(11),
        encodings=encodings,
        encoding_stats=_encoding_stats(meta),
        null_count=null_count,
        bloom_filter_offset=meta.integer(14),
        bloom_filter_length=meta.integer(15),
        column_index_offset=chunk.integer(6),
        column_index_length=chunk.integer(7),
        offset_index_offset=chunk.integer(4),
        offset_index_length=chunk.integer(5),
        may_show_other_values=may_show_other_values(leaf, meta.struct(12)),
    )


def _null_count(meta: Struct, leaf: Leaf, num_values: int, num_rows: int) -> int | None:
    """Return the null_count of a chunk's statistics; ``None`` if it is missing or contradicts what else is said."""
    statistics = meta.struct(12)
    stated = None if statistics is None else statistics.integer(3)
    if statistics is None or stated is None or counts_problem(leaf.max_rep, num_values, num_rows):
        return None
    problem = null_count_problem(leaf.max_def, stated, num_values, bounded=is_bounded(statistics))
    return None if problem or histogram_problem(leaf, stated, size_statistics(meta)) else stated


def size_statistics(meta: Struct) -> Struct | None:
    """Return the ``size_statistics`` of a chunk's metadata; ``None`` if it has none that can be read."""
    return meta.struct(16)


def _encoding_stats(meta: Struct) -> tuple[PageEncodingCount, ...] | None:
    entries = meta.structs(13)
    if entries is None:
        return None
    return tuple(
        PageEncodingCount(
            entry.need_integer(1, "page_type"),
            entry.need_integer(2, "encoding"),
            entry.need_integer(3, "count"),
        )
        for entry in entries
    )
