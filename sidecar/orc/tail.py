"""Reads the tail of an ORC file: one read if it is small, two otherwise.

A file ends with these parts, back to back; all but the last two are compression chunks
(:mod:`sidecar.orc.compression`) of a protobuf message:

| part | its length is in |
| --- | --- |
| statistics of encrypted columns | postscript, field 7 |
| Metadata: statistics of every stripe | postscript, field 5 |
| Footer | postscript, field 1 |
| PostScript | the file's last byte |
| one byte: the postscript's length | |

The postscript ends with the magic ``ORC``; files of the oldest writers have it only at their start. Lengths are
accepted only if the parts are inside the file. The places of stripes are checked against the file's size here, and
against the stripe's own footer where that is read.

Metadata is not needed to find an index and may be large, so it is decoded on demand
(:func:`read_stripe_statistics`), without another read if the first one had it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, located
from sidecar.orc.compression import CODECS, DEFAULT_BLOCK, MAX_BLOCK, MOST_CONTENT, bound, decompress_stream
from sidecar.orc.filter_mark import marked_columns
from sidecar.orc.protobuf import VARINT, Message, decode
from sidecar.orc.schema import OrcColumn, decode_columns
from sidecar.storage.source import Source

MAGIC = b"ORC"

TAIL = 32 * 1024
"""Bytes of the first read: most footers, and the statistics of a few stripes."""

MAX_FOOTER = 256 << 20
"""Bytes of the longest decompressed footer or metadata that is read."""

MAX_ROW_GROUPS = 1 << 18
"""Most row groups of a stripe."""

FEW_ROW_GROUPS = 4096
"""Row groups that every stripe may have; each further one takes at least a byte of the stripe's index."""

WRITERS = ("Java", "C++", "Presto", "Go", "Trino", "cuDF")
CALENDARS = ("unknown", "julian_gregorian", "proleptic_gregorian")

JAVA, CPP, PRESTO, GO, TRINO, CUDF = range(6)
"""Numbers of writers in Footer.writer."""

UNSTABLE_VERSION = (1, 9999)
"""The file version in which decimals of at most :data:`DECIMAL64_DIGITS` digits are stored as 64-bit integers."""
DECIMAL64_DIGITS = 18
_VERSION = 4  # field of the postscript
_I64 = (1 << 63) - 1


class OrcRowGroup(NamedTuple):
    """A row group of a stripe: the rows of one row index entry. ``first_row`` counts rows of the file."""

    ordinal: int
    first_row: int
    rows: int


