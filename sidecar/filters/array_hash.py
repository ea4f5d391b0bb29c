"""Hashes Arrow arrays for Bloom filters and theta sketches.

A filter takes XXH64 (a historical one: MurmurHash3) of each value's PLAIN bytes in the file's own encoding. A sketch
takes MurmurHash3 x64-128 (seed 9001, first half, shifted right by one) of Iceberg's single-value serialization.
Nulls add nothing to either. Readers may probe for a value with the bytes of an equal one, so by default a filter gets
*twins*: both zeros if it has a zero, and the canonical NaN if it has a NaN.

A column without nulls whose layout is already PLAIN is hashed in place, without a copy. Dictionary arrays are hashed
once for each distinct value that their rows use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sidecar.errors import UsageError
from sidecar.filters import layouts
from sidecar.filters.arrays import Hashes
from sidecar.filters.arrow_types import arrow_type
from sidecar.filters.column_types import ColumnType
from sidecar.filters.encoding import Encoding
from sidecar.filters.plain_bytes_hash import XXH64, PlainHash

THETA_SEED = np.uint64(9001)

_NANS: dict[int, Any] = {4: np.uint32(0x7FC00000), 8: np.uint64(0x7FF8000000000000)}
_FLOATS: dict[str, Any] = {"float": np.float32, "double": np.float64}


def hash_arrow(
    values: layouts.ArrayLike | pa.ChunkedArray[Any],
    encoding: Encoding,
    *,
    twins: bool = True,
    function: PlainHash = XXH64,
) -> Hashes:
    """Return the hashes of the PLAIN bytes of every non-null value, uint64 [<= n + twins], in no promised order.

    ``values`` has the type as which pyarrow reads the file's column; byte arrays may be spans. ``twins=False`` is the
    strict mode: exactly the hashes that parquet-java, Arrow and arrow-rs insert. Raises :class:`UsageError` for an
    encoding in which sidecar builds no filters, and for values that do not fit it.
    """
    if encoding.not_indexable:
        raise UsageError(f"columns of encoding {encoding} get no filter: {encoding.not_indexable}")
    return layouts.joined([_hash_chunk(chunk, encoding, twins, function) for chunk in layouts.chunks(values)])


def theta_hashes(values: layouts.ArrayLike | pa.ChunkedArray[Any], iceberg_type: str) -> Hashes:
    """Return the hashes of the values for a theta sketch: uint64 below 2**63.

    Those of a plain array without nulls and empty values are in its order; other orders are not promised.
    ``iceberg_type`` is the column's type in the snapshot's schema; values of an older, narrower type are
    widened to it first. Empty strings and binaries are skipped, as DataSketches skips them. Raises
    :class:`UsageError` for values that do not fit the column's type.
    """
    return layouts.joined([_theta_chunk(chunk, iceberg_type) for chunk in layouts.chunks(values)])


def hash_plain_fixed(
    data: Any, count: int, encoding: Encoding, *, twins: bool = True, function: PlainHash = XXH64
) -> Hashes:
    """Return the hashes of ``count`` PLAIN values of ``encoding.width`` bytes, in order, then the hashes of twins."""
    width = encoding.width
    assert width is not None
    plain = np.frombuffer(data, np.uint8, count * width)
    if width in _NANS:
        return _hash_words(plain.view(layouts.word_type(width)), encoding, twins, function)
    return function.rows(plain.reshape(count, width))


def hash_plain_spans(
    data: Any, starts: NDArray[np.int64], lengths: NDArray[np.int64], function: PlainHash = XXH64
) -> Hashes:
    """Return the hashes of ``data[starts[i] : starts[i] + lengths[i]]``; the caller checks that these are in bounds."""
    return function.spans(np.frombuffer(data, np.uint8), starts, lengths)


# --- filters ------------------------------------------------------------------------------------------------


def _hash_chunk(chunk: Any, encoding: Encoding, twins: bool, function: PlainHash) -> Hashes:
    if encoding.width is None:
        return hash_plain_spans(*layouts.spans(chunk), function)
    if encoding.scale is not None:
        if encoding.physical == "FIXED_LEN_BYTE_ARRAY":
            return function.rows(layouts.decimal_rows(chunk, encoding.scale, encoding.width))
        return function.words(layouts.decimal_words(chunk, encoding.scale, encoding.width))
    if encoding.physical == "FIXED_LEN_BYTE_ARRAY":
        return function.rows(layouts.rows(chunk, encoding.width))
    words = layouts.words(chunk, _PLAIN_WORDS[encoding.name](chunk.type))
    return _hash_words(words, encoding, twins, function)


def _timestamp(unit: Any) -> Callable[[Any], pa.DataType]:
    """Return a function that gives the timestamp type of ``unit`` with the time zone of an array's type."""
    return lambda given: pa.timestamp(unit, getattr(given, "tz", None))


