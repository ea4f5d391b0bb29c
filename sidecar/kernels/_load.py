"""Unaligned little-endian loads for numba: one machine instruction instead of eight byte reads."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from sidecar.kernels._words import ByteArray, Word, least


def _loader(bits: int, result: Any) -> Any:
    def load(typing_context: Any, array: Any, index: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            pointer = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(bits).as_pointer())
            return builder.load(pointer, align=1)

        return result(array, types.intp), codegen

    return intrinsic(load)


load32 = _loader(32, types.uint32)
"""``load32(bytes, at)``: the uint32 at byte ``at`` of a uint8 array. The caller keeps ``at`` in bounds."""

load64 = _loader(64, types.uint64)
"""``load64(bytes, at)``: the uint64 at byte ``at`` of a uint8 array. The caller keeps ``at`` in bounds."""


def tail(data: ByteArray, at: Word) -> Word:
    """Return the bytes from ``at`` to the end of ``data``, at most eight, lowest first; higher bytes are undefined.

    ``data`` has at least eight bytes. If ``at`` is its length, the result is undefined.
    """
    from_ = least(at, data.length - 8)
    return data.word(from_) >> (((at - from_) << 3) & 63)


def widened(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return ``data``, padded with zeros to 16 bytes if it is shorter, so that words can be loaded from it."""
    if len(data) >= 16:
        return data
    out = np.zeros(16, np.uint8)
    out[: len(data)] = data
    return out
