"""Values of a leaf column of an ORC stripe: of one row group, from its positions alone, or of all of them.

| kind | values | Arrow type |
| --- | --- | --- |
| BOOLEAN | DATA: bits, the first of a byte highest, in byte RLE | bool |
| BYTE | DATA: byte RLE | int8 |
| SHORT, INT, LONG, DATE | DATA: integer RLE | int16, int32, int64, date32 |
| FLOAT, DOUBLE | DATA: IEEE 754, little-endian | float32, float64 |
| STRING, CHAR, VARCHAR; BINARY | DATA: bytes; LENGTH: integer RLE; or indexes into a dictionary | string; binary |
| DECIMAL | DATA: zigzag varints; SECONDARY: integer RLE, the scale of each | decimal128 |
| TIMESTAMP, TIMESTAMP_INSTANT | DATA: seconds; SECONDARY: nanoseconds, both integer RLE | timestamp |

PRESENT has a bit for each entry, the other streams only what is present; where a parent is null the column has no
entry at all. Integer RLE is of version 2 in columns encoded as DIRECT_V2 or DICTIONARY_V2, of version 1 in others.
Decimals of up to 18 digits in files of version UNSTABLE-PRE-2.0 are one stream DATA of unscaled numbers, in integer
RLE of version 2 whatever the encoding says.

**Timestamps.** DATA counts from 2015-01-01 00:00, of the writer's time zone, for TIMESTAMP_INSTANT in UTC.
The lower three bits of the nanoseconds are z, the others n: n if z is 0, else n * 10^(z + 1). Writers cut
seconds toward zero: where they are negative and there is a millisecond or more, one second goes off; so instants
between -1 s and 0 come back one second later. pyarrow writes negative nanoseconds instead. A TIMESTAMP is the wall
clock of the writer's zone. As pyarrow reads them they are nanoseconds; where one of them lies outside that range, all
of its row group are microseconds, rounded down. (pyarrow 26 refuses such a column, and takes off that second where the
wall clock is before 1970, not the instant.)
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError, first_line, located
from sidecar.orc.row_index import RowIndex
from sidecar.orc.schema import OrcColumn, decimal_digits
from sidecar.orc.streams import Content, read_streams
from sidecar.orc.stripe import ColumnEncoding, StripeFooter
from sidecar.orc.tail import OrcTail, Stripe
from sidecar.orc.trust import utc_or_name
from sidecar.source import Source

_MOST_PER_BYTE = 1040
"""Values that a byte can stand for: 130 bytes of 8 bits by two bytes are 520, 512 integers by four are 128."""
_EPOCH_2015 = 1_420_070_400
_DECIMAL64_DIGITS = 18
_UNSTABLE = (1, 9999)
_NANOSECONDS_REACH = 9_223_372_035
"""Seconds on both sides of 1970 that fit into 64-bit nanoseconds."""
_MICROSECONDS_REACH = 9_223_372_036_853
_ZONED_REACH = 900_000_000_000

STEP = 1 << 19
"""Entries that are decoded at a time where a caller goes through a column in steps."""

MOST_TOGETHER = 1 << 24
"""Entries of the largest array that is decoded: of a row group, or the elements below a step of lists."""

MOST_BYTES = 1 << 27
"""Bytes of the strings that a dictionary may be unfolded into in one array."""


def read_row_group(
    source: Source,
    tail: OrcTail,
    stripe: Stripe,
    footer: StripeFooter,
    indexes: Mapping[int, RowIndex],
    row_group: int,
    column: OrcColumn,
) -> pa.Array[Any]:
    """The entries of ``column`` in one row group of the stripe, decoded from their positions alone.

    ``indexes`` has the row index of the column and of every column above it but the root, by id. The values of a
    column in a struct, list or map come without those whose parent is null. Raises :class:`DamagedFileError`, and
    :class:`UnsupportedFeatureError` for columns that are compound, encrypted or inside a union, for timestamps
    without a time zone, and for arrays beyond :data:`MOST_TOGETHER` and :data:`MOST_BYTES`.
    """
    chain = _chain(tail, column)
    if missing := [above.path for above in chain if above.id not in indexes]:
        raise UsageError("a row group is read by the row indexes of its column and all above", found=missing)
    groups = stripe.row_groups
    if not 0 <= row_group < len(groups):
        raise UsageError("no such row group", expected=f"0 to {len(groups) - 1}", found=row_group)
    return LeafCursor(source, tail, footer, column, indexes, row_group).take(groups[row_group].rows)


def read_row_groups(
    source: Source, tail: OrcTail, stripe: Stripe, footer: StripeFooter, column: OrcColumn
) -> Iterator[pa.Array[Any]]:
    """The entries of ``column`` in every row group of the stripe, one after the other, as :func:`read_row_group`.

    The streams are read whole; no row index is needed.
    """
    cursor = LeafCursor(source, tail, footer, column)
    for group in stripe.row_groups:
        yield cursor.take(group.rows)


class LeafCursor:
    """Goes through the entries of a leaf column, in order: from the stripe's first row, or from a row group's.

    The column's streams are read whole and stay in memory; entries are decoded as they are asked for.
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
        """``indexes``: as in :func:`read_row_group`, to begin at ``row_group``."""
        chain = _chain(tail, column)
        contents = read_streams(source, tail, footer, {c.id: c for c in chain}, indexes, row_group)
        self._readers = [ColumnDecoder(tail, footer, one, contents[one.id]) for one in chain]

    @property
    def step(self) -> int:
        """Rows that may be taken at a time in little memory."""
        return self._readers[-1].step

    def take(self, rows: int) -> pa.Array[Any]:
        """The entries of the next rows. Raises as :func:`read_row_group`."""
        for above in self._readers[:-1]:
            rows = above.take_parents(rows)
        return self._readers[-1].take(rows)


