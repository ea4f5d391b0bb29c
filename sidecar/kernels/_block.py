"""Sets and tests the bits of one split block with 8 x 32-bit vector operations of LLVM.

numba does not vectorise straight-line code by default, and scalar code is three times slower here. So the
two operations are written in LLVM's own vector types, which LLVM lowers to AVX2, SSE, NEON or plain words.
In scalar terms, for word j: ``mask[j] = 1 << ((key * SALT[j] mod 2^32) >> 27)``.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)

_WORD = ir.IntType(32)
_BLOCK = ir.VectorType(_WORD, 8)


def _splat(number: int) -> ir.Constant:
    return ir.Constant(_BLOCK, [number] * 8)


def _mask(builder: Any, key: Any) -> Any:
    """Return ``mask[j] = 1 << ((key * SALT[j]) >> 27)`` as a vector."""
    undefined = ir.Constant(_BLOCK, ir.Undefined)
    first = builder.insert_element(undefined, key, ir.Constant(_WORD, 0))
    keys = builder.shuffle_vector(first, undefined, _splat(0))
    products = builder.mul(keys, ir.Constant(_BLOCK, list(SALT)))
    return builder.shl(_splat(1), builder.lshr(products, _splat(27)))


def _pointer(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    data = context.make_array(signature.args[0])(context, builder, args[0]).data
    offset = builder.mul(args[1], ir.Constant(args[1].type, 8))
    return builder.bitcast(builder.gep(data, [offset]), _BLOCK.as_pointer())


def _set_bits(typing_context: Any, blocks: Any, block: Any, key: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature, args)
        words = builder.or_(builder.load(pointer, align=4), _mask(builder, args[2]))
        builder.store(words, pointer, align=4)
        return context.get_dummy_value()

    return types.void(blocks, types.uint64, types.uint32), codegen


def _has_bits(typing_context: Any, blocks: Any, block: Any, key: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        words = builder.load(_pointer(context, builder, signature, args), align=4)
        missing = builder.and_(_mask(builder, args[2]), builder.not_(words))
        whole = builder.bitcast(missing, ir.IntType(256))
        return builder.icmp_unsigned("==", whole, ir.Constant(ir.IntType(256), 0))

    return types.boolean(blocks, types.uint64, types.uint32), codegen


set_bits: Any = intrinsic(_set_bits)
"""``set_bits(blocks, b, key)``: OR the mask of ``key`` (uint32) into block ``b`` (uint64, not checked)."""

has_bits: Any = intrinsic(_has_bits)
"""``has_bits(blocks, b, key)``: whether block ``b`` (uint64, not checked) has every bit of the mask of ``key``."""
