"""``traced``: straight-line arithmetic on 64-bit words, written in Python and built into LLVM code directly.

numba would type, lower and compile each small function of a hash, which takes longer than all loops around them. A
traced function is instead called with objects that record each operation, and is so inlined wherever a kernel calls
it. Functions that a traced function calls are plain Python. It has no branches over values; a :class:`Condition`
chooses between two words.

A word may be a vector of :data:`LANES` words. The same functions then hash so many values at once, whose loops
:func:`repeat` makes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

LANES = 8
"""Words in a vector: those of a register of AVX-512."""
HAS_LANES = "+avx512dq" in get_host_cpu_features()  # type: ignore[no-untyped-call]
"""Whether this processor multiplies vectors of words. Without that, vectors take longer than one word at a time."""

_WORD = ir.IntType(64)
_MASK = (1 << 64) - 1
_BIT = ir.IntType(1)
_NUMBER = ir.IntType(32)
_VECTOR = ir.VectorType(_WORD, LANES)
_OF_ZERO_TOO = ir.Constant(_BIT, 0)
"""Asks LLVM for a count of zeros that is defined for 0."""


class Word:
    """An unsigned 64-bit number of the code that is built, or a vector of these. Sums and products wrap around.

    A single word beside a vector counts for all its lanes.
    """

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder = builder
        self.value = value

    def _with(self, operation: str, other: Word | int) -> Word:
        return Word(self.builder, getattr(self.builder, operation)(*_alike(self, other)))

    def filled(self, number: Word | int) -> Word:
        """Return ``number`` in as many lanes as this word has."""
        return Word(self.builder, _value_of(number, self.value.type, self.builder))

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
        return self.filled(other) - self

    def __rrshift__(self, other: int) -> Word:
        return self.filled(other) >> self

    def at_least(self, other: Word | int) -> TruthValue:
        """Return the condition that this word is not less than ``other``."""
        return TruthValue(self.builder, self.builder.icmp_unsigned(">=", *_alike(self, other)))


class TruthValue:
    """A truth value of the code that is built, or one for each lane."""

    def __init__(self, builder: Any, value: Any) -> None:
        self._builder = builder
        self._value = value
        self._kind = _VECTOR if isinstance(value.type, ir.VectorType) else _WORD

    def choose(self, word: Word | int, other: Word | int) -> Word:
        """Return ``word`` if the condition holds, else ``other``."""
        words = (_value_of(one, self._kind, self._builder) for one in (word, other))
        return Word(self._builder, self._builder.select(self._value, *words))

    def in_any_lane(self) -> Any:
        """Return the truth value that it holds in some lane."""
        bits = self._builder.bitcast(self._value, ir.IntType(LANES))
        return self._builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))


class ByteArray:
    """A uint8 array of the code that is built."""

    def __init__(self, builder: Any, array: Any) -> None:
        self._builder = builder
        self._data = array.data
        self.length = Word(builder, array.nitems)

    def word(self, at: Word) -> Word:
        """Return the little-endian word at byte ``at``. The caller keeps its eight bytes in bounds, in all lanes."""
        builder = self._builder
        if at.value.type == _VECTOR:
            return Word(builder, self._gathered(at))
        pointer = builder.bitcast(builder.gep(self._data, [at.value]), _WORD.as_pointer())
        return Word(builder, builder.load(pointer, align=1))

    def _gathered(self, at: Word) -> Any:
        builder = self._builder
        pointers = ir.VectorType(ir.PointerType(), LANES)
        begin = Word(builder, builder.ptrtoint(self._data, _WORD))
        places = builder.inttoptr((begin + at).value, pointers)
        every = ir.Constant(ir.VectorType(_BIT, LANES), [1] * LANES)
        kind = ir.FunctionType(_VECTOR, [pointers, _NUMBER, every.type, _VECTOR])
        gather = _declared(builder, f"llvm.masked.gather.v{LANES}i64.v{LANES}p0", kind)
        return builder.call(gather, [places, ir.Constant(_NUMBER, 1), every, ir.Constant(_VECTOR, ir.Undefined)])


class WordArray:
    """An array of 64-bit words of the code that is built. The caller keeps all lanes in bounds."""

    def __init__(self, builder: Any, array: Any) -> None:
        self._builder = builder
        self._data = array.data

    def lanes(self, at: Word) -> Word:
        """Return the vector of the words from ``at`` on."""
        return Word(self._builder, self._builder.load(self._place(at), align=1))

    def put(self, at: Word, words: Word) -> None:
        """Store a vector from ``at`` on."""
        self._builder.store(words.value, self._place(at), align=1)

    def _place(self, at: Word) -> Any:
        return self._builder.bitcast(self._builder.gep(self._data, [at.value]), _VECTOR.as_pointer())


def repeat(goes_on: Callable[..., TruthValue], step: Callable[..., Sequence[Word]], *state: Word) -> tuple[Word, ...]:
    """Replace the vectors of ``state`` by ``step(*state)`` where ``goes_on(*state)``, as long as it does in some lane.

    Returns the last state. A lane that does not go on keeps its words, but is computed as the others are.
    """
    builder = state[0].builder
    before = builder.block
    test, body, behind = (builder.append_basic_block(name) for name in ("test", "body", "behind"))
    builder.branch(test)
    builder.position_at_end(test)
    present = tuple(Word(builder, builder.phi(_VECTOR)) for _ in state)
    going = goes_on(*present)
    builder.cbranch(going.in_any_lane(), body, behind)
    builder.position_at_end(body)
    following = [going.choose(new, old) for new, old in zip(step(*present), present, strict=True)]
    for word, first, new in zip(present, state, following, strict=True):
        word.value.add_incoming(first.value, before)
        word.value.add_incoming(new.value, builder.block)
    builder.branch(test)
    builder.position_at_end(behind)
    return present


def _alike(word: Word, other: Word | int) -> tuple[Any, Any]:
    """Return the values of two words, both as vectors if one of them is."""
    kinds = [one.value.type for one in (word, other) if isinstance(one, Word)]
    kind = _VECTOR if _VECTOR in kinds else _WORD
    return _value_of(word, kind, word.builder), _value_of(other, kind, word.builder)


def _value_of(word: Word | int, kind: Any, builder: Any) -> Any:
    """Return a word as a value of ``kind``, a word or a vector."""
    if not isinstance(word, Word):
        return ir.Constant(kind, word & _MASK if kind == _WORD else [word & _MASK] * LANES)
    if word.value.type == kind:
        return word.value
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, word.value, ir.Constant(_NUMBER, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_NUMBER, LANES), [0] * LANES))


def _declared(builder: Any, name: str, kind: Any) -> Any:
    """Return LLVM's own function ``name``, declared once in the module of the code."""
    known = builder.module.globals.get(name)
    return ir.Function(builder.module, kind, name) if known is None else known


