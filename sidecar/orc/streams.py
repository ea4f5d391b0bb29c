"""Reads and decompresses the streams of a column from given positions on.

A position is an offset in the stream (with compression, the offset of a chunk and one in its content), and the number
of values to skip there. A run of an encoding may begin before a position and end after the next one. So the read for a
row group goes beyond the position of the next row group by the length of the longest run: 512 values of 64 bits with
all their patches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sidecar.errors import UnsupportedFeatureError, located
from sidecar.orc.compression import CHUNK_HEADER, bound
from sidecar.orc.row_index import RowIndex, positions_of
from sidecar.orc.schema import OrcColumn
from sidecar.orc.stripe import Stream, StripeFooter
from sidecar.orc.tail import OrcTail
from sidecar.storage.ranges import read_ranges
from sidecar.storage.source import Source, costs_no_request

MAX_CONTENT = 1 << 30
"""Bytes of the largest decompressed stream that is decoded."""

MAX_ROWS = 1 << 28
"""Rows of the largest row group that is decoded; a limit, because a few bytes can encode very many equal values."""

_PIECE = 512 << 10
"""Bytes of a stream, as stored, that are read at once from a local file."""
_LONGEST_RUN = 4608


@dataclass(frozen=True)
class Content:
    """The decompressed bytes of a stream, and the position of the first value to decode."""

    data: NDArray[np.uint8]
    at: int
    """The offset in ``data`` at which its run, or the value itself, begins."""
    skip: int
    """The number of values to skip in the run; in a stream of bits, the number of bytes."""
    bits: int
    """The number of bits to skip after that."""
    following: Callable[[NDArray[np.uint8]], NDArray[np.uint8] | None] = lambda rest: None
    """Returns the bytes that it is given and the next bytes of the stream after them; ``None`` at its end."""


@dataclass(frozen=True)
class _StreamWindow:
    """A part of a stream: ``start`` and ``end`` count from the stream's start."""

    stream: Stream
    start: int
    end: int
    rest: tuple[int, ...]


def read_streams(
    source: Source,
    tail: OrcTail,
    footer: StripeFooter,
    columns: Mapping[int, OrcColumn],
    indexes: Mapping[int, RowIndex] | None,
    row_group: int,
) -> dict[int, dict[str, Content]]:
    """Return column id -> stream kind -> content: of the whole stripe, or with ``indexes`` from ``row_group`` on.

    Near streams are fetched in one read, but whole streams of a local file piece by piece, when they are decoded; so
    ``source`` must stay open. Raises :class:`DamagedFileError` for positions that do not fit the column, and for
    streams that cannot be decompressed; :class:`UnsupportedFeatureError` for row groups of more than :data:`MAX_ROWS`
    rows.
    """
    stripe = footer.stripe
    rows = min(stripe.num_rows, stripe.stride or stripe.num_rows)
    if rows > MAX_ROWS:
        raise UnsupportedFeatureError(
            f"a row group of stripe {stripe.ordinal} has too many rows to be decoded",
            file=tail.name,
            expected=f"at most {MAX_ROWS}",
            found=rows,
        )
    windows = {
        (column, window.stream.kind): window
        for column in columns
        for window in _windows(tail, footer, columns[column], indexes, row_group)
    }
    out: dict[int, dict[str, Content]] = {column: {} for column in columns}
    if indexes is None and costs_no_request(source):
        nothing = np.empty(0, np.uint8)
        for (column, kind), window in windows.items():
            pieces = _Pieces(source, tail, window.stream, columns[column])
            first = pieces.following(nothing)
            out[column][kind] = Content(nothing if first is None else first, 0, 0, 0, pieces.following)
        return out
    ranges = [(w.stream.offset + w.start, w.end - w.start) for w in windows.values()]
    for ((column, kind), window), data in zip(windows.items(), read_ranges(source, ranges), strict=True):
        with located(tail.name, columns[column].path, window.stream.offset + window.start):
            out[column][kind] = _content(tail, window, data)
    return out


