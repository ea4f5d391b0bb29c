"""Exchange bits between eight rows of a tile, fill a row, and copy bytes, with vector operations of LLVM.

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
_BLOCK = ir.VectorType(ir.IntType(64), 4)
_NUMBER = ir.IntType(32)


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


def gathered(lanes: int, ahead: int) -> Any:
    """Return an intrinsic ``f(tiles, at, words, source, stride, count)`` that fills a row of the tiles from ``at`` on.

    Lane k gets four words from ``source + k * stride`` on, or zeros unless ``count`` is above 64 k. Word w of all lanes
    is at ``w * lanes``; after eight the next tile follows. The line ``ahead`` words later is fetched.
    """

    def gatherer(typing_context: Any, tiles: Any, at: Any, words: Any, source: Any, stride: Any, count: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            to, origin = (context.make_array(signature.args[k])(context, builder, args[k]).data for k in (0, 2))
            number, blocks = args[3].type, []
            for lane in range(lanes):
                is_there = builder.icmp_signed(">", args[5], number(64 * lane))
                place = builder.add(args[3], builder.mul(args[4], number(lane)))
                block = builder.gep(origin, [builder.select(is_there, place, number(0))])
                _fetch(builder, builder.gep(block, [number(ahead)]), 0)
                loaded = builder.load(builder.bitcast(block, _BLOCK.as_pointer()), align=8)
                blocks.append(builder.select(is_there, loaded, ir.Constant(_BLOCK, [0] * 4)))
            half = lanes // 2
            pairs = [_mixed(builder, blocks[k], blocks[k + half], range(8)) for k in range(half)]
            for number_of_tile in range(lanes // 2):
                row = _words_of(builder, pairs, number_of_tile * 8 // lanes)
                pointer = builder.gep(to, [builder.add(args[1], number(number_of_tile * 512))])
                builder.store(row, builder.bitcast(pointer, row.type.as_pointer()), align=8)
            return context.get_dummy_value()

        return types.void(tiles, types.intp, words, types.intp, types.intp, types.intp), codegen

    return intrinsic(gatherer)


def _fetcher(typing_context: Any, array: Any, at: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        _fetch(builder, builder.gep(data, [args[1]]), 1)
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


fetch_to_write: Any = intrinsic(_fetcher)
"""``fetch_to_write(array, at)``: have the cache load the line of an element that will be written."""


def _words_of(builder: Any, pairs: Any, word: int) -> Any:
    """Return eight words of blocks, from ``word`` on, each of all blocks; pair k has block k and that after half."""
    if len(pairs) == 4:
        order = [word, 8 + word, 4 + word, 12 + word] * 2
        low, high = (_mixed(builder, pairs[k], pairs[k + 1], order) for k in (0, 2))
        return _mixed(builder, low, high, [0, 1, 8, 9, 2, 3, 10, 11])
    if len(pairs) == 2:
        return _mixed(builder, pairs[0], pairs[1], [k + w for w in (word, word + 1) for k in (0, 8, 4, 12)])
    return _mixed(builder, pairs[0], pairs[0], [k + w for w in range(4) for k in (0, 4)])


def _mixed(builder: Any, a: Any, b: Any, order: Any) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_NUMBER, 8), list(order)))


def _fetch(builder: Any, pointer: Any, writes: int) -> None:
    """Have the cache load the line at ``pointer``, to be read or written; it may be outside of all arrays."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _NUMBER, _NUMBER, _NUMBER])
    prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    builder.call(prefetch, [builder.bitcast(pointer, byte), _NUMBER(writes), _NUMBER(3), _NUMBER(1)])


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
