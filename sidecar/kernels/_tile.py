"""Exchange bits between eight rows of a tile with vector operations of LLVM, and copy bytes between arrays.

numba would have to type and compile 200 lines of straight-line code, which takes a second, and hope that LLVM
makes vectors of it. The recursive transposition is that of Hacker's Delight, 7-3.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8 if binding.get_host_cpu_features().get("avx512f") else 4
"""Words that are exchanged at once: eight vectors of this many are in registers, those of AVX-512 or of AVX2."""

_VECTOR = ir.VectorType(ir.IntType(64), LANES)


def _splat(number: int) -> ir.Constant:
    return ir.Constant(_VECTOR, [number] * LANES)


def _swap(builder: Any, low: Any, high: Any, shift: int) -> tuple[Any, Any]:
    """Exchange the upper bits of ``low`` with the lower bits of ``high``, in each group of 2 * ``shift`` bits."""
    mask = ((1 << 64) - 1) // ((1 << shift) + 1)
    moved = builder.and_(builder.xor(builder.lshr(low, _splat(shift)), high), _splat(mask))
    return builder.xor(low, builder.shl(moved, _splat(shift))), builder.xor(high, moved)


def exchange(stride: int, shift: int) -> Any:
    """Return an intrinsic ``f(tile, at)`` that does three steps of a transposition for eight rows of a tile.

    Row k is the :data:`LANES` words of ``tile`` (uint64[n]) from ``at + k * stride``. Rows that are 4, 2 and 1 apart
    exchange groups of ``shift``, ``shift / 2`` and ``shift / 4`` bits. The caller keeps all words in bounds.
    """

    def exchanger(typing_context: Any, tile: Any, at: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            offsets = [builder.add(args[1], ir.Constant(args[1].type, k * stride)) for k in range(8)]
            pointers = [builder.bitcast(builder.gep(data, [o]), _VECTOR.as_pointer()) for o in offsets]
            rows = [builder.load(pointer, align=8) for pointer in pointers]
            for distance in (4, 2, 1):
                for k in (k for k in range(8) if not k & distance):
                    pair = rows[k], rows[k + distance]
                    rows[k], rows[k + distance] = _swap(builder, *pair, shift * distance // 4)
            for row, pointer in zip(rows, pointers, strict=True):
                builder.store(row, pointer, align=8)
            return context.get_dummy_value()

        return types.void(tile, types.intp), codegen

    return intrinsic(exchanger)


def _memcpy(typing_context: Any, to: Any, to_at: Any, source: Any, source_at: Any, length: Any) -> Any:
    """Emit ``memcpy`` of ``length`` bytes between two arrays at byte offsets, which numba does not offer.

    A byte loop costs ten times as much here, because LLVM does not know that the arrays do not overlap.
    """
    raw_copy: Any = cgutils.raw_memcpy
    signature = types.void(to, types.intp, source, types.intp, types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte_pointer = ir.IntType(8).as_pointer()

        def at(index: int) -> Any:
            array = context.make_array(signature.args[index])(context, builder, arguments[index])
            return builder.gep(builder.bitcast(array.data, byte_pointer), [arguments[index + 1]])

        raw_copy(builder, at(0), at(2), arguments[4], 1)
        return context.get_dummy_value()

    return signature, generate


copy: Any = intrinsic(_memcpy)
"""``copy(to, to_at, source, source_at, length)``: copy bytes between arrays at byte offsets, which are not checked."""
