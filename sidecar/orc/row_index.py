"""Decodes and encodes row indexes: the positions of each row group in a column's streams, and its statistics.

A ROW_INDEX stream is one message RowIndex: 1 entry (repeated). A RowIndexEntry is: 1 positions (uint64, packed), 2
statistics (:mod:`sidecar.orc.statistics.column_statistics`). The positions are one flat list, stream after stream in
this order, PRESENT first if the column has that stream in the stripe:

| kind | streams after PRESENT |
| --- | --- |
| BOOLEAN | DATA (bits) |
| BYTE | DATA (bytes) |
| SHORT, INT, LONG, DATE | DATA (integers) |
| FLOAT, DOUBLE | DATA (raw) |
| STRING, CHAR, VARCHAR direct; BINARY, GEOMETRY, GEOGRAPHY | DATA (raw), LENGTH (integers) |
| STRING, CHAR, VARCHAR with a dictionary | DATA (integers); the dictionary's streams have none |
| TIMESTAMP, TIMESTAMP_INSTANT | DATA (integers), SECONDARY (integers) |
| DECIMAL | DATA (raw), SECONDARY (integers); up to 18 digits in UNSTABLE-PRE-2.0 files: DATA (integers) |
| LIST, MAP | LENGTH (integers) |
| UNION | DATA (bytes: tags) |
| STRUCT | none |

Each stream has these numbers, relative to its start. With compression, the first number is the offset of a chunk, and
one more number follows it: the bytes to skip in the content of the chunk.

| stream | numbers |
| --- | --- |
| raw | byte offset |
| integers (RLE v1, v2), bytes (byte RLE) | byte offset of a run, values to skip |
| bits (PRESENT, BOOLEAN's DATA) | byte offset of a run, bytes to skip, bits to skip |

An entry may be empty, which means all zeros (writers do this for the first one). Messages keep their bytes, so an index
can be copied to another place unchanged. The published specification and the writers agree on all this.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sidecar.errors import DamagedFileError
from sidecar.orc.protobuf import Message, decode
from sidecar.orc.schema import OrcColumn
from sidecar.orc.stripe import ColumnEncoding, StripeFooter
from sidecar.orc.tail import DECIMAL64_DIGITS, UNSTABLE_VERSION, OrcTail

MAX_POSITIONS = 64
"""Most positions of one entry; sound files have at most 11."""
MOST_KEPT = 2048
"""Entries of an index with more row groups, and their statistics, are decoded each time and not kept."""

RAW, INTEGERS, BYTES, BITS = "raw", "integers", "bytes", "bits"
_NUMBERS = {RAW: 1, INTEGERS: 2, BYTES: 2, BITS: 3}

_STREAMS: dict[str, tuple[tuple[str, str], ...]] = {
    "BOOLEAN": (("DATA", BITS),),
    "BYTE": (("DATA", BYTES),),
    **dict.fromkeys(("SHORT", "INT", "LONG", "DATE"), (("DATA", INTEGERS),)),
    **dict.fromkeys(("FLOAT", "DOUBLE"), (("DATA", RAW),)),
    **dict.fromkeys(
        ("STRING", "CHAR", "VARCHAR", "BINARY", "GEOMETRY", "GEOGRAPHY"),
        (("DATA", RAW), ("LENGTH", INTEGERS)),
    ),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_INSTANT"), (("DATA", INTEGERS), ("SECONDARY", INTEGERS))),
    "DECIMAL": (("DATA", RAW), ("SECONDARY", INTEGERS)),
    **dict.fromkeys(("LIST", "MAP"), (("LENGTH", INTEGERS),)),
    "UNION": (("DATA", BYTES),),
    "STRUCT": (),
}
_DICTIONARY = (("DATA", INTEGERS),)
_DECIMAL64 = (("DATA", INTEGERS),)
_PRESENT = ("PRESENT", BITS)


@dataclass(frozen=True)
class RowIndexEntry:
    """The entry of one row group; ``statistics`` is ``None`` if the writer left it out."""

    positions: tuple[int, ...]
    statistics: Message | None
    raw: Message


@dataclass(frozen=True)
class RowIndex:
    """The entries of one column in one stripe, one for each row group, decoded on demand and then kept."""

    parts: list[bytes]
    """The encoded RowIndexEntry messages."""
    _decoded: dict[int, RowIndexEntry] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.parts)

    def entry(self, ordinal: int) -> RowIndexEntry:
        """Return the entry of row group ``ordinal`` of the stripe. Raises :class:`DamagedFileError`."""
        if (found := self._decoded.get(ordinal)) is None:
            found = decode_entry(self.parts[ordinal])
            if len(self.parts) <= MOST_KEPT:
                self._decoded[ordinal] = found
        return found

    @property
    def entries(self) -> list[RowIndexEntry]:
        """All entries, decoded anew. Raises :class:`DamagedFileError`."""
        return [decode_entry(part) for part in self.parts]


def decode_row_index(data: bytes) -> RowIndex:
    """Decode a decompressed ROW_INDEX stream. Raises :class:`DamagedFileError`."""
    return RowIndex(decode(data).all_bytes(1))


def decode_entry(data: bytes) -> RowIndexEntry:
    """Decode a RowIndexEntry. Raises :class:`DamagedFileError`."""
    raw = decode(data)
    positions = raw.repeated_varints(1)
    if len(positions) > MAX_POSITIONS:
        raise DamagedFileError(
            "an entry of a row index has too many positions",
            expected=f"at most {MAX_POSITIONS}",
            found=len(positions),
        )
    return RowIndexEntry(tuple(positions), raw.message(2), raw)


def stream_order(
    column: OrcColumn,
    encoding: ColumnEncoding,
    *,
    has_present: bool,
    file_version: tuple[int, int] = (0, 12),
) -> tuple[tuple[str, str], ...]:
    """Return (stream kind, content) of the column's streams with positions; content is raw, integers, bytes or bits."""
    streams = _STREAMS.get(column.kind)
    if streams is None:
        raise DamagedFileError(
            "positions of a column of unknown kind cannot be decoded", column=column.path, found=column.kind
        )
    if encoding.is_dictionary:
        streams = _DICTIONARY
    elif column.kind == "DECIMAL" and _is_decimal64(column, file_version):
        streams = _DECIMAL64
    return (_PRESENT, *streams) if has_present else streams


