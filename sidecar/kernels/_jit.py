"""``kernel``: numba's ``njit`` with a compile cache that may fail without anybody noticing.

numba keeps compiled code beside the source or in the user's cache folder. Where neither can be written
(a read-only image, a Spark executor without a home), it refuses to decorate; where many workers start
cold on one shared folder, an index file may be read half replaced. Neither may cost more than a compile:
decoration falls back to no cache, and so do loading and saving.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit
from numba.core.caching import NullCache

F = TypeVar("F", bound=Callable[..., Any])
_CACHE_FAILURES = (OSError, EOFError, ValueError, KeyError, ImportError, AttributeError, pickle.PickleError)


class _TolerantCache:
    """A numba function cache whose failures to load or save mean "not cached"."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return self._inner.load_overload(sig, target_context)
        except _CACHE_FAILURES:
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            self._inner.save_overload(sig, data)
        except _CACHE_FAILURES:
            return

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def kernel(function: F) -> F:
    """Compile a loop over arrays: no Python objects, the GIL released, the machine code cached."""
    compiled: Any = njit(nogil=True)(function)
    try:
        compiled.enable_caching()
        compiled._cache = _TolerantCache(compiled._cache)
    except (RuntimeError, *_CACHE_FAILURES):
        compiled._cache = NullCache()
    return compiled  # type: ignore[no-any-return]
