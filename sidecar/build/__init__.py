"""Indexing a snapshot: the stages, the in-process engine and the driver.

``sidecar.build`` is this room and the public function of that name as well: the import system binds the
room as soon as any module of it is imported, so the room itself is callable.
"""

import sys
from types import ModuleType
from typing import Any


class _CallableRoom(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        """See :func:`sidecar.build.driver.build`."""
        from sidecar.build.driver import build

        return build(*args, **options)


sys.modules[__name__].__class__ = _CallableRoom
