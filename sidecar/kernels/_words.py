"""``traced``: straight-line arithmetic on 64-bit words, written in Python and built into LLVM code directly.

numba would type, lower and compile each small function of a hash, which takes longer than all loops around them. A
traced function is instead called with objects that record each operation, and is so inlined wherever a kernel calls
it. Functions that a traced function calls are plain Python. It has no loops and no branches over values; a
:class:`Condition` chooses between two words.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_WORD = ir.IntType(64)
_MASK = (1 << 64) - 1
_OF_ZERO_TOO = ir.Constant(ir.IntType(1), 0)
"""Asks LLVM for a count of zeros that is defined for 0."""


class Word:
    """An unsigned 64-bit number of the code that is built. Sums and products wrap around."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder = builder
        self.value = value

    def _with(self, operation: str, other: Word | int) -> Word:
        built = getattr(self.builder, operation)(self.value, _value_of(other))
        return Word(self.builder, built)

    def __add__(self, other: Word | int) -> Word:
        return self._with("add", other)

    def __sub__(self, other: Word | int) -> Word:
        return self._with("sub", other)

    def __mul__(self, other: Word | int) -> Word:
        return self._with("mul", other)

    def __xor__(self, other: Word | int) -> Word:
        return self._with("xor", other)

    def __and__(self, other: Word | int) -> Word:
        return self._with("and_", other)

    def __or__(self, other: Word | int) -> Word:
        return self._with("or_", other)

    def __lshift__(self, bits: Word | int) -> Word:
        return self._with("shl", bits)

    def __rshift__(self, bits: Word | int) -> Word:
        return self._with("lshr", bits)

    def __rsub__(self, other: int) -> Word:
        return Word(self.builder, _value_of(other)) - self

    def __rrshift__(self, other: int) -> Word:
        return Word(self.builder, _value_of(other)) >> self

    def at_least(self, other: Word | int) -> Condition:
        """Return the condition that this word is not less than ``other``."""
        return Condition(self.builder, self.builder.icmp_unsigned(">=", self.value, _value_of(other)))


class Condition:
    """A truth value of the code that is built."""

    def __init__(self, builder: Any, value: Any) -> None:
        self._builder = builder
        self._value = value

    def choose(self, word: Word | int, other: Word | int) -> Word:
        """Return ``word`` if the condition holds, else ``other``."""
        chosen = self._builder.select(self._value, _value_of(word), _value_of(other))
        return Word(self._builder, chosen)


class ByteArray:
    """A uint8 array of the code that is built."""

    def __init__(self, builder: Any, array: Any) -> None:
        self._builder = builder
        self._data = array.data
        self.length = Word(builder, array.nitems)

    def word(self, at: Word) -> Word:
        """Return the little-endian word at byte ``at``. The caller keeps its eight bytes in bounds."""
        builder = self._builder
        pointer = builder.bitcast(builder.gep(self._data, [at.value]), _WORD.as_pointer())
        return Word(builder, builder.load(pointer, align=1))


def _value_of(word: Word | int) -> Any:
    return word.value if isinstance(word, Word) else ir.Constant(_WORD, word & _MASK)


def least(word: Word, other: Word | int) -> Word:
    """Return the lower of two words."""
    return word.at_least(other).choose(other, word)


def rotl(word: Word, bits: int) -> Word:
    """Return ``word``, rotated to the left by 1 to 63 bits.

    It is LLVM's own rotation: of a product that is shifted both ways, LLVM would make two multiplications.
    """
    builder = word.builder
    kind = ir.FunctionType(_WORD, [_WORD] * 3)
    rotate = builder.module.declare_intrinsic("llvm.fshl", [_WORD], kind)
    return Word(builder, builder.call(rotate, [word.value, word.value, ir.Constant(_WORD, bits)]))


def leading_zeros(word: Word) -> Word:
    """Return the number of zero bits above the highest bit that is set; 64 for 0."""
    return Word(word.builder, word.builder.ctlz(word.value, _OF_ZERO_TOO))


def trailing_zeros(word: Word) -> Word:
    """Return the number of zero bits below the lowest bit that is set; 64 for 0."""
    return Word(word.builder, word.builder.cttz(word.value, _OF_ZERO_TOO))


def traced(function: Callable[..., Word]) -> Any:
    """Make a function of words and byte arrays an intrinsic for kernels.

    Kernels may give it integers of any type, which become words, and get a uint64.
    """
    return _intrinsic(function, types.uint64)


def traced_pair(function: Callable[..., tuple[Word, Word]]) -> Any:
    """Make a function that returns two words an intrinsic, as :func:`traced` does. Kernels get a tuple."""
    return _intrinsic(function, types.UniTuple(types.uint64, 2))  # type: ignore[no-untyped-call]


def _intrinsic(function: Callable[..., Any], result: Any) -> Any:
    def typed(typing_context: Any, *arguments: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            recorders = [
                ByteArray(builder, context.make_array(kind)(context, builder, value))
                if isinstance(kind, types.Array)
                else Word(builder, value)
                for kind, value in zip(signature.args, values, strict=True)
            ]
            built = function(*recorders)
            if isinstance(built, Word):
                return built.value
            return context.make_tuple(builder, signature.return_type, [word.value for word in built])

        kinds = [kind if isinstance(kind, types.Array) else types.uint64 for kind in arguments]
        return result(*kinds), codegen

    first = inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [first, *inspect.signature(function).parameters.values()]
    typed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return intrinsic(typed)
