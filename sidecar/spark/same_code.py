"""Refuses work on executors that have another version of sidecar than the driver.

Spark sends functions by the names of their modules, so an executor would run its own version of them on what the
driver's version made. Versions are compared by a digest of the package's sources, because two builds can have the same
number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from sidecar.errors import UsageError
from sidecar.run import package_version

REFUSED = -1
"""The number in the row of a worker that has another version of sidecar. The row has the digest of its package."""


@cache
def code_digest() -> str:
    """Return a digest of the sources of the package that this process has; of its version number without sources."""
    return digest_of(files("sidecar")) or package_version()


def digest_of(package: Any) -> str:
    """Return a digest of the modules below a folder, which may be in an archive; an empty text if it has none.

    Files that no import finds, such as those that editors leave, do not count, and neither do line ends.
    """
    digest, is_empty = hashlib.sha256(), True
    for name, source in sorted(_sources(package, "")):
        digest.update(f"{name}\0{len(source)}\0".encode() + source)
        is_empty = False
    return "" if is_empty else digest.hexdigest()


def _sources(folder: Any, path: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        name = f"{path}/{entry.name}"
        module = entry.name.removesuffix(".py")
        if not module.isidentifier():
            continue
        if module != entry.name and entry.is_file():
            yield name, entry.read_bytes().replace(b"\r\n", b"\n")
        elif module == entry.name != "__pycache__" and entry.is_dir():
            yield from _sources(entry, name)


def other_code(found: str) -> UsageError:
    """Return the error for an executor whose package has the digest ``found``."""
    return UsageError(
        "an executor of Spark has another version of sidecar than the driver",
        expected=code_digest()[:12],
        found=found[:12],
        hint="Install the same version everywhere, or choose the engine 'local'.",
    )
