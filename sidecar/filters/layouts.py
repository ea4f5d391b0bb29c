"""Reads the values of Arrow arrays as numpy arrays: little-endian words, rows of bytes, spans of bytes, decimals.

Nulls are left out. Memory is shared with the Arrow array if its layout allows. Values are cast only within one kind of
type (integers, dates, times, timestamps, float32 to float64), and only if no value changes: a filter that was built
from a changed value denies the value in the file. Every other cast raises :class:`UsageError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sidecar.errors import UsageError


class Spans(NamedTuple):
    """Byte arrays in place: value i is ``data[starts[i] : starts[i] + lengths[i]]``, always inside ``data``."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @property
    def type(self) -> pa.DataType:
        """The type of an Arrow array that has the same values."""
        return pa.large_binary()

    @property
    def null_count(self) -> int:
        """Always 0: spans have no nulls."""
        return 0


ArrayLike: TypeAlias = "pa.Array[Any] | Spans"
"""An Arrow array, or the byte arrays of a decoded page in place."""


if TYPE_CHECKING:
    from typing import TypeAlias

_is = pa.types


def joined(hashes: list[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """Return the hashes of all chunks of an array, uint64; a single chunk's are not copied."""
    return hashes[0] if len(hashes) == 1 else np.concatenate([*hashes, np.empty(0, np.uint64)])


def word_type(width: int) -> type[np.uint32] | type[np.uint64]:
    """Return the unsigned integer type of 4 or 8 bytes."""
    return np.uint32 if width == 4 else np.uint64


def chunks(values: ArrayLike | pa.ChunkedArray[Any]) -> Iterator[Any]:
    """Yield the chunks that have a value that is not null.

    Extension arrays come as their storage, dictionary arrays as the distinct values that their rows use.
    """
    if isinstance(values, Spans):
        if len(values.starts):
            yield values
        return
    for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
        plain = _plain(chunk)
        if plain.null_count < len(plain):
            yield plain


def _plain(chunk: Any) -> Any:
    if isinstance(chunk.type, pa.BaseExtensionType):
        chunk = chunk.storage
    if _is.is_dictionary(chunk.type):
        used = pc.unique(chunk.indices).drop_null()
        chunk = _plain(chunk.dictionary).take(used)
    if _is.is_string_view(chunk.type) or _is.is_binary_view(chunk.type):
        chunk = chunk.cast(pa.large_binary())
    return chunk


def words(chunk: Any, wanted: pa.DataType) -> NDArray[Any]:
    """Return the values as ``wanted``, a type of 4 or 8 bytes, in unsigned words: uint32 or uint64 [n]."""
    chunk = _cast(chunk, wanted).drop_null() if chunk.null_count else _cast(chunk, wanted)
    width = wanted.bit_width // 8
    return np.frombuffer(chunk.buffers()[1], word_type(width), len(chunk), chunk.offset * width)


def _cast(chunk: Any, wanted: pa.DataType) -> Any:
    given = chunk.type
    if given == wanted:
        return chunk
    kinds = (_is.is_integer, _is.is_date, _is.is_time, _is.is_timestamp)
    widened = _is.is_float32(given) and _is.is_float64(wanted)
    if not widened and not any(kind(given) and kind(wanted) for kind in kinds):
        _refuse(given, str(wanted))
    try:
        return chunk.cast(wanted)
    except pa.ArrowInvalid as error:
        raise UsageError(f"values of type {given} do not fit {wanted}: {error}") from None


def _refuse(given: pa.DataType, wanted: str) -> NoReturn:
    raise UsageError(f"values of type {given} are not {wanted}")


def rows(chunk: Any, width: int) -> NDArray[np.uint8]:
    """Return the values of a fixed-size binary array of ``width`` bytes: uint8 [n, width]."""
    if not _is.is_fixed_size_binary(chunk.type) or chunk.type.byte_width != width:
        _refuse(chunk.type, f"binary values of {width} bytes")
    chunk = chunk.drop_null() if chunk.null_count else chunk
    flat = np.frombuffer(chunk.buffers()[1], np.uint8, len(chunk) * width, chunk.offset * width)
    return flat.reshape(len(chunk), width)


def spans(chunk: Any) -> Spans:
    """Return the values of a string or binary array, without a copy and without nulls."""
    if isinstance(chunk, Spans):
        return chunk
    kind = chunk.type
    wide = _is.is_large_string(kind) or _is.is_large_binary(kind)
    if not (wide or _is.is_string(kind) or _is.is_binary(kind)):
        _refuse(kind, "strings or binary values")
    _, offset_buffer, data_buffer = chunk.buffers()
    raw = np.frombuffer(offset_buffer, np.int64 if wide else np.int32)
    offsets = raw[chunk.offset : chunk.offset + len(chunk) + 1]
    starts, lengths = offsets[:-1].astype(np.int64, copy=False), np.diff(offsets).astype(np.int64, copy=False)
    if chunk.null_count:
        valid = np.asarray(chunk.is_valid())
        starts, lengths = starts[valid], lengths[valid]
    data = np.frombuffer(b"" if data_buffer is None else data_buffer, np.uint8)
    return Spans(data, starts, lengths)


def flags(chunk: Any) -> NDArray[np.uint8]:
    """Return the values of a boolean array as bytes 0 and 1: uint8 [n]."""
    if not _is.is_boolean(chunk.type):
        _refuse(chunk.type, "booleans")
    return np.asarray(chunk.drop_null().cast(pa.uint8()))


# --- decimals -----------------------------------------------------------------------------------------------


def decimal_words(chunk: Any, scale: int, width: int) -> NDArray[Any]:
    """Return the unscaled values of a decimal array of ``scale`` in words of 4 or 8 bytes: uint32 or uint64 [n]."""
    parts = unscaled_words(chunk, scale).view(np.int64)
    low = parts[:, 0]
    fits = (parts[:, 1:] == (low >> np.int64(63))[:, None]).all()
    if width == 4:
        fits = fits and (low == low.astype(np.int32)).all()
    if not fits:
        raise UsageError(f"decimals of type {chunk.type} do not fit in {width} bytes")
    return low.astype(word_type(width))


def decimal_rows(chunk: Any, scale: int, width: int) -> NDArray[np.uint8]:
    """Return the unscaled values of a decimal array of ``scale`` as big-endian rows: uint8 [n, width].

    Values are sign-extended to ``width`` bytes.
    """
    rows = _big_endian(unscaled_words(chunk, scale))
    given = rows.shape[1]
    if width >= given:
        padding = np.where(rows[:, :1] >= 0x80, 0xFF, 0).astype(np.uint8).repeat(width - given, axis=1)
        return np.hstack([padding, rows])
    if (_sign_bytes(rows) < given - width).any():
        raise UsageError(f"decimals of type {chunk.type} do not fit in {width} bytes")
    return np.ascontiguousarray(rows[:, given - width :])


def minimal_decimals(chunk: Any, scale: int) -> Spans:
    """Return the unscaled values of a decimal array of ``scale``, big-endian, in the fewest bytes with a sign bit."""
    words = unscaled_words(chunk, scale)
    low = words[:, :1]
    if (words[:, 1:].view(np.int64) == (low.view(np.int64) >> np.int64(63))).all():
        words = low  # most decimals fit in 64 bits, and their rows are quick to go through
    rows = _big_endian(words)
    width = rows.shape[1]
    leading = _sign_bytes(rows)
    starts = np.arange(len(rows), dtype=np.int64) * width + leading
    return Spans(rows.reshape(-1), starts, width - leading)


def unscaled_words(chunk: Any, scale: int) -> NDArray[np.uint64]:
    """Return the unscaled values in two's complement, lowest word first: uint64 [n, 2 or 4]."""
    if not _is.is_decimal(chunk.type) or chunk.type.scale != scale:
        _refuse(chunk.type, f"decimals of scale {scale}")
    if chunk.type.bit_width < 128:
        chunk = chunk.cast(pa.decimal128(chunk.type.precision, scale))
    chunk = chunk.drop_null() if chunk.null_count else chunk
    words = chunk.type.bit_width // 64
    flat = np.frombuffer(chunk.buffers()[1], np.uint64, len(chunk) * words, chunk.offset * words * 8)
    return flat.reshape(len(chunk), words)


def _big_endian(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Return numbers of several words, lowest word first, as big-endian rows: uint8 [n, 8 for each word]."""
    rows: NDArray[np.uint8] = np.ascontiguousarray(words[:, ::-1]).byteswap().view(np.uint8)
    return rows


def _sign_bytes(rows: NDArray[np.uint8]) -> NDArray[np.int64]:
    from sidecar.kernels import decimals

    out = np.empty(len(rows), np.int64)
    decimals.sign_bytes(rows, out)
    return out
