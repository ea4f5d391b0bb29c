"""``kernel``: a compiled loop with one signature, and a compile cache whose failures cost only a compilation.

A kernel declares the types of its arguments. So it is compiled once, at its first call, whatever kinds of arrays come
later: read-only or writable, at any address. An array that a kernel reads is copied if it has gaps between elements. An
array of another element type raises ``TypeError``. :mod:`sidecar.kernels.warming` compiles all kernels in advance.

Compiled code is kept in the user's cache folder, or beside the source, which is where a checkout has it: an installer
that removes the package would leave it there. If it can write to neither
(a read-only image, a Spark executor without a home), it refuses to decorate. If many workers start
cold on one shared folder, index files may be damaged, or replaced between a worker's read and write.
A failure must only cost a compilation, and code must never be mistaken for other code.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import cache, partial, update_wrapper
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numba import njit, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, NullCache
from numba.core.compiler_lock import global_compiler_lock

from sidecar.run import announce_compiling

F = TypeVar("F", bound=Callable[..., Any])

INTEGER, WORD, FLAG = types.int64, types.uint64, types.boolean
"""Numbers: a Python integer, ``np.uint64``, and a boolean."""

_compile: Any = partial(njit, nogil=True, no_cfunc_wrapper=True)  # nobody calls kernels from C

KERNELS: list[Kernel] = []
"""All kernels of the modules that are loaded."""


def readable(element: Any, dimensions: int = 1) -> Any:
    """Return the type of an array that a kernel only reads: contiguous, at any address."""
    return types.Array(element, dimensions, "C", readonly=True, aligned=False)


def writable(element: Any, dimensions: int = 1) -> Any:
    """Return the type of an array that a kernel also writes: contiguous, at any address."""
    return types.Array(element, dimensions, "C", aligned=False)


_IS_INSTALLED = not {"site-packages", "dist-packages"}.isdisjoint(Path(__file__).parts)


class _Places(CompileResultCacheImpl):
    """numba's places for compiled code; of an installed package, the one beside the source is the last."""

    _locator_classes = sorted(
        CompileResultCacheImpl._locator_classes,
        key=lambda place: _IS_INSTALLED and place.__name__.lstrip("_").startswith("InTree"),
    )


class _FunctionCache(FunctionCache):
    _impl_class = _Places


class _CacheFile(IndexDataCacheFile):
    """An index, and data files that are named after their content.

    numba names data files after their number in the index that it has read. So two workers that compile for different
    types or processors at the same time choose the same name, and one later gets the other's machine code.
    """

    def save(self, key: Any, data: Any) -> None:
        digest = hashlib.sha256(repr((self._version, self._source_stamp, key)).encode()).hexdigest()
        name = self._index_name.removesuffix(".nbi") + f".{digest[:32]}.nbc"
        self._save_data(name, data)  # type: ignore[no-untyped-call]
        self._save_index({**self._load_index(), key: name})  # type: ignore[no-untyped-call]


class _TolerantCache:
    """A numba function cache where a failed load or save means "not cached".

    It catches all exceptions, because damaged bytes make pickle raise nearly any of them.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @classmethod
    def of(cls, inner: Any, function: Any) -> _TolerantCache:
        """Return a tolerant cache in the folder of numba's own cache of ``function``."""
        numbered = inner._cache_file
        inner._cache_file = _CacheFile(  # type: ignore[no-untyped-call]
            cache_path=numbered._cache_path,
            filename_base=numbered._index_name.removesuffix(".nbi"),
            source_stamp=_digest_of(sys.modules[function.__module__].__package__),
        )
        return cls(inner)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            found = self._inner.load_overload(sig, target_context)
        except Exception:
            self._forget()
            found = None
        if found is None:
            announce_compiling()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            self._inner.save_overload(sig, data)
        except Exception:
            return

    def _forget(self) -> None:
        """Empty the index. Otherwise a damaged one would fail every later save too."""
        try:
            self._inner.flush()
        except Exception:
            return

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@cache
def _digest_of(package: str) -> str:
    """Return a digest of all sources of ``package``, which may be in a zip archive, as Spark ships packages.

    numba would stamp code with the digest or time of its own source file. It would miss a change of a helper in another
    file. Raises :class:`FileNotFoundError` if there are no sources: old code would pass for that of any other version.
    """
    sources = {path.name: path.read_bytes() for path in files(package).iterdir() if path.name.endswith(".py")}
    if not sources:
        raise FileNotFoundError(package)
    return hashlib.sha256(repr(sorted(sources.items())).encode()).hexdigest()


class Kernel:
    """A loop over arrays: no Python objects, GIL released, machine code cached. Call it as a function.

    Kernels may call each other.
    """

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.dispatcher: Any = _compile()(function)
        self._arguments = arguments
        self._loaded = False
        self._enable_caching(function)
        update_wrapper(self, function)
        KERNELS.append(self)

    def _enable_caching(self, function: Any) -> None:
        compiled = self.dispatcher
        try:
            cached = _FunctionCache(function)  # type: ignore[no-untyped-call]
            compiled._cache = _TolerantCache.of(cached, function)
        except Exception:  # no folder is writable, or numba's internals have changed
            compiled._cache = _TolerantCache(NullCache())

    @property
    def _numba_type_(self) -> Any:
        """The type of the function in the code of another kernel, which numba asks for to compile that one.

        It must be compiled before: for a kernel without machine code, numba would compile a second one, for the other
        kernel's types, and then find each call of this one ambiguous.
        """
        self.load()
        return self.dispatcher._numba_type_

    @property
    def compilations(self) -> int:
        """How often this process has compiled it: 0 if it came from the cache or was not needed."""
        return int(self.dispatcher.stats.cache_misses.total())

    @property
    def cache_folder(self) -> str | None:
        """The folder of its machine code; ``None`` if no folder is writable."""
        folder: str | None = self.dispatcher.stats.cache_path
        return folder

    def __call__(self, *arguments: Any) -> Any:
        if not self._loaded:
            self.load()
        try:
            return self.dispatcher(*arguments)
        except TypeError:  # an array has gaps between its elements, or another type
            return self.dispatcher(*map(_without_gaps, self._arguments, arguments))

    def load(self) -> None:
        """Load the machine code from the cache, or compile it."""
        with global_compiler_lock:  # numba's own: another thread may compile a kernel that loads this one
            if not self._loaded:
                self.dispatcher.compile(self._arguments)
                self.dispatcher.disable_compile()
                self._loaded = True


def _without_gaps(kind: Any, argument: Any) -> Any:
    """Return a contiguous copy of an array that a kernel only reads; other arguments as they are."""
    copied = isinstance(kind, types.Array) and not kind.mutable and isinstance(argument, np.ndarray)
    return np.ascontiguousarray(argument) if copied else argument


def kernel(*arguments: Any) -> Callable[[F], F]:
    """Make a function with arguments of these types a :class:`Kernel`."""

    def make(function: F) -> F:
        return Kernel(function, arguments)  # type: ignore[return-value]

    return make


def helper(function: F) -> F:
    """Compile a function that only kernels call, as a part of each of them."""
    return _compile(no_cpython_wrapper=True)(function)  # type: ignore[no-any-return]


def inlined(function: F) -> F:
    """Compile a helper that is inlined into kernels, because a call would cost as much as hashing a short value."""
    return _compile(no_cpython_wrapper=True, forceinline=True)(function)  # type: ignore[no-any-return]
