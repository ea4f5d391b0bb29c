"""Arrow arrays to hashes, column by column: what a filter is built from and what a theta sketch is fed.

A filter takes XXH64 (seed 0) of each value's PLAIN bytes in the file's own encoding; a sketch takes
MurmurHash3 x64-128 (seed 9001, first half, shifted right by one) of Iceberg's single-value serialization.
Nulls add nothing to either. Equal values must never hash apart, so by default a filter that sees a zero
gets both zeros, and one that sees a NaN gets the canonical NaN too (*twins*).

Arrays are hashed where they lie: no copy is made of a column without nulls whose layout is PLAIN already.
Dictionary arrays are hashed once for each distinct value that they use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sidecar.errors import UsageError
from sidecar.filters.encoding import Encoding

Hashes = NDArray[np.uint64]
THETA_SEED = np.uint64(9001)

_INT_OF_WIDTH = {4: pa.int32(), 8: pa.int64()}
_NANS: dict[int, Any] = {4: np.uint32(0x7FC00000), 8: np.uint64(0x7FF8000000000000)}


def hash_arrow(values: pa.Array | pa.ChunkedArray, encoding: Encoding, *, twins: bool = True) -> Hashes:
    """XXH64 of the PLAIN bytes of every non-null value, uint64 [<= n + twins], in no promised order.

    ``values`` has the type by which pyarrow reads the file's column. ``twins=False`` is the strict mode, bit
    for bit what parquet-java, Arrow and arrow-rs insert. :class:`UsageError` for an encoding that sidecar does
    not index, or an array that cannot be in it.
    """
    if encoding.not_indexable:
        raise UsageError(f"no filter for {encoding}: {encoding.not_indexable}")
    parts = [_hash_chunk(chunk, encoding, twins) for chunk in _chunks(values)]
    return parts[0] if len(parts) == 1 else np.concatenate([*parts, np.empty(0, np.uint64)])


def theta_hashes(values: pa.Array | pa.ChunkedArray, iceberg_type: str) -> Hashes:
    """The hashes by which a theta sketch knows the values, uint64 below 2**63, in no promised order.

    ``iceberg_type`` is the column's type in the snapshot's schema; values of an older, narrower type are
    cast to it first. Empty strings and binaries are skipped, as DataSketches skips them.
    """
    parts = [_theta_chunk(chunk, iceberg_type) for chunk in _chunks(values)]
    return parts[0] if len(parts) == 1 else np.concatenate([*parts, np.empty(0, np.uint64)])


def hash_plain_fixed(data: Any, count: int, encoding: Encoding, *, twins: bool = True) -> Hashes:
    """XXH64 of ``count`` PLAIN values of ``encoding.width`` bytes each, as a dictionary page holds them."""
    width = encoding.width
    assert width is not None
    plain = np.frombuffer(data, np.uint8, count * width)
    if width in _NANS:
        return _hash_words(plain.view(_word(width)), encoding, twins)
    return _hash_rows(plain, width)


def hash_plain_spans(data: Any, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
    """XXH64 of ``data[starts[i] : starts[i] + lengths[i]]``; the caller keeps the spans inside ``data``."""
    from sidecar.kernels import xxh64

    out = np.empty(len(starts), np.uint64)
    xxh64.hash_spans(np.frombuffer(data, np.uint8), starts, lengths, out)
    return out


def _chunks(values: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    """Plain chunks: extensions by their storage, dictionaries by the distinct values they use."""
    for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
        if isinstance(chunk.type, pa.BaseExtensionType):
            chunk = chunk.storage
        if pa.types.is_dictionary(chunk.type):
            used = pc.unique(chunk.indices).drop_null()
            chunk = chunk.dictionary.take(used)
        yield chunk


# --- filters ------------------------------------------------------------------------------------------------


def _hash_chunk(chunk: pa.Array, encoding: Encoding, twins: bool) -> Hashes:
    if chunk.null_count == len(chunk):
        return np.empty(0, np.uint64)
    if encoding.is_decimal:
        return _hash_decimals(chunk, encoding)
    if encoding.physical == "BYTE_ARRAY":
        return hash_plain_spans(*_spans(chunk))
    if encoding.physical == "FIXED_LEN_BYTE_ARRAY":
        return _hash_rows(_fixed_bytes(chunk, encoding), encoding.width)
    return _hash_words(_words(chunk, encoding), encoding, twins)


def _hash_words(words: NDArray[Any], encoding: Encoding, twins: bool) -> Hashes:
    """Hashes of 4- or 8-byte words, with the twins of floating-point ones."""
    if twins and encoding.name in ("float", "double"):
        extra = _float_twins(words)
        if len(extra):
            words = np.concatenate([words, extra])
    from sidecar.kernels import xxh64

    out = np.empty(len(words), np.uint64)
    (xxh64.hash_fixed4 if words.dtype.itemsize == 4 else xxh64.hash_fixed8)(words, out)
    return out


def _float_twins(words: NDArray[Any]) -> NDArray[Any]:
    """Both zeros if any zero is there, the canonical NaN if any NaN is."""
    numbers = words.view(np.float32 if words.dtype.itemsize == 4 else np.float64)
    sign = words.dtype.type(1 << (8 * words.dtype.itemsize - 1))
    twins = [words.dtype.type(0), sign] if (numbers == 0).any() else []
    if np.isnan(numbers).any():
        twins.append(_NANS[words.dtype.itemsize])
    return np.array(twins, words.dtype)


def _hash_rows(plain: NDArray[np.uint8], width: int | None) -> Hashes:
    from sidecar.kernels import xxh64

    assert width
    out = np.empty(len(plain) // width, np.uint64)
    xxh64.hash_fixed(plain, width, out)
    return out


def _hash_decimals(chunk: pa.Array, encoding: Encoding) -> Hashes:
    """Unscaled values in the file's width: little-endian in integers, big-endian and sign-extended in FLBA."""
    width = encoding.width
    assert width is not None
    rows = _decimal_rows(chunk, encoding.scale)
    if encoding.physical != "FIXED_LEN_BYTE_ARRAY":
        return _hash_words(
            np.ascontiguousarray(rows[:, :width]).view(_word(width)).reshape(-1), encoding, False
        )
    plain = np.empty((len(rows), width), np.uint8)
    kept = min(width, rows.shape[1])
    plain[:, width - kept :] = rows[:, :kept][:, ::-1]
    plain[:, : width - kept] = np.where(rows[:, -1:] >= 0x80, 0xFF, 0)
    return _hash_rows(plain.reshape(-1), width)


