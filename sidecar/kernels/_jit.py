"""``kernel``: numba's ``njit`` with a compile cache whose failures cost only a compilation.

numba keeps compiled code beside the source or in the user's cache folder. If it can write to neither
(a read-only image, a Spark executor without a home), it refuses to decorate. If many workers start
cold on one shared folder, index files may be damaged, or replaced between a worker's read and write.
A failure must only cost a compilation, and code must never be mistaken for other code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit
from numba.core.caching import IndexDataCacheFile

F = TypeVar("F", bound=Callable[..., Any])


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
        numbered = inner._cache_file
        inner._cache_file = _CacheFile(  # type: ignore[no-untyped-call]
            cache_path=numbered._cache_path,
            filename_base=numbered._index_name.removesuffix(".nbi"),
            source_stamp=numbered._source_stamp,
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return self._inner.load_overload(sig, target_context)
        except Exception:
            self._forget()
            return None

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


def kernel(function: F) -> F:
    """Compile a loop over arrays: no Python objects, GIL released, machine code cached."""
    compiled: Any = njit(nogil=True)(function)
    uncached = compiled._cache
    try:
        compiled.enable_caching()
        compiled._cache = _TolerantCache(compiled._cache)
    except Exception:  # no folder is writable, or numba's internals have changed
        compiled._cache = uncached
    return compiled  # type: ignore[no-any-return]


def inlined(function: F) -> F:
    """Compile a function that is inlined into kernels, because a call would cost as much as hashing a short value."""
    compiled: Any = njit(nogil=True, forceinline=True)(function)
    return compiled  # type: ignore[no-any-return]
