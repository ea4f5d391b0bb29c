"""Hashes Arrow arrays for ORC filters: the building side of :mod:`sidecar.filters.orc.values`.

Nulls add nothing. Readers may probe for a value with the key of an equal one, so by default a filter gets *twins*: both
zeros if it has a zero, the canonical NaN if it has a NaN, and both neighbouring milliseconds of C++ timestamps.
sidecar itself probes for all of them, other readers for only one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sidecar.errors import UsageError
from sidecar.filters import layouts
from sidecar.filters.arrays import Hashes
from sidecar.filters.orc.encoding import OrcEncoding

_UNITS = {"s": 1, "ms": 1, "us": 1_000, "ns": 1_000_000}
"""Unit of an Arrow timestamp -> counts in a millisecond; seconds are converted to milliseconds first."""
_BLOCK = 512
"""Decimals in one step, if some are hashed as text. Their texts stay in the first-level cache."""
_TEXT_WIDTH = 48


def hash_orc(values: pa.Array[Any] | pa.ChunkedArray[Any], encoding: OrcEncoding, *, twins: bool = True) -> Hashes:
    """Return the hashes of the keys of every non-null value, uint64 [<= n + twins], in no promised order.

    ``values`` has the type as which pyarrow reads the column: timestamps of any unit (a TIMESTAMP as its wall clock),
    text as text or binary, decimals of the encoding's scale. ``twins=False`` is the strict mode: exactly the hashes
    that the file's writer inserts. Raises :class:`UsageError` for an encoding in which sidecar builds no filters, and
    for values that do not fit it.
    """
    if encoding.not_indexable:
        raise UsageError(f"columns of encoding {encoding} get no filter: {encoding.not_indexable}")
    return layouts.joined([_FAMILIES[encoding.family](chunk, encoding, twins) for chunk in layouts.chunks(values)])


def _longs(keys: NDArray[Any]) -> Hashes:
    from sidecar.kernels import orc_bloom

    out = np.empty(len(keys), np.uint64)
    orc_bloom.hash_longs(np.ascontiguousarray(keys).view(np.int64), out)
    return out


def _spans(data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
    from sidecar.kernels import orc_bloom

    out = np.empty(len(starts), np.uint64)
    orc_bloom.hash_spans(data, starts, lengths, out)
    return out


def _integers(chunk: Any, encoding: OrcEncoding, twins: bool) -> Hashes:
    if pa.types.is_time(chunk.type):
        return _longs(layouts.words(chunk, pa.time64("us")))
    return _longs(layouts.words(chunk, pa.int64()))


def _dates(chunk: Any, encoding: OrcEncoding, twins: bool) -> Hashes:
    return _longs(layouts.words(chunk, pa.date32()).view(np.int32).astype(np.int64))


def _floats(chunk: Any, encoding: OrcEncoding, twins: bool) -> Hashes:
    if encoding.family == "float" and not pa.types.is_float32(chunk.type):
        raise UsageError(f"values of type {chunk.type} are not float")
    numbers = layouts.words(chunk, pa.float64()).view(np.float64)
    extra = _float_twins(numbers) if twins else ()
    return _longs(np.concatenate([numbers, extra]) if len(extra) else numbers)


def _float_twins(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return both zeros if ``numbers`` has a zero, and the canonical NaN if it has a NaN."""
    zeros = [0.0, -0.0] if (numbers == 0).any() else []
    return np.array(zeros + ([np.nan] if np.isnan(numbers).any() else []))


def _texts(chunk: Any, encoding: OrcEncoding, twins: bool) -> Hashes:
    if pa.types.is_fixed_size_binary(chunk.type):
        chunk = chunk.cast(pa.large_binary())
    return _spans(*layouts.spans(chunk))


def _bounded_texts(chunk: Any, encoding: OrcEncoding, twins: bool) -> Hashes:
    """Hash CHAR and VARCHAR, cut to their length in code points: Java's writers do not count UTF-16 units either."""
    assert encoding.length is not None
    layouts.spans(chunk)  # raises for values that are not text
    try:
        cut = pc.utf8_slice_codeunits(chunk.cast(pa.large_string()), 0, encoding.length)
    except pa.ArrowInvalid as error:
        raise UsageError(f"values of {encoding} are not UTF-8: {error}") from None
    return _spans(*layouts.spans(pc.utf8_rpad(cut, encoding.length) if encoding.family == "char" else cut))


def _decimals(chunk: Any, encoding: OrcEncoding, twins: bool) -> Hashes:
    from sidecar.kernels import decimals, orc_bloom

    assert encoding.scale is not None
    words = layouts.unscaled_words(chunk, encoding.scale)
    if words.shape[1] != 2:
        raise UsageError("ORC has no decimals of more than 128 bits", found=chunk.type)
    out = np.empty(len(words), np.uint64)
    text = np.empty((_BLOCK, _TEXT_WIDTH), np.uint8)
    starts, lengths = np.empty(_BLOCK, np.int64), np.empty(_BLOCK, np.int64)
    orc_bloom.hash_decimals(words, encoding.scale, decimals.FOUR_DIGITS, text, starts, lengths, out)
    return out


def _unscaled(chunk: Any, encoding: OrcEncoding, twins: bool) -> Hashes:
    assert encoding.scale is not None
    return _longs(layouts.decimal_words(chunk, encoding.scale, 8))


def _timestamps(chunk: Any, encoding: OrcEncoding, twins: bool) -> Hashes:
    if not pa.types.is_timestamp(chunk.type):
        raise UsageError(f"values of type {chunk.type} are not timestamps")
    unit: Any = "ms" if chunk.type.unit == "s" else chunk.type.unit
    counts = layouts.words(chunk, pa.timestamp(unit, chunk.type.tz)).view(np.int64)
    floors = np.floor_divide(counts, _UNITS[unit])
    if encoding.writer == "java":
        return _longs(floors)
    odd = (counts < 0) & (floors * _UNITS[unit] != counts)
    ceilings = floors + odd  # rounded toward zero: the floor of positive counts
    return _longs(np.concatenate([ceilings, floors[odd]]) if twins else ceilings)


_FAMILIES: dict[str, Callable[[Any, OrcEncoding, bool], Hashes]] = {
    "long": _integers,
    "date": _dates,
    "float": _floats,
    "double": _floats,
    "bytes": _texts,
    "char": _bounded_texts,
    "varchar": _bounded_texts,
    "decimal": _decimals,
    "decimal64": _unscaled,
    "instant": _timestamps,
    "timestamp": _timestamps,
}