def _is_decimal64(column: OrcColumn, file_version: tuple[int, int]) -> bool:
    return file_version == UNSTABLE_VERSION and column.precision is not None and column.precision <= DECIMAL64_DIGITS


def take_apart(
    entry: RowIndexEntry,
    column: OrcColumn,
    encoding: ColumnEncoding,
    *,
    has_present: bool,
    compressed: bool,
    file_version: tuple[int, int] = (0, 12),
) -> dict[str, tuple[int, ...]]:
    """Return the entry's positions by stream: ``(offset, skip...)``, with compression ``(chunk, bytes, skip...)``.

    Raises :class:`DamagedFileError` if there are more or fewer positions than the column's streams need.
    """
    order = stream_order(column, encoding, has_present=has_present, file_version=file_version)
    counts = [_NUMBERS[content] + compressed for _, content in order]
    positions = entry.positions or (0,) * sum(counts)
    if len(positions) != sum(counts):
        raise DamagedFileError(
            "the number of positions in a row index entry does not fit the column's streams",
            column=column.path,
            expected=f"{sum(counts)} ({', '.join(kind for kind, _ in order)})",
            found=len(positions),
        )
    out: dict[str, tuple[int, ...]] = {}
    at = 0
    for (kind, _), count in zip(order, counts, strict=True):
        out[kind] = positions[at : at + count]
        at += count
    return out


def positions_of(
    index: RowIndex, row_group: int, column: OrcColumn, tail: OrcTail, footer: StripeFooter
) -> dict[str, tuple[int, ...]]:
    """Return the positions of one row group by stream, as :func:`take_apart`. Raises :class:`DamagedFileError`."""
    return positions_in(index.entry(row_group), column, tail, footer)


def positions_in(
    entry: RowIndexEntry, column: OrcColumn, tail: OrcTail, footer: StripeFooter
) -> dict[str, tuple[int, ...]]:
    """Return the positions of an entry by stream, as :func:`take_apart`. Raises :class:`DamagedFileError`."""
    return take_apart(
        entry,
        column,
        footer.encodings[column.id],
        has_present=footer.stream(column.id, "PRESENT") is not None,
        compressed=tail.compression != "NONE",
        file_version=tail.file_version,
    )