# --- sketches -----------------------------------------------------------------------------------------------


def _theta_chunk(chunk: pa.Array, iceberg_type: str) -> Hashes:
    if chunk.null_count == len(chunk):
        return np.empty(0, np.uint64)
    base = iceberg_type.partition("(")[0].partition("[")[0].strip()
    if base == "decimal":
        return _theta_spans(*_minimal_decimals(chunk, iceberg_type))
    if base in ("string", "binary", "fixed", "uuid", "boolean"):
        return _theta_spans(*_theta_bytes(chunk, base))
    if base not in _THETA_WORDS:
        raise UsageError(f"no theta sketch for a column of type {iceberg_type}")
    from sidecar.kernels import murmur3

    # Only times of a finer unit lose anything here, and a sketch of microseconds wants just that.
    words = _values(chunk.cast(_THETA_WORDS[base], safe=not base.startswith("time")))
    if base in ("float", "double"):
        words = words.copy()
        words[np.isnan(words.view(np.float32 if base == "float" else np.float64))] = _NANS[
            words.dtype.itemsize
        ]
    out = np.empty(len(words), np.uint64)
    (murmur3.hash_fixed4 if words.dtype.itemsize == 4 else murmur3.hash_fixed8)(words, THETA_SEED, out)
    return out >> np.uint64(1)


_THETA_WORDS = {
    "int": pa.int32(),
    "date": pa.date32(),
    "float": pa.float32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
}
"""Iceberg types whose single-value serialization is a little-endian word, as Arrow types."""


def _theta_bytes(chunk: pa.Array, base: str) -> tuple[Any, NDArray[np.int64], NDArray[np.int64]]:
    if base == "boolean":
        flags = np.asarray(chunk.drop_null().cast(pa.uint8()))
        return flags, np.arange(len(flags), dtype=np.int64), np.ones(len(flags), np.int64)
    return _spans(chunk)


