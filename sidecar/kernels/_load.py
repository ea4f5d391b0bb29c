"""Unaligned little-endian loads for numba: one machine instruction instead of eight byte reads."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def _loader(bits: int, result: Any) -> Any:
    def load(typing_context: Any, array: Any, index: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            pointer = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(bits).as_pointer())
            return builder.load(pointer, align=1)

        return result(array, types.intp), codegen

    return intrinsic(load)


load32 = _loader(32, types.uint32)
"""``load32(bytes, at)``: the uint32 at byte ``at`` of a uint8 array; the caller keeps ``at`` in bounds."""

load64 = _loader(64, types.uint64)
"""``load64(bytes, at)``: the uint64 at byte ``at`` of a uint8 array; the caller keeps ``at`` in bounds."""