def least(word: Word, other: Word | int) -> Word:
    """Return the lower of two words."""
    return word.at_least(other).choose(other, word)


def rotl(word: Word, bits: int) -> Word:
    """Return ``word``, rotated to the left by 1 to 63 bits.

    It is LLVM's own rotation: of a product that is shifted both ways, LLVM would make two multiplications.
    """
    builder, kind = word.builder, word.value.type
    name = "llvm.fshl.i64" if kind == _WORD else f"llvm.fshl.v{LANES}i64"
    rotate = _declared(builder, name, ir.FunctionType(kind, [kind] * 3))
    return Word(builder, builder.call(rotate, [word.value, word.value, _value_of(bits, kind, builder)]))


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


def traced_lanes(function: Callable[..., None]) -> Any:
    """Make a function that stores vectors into word arrays an intrinsic, as :func:`traced` does. It returns nothing."""
    return _intrinsic(function, types.void)


def _recorder(context: Any, builder: Any, kind: Any, value: Any) -> Word | ByteArray | WordArray:
    if not isinstance(kind, types.Array):
        return Word(builder, value)
    array = context.make_array(kind)(context, builder, value)
    return ByteArray(builder, array) if kind.dtype == types.uint8 else WordArray(builder, array)


def _intrinsic(function: Callable[..., Any], result: Any) -> Any:
    def typed(typing_context: Any, *arguments: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            given = zip(signature.args, values, strict=True)
            built = function(*(_recorder(context, builder, kind, value) for kind, value in given))
            if built is None:
                return context.get_dummy_value()
            if isinstance(built, Word):
                return built.value
            return context.make_tuple(builder, signature.return_type, [word.value for word in built])

        kinds = [kind if isinstance(kind, types.Array) else types.uint64 for kind in arguments]
        return result(*kinds), codegen

    first = inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [first, *inspect.signature(function).parameters.values()]
    typed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return intrinsic(typed)
