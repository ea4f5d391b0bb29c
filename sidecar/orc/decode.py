"""Decodes the values of a leaf column of an ORC stripe: of one row group, from its positions, or of all row groups.

| kind | values | Arrow type |
| --- | --- | --- |
| BOOLEAN | DATA: bits, the first of a byte highest, in byte RLE | bool |
| BYTE | DATA: byte RLE | int8 |
| SHORT, INT, LONG, DATE | DATA: integer RLE | int16 (in two's complement), int32, int64, date32 |
| FLOAT, DOUBLE | DATA: IEEE 754, little-endian | float32, float64 |
| STRING, CHAR, VARCHAR; BINARY | DATA: bytes; LENGTH: integer RLE; or indexes into a dictionary | string; binary |
| DECIMAL | DATA: zigzag varints; SECONDARY: integer RLE, the scale of each | decimal128 |
| TIMESTAMP, TIMESTAMP_INSTANT | DATA: seconds; SECONDARY: nanoseconds, both integer RLE | timestamp |

PRESENT has a bit for each entry, the other streams have only entries that are not null. If a parent is null, the
column has no entry. Integer RLE has version 2 in columns encoded as DIRECT_V2 or DICTIONARY_V2, and version 1 in
others. In files of version UNSTABLE-PRE-2.0, decimals of up to 18 digits are one stream DATA of unscaled numbers in
integer RLE of version 2, for every encoding.

**Timestamps.** DATA counts seconds from 2015-01-01 00:00 in the writer's time zone; for TIMESTAMP_INSTANT, in UTC. In
SECONDARY, the lower three bits are z and the others n: the nanoseconds are n if z is 0, else n * 10^(z + 1). Writers
cut seconds toward zero, so a reader subtracts a second from negative ones with a millisecond or more. Instants between
-1 s and 0 s come back one second later. pyarrow writes negative nanoseconds instead. A TIMESTAMP is the wall clock of
the writer's zone (:mod:`sidecar.orc.times`). Values are nanoseconds, as pyarrow reads them; if one of them does not
fit, all values of its row group are microseconds, rounded down. (pyarrow 26 refuses such a column. It also subtracts
the second where the wall clock, not the instant, is before 1970.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError, first_line, located
from sidecar.orc.row_index import RowIndex
from sidecar.orc.schema import OrcColumn, decimal_digits
from sidecar.orc.streams import Content, read_streams
from sidecar.orc.stripe import ColumnEncoding, StripeFooter
from sidecar.orc.tail import DECIMAL64_DIGITS, UNSTABLE_VERSION, OrcTail, Stripe
from sidecar.orc.times import instant_of, wall_clock
from sidecar.orc.trust import utc_or_name
from sidecar.storage.source import Source

_MOST_PER_BYTE = 1040
"""More values than a byte of any stream can encode: two bytes encode up to 130 bytes of 8 bits, so a byte 520."""
_LAST_ASCII = 0x7F
_BASE = datetime(2015, 1, 1)
"""The wall clock from which timestamps are counted."""
_EPOCH_2015 = 1_420_070_400
"""2015-01-01 00:00 UTC in seconds since 1970."""
_NANOSECONDS_REACH = 9_223_372_035
"""Seconds before or after 1970 that fit into 64-bit nanoseconds."""
_MICROSECONDS_REACH = 9_223_372_036_853

STEP = 1 << 19
"""Entries in one step of a reader that goes through a column in steps."""

MOST_TOGETHER = 1 << 24
"""The most entries of an array that is decoded. An array has the entries of a row group, or the elements of the lists
in one step."""

MOST_BYTES = 1 << 27
"""Bytes of the strings of the largest array that is decoded from a dictionary."""


def read_row_group(
    source: Source,
    tail: OrcTail,
    stripe: Stripe,
    footer: StripeFooter,
    indexes: Mapping[int, RowIndex],
    row_group: int,
    column: OrcColumn,
) -> pa.Array[Any]:
    """Return the entries of ``column`` in one row group of the stripe, decoded from the row group's positions.

    ``indexes`` maps the ids of the column and its parents (without the root) to their row indexes. A column in a
    struct, list or map has no entries where its parent is null. Raises :class:`DamagedFileError`, and
    :class:`UnsupportedFeatureError` for columns that are compound, encrypted or inside a union, for timestamps
    without a time zone, and for arrays beyond :data:`MOST_TOGETHER` and :data:`MOST_BYTES`.
    """
    chain = _chain(tail, column)
    if missing := [above.path for above in chain if above.id not in indexes]:
        raise UsageError("row indexes of columns are missing, so the row group cannot be read", found=missing)
    groups = stripe.row_groups
    if not 0 <= row_group < len(groups):
        raise UsageError("the stripe does not have this row group", expected=f"0 to {len(groups) - 1}", found=row_group)
    return LeafCursor(source, tail, footer, column, indexes, row_group).take(groups[row_group].rows)


def read_row_groups(
    source: Source, tail: OrcTail, stripe: Stripe, footer: StripeFooter, column: OrcColumn
) -> Iterator[pa.Array[Any]]:
    """Yield the entries of ``column`` for each row group of the stripe in order. Raises as :func:`read_row_group`.

    The streams are read whole, without a row index.
    """
    cursor = LeafCursor(source, tail, footer, column)
    for group in stripe.row_groups:
        yield cursor.take(group.rows)


class LeafCursor:
    """A reader of a leaf column that goes through its entries, from the first row of the stripe or of a row group.

    :meth:`take` decodes the entries. ``source`` must stay open: streams of a local file are read piece by piece.
    """

    def __init__(
        self,
        source: Source,
        tail: OrcTail,
        footer: StripeFooter,
        column: OrcColumn,
        indexes: Mapping[int, RowIndex] | None = None,
        row_group: int = 0,
    ) -> None:
        """With ``indexes`` (as in :func:`read_row_group`), begin at ``row_group``, else at the first row."""
        chain = _chain(tail, column)
        contents = read_streams(source, tail, footer, {c.id: c for c in chain}, indexes, row_group)
        self._readers = [ColumnDecoder(tail, footer, member, contents[member.id]) for member in chain]

    @property
    def step(self) -> int:
        """The number of rows that :meth:`take` can read in little memory."""
        return self._readers[-1].step

    def take(self, rows: int) -> pa.Array[Any]:
        """Return the entries of the next ``rows`` rows. Raises as :func:`read_row_group`."""
        for above in self._readers[:-1]:
            rows = above.take_parents(rows)
        return self._readers[-1].take(rows)


def has_own_values(tail: OrcTail, column: OrcColumn) -> bool:
    """Return whether a column is one that is decoded here: not compound, encrypted or inside a union."""
    return not (column.is_compound or column.encrypted or any(c.kind == "UNION" for c in _with_parents(tail, column)))


def _with_parents(tail: OrcTail, column: OrcColumn) -> list[OrcColumn]:
    """Return the parents of the column, without the root, from the top, and then the column."""
    chain = [column]
    while chain[0].parent:
        chain.insert(0, tail.columns[chain[0].parent])
    return chain


def _chain(tail: OrcTail, column: OrcColumn) -> list[OrcColumn]:
    """Return what :func:`_with_parents` returns, for columns that are decoded here."""
    if not has_own_values(tail, column):
        raise UnsupportedFeatureError(
            "the column is compound, encrypted or inside a union, so it cannot be decoded",
            file=tail.name,
            column=column.path,
            found=column.kind,
        )
    return _with_parents(tail, column)


@dataclass
class _StreamPosition:
    """A stream and the position of the next value, as in :class:`sidecar.orc.streams.Content`."""

    data: NDArray[np.uint8]
    at: int
    skip: int
    bits: int
    carried: NDArray[np.uint8]
    """The last decoded byte of a bit stream, if some of its bits are not taken yet: uint8 [0 or 1]."""
    following: Callable[[NDArray[np.uint8]], NDArray[np.uint8] | None]

    @property
    def left(self) -> int:
        """Bytes that are in memory from the position on."""
        return len(self.data) - self.at

    def read_on(self, least: int) -> bool:
        """Take at least ``least`` more bytes into memory, fewer if the stream ends. Return False if there are none."""
        first = self.following(self.data[self.at :])
        if first is None:
            return False
        parts, have = [first], len(first)
        while have < self.left + least and (piece := self.following(first[:0])) is not None:
            parts.append(piece)
            have += len(piece)
        self.data, self.at = first if len(parts) == 1 else np.concatenate(parts), 0
        return True


class ColumnDecoder:
    """A decoder of one column that takes the next entries from its decompressed streams."""

    def __init__(self, tail: OrcTail, footer: StripeFooter, column: OrcColumn, contents: Mapping[str, Content]) -> None:
        self.tail = tail
        self.column = column
        self.encoding: ColumnEncoding = footer.encodings[column.id]
        self.zone = footer.writer_timezone
        nothing = np.empty(0, np.uint8)
        self.places = {
            stream: _StreamPosition(found.data, found.at, found.skip, found.bits, nothing, found.following)
            for stream, found in contents.items()
        }
        self._words: pa.Array[Any] | None = None

    # --- entries ----------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The number of entries that :meth:`take` can read in little memory: fewer if a dictionary has long words."""
        if self.column.kind not in _TEXTS or not self.encoding.is_dictionary or not self.encoding.dictionary_size:
            return STEP
        with self._located():
            longest = int(_lengths_of(self._dictionary(1)).max(initial=1))
        return max(1, min(STEP, (MOST_BYTES >> 2) // longest))

    def take(self, count: int) -> pa.Array[Any]:
        """Return the next ``count`` entries of a leaf."""
        with self._located():
            present = self.present(count)
            filled = count if present is None else int(np.count_nonzero(present))
            values = self._values(filled)
            return values if present is None else spread(values, present)

    def take_parents(self, count: int) -> int:
        """Return the number of entries of the child below the next ``count`` entries of a struct, list or map."""
        with self._located():
            present = self.present(count)
            filled = count if present is None else int(np.count_nonzero(present))
            return filled if self.column.kind == "STRUCT" else int(self._lengths(filled).sum())

    def take_lists(self, count: int) -> tuple[NDArray[np.bool_] | None, NDArray[np.int64]]:
        """Return which of the next ``count`` entries of a list or map are not null, and the lengths of those."""
        with self._located():
            present = self.present(count)
            return present, self._lengths(count if present is None else int(np.count_nonzero(present)))

    def take_tags(self, count: int) -> tuple[NDArray[np.bool_] | None, NDArray[np.uint8]]:
        """Return which of the next ``count`` entries of a union are not null, and the member numbers of those."""
        with self._located():
            present = self.present(count)
            filled = count if present is None else int(np.count_nonzero(present))
            tags = self._bytes("DATA", filled)
            if filled and int(tags.max()) >= len(self.column.children):
                raise DamagedFileError(
                    "an entry has a tag that is not a member of the union",
                    expected=f"less than {len(self.column.children)}",
                    found=int(tags.max()),
                )
            return present, tags

    def present(self, count: int) -> NDArray[np.bool_] | None:
        """Return which of the next ``count`` entries are not null, bool [count]; ``None`` if all are."""
        if count > MOST_TOGETHER:
            raise UnsupportedFeatureError(
                "there are too many values to decode together",
                expected=f"at most {MOST_TOGETHER}",
                found=count,
            )
        return self._bits("PRESENT", count) if "PRESENT" in self.places else None

    @contextmanager
    def _located(self) -> Iterator[None]:
        """Add the column to errors from inside the block, and turn Arrow's errors into :class:`DamagedFileError`."""
        with located(self.tail.name, self.column.path):
            try:
                yield
            except (pa.ArrowException, OverflowError) as error:
                raise DamagedFileError(
                    f"values of a column are not valid for its kind {self.column.kind}: {first_line(error)}"
                ) from None

    def _lengths(self, count: int) -> NDArray[np.int64]:
        lengths = self._integers("LENGTH", count, signed=False)
        if count and (lengths.min() < 0 or lengths.sum(dtype=np.float64) > 2**62):
            raise DamagedFileError("the lengths of lists are negative or too large")
        return lengths

    def _values(self, count: int) -> Any:
        """Return the next ``count`` values that are not null."""
        kind = self.column.kind
        if kind in ("TIMESTAMP", "TIMESTAMP_INSTANT"):
            return self._timestamps(count)
        if kind == "BOOLEAN":
            return _any_array(self._bits("DATA", count))
        if kind == "BYTE":
            return _any_array(self._bytes("DATA", count).view(np.int8))
        if kind in _INTEGERS:
            numbers = self._integers("DATA", count, signed=True)
            if kind == "SHORT":  # old Hive stored negative ones as 16 unsigned bits
                numbers = np.where((numbers >= 1 << 15) & (numbers < 1 << 16), numbers - (1 << 16), numbers)
            return _any_array(numbers) if kind == "LONG" else _any_array(numbers).cast(_INTEGERS[kind])
        if kind == "DATE":
            return _any_array(self._integers("DATA", count, signed=True)).cast(pa.int32()).cast(pa.date32())
        if kind in _FLOATS:
            numbers = self._raw("DATA", count * np.dtype(_FLOATS[kind]).itemsize).view(_FLOATS[kind])
            return _any_array(np.require(numbers, requirements="A"))  # Arrow warns of numbers that are not aligned
        if kind == "DECIMAL":
            return self._decimals(count)
        if kind in _TEXTS:
            return self._texts(count)
        raise UnsupportedFeatureError(f"values of kind {kind} cannot be decoded")

    # --- streams ----------------------------------------------------------------------------------------

    def _place(self, stream: str, count: int) -> _StreamPosition:
        """Return the stream. Raises :class:`DamagedFileError` if it is missing or too short for ``count`` values."""
        found = self.places.get(stream)
        if found is None:
            raise DamagedFileError(f"the column has no stream {stream}", expected=f"{count} values")
        while count + found.skip > _MOST_PER_BYTE * found.left:
            if not found.read_on(1):
                self._ends_early(stream, count)
        return found

    def _decode(self, stream: str, count: int, kernel: Callable[[_StreamPosition], int]) -> tuple[_StreamPosition, int]:
        """Return the stream, and what ``kernel`` returns of it: -1 if its bytes end early, then with more of them."""
        found = self._place(stream, count)
        while (end := kernel(found)) == -1:
            if not found.read_on(max(found.left, 1)):
                self._ends_early(stream, count)
        return found, end

    def _ends_early(self, stream: str, count: int) -> NoReturn:
        raise DamagedFileError(f"the stream {stream} ends early", expected=f"{count} values")

    def _raw(self, stream: str, length: int) -> NDArray[np.uint8]:
        if length == 0:
            return np.empty(0, np.uint8)
        found = self._place(stream, 0)
        if length > found.left:
            found.read_on(length - found.left)
        if length > found.left:
            self._ends_early(stream, length)
        found.at += length
        return found.data[found.at - length : found.at]

    def _bytes(self, stream: str, count: int) -> NDArray[np.uint8]:
        from sidecar.kernels import orc_rle

        if count == 0:
            return np.empty(0, np.uint8)
        self._place(stream, count)
        out, place = np.empty(count, np.uint8), np.zeros(2, np.int64)
        found, _ = self._decode(stream, count, lambda it: orc_rle.bytes_rle(it.data, it.at, it.skip, out, place))
        found.at, found.skip = place.tolist()
        return out

    def _bits(self, stream: str, count: int) -> NDArray[np.bool_]:
        if count == 0:
            return np.empty(0, np.bool_)
        found = self.places.get(stream) or self._place(stream, count)
        end = found.bits + count
        packed = np.concatenate([found.carried, self._bytes(stream, (end + 7) // 8 - len(found.carried))])
        taken = np.unpackbits(packed, count=end)[found.bits :].view(np.bool_)
        found.bits = end % 8
        found.carried = packed[-1:].copy() if found.bits else packed[:0]
        return taken

    def _integers(self, stream: str, count: int, *, signed: bool, v2: bool = False) -> NDArray[np.int64]:
        from sidecar.kernels import orc_rle

        if count == 0:
            return np.empty(0, np.int64)
        self._place(stream, count)
        v2 = v2 or self.encoding.kind.endswith("_V2")
        decode = orc_rle.integers_v2 if v2 else orc_rle.integers_v1
        out, place = np.empty(count, np.int64), np.zeros(2, np.int64)
        found, _ = self._decode(stream, count, lambda it: decode(it.data, it.at, it.skip, signed, out, place))
        found.at, found.skip = place.tolist()
        return out

    # --- values -----------------------------------------------------------------------------------------

    def _dictionary(self, count: int) -> pa.Array[Any]:
        """Return the words of the stripe's dictionary; no words if ``count`` is 0."""
        if self._words is None:
            self._words = self._spans("DICTIONARY_DATA", "LENGTH", self.encoding.dictionary_size if count else 0)
        return self._words

    def _texts(self, count: int) -> pa.Array[Any]:
        if not self.encoding.is_dictionary:
            return self._spans("DATA", "LENGTH", count)
        if not count:
            return self._spans("DATA", "LENGTH", 0)
        words = self._dictionary(count)
        indexes = self._integers("DATA", count, signed=False)
        if indexes.min() < 0 or indexes.max() >= len(words):
            raise DamagedFileError("a dictionary index is out of range", expected=f"less than {len(words)}")
        size = int(_lengths_of(words)[indexes].sum())
        if size > MOST_BYTES:
            raise UnsupportedFeatureError(
                "the strings are too large to decode together",
                expected=f"at most {MOST_BYTES} bytes",
                found=size,
            )
        return words.take(_any_array(indexes))

    def _spans(self, data: str, lengths: str, count: int) -> pa.Array[Any]:
        from sidecar.kernels import orc_rle

        sizes = self._integers(lengths, count, signed=False)
        offsets = np.empty(count + 1, np.int32)
        length = orc_rle.offsets(sizes, offsets)
        if length < 0:
            raise DamagedFileError("the lengths of values are negative, or 2 GiB or more together")
        content = self._raw(data, length)
        is_text = self.column.kind != "BINARY"
        kind = pa.string() if is_text else pa.binary()
        array = pa.Array.from_buffers(kind, count, [None, _buffer(offsets), _buffer(content)])
        if is_text and content.max(initial=0) > _LAST_ASCII:
            array.validate(full=True)  # is each text UTF-8? It looks at text after text, which takes far longer
        return array

    def _decimals(self, count: int) -> pa.Array[Any]:
        from sidecar.kernels import orc_rle

        precision, scale = decimal_digits(self.column)
        most = 10**precision - 1
        out = np.empty((count, 2), np.uint64)
        beyond = False
        if count and self.tail.file_version == UNSTABLE_VERSION and precision <= DECIMAL64_DIGITS:
            numbers = self._integers("DATA", count, signed=True, v2=True)
            beyond = max(-int(numbers.min()), int(numbers.max())) > most
            out[:, 0] = numbers.view(np.uint64)
            out[:, 1] = (numbers >> np.int64(63)).view(np.uint64)
        elif count:
            scales = self._integers("SECONDARY", count, signed=True)
            halves = np.uint64(most >> 64), np.uint64(most & (1 << 64) - 1)
            found, end = self._decode(
                "DATA", count, lambda it: orc_rle.decimals(it.data, it.at, scales, scale, *halves, out)
            )
            beyond = end == -2
            found.at = end
        if beyond:
            raise DamagedFileError("a decimal has too many digits", expected=f"at most {precision}")
        return pa.Array.from_buffers(pa.decimal128(precision, scale), count, [None, _buffer(out)])

    def _timestamps(self, count: int) -> Any:
        from sidecar.kernels import orc_rle

        nanos = self._integers("SECONDARY", count, signed=False)
        seconds = self._integers("DATA", count, signed=True)
        if count and max(-int(seconds.min()), int(seconds.max())) > _MICROSECONDS_REACH - 2 * _EPOCH_2015:
            raise UnsupportedFeatureError("a timestamp does not fit into 64-bit microseconds")
        instant = self.column.kind == "TIMESTAMP_INSTANT"
        # Hive 0.11 and Presto name no zone: what is stored is the wall clock
        zone = "UTC" if instant else utc_or_name(self.zone) or "UTC"
        base = _EPOCH_2015 if zone == "UTC" else instant_of(_BASE, zone)
        if not orc_rle.instants(seconds, nanos, base):
            raise DamagedFileError("the nanoseconds of a timestamp are a second or more")
        if zone != "UTC":
            seconds = wall_clock(seconds, zone)
        return _timestamp_array(seconds, nanos, "UTC" if instant else None)


_TEXTS = ("STRING", "CHAR", "VARCHAR", "BINARY")
_INTEGERS: dict[str, pa.DataType] = {"SHORT": pa.int16(), "INT": pa.int32(), "LONG": pa.int64()}
_FLOATS: dict[str, str] = {"FLOAT": "<f4", "DOUBLE": "<f8"}


def _any_array(values: NDArray[Any], mask: NDArray[np.bool_] | None = None) -> Any:
    return pa.array(values, mask=mask)


def _buffer(values: Any) -> Any:
    return pa.py_buffer(values)


def _lengths_of(texts: Any) -> NDArray[np.int64]:
    """Return the length in bytes of each text, int64 [n]."""
    lengths: NDArray[np.int64] = np.diff(np.frombuffer(texts.buffers()[1], np.int32)).astype(np.int64)
    return lengths


def spread(values: pa.Array[Any], present: NDArray[np.bool_]) -> pa.Array[Any]:
    """Return an array that has ``values`` in order where ``present`` (bool [n]) is true, and null elsewhere."""
    if present.all():
        return values
    places = np.cumsum(present, dtype=np.int64) - 1
    return values.take(_any_array(places, ~present))


# --- timestamps ---------------------------------------------------------------------------------------------


def _timestamp_array(seconds: NDArray[np.int64], nanos: NDArray[np.int64], zone: str | None) -> Any:
    if not len(seconds) or max(-int(seconds.min()), int(seconds.max())) <= _NANOSECONDS_REACH:
        return _any_array(seconds * 10**9 + nanos).view(pa.timestamp("ns", zone))
    return _any_array(seconds * 10**6 + nanos // 1000).view(pa.timestamp("us", zone))