@dataclass(frozen=True)
class Stripe:
    """A stripe: index streams, data streams and a footer, back to back from ``offset``."""

    ordinal: int
    offset: int
    index_length: int
    data_length: int
    footer_length: int
    num_rows: int
    first_row: int
    stride: int
    """Rows of a row group; 0 if the file has no row indexes."""
    information: Message

    @property
    def footer_offset(self) -> int:
        """The offset of the stripe's footer in the file."""
        return self.offset + self.index_length + self.data_length

    @property
    def end(self) -> int:
        """The offset after the stripe's last byte in the file."""
        return self.footer_offset + self.footer_length

    @property
    def num_row_groups(self) -> int:
        """Number of row groups: 1 if the file has no row indexes, 0 if the stripe has no rows.

        Raises :class:`DamagedFileError` for more of them than the stripe's index can hold.
        """
        count = -(-self.num_rows // self.stride) if self.stride else int(self.num_rows > 0)
        most = min(FEW_ROW_GROUPS + self.index_length, MAX_ROW_GROUPS)
        if count > most:
            raise DamagedFileError(
                f"stripe {self.ordinal} has more row groups than its index can hold",
                expected=f"at most {most}",
                found=count,
            )
        return count

    @property
    def row_groups(self) -> list[OrcRowGroup]:
        """The row groups in order. Raises as :attr:`num_row_groups`."""
        count = self.num_row_groups
        stride = self.stride or self.num_rows
        return [OrcRowGroup(i, self.first_row + i * stride, self.rows_of(i)) for i in range(count)]

    def rows_of(self, row_group: int) -> int:
        """Return the number of rows of one of the row groups."""
        stride = self.stride or self.num_rows
        return min(stride, self.num_rows - row_group * stride)


@dataclass(frozen=True)
class _Parts:
    """The statements of the postscript: the places of the parts before it, and their compression."""

    name: str
    size: int
    postscript: Message
    postscript_offset: int
    compression: str
    """A name of :data:`sidecar.orc.compression.CODECS`."""
    block_size: int
    footer_offset: int
    footer_length: int
    metadata_offset: int
    metadata_length: int
    """Bytes in the file; 0 if there is no metadata."""
    statistics_length: int

    @classmethod
    def of(cls, source: Source, postscript: Message, end: int) -> _Parts:
        """Return the parts before ``end``, the offset of the postscript."""
        number = postscript.varint(2)
        compression = CODECS[number] if number < len(CODECS) else str(number)
        block_size = postscript.varint(3) if postscript.has(3) else DEFAULT_BLOCK
        if compression != "NONE" and not 0 < block_size <= MAX_BLOCK:
            raise DamagedFileError(
                "the compression block size is out of range", expected=f"1 to {MAX_BLOCK}", found=block_size
            )
        footer, metadata, statistics = (postscript.varint(field) for field in (1, 5, 7))
        if footer == 0 or footer + metadata + statistics > end:
            raise DamagedFileError(
                "footer, metadata and statistics do not fit into the file",
                expected=f"together at most {end} bytes",
                found=f"{footer} + {metadata} + {statistics}",
            )
        at = end - footer
        places = at, footer, at - metadata, metadata, statistics
        return cls(source.name, source.size, postscript, end, compression, block_size, *places)

    def content(
        self, data: bytes | memoryview, offset: int, limit: int = MOST_CONTENT, before: memoryview | bytes = b""
    ) -> bytes | memoryview:
        """Return the content of a whole stream, see :func:`sidecar.orc.compression.decompress_stream`."""
        return decompress_stream(data, self.compression, self.block_size, offset, limit, before)


@dataclass(frozen=True)
class OrcTail(_Parts):
    """A decoded tail; the messages are whole, with unknown fields."""

    footer: Message
    row_index_stride: int
    num_rows: int
    writer: int
    """The writer of the file: :data:`JAVA`, :data:`CPP`, ...; any other number is an unknown writer."""
    writer_version: int
    software_version: str | None
    file_version: tuple[int, int]
    """(0, 11), (0, 12), or (1, 9999) for what writers call UNSTABLE-PRE-2.0."""
    calendar: str
    """A name of :data:`CALENDARS`."""
    encrypted: bool
    encrypted_columns: frozenset[int]
    """Ids of the columns that have an encrypted variant; their plain values are masked."""
    columns: list[OrcColumn]
    stripes: list[Stripe]
    read_bytes: bytes = field(repr=False)
    """The last bytes of the file that were read for this tail."""

    @property
    def created_by(self) -> str:
        """Writer and version, for people."""
        name = WRITERS[self.writer] if self.writer < len(WRITERS) else f"writer {self.writer}"
        version = self.software_version or f"(writer version {self.writer_version})"
        return f"ORC {name} {version}"

    @property
    def num_row_groups(self) -> int:
        """Number of row groups of all stripes."""
        return sum(stripe.num_row_groups for stripe in self.stripes)

    @cached_property
    def columns_with_our_filters(self) -> frozenset[int]:
        """Ids of the columns whose filters sidecar embedded. Another writer may have written the file."""
        return marked_columns(self.footer)

    @cached_property
    def _by_path(self) -> dict[str, OrcColumn | None]:
        known: dict[str, OrcColumn | None] = {}
        for column in self.columns:
            known[column.path] = None if column.path in known else column
        return known

    def column(self, path: str) -> OrcColumn | None:
        """Return the column with a dotted path; ``None`` if there is none, or more than one."""
        return self._by_path.get(path)

    def subtree(self, column_id: int) -> list[int]:
        """Return the ids of the column and of all columns below it."""
        out, todo = [], [column_id]
        while todo:
            out.append(todo.pop())
            todo += reversed(self.columns[out[-1]].children)
        return out


def read_tail(source: Source) -> OrcTail:
    """Read and decode postscript and footer: one read, or two if they are longer than :data:`TAIL`.

    Raises :class:`DamagedFileError` for anything that contradicts the format, and
    :class:`UnsupportedFeatureError` for a compression that cannot be read.
    """
    with located(source.name):
        size = source.size
        if size < len(MAGIC) + 2:
            raise DamagedFileError(
                "the file is too short for an ORC file",
                expected=f"at least {len(MAGIC) + 2} bytes",
                found=size,
            )
        first = min(size, TAIL)
        data = source.read(size - first, first)
        postscript_length = data[-1]
        if not 0 < postscript_length < first:
            raise DamagedFileError(
                "the postscript's length is out of range",
                offset=size - 1,
                expected=f"1 to {first - 1}",
                found=postscript_length,
            )
        postscript_offset = size - 1 - postscript_length
        raw = data[-1 - postscript_length : -1]
        # Old writers put no magic into the postscript. Then the file must begin with one.
        if not raw.endswith(MAGIC):
            _check_magic(source.read(0, len(MAGIC)), postscript_offset)
        with located(source.name, offset=postscript_offset):
            postscript = _postscript(raw)
            _check_format(postscript)
            parts = _Parts.of(source, postscript, postscript_offset)
        if (missing := size - parts.footer_offset - len(data)) > 0:
            data = source.read(parts.footer_offset, missing) + data
        with located(source.name, offset=parts.footer_offset):
            return _decode(parts, data)


def is_orc(source: Source) -> bool:
    """Return whether a file is ORC: it has the magic at its start, or at the end of the postscript.

    One read, or two if the file does not begin with the magic of ORC or Parquet.
    """
    if source.size < len(MAGIC) + 2:
        return False
    head = source.read(0, 4)
    if head.startswith(MAGIC) or head == b"PAR1":
        return head != b"PAR1"
    return source.read(source.size - 4, 4).startswith(MAGIC)


def _postscript(raw: bytes) -> Message:
    """Decode the postscript. One without the magic at its end may be of an old writer, or no postscript at all."""
    try:
        return decode(raw)
    except DamagedFileError as error:
        if raw.endswith(MAGIC):
            raise
        raise DamagedFileError(
            "the file begins as an ORC file and does not end as one: it was cut, or its writer did not finish it",
            expected="a postscript",
            found=error.what,
            hint="Copy or write the file again.",
        ) from error


def _check_magic(head: bytes, offset: int) -> None:
    if head != MAGIC:
        raise DamagedFileError(
            "the file is not an ORC file: the magic is neither in the postscript nor at the start",
            offset=offset,
            expected=MAGIC,
            found=head,
        )


def _check_format(postscript: Message) -> None:
    """Raise :class:`UnsupportedFeatureError` for DWRF, which begins as ORC does.

    ORC has two numbers as its version, in one packed field; DWRF has one number there.
    """
    if [kind for number, kind, _ in postscript.fields if number == _VERSION] == [VARINT]:
        raise UnsupportedFeatureError("the file is DWRF, Meta's variant of ORC, which is not supported")


def _decode(parts: _Parts, data: bytes) -> OrcTail:
    """Decode the footer in ``data``, the last bytes of the file."""
    start = parts.footer_offset - (parts.size - len(data))
    stored = data[start : start + parts.footer_length]
    footer = decode(bytes(parts.content(stored, parts.footer_offset, bound(parts.footer_length, MAX_FOOTER))))
    encryption = footer.message(10)
    variants = [] if encryption is None else encryption.messages(3)
    roots = frozenset(variant.varint(1) for variant in variants)
    columns = decode_columns(footer.messages(4), roots)
    stride, version = _count(footer.varint(8)), parts.postscript.repeated_varints(_VERSION)
    calendar = footer.varint(11)
    end = parts.metadata_offset - parts.statistics_length
    return OrcTail(
        **vars(parts),
        footer=footer,
        row_index_stride=stride,
        num_rows=_count(footer.varint(6)),
        writer=footer.varint(9),
        writer_version=parts.postscript.varint(6),
        software_version=footer.text(12),
        file_version=(version[0], version[1]) if len(version) > 1 else (0, 11),
        calendar=CALENDARS[calendar] if calendar < len(CALENDARS) else str(calendar),
        encrypted=encryption is not None,
        encrypted_columns=frozenset(column.id for column in columns if column.encrypted),
        columns=columns,
        stripes=_stripes(footer.messages(3), stride, end),
        read_bytes=data,
    )


def _count(value: int) -> int:
    if value > _I64:
        raise DamagedFileError("a count in the footer is negative", found=value)
    return value


def _stripes(messages: Iterable[Message], stride: int, end: int) -> list[Stripe]:
    stripes: list[Stripe] = []
    first_row = stored = 0
    for ordinal, message in enumerate(messages):
        offset, index, data, footer, rows = (message.varint(field) for field in range(1, 6))
        if offset + index + data + footer > end or footer == 0:
            raise DamagedFileError(
                f"stripe {ordinal} does not fit into the file",
                offset=offset,
                expected=f"an end at most at {end}",
                found=f"{index} + {data} + {footer} bytes from {offset}",
            )
        stored += index + data + footer
        if stored > end:  # stripes do not overlap: a small footer could name one of them any number of times
            raise DamagedFileError(
                "the stripes together are longer than the file",
                offset=offset,
                expected=f"at most {end} bytes",
                found=f"{stored} bytes in {ordinal + 1} stripes",
            )
        stripes.append(Stripe(ordinal, offset, index, data, footer, rows, first_row, stride, message))
        first_row = _count(first_row + rows)
    return stripes


def read_stripe_statistics(source: Source, tail: OrcTail) -> list[bytes]:
    """Return the encoded statistics of each stripe; of no stripe if the file has no metadata.

    Reads the file only if the read of the tail did not have them.
    :func:`sidecar.orc.statistics.column_statistics.decode_statistics` decodes them. Raises :class:`DamagedFileError`.
    """
    if tail.metadata_length == 0:
        return []
    with located(tail.name, offset=tail.metadata_offset):
        start = tail.metadata_offset - (tail.size - len(tail.read_bytes))
        if start >= 0:
            data = tail.read_bytes[start : start + tail.metadata_length]
        else:
            data = source.read(tail.metadata_offset, tail.metadata_length)
        metadata = decode(bytes(tail.content(data, tail.metadata_offset, bound(tail.metadata_length, MAX_FOOTER))))
        return metadata.all_bytes(1)
