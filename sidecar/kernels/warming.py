"""Compiles all kernels before they are needed, for images of machines and containers."""

from __future__ import annotations

import pkgutil
import time
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

from sidecar.errors import UsageError


@dataclass(frozen=True)
class WarmUpReport:
    """What :func:`warm_up` did."""

    kernels: int
    """Kernels of the package."""
    compiled: int
    """Kernels that were compiled; the others were in the cache."""
    seconds: float
    """The seconds that it took."""
    folder: str | None
    """The folder of the cache; ``None`` if no folder is writable, so that the work was in vain."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return asdict(self)


def warm_up() -> WarmUpReport:
    """Compile all kernels and keep their machine code in numba's cache on disk.

    Example: ``sidecar.warm_up()``

    Later processes of the same processor type then compile nothing. The folder is ``NUMBA_CACHE_DIR`` if that is set,
    else the user's cache folder, else ``__pycache__`` beside the kernels, which is first in a checkout. Raises
    :class:`UsageError` if numba compiles nothing, as ``NUMBA_DISABLE_JIT`` says.
    """
    import numba

    import sidecar.kernels

    settings: Any = numba.config
    if settings.DISABLE_JIT:
        raise UsageError("numba compiles nothing", found="NUMBA_DISABLE_JIT", hint="Unset the variable.")
    start = time.perf_counter()
    for module in pkgutil.iter_modules(sidecar.kernels.__path__):
        import_module(f"sidecar.kernels.{module.name}")
    from sidecar.kernels._jit import KERNELS

    earlier = sum(kernel.compilations for kernel in KERNELS)
    for kernel in KERNELS:
        kernel.load()
    compiled = sum(kernel.compilations for kernel in KERNELS) - earlier
    return WarmUpReport(len(KERNELS), compiled, time.perf_counter() - start, KERNELS[0].cache_folder)