def _chain(tail: OrcTail, column: OrcColumn) -> list[OrcColumn]:
    """The columns above, from below the root on, and the column itself."""
    chain = [column]
    while chain[0].parent:
        chain.insert(0, tail.columns[chain[0].parent])
    if column.is_compound or column.encrypted or any(above.kind == "UNION" for above in chain):
        raise UnsupportedFeatureError(
            "only leaves are decoded, outside unions, and not encrypted ones",
            file=tail.name,
            column=column.path,
            found=column.kind,
        )
    return chain


@dataclass
class _StreamPosition:
    """A stream and how far it was read: see :class:`sidecar.orc.streams.Content`."""

    data: NDArray[np.uint8]
    at: int
    skip: int
    bits: int
    carried: NDArray[np.uint8]
    """The byte whose last bits were not taken yet, if it was decoded."""


class ColumnDecoder:
    """The entries of one column in the order of its decompressed streams, as many at a time as are asked for."""

    def __init__(
        self, tail: OrcTail, footer: StripeFooter, column: OrcColumn, contents: Mapping[str, Content]
    ) -> None:
        self.tail = tail
        self.column = column
        self.encoding: ColumnEncoding = footer.encodings[column.id]
        self.zone = footer.writer_timezone
        nothing = np.empty(0, np.uint8)
        self.places = {
            stream: _StreamPosition(found.data, found.at, found.skip, found.bits, nothing)
            for stream, found in contents.items()
        }
        self._words: pa.Array[Any] | None = None

    # --- entries ----------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """Entries that may be taken at a time in little memory: fewer where a dictionary has long words."""
        if (
            self.column.kind not in _TEXTS
            or not self.encoding.is_dictionary
            or not self.encoding.dictionary_size
        ):
            return STEP
        with self._located():
            longest = int(_lengths_of(self._dictionary(1)).max(initial=1))
        return max(1, min(STEP, (MOST_BYTES >> 2) // longest))

    def take(self, count: int) -> pa.Array[Any]:
        """The next entries of a leaf."""
        with self._located():
            present = self.present(count)
            filled = count if present is None else int(np.count_nonzero(present))
            values = self._values(filled)
            return values if present is None else spread(values, present)

    def take_parents(self, count: int) -> int:
        """How many entries the child has below the next ``count`` entries of a struct, list or map."""
        with self._located():
            present = self.present(count)
            filled = count if present is None else int(np.count_nonzero(present))
            return filled if self.column.kind == "STRUCT" else int(self._lengths(filled).sum())

    def take_lists(self, count: int) -> tuple[NDArray[np.bool_] | None, NDArray[np.int64]]:
        """Which of the next entries of a list or map are not null, and the length of each of these."""
        with self._located():
            present = self.present(count)
            return present, self._lengths(count if present is None else int(np.count_nonzero(present)))

    def take_tags(self, count: int) -> tuple[NDArray[np.bool_] | None, NDArray[np.uint8]]:
        """Which of the next entries of a union are not null, and the member that each of these is of."""
        with self._located():
            present = self.present(count)
            filled = count if present is None else int(np.count_nonzero(present))
            tags = self._bytes("DATA", filled)
            if filled and int(tags.max()) >= len(self.column.children):
                raise DamagedFileError(
                    "an entry is of a member that the union has not", found=int(tags.max())
                )
            return present, tags

    def present(self, count: int) -> NDArray[np.bool_] | None:
        """Which of the next entries are not null; ``None`` if no entry is null."""
        if count > MOST_TOGETHER:
            raise UnsupportedFeatureError(
                "too many values to be decoded together", expected=f"at most {MOST_TOGETHER}", found=count
            )
        return self._bits("PRESENT", count) if "PRESENT" in self.places else None

    @contextmanager
    def _located(self) -> Iterator[None]:
        """Adds the column to errors that are raised inside, and turns Arrow's errors into ours."""
        with located(self.tail.name, self.column.path):
            try:
                yield
            except (pa.ArrowException, OverflowError) as error:
                raise DamagedFileError(
                    f"values of a column are none of {self.column.kind}: {first_line(error)}"
                ) from None

    def _lengths(self, count: int) -> NDArray[np.int64]:
        lengths = self._integers("LENGTH", count, signed=False)
        if count and (lengths.min() < 0 or lengths.sum(dtype=np.float64) > 2**62):
            raise DamagedFileError("lengths of lists are impossible")
        return lengths

    def _values(self, count: int) -> Any:
        """What is not null."""
        kind = self.column.kind
        if kind in ("TIMESTAMP", "TIMESTAMP_INSTANT"):
            return self._timestamps(count)
        if kind == "BOOLEAN":
            return _any_array(self._bits("DATA", count))
        if kind == "BYTE":
            return _any_array(self._bytes("DATA", count).view(np.int8))
        if kind in _INTEGERS:
            return _any_array(self._integers("DATA", count, signed=True)).cast(_INTEGERS[kind])
        if kind == "DATE":
            return _any_array(self._integers("DATA", count, signed=True)).cast(pa.int32()).cast(pa.date32())
        if kind in _FLOATS:
            return _any_array(self._raw("DATA", count * np.dtype(_FLOATS[kind]).itemsize).view(_FLOATS[kind]))
        if kind == "DECIMAL":
            return self._decimals(count)
        if kind in _TEXTS:
            return self._texts(count)
        raise UnsupportedFeatureError(f"values of kind {kind} are not decoded")

    # --- streams ----------------------------------------------------------------------------------------

    def _place(self, stream: str, count: int) -> _StreamPosition:
        """A stream, if it can still hold ``count`` values at all."""
        found = self.places.get(stream)
        if found is None:
            raise DamagedFileError(f"the column has no stream {stream}", expected=f"{count} values")
        if found.at > len(found.data) or count + found.skip > _MOST_PER_BYTE * (len(found.data) - found.at):
            self._short(stream, count)
        return found

    def _short(self, stream: str, count: int) -> NoReturn:
        raise DamagedFileError(f"the stream {stream} ends early", expected=f"{count} values")

    def _raw(self, stream: str, length: int) -> NDArray[np.uint8]:
        if length == 0:
            return np.empty(0, np.uint8)
        found = self._place(stream, 0)
        if length > len(found.data) - found.at:
            self._short(stream, length)
        found.at += length
        return found.data[found.at - length : found.at]

    def _bytes(self, stream: str, count: int) -> NDArray[np.uint8]:
        from sidecar.kernels import orc_rle

        if count == 0:
            return np.empty(0, np.uint8)
        found = self._place(stream, count)
        out, place = np.empty(count, np.uint8), np.zeros(2, np.int64)
        if orc_rle.bytes_rle(found.data, found.at, found.skip, out, place) < 0:
            self._short(stream, count)
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
        found = self._place(stream, count)
        v2 = v2 or self.encoding.kind.endswith("_V2")
        decode = orc_rle.integers_v2 if v2 else orc_rle.integers_v1
        out, place = np.empty(count, np.int64), np.zeros(2, np.int64)
        if decode(found.data, found.at, found.skip, signed, out, place) < 0:
            self._short(stream, count)
        found.at, found.skip = place.tolist()
        return out

    # --- values -----------------------------------------------------------------------------------------

    def _dictionary(self, count: int) -> pa.Array[Any]:
        """The words of the stripe's dictionary; none where no value is asked for."""
        if self._words is None:
            self._words = self._spans(
                "DICTIONARY_DATA", "LENGTH", self.encoding.dictionary_size if count else 0
            )
        return self._words

    def _texts(self, count: int) -> pa.Array[Any]:
        if not self.encoding.is_dictionary:
            return self._spans("DATA", "LENGTH", count)
        if not count:
            return self._spans("DATA", "LENGTH", 0)
        words = self._dictionary(count)
        indexes = self._integers("DATA", count, signed=False)
        if indexes.min() < 0 or indexes.max() >= len(words):
            raise DamagedFileError("an index lies beyond the dictionary", expected=f"less than {len(words)}")
        size = int(_lengths_of(words)[indexes].sum())
        if size > MOST_BYTES:
            raise UnsupportedFeatureError(
                "too many bytes of strings to be decoded together",
                expected=f"at most {MOST_BYTES}",
                found=size,
            )
        return words.take(_any_array(indexes))

    def _spans(self, data: str, lengths: str, count: int) -> pa.Array[Any]:
        sizes = self._integers(lengths, count, signed=False)
        if count and (sizes.min() < 0 or sizes.sum(dtype=np.float64) >= 2**31):
            raise DamagedFileError("lengths of values are impossible, or beyond 2 GiB together")
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(sizes, out=offsets[1:])
        buffers = [None, _buffer(offsets), _buffer(self._raw(data, int(offsets[-1])))]
        kind = pa.binary() if self.column.kind == "BINARY" else pa.string()
        array = pa.Array.from_buffers(kind, count, buffers)
        array.validate(full=True)
        return array

    def _decimals(self, count: int) -> pa.Array[Any]:
        from sidecar.kernels import orc_rle

        precision, scale = decimal_digits(self.column)
        kind = pa.decimal128(precision, scale)
        out = np.empty((count, 2), np.uint64)
        if self.tail.file_version == _UNSTABLE and precision <= _DECIMAL64_DIGITS:
            out[:, 0] = self._integers("DATA", count, signed=True, v2=True).view(np.uint64)
            out[:, 1] = (out[:, 0].view(np.int64) >> np.int64(63)).view(np.uint64)
        elif count:
            scales = self._integers("SECONDARY", count, signed=True)
            found = self._place("DATA", count)
            end = orc_rle.decimals(found.data, found.at, scales, scale, out)
            if end == -2:
                raise DamagedFileError("a decimal has more than 38 digits")
            if end < 0:
                self._short("DATA", count)
            found.at = end
        array = pa.Array.from_buffers(kind, count, [None, _buffer(out)])
        array.validate(full=True)
        return array

    def _timestamps(self, count: int) -> Any:
        from sidecar.kernels import orc_rle

        nanos = self._integers("SECONDARY", count, signed=False)
        seconds = self._integers("DATA", count, signed=True)
        if count and max(-int(seconds.min()), int(seconds.max())) > _MICROSECONDS_REACH - 2 * _EPOCH_2015:
            raise DamagedFileError("a timestamp lies outside 64-bit microseconds")
        instant = self.column.kind == "TIMESTAMP_INSTANT"
        zone = "UTC" if instant else utc_or_name(self.zone)
        if zone is None:
            raise UnsupportedFeatureError("timestamps of a writer that does not say its time zone")
        if not orc_rle.instants(seconds, nanos, _base(zone)):
            raise DamagedFileError("nanoseconds of a timestamp are a second or more")
        if zone != "UTC":
            seconds = _wall_clock(seconds, zone)
        return _timestamp_array(seconds, nanos, "UTC" if instant else None)


_TEXTS = ("STRING", "CHAR", "VARCHAR", "BINARY")
_INTEGERS: dict[str, pa.DataType] = {"SHORT": pa.int16(), "INT": pa.int32(), "LONG": pa.int64()}
_FLOATS: dict[str, str] = {"FLOAT": "<f4", "DOUBLE": "<f8"}


def _any_array(values: NDArray[Any], mask: NDArray[np.bool_] | None = None) -> Any:
    return pa.array(values, mask=mask)


def _buffer(values: Any) -> Any:
    return pa.py_buffer(values)


def _lengths_of(texts: Any) -> NDArray[np.int64]:
    """The bytes of each text."""
    lengths: NDArray[np.int64] = np.diff(np.frombuffer(texts.buffers()[1], np.int32)).astype(np.int64)
    return lengths


def spread(values: pa.Array[Any], present: NDArray[np.bool_]) -> pa.Array[Any]:
    """The values at the places that are present, null at the others."""
    if present.all():
        return values
    places = np.cumsum(present, dtype=np.int64) - 1
    return values.take(_any_array(places, ~present))


# --- timestamps ---------------------------------------------------------------------------------------------


def _base(zone: str) -> int:
    """2015-01-01 00:00 of the zone in seconds since 1970."""
    if zone == "UTC":
        return _EPOCH_2015
    wall: Any = pa.scalar(datetime.datetime(2015, 1, 1), pa.timestamp("s"))
    try:
        return int(pc.assume_timezone(wall, zone).cast(pa.int64()).as_py())
    except pa.ArrowException as error:
        raise UnsupportedFeatureError(f"unknown time zone: {first_line(error)}", found=zone) from None


def _wall_clock(seconds: NDArray[np.int64], zone: str) -> NDArray[np.int64]:
    if len(seconds) and max(-int(seconds.min()), int(seconds.max())) > _ZONED_REACH:
        raise UnsupportedFeatureError("a timestamp lies too far from today for a time zone", found=zone)
    instants = _any_array(seconds).cast(pa.timestamp("s", zone))
    local: NDArray[np.int64] = pc.local_timestamp(instants).cast(pa.int64()).to_numpy()
    return local


def _timestamp_array(seconds: NDArray[np.int64], nanos: NDArray[np.int64], zone: str | None) -> Any:
    if not len(seconds) or max(-int(seconds.min()), int(seconds.max())) <= _NANOSECONDS_REACH:
        return _any_array(seconds * 10**9 + nanos).view(pa.timestamp("ns", zone))
    return _any_array(seconds * 10**6 + nanos // 1000).view(pa.timestamp("us", zone))
