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
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError, first_line, located
from sidecar.orc.row_index import RowIndex
from sidecar.orc.schema import OrcColumn
from sidecar.orc.streams import Content, read_streams
from sidecar.orc.stripe import ColumnEncoding, StripeFooter
from sidecar.orc.tail import OrcTail, Stripe
from sidecar.orc.trust import utc_or_name
from sidecar.source import Source

Bounds = NDArray[np.int64]
"""Entries in front of each row group, and at last of all of them: int64 [row groups + 1]."""

_MOST_PER_BYTE = 1040
"""Values that a byte can stand for: 130 bytes of 8 bits by two bytes are 520, 512 integers by four are 128."""
_EPOCH_2015 = 1_420_070_400
_DECIMAL64_DIGITS = 18
_UNSTABLE = (1, 9999)
_NANOSECONDS_REACH = 9_223_372_035
"""Seconds on both sides of 1970 that fit into 64-bit nanoseconds."""
_MICROSECONDS_REACH = 9_223_372_036_853
_ZONED_REACH = 900_000_000_000


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
    :class:`UnsupportedFeatureError` for columns that are compound, encrypted or inside a union, and for timestamps
    without a time zone.
    """
    chain = _chain(tail, column)
    if missing := [above.path for above in chain if above.id not in indexes]:
        raise UsageError("a row group is read by the row indexes of its column and all above", found=missing)
    groups = stripe.row_groups
    if not 0 <= row_group < len(groups):
        raise UsageError("no such row group", expected=f"0 to {len(groups) - 1}", found=row_group)
    bounds = np.array([0, groups[row_group].rows], np.int64)
    return _read(source, tail, footer, chain, indexes, row_group, bounds)[0]


def read_row_groups(
    source: Source, tail: OrcTail, stripe: Stripe, footer: StripeFooter, column: OrcColumn
) -> list[pa.Array[Any]]:
    """The entries of ``column`` in every row group of the stripe, as :func:`read_row_group` has them.

    The streams are read whole; no row index is needed.
    """
    groups = stripe.row_groups
    bounds = np.array([0, *(g.first_row - stripe.first_row + g.rows for g in groups)], np.int64)
    return _read(source, tail, footer, _chain(tail, column), None, 0, bounds)


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


def _read(
    source: Source,
    tail: OrcTail,
    footer: StripeFooter,
    chain: list[OrcColumn],
    indexes: Mapping[int, RowIndex] | None,
    row_group: int,
    bounds: Bounds,
) -> list[pa.Array[Any]]:
    contents = read_streams(source, tail, footer, {c.id: c for c in chain}, indexes, row_group)
    for above in chain[:-1]:
        with located(tail.name, above.path):
            bounds = _Reader(tail, footer, above, contents[above.id]).entries_below(bounds)
    column = chain[-1]
    with located(tail.name, column.path):
        reader = _Reader(tail, footer, column, contents[column.id])
        try:
            return reader.arrays(bounds)
        except (pa.ArrowException, OverflowError) as error:
            raise DamagedFileError(
                f"values of a column are none of {column.kind}: {first_line(error)}"
            ) from None


class _Reader:
    """One column's decompressed streams."""

    def __init__(
        self, tail: OrcTail, footer: StripeFooter, column: OrcColumn, contents: Mapping[str, Content]
    ) -> None:
        self.tail = tail
        self.column = column
        self.encoding: ColumnEncoding = footer.encodings[column.id]
        self.zone = footer.writer_timezone
        self.contents = contents

    # --- entries ----------------------------------------------------------------------------------------

    def entries_below(self, bounds: Bounds) -> Bounds:
        """Where the row groups of a child begin: at the present structs, or behind the elements of the lists."""
        present = self.present(int(bounds[-1]))
        if present is not None:
            bounds = _cumulative(present)[bounds]
        if self.column.kind == "STRUCT":
            return bounds
        lengths = self.integers("LENGTH", int(bounds[-1]), signed=False)
        if len(lengths) and (lengths.min() < 0 or lengths.sum(dtype=np.float64) > 2**62):
            raise DamagedFileError("lengths of lists are impossible")
        return _cumulative(lengths)[bounds]

    def present(self, count: int) -> NDArray[np.bool_] | None:
        """Which entries are not null; ``None`` if all are not."""
        return self.bits("PRESENT", count) if "PRESENT" in self.contents else None

    def arrays(self, bounds: Bounds) -> list[pa.Array[Any]]:
        """The values row group by row group."""
        count = int(bounds[-1])
        present = self.present(count)
        filled = bounds if present is None else _cumulative(present)[bounds]
        values = self.values(filled)
        if present is None:
            return values
        parts = zip(values, bounds[:-1], bounds[1:], strict=True)
        return [_spread(part, present[start:end]) for part, start, end in parts]

    def values(self, bounds: Bounds) -> list[pa.Array[Any]]:
        """What is not null, row group by row group."""
        kind, count = self.column.kind, int(bounds[-1])
        if kind in ("TIMESTAMP", "TIMESTAMP_INSTANT"):
            return self.timestamps(bounds)
        if kind == "BOOLEAN":
            whole: Any = pa.array(self.bits("DATA", count))
        elif kind == "BYTE":
            whole = pa.array(self.byte_run("DATA", count).view(np.int8))
        elif kind in _INTEGERS:
            whole = pa.array(self.integers("DATA", count, signed=True)).cast(_INTEGERS[kind])
        elif kind == "DATE":
            whole = pa.array(self.integers("DATA", count, signed=True)).cast(pa.int32()).cast(pa.date32())
        elif kind in _FLOATS:
            whole = pa.array(self.raw("DATA", count * np.dtype(_FLOATS[kind]).itemsize).view(_FLOATS[kind]))
        elif kind == "DECIMAL":
            whole = self.decimals(count)
        else:
            whole = self.texts(count)
        return [whole[start:end] for start, end in pairwise(bounds.tolist())]

    # --- streams ----------------------------------------------------------------------------------------

    def content(self, stream: str, count: int) -> Content:
        """The stream's content, if it can hold ``count`` values at all."""
        found = self.contents.get(stream)
        if found is None:
            raise DamagedFileError(f"the column has no stream {stream}", expected=f"{count} values")
        if found.at > len(found.data) or count + found.skip > _MOST_PER_BYTE * (len(found.data) - found.at):
            self.short(stream, count)
        return found

    def short(self, stream: str, count: int) -> NoReturn:
        raise DamagedFileError(f"the stream {stream} ends early", expected=f"{count} values")

    def raw(self, stream: str, length: int) -> NDArray[np.uint8]:
        if length == 0:
            return np.empty(0, np.uint8)
        found = self.content(stream, 0)
        if length > len(found.data) - found.at:
            self.short(stream, length)
        return found.data[found.at : found.at + length]

    def byte_run(self, stream: str, count: int) -> NDArray[np.uint8]:
        from sidecar.kernels import orc_rle

        if count == 0:
            return np.empty(0, np.uint8)
        found = self.content(stream, count)
        out = np.empty(count, np.uint8)
        if orc_rle.bytes_rle(found.data, found.at, found.skip, out) < 0:
            self.short(stream, count)
        return out

    def bits(self, stream: str, count: int) -> NDArray[np.bool_]:
        if count == 0:
            return np.empty(0, np.bool_)
        found = self.content(stream, count)
        packed = self.byte_run(stream, (found.bits + count + 7) // 8)
        return np.unpackbits(packed, count=found.bits + count)[found.bits :].view(np.bool_)

    def integers(self, stream: str, count: int, *, signed: bool, v2: bool = False) -> NDArray[np.int64]:
        from sidecar.kernels import orc_rle

        if count == 0:
            return np.empty(0, np.int64)
        found = self.content(stream, count)
        v2 = v2 or self.encoding.kind.endswith("_V2")
        decode = orc_rle.integers_v2 if v2 else orc_rle.integers_v1
        out = np.empty(count, np.int64)
        if decode(found.data, found.at, found.skip, signed, out) < 0:
            self.short(stream, count)
        return out

    # --- values -----------------------------------------------------------------------------------------

    def texts(self, count: int) -> pa.Array[Any]:
        if not self.encoding.is_dictionary:
            return self.spans("DATA", "LENGTH", count)
        words = self.spans("DICTIONARY_DATA", "LENGTH", self.encoding.dictionary_size if count else 0)
        indexes = self.integers("DATA", count, signed=False)
        return words.take(_any_array(indexes))

    def spans(self, data: str, lengths: str, count: int) -> pa.Array[Any]:
        sizes = self.integers(lengths, count, signed=False)
        if count and (sizes.min() < 0 or sizes.sum(dtype=np.float64) >= 2**31):
            raise DamagedFileError("lengths of values are impossible, or beyond 2 GiB together")
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(sizes, out=offsets[1:])
        buffers = [None, _buffer(offsets), _buffer(self.raw(data, int(offsets[-1])))]
        kind = pa.string() if self.column.kind in ("STRING", "CHAR", "VARCHAR") else pa.binary()
        array = pa.Array.from_buffers(kind, count, buffers)
        array.validate(full=True)
        return array

    def decimals(self, count: int) -> pa.Array[Any]:
        from sidecar.kernels import orc_rle

        precision, scale = self.column.precision or 38, self.column.scale or 0
        kind = pa.decimal128(precision, scale)
        out = np.empty((count, 2), np.uint64)
        if self.tail.file_version == _UNSTABLE and precision <= _DECIMAL64_DIGITS:
            out[:, 0] = self.integers("DATA", count, signed=True, v2=True).view(np.uint64)
            out[:, 1] = (out[:, 0].view(np.int64) >> np.int64(63)).view(np.uint64)
        elif count:
            scales = self.integers("SECONDARY", count, signed=True)
            found = self.content("DATA", count)
            end = orc_rle.decimals(found.data, found.at, scales, scale, out)
            if end == -2:
                raise DamagedFileError("a decimal has more than 38 digits")
            if end < 0:
                self.short("DATA", count)
        array = pa.Array.from_buffers(kind, count, [None, _buffer(out)])
        array.validate(full=True)
        return array

    def timestamps(self, bounds: Bounds) -> list[pa.Array[Any]]:
        from sidecar.kernels import orc_rle

        count = int(bounds[-1])
        nanos = self.integers("SECONDARY", count, signed=False)
        seconds = self.integers("DATA", count, signed=True)
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
        parts = pairwise(bounds.tolist())
        return [_timestamp_array(seconds[a:b], nanos[a:b], "UTC" if instant else None) for a, b in parts]


_INTEGERS: dict[str, pa.DataType] = {"SHORT": pa.int16(), "INT": pa.int32(), "LONG": pa.int64()}
_FLOATS: dict[str, str] = {"FLOAT": "<f4", "DOUBLE": "<f8"}


def _any_array(values: NDArray[Any], mask: NDArray[np.bool_] | None = None) -> Any:
    return pa.array(values, mask=mask)


def _buffer(values: Any) -> Any:
    return pa.py_buffer(values)


def _cumulative(counts: NDArray[Any]) -> Bounds:
    out = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=out[1:])
    return out


def _spread(values: pa.Array[Any], present: NDArray[np.bool_]) -> pa.Array[Any]:
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