def _theta_spans(data: Any, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
    from sidecar.kernels import murmur3

    if (lengths == 0).any():
        starts, lengths = starts[lengths > 0], lengths[lengths > 0]
    out = np.empty(len(starts), np.uint64)
    murmur3.hash_spans(np.frombuffer(data, np.uint8), starts, lengths, THETA_SEED, out)
    return out >> np.uint64(1)


def _minimal_decimals(
    chunk: pa.Array, iceberg_type: str
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Big-endian two's complement of the unscaled values, each in as few bytes as hold it and its sign."""
    from sidecar.filters.values import decimal_scale

    rows = np.ascontiguousarray(_decimal_rows(chunk, decimal_scale(iceberg_type))[:, ::-1])
    width = rows.shape[1]
    negative = rows[:, :1] >= 0x80
    # A leading byte is redundant if it repeats the sign and the byte after it has the sign bit right.
    redundant = (rows[:, :-1] == np.where(negative, 0xFF, 0)) & ((rows[:, 1:] >= 0x80) == negative)
    leading = np.logical_and.accumulate(redundant, axis=1).sum(axis=1)
    starts = np.arange(len(rows), dtype=np.int64) * width + leading
    return rows.reshape(-1), starts, (width - leading).astype(np.int64)


# --- Arrow layouts ------------------------------------------------------------------------------------------


def _word(width: int) -> Any:
    return np.uint32 if width == 4 else np.uint64


def _words(chunk: pa.Array, encoding: Encoding) -> NDArray[Any]:
    """The values as little-endian words of the encoding's width."""
    width = encoding.width
    assert width in _NANS
    wanted = _arrow_type(chunk.type, encoding, width)
    try:
        return _values(chunk if chunk.type == wanted else chunk.cast(wanted))
    except pa.ArrowInvalid as error:
        raise UsageError(f"values of type {chunk.type} do not fit {encoding}: {error}") from None


def _arrow_type(given: pa.DataType, encoding: Encoding, width: int) -> pa.DataType:
    """The Arrow type whose buffer is PLAIN in this encoding; a unit of time must be the file's own."""
    base, _, logical = encoding.name.partition("/")
    if base in ("float", "double"):
        return pa.float32() if base == "float" else pa.float64()
    if logical.startswith("timestamp-"):
        return pa.timestamp(logical[-2:], getattr(given, "tz", None))
    if logical.startswith("time-"):
        return pa.time32("ms") if width == 4 else pa.time64(logical[-2:])
    if logical == "date":
        return pa.date32()
    if base.startswith("u"):
        return pa.uint32() if width == 4 else pa.uint64()
    return _INT_OF_WIDTH[width]


def _values(chunk: pa.Array) -> NDArray[Any]:
    """The non-null values of a fixed-width array as unsigned words, without a copy where there are no nulls."""
    if chunk.null_count:
        chunk = chunk.drop_null()
    width = chunk.type.bit_width // 8
    buffer = chunk.buffers()[1]
    if buffer is None or not len(chunk):
        return np.empty(0, _word(width))
    return np.frombuffer(buffer, _word(width), len(chunk), chunk.offset * width)


def _fixed_bytes(chunk: pa.Array, encoding: Encoding) -> NDArray[np.uint8]:
    width = encoding.width
    if not pa.types.is_fixed_size_binary(chunk.type) or chunk.type.byte_width != width:
        raise UsageError(f"values of type {chunk.type} do not fit {encoding}")
    chunk = chunk.drop_null()
    return np.frombuffer(chunk.buffers()[1], np.uint8, len(chunk) * width, chunk.offset * width)


def _spans(chunk: pa.Array) -> tuple[Any, NDArray[np.int64], NDArray[np.int64]]:
    """The bytes of a string or binary array, and where its non-null values start and how long they are."""
    kind = chunk.type
    if pa.types.is_fixed_size_binary(kind):
        chunk = chunk.drop_null()
        starts = (np.arange(len(chunk), dtype=np.int64) + chunk.offset) * kind.byte_width
        return chunk.buffers()[1], starts, np.full(len(chunk), kind.byte_width, np.int64)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        chunk = chunk.cast(pa.large_binary())
    elif kind not in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        raise UsageError(f"values of type {kind} are no strings or binaries")
    wide = pa.types.is_large_string(chunk.type) or pa.types.is_large_binary(chunk.type)
    _, offset_buffer, data = chunk.buffers()
    raw = np.frombuffer(offset_buffer, np.int64 if wide else np.int32)
    offsets = raw[chunk.offset : chunk.offset + len(chunk) + 1].astype(np.int64, copy=False)
    starts, lengths = offsets[:-1], np.diff(offsets)
    if chunk.null_count:
        valid = np.asarray(chunk.is_valid())
        starts, lengths = starts[valid], lengths[valid]
    return (b"" if data is None else data), np.ascontiguousarray(starts), lengths


def _decimal_rows(chunk: pa.Array, scale: int | None) -> NDArray[np.uint8]:
    """Unscaled values of a decimal array at ``scale`` as little-endian bytes, uint8 [n, 16 or 32]."""
    if not pa.types.is_decimal(chunk.type):
        raise UsageError(f"values of type {chunk.type} are no decimals")
    if chunk.type.scale != scale:
        raise UsageError(f"decimals of scale {chunk.type.scale} in a column of scale {scale}")
    if chunk.type.bit_width < 128:
        chunk = chunk.cast(pa.decimal128(chunk.type.precision, scale))
    chunk = chunk.drop_null()
    width = chunk.type.bit_width // 8
    flat = np.frombuffer(chunk.buffers()[1], np.uint8, len(chunk) * width, chunk.offset * width)
    return flat.reshape(len(chunk), width)