class _Pieces:
    """The decompressed bytes of a whole stream, in pieces that stay in the cache while they are decoded.

    Fresh memory for a whole stream costs more than the reads that this takes instead.
    """

    def __init__(self, source: Source, tail: OrcTail, stream: Stream, column: OrcColumn) -> None:
        self._source = source
        self._tail = tail
        self._stream = stream
        self._column = column
        self._at = self._total = 0
        self._step = _PIECE

    def following(self, rest: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
        """Return ``rest``, which is not decoded yet, and the next piece after it in one array; ``None`` at the end."""
        tail, stream = self._tail, self._stream
        while self._at < stream.length:
            length = min(self._step, stream.length - self._at)
            offset = stream.offset + self._at
            limit = length  # of data that is stored uncompressed
            with located(tail.name, self._column.path, offset):
                data = self._source.read(offset, length)
                if tail.compression != "NONE":
                    limit = bound(stream.length, MAX_CONTENT) - self._total
                    whole = length if self._at + length == stream.length else _whole_chunks(data)
                    if not whole:
                        self._step *= 2
                        continue
                    data = data[:whole]
                content = tail.content(data, offset, limit, rest.data)
            self._at += len(data)
            self._total += len(content) - len(rest)
            return np.frombuffer(content, np.uint8)
        return None


def _windows(
    tail: OrcTail,
    footer: StripeFooter,
    column: OrcColumn,
    indexes: Mapping[int, RowIndex] | None,
    row_group: int,
) -> list[_StreamWindow]:
    streams = [s for s in footer.streams_of(column.id) if s.kind in DATA_STREAMS]
    if indexes is None:
        return [_StreamWindow(s, 0, s.length, ()) for s in streams]
    with located(tail.name, column.path):
        start = positions_of(indexes[column.id], row_group, column, tail, footer)
        last = row_group + 1 == len(indexes[column.id])
        end = {} if last else positions_of(indexes[column.id], row_group + 1, column, tail, footer)
    out = []
    for stream in streams:
        if stream.kind.startswith("DICTIONARY") or stream.kind not in start:
            out.append(_StreamWindow(stream, 0, stream.length, ()))
            continue
        first, *rest = start[stream.kind]
        first = min(first, stream.length)
        reach = end[stream.kind][0] + _slack(tail) if stream.kind in end else stream.length
        out.append(_StreamWindow(stream, first, max(first, min(reach, stream.length)), tuple(rest)))
    return out


DATA_STREAMS = frozenset({"PRESENT", "DATA", "LENGTH", "DICTIONARY_DATA", "SECONDARY"})


def _slack(tail: OrcTail) -> int:
    """Return the number of bytes after a position within which every run that begins before it ends."""
    if tail.compression == "NONE":
        return _LONGEST_RUN
    return (2 + _LONGEST_RUN // tail.block_size) * (tail.block_size + CHUNK_HEADER)


def _content(tail: OrcTail, window: _StreamWindow, data: bytes) -> Content:
    rest = list(window.rest)
    at = 0
    content: bytes | memoryview = data
    if tail.compression != "NONE":
        if window.end < window.stream.length:
            data = data[: _whole_chunks(data)]
        offset = window.stream.offset + window.start
        limit = bound(len(data), MAX_CONTENT)
        content = tail.content(data, offset, limit)
        at = rest.pop(0) if rest else 0
    skip, bits, *_ = [*rest, 0, 0]
    return Content(np.frombuffer(content, np.uint8), at, skip, bits)


def _whole_chunks(data: bytes) -> int:
    """Return the offset after the last complete chunk of ``data``."""
    at = 0
    while True:
        end = at + CHUNK_HEADER + (int.from_bytes(data[at : at + CHUNK_HEADER], "little") >> 1)
        if at + CHUNK_HEADER > len(data) or end > len(data):
            return at
        at = end