_PLAIN_WORDS: dict[str, Callable[[Any], pa.DataType]] = {
    "int32": lambda _: pa.int32(),
    "int64": lambda _: pa.int64(),
    "uint32": lambda _: pa.uint32(),
    "uint64": lambda _: pa.uint64(),
    "float": lambda _: pa.float32(),
    "double": lambda _: pa.float64(),
    "int32/date": lambda _: pa.date32(),
    "int32/time-ms": lambda _: pa.time32("ms"),
    "int64/time-us": lambda _: pa.time64("us"),
    "int64/time-ns": lambda _: pa.time64("ns"),
    "int64/timestamp-ms": _timestamp("ms"),
    "int64/timestamp-us": _timestamp("us"),
    "int64/timestamp-ns": _timestamp("ns"),
}
"""Encoding of 4 or 8 bytes -> the Arrow type whose buffer is PLAIN in it, from the type of the array."""


def _hash_words(words: NDArray[Any], encoding: Encoding, twins: bool, function: PlainHash) -> Hashes:
    """Return the hashes of 4- or 8-byte words, with the twins of floating-point ones."""
    if twins and encoding.name in _FLOATS:
        extra = _float_twins(words, _FLOATS[encoding.name])
        if len(extra):
            words = np.concatenate([words, extra])
    return function.words(words)


def _float_twins(words: NDArray[Any], kind: Any) -> NDArray[Any]:
    """Return the words of both zeros if there is a zero, and of the canonical NaN if there is a NaN."""
    numbers = words.view(kind)
    sign = words.dtype.type(1 << (8 * words.dtype.itemsize - 1))
    twins = [words.dtype.type(0), sign] if (numbers == 0).any() else []
    if np.isnan(numbers).any():
        twins.append(_NANS[words.dtype.itemsize])
    return np.array(twins, words.dtype)


# --- sketches -----------------------------------------------------------------------------------------------


def _theta_chunk(chunk: Any, iceberg_type: str) -> Hashes:
    kind = ColumnType.parse(iceberg_type)
    if kind.scale is not None:
        return _theta_spans(*layouts.minimal_decimals(chunk, kind.scale))
    if kind.family == "boolean":
        return _theta_rows(layouts.flags(chunk).reshape(-1, 1))
    if kind.family in ("binary", "uuid") and kind.width is not None:
        return _theta_rows(layouts.rows(chunk, kind.width))
    if kind.family in ("string", "binary"):
        return _theta_spans(*layouts.spans(chunk))
    if kind.width is not None:  # a little-endian word
        return _theta_words(layouts.words(chunk, arrow_type(kind)))
    raise UsageError(f"no theta sketch for a column of type {iceberg_type}")


def _theta_words(words: NDArray[Any]) -> Hashes:
    """Return the hashes of the bits of ``words``, as Spark does: 0.0 and -0.0 count twice, and so do different NaNs."""
    from sidecar.kernels import murmur3

    out = np.empty(len(words), np.uint64)
    (murmur3.hash_fixed4 if words.dtype.itemsize == 4 else murmur3.hash_fixed8)(words, THETA_SEED, out)
    out >>= np.uint64(1)
    return out


def _theta_rows(plain: NDArray[np.uint8]) -> Hashes:
    count, width = plain.shape
    starts = np.arange(count, dtype=np.int64) * width
    return _theta_spans(plain.reshape(-1), starts, np.full(count, width, np.int64))


def _theta_spans(data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
    from sidecar.kernels import murmur3

    if (lengths == 0).any():
        starts, lengths = starts[lengths > 0], lengths[lengths > 0]
    out = np.empty(len(starts), np.uint64)
    murmur3.hash_spans(data, starts, lengths, THETA_SEED, out)
    out >>= np.uint64(1)
    return out
