"""The versions of pyiceberg and PySpark that work, and the sentence for another one."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import NamedTuple

from sidecar.errors import UsageError


class VersionRange(NamedTuple):
    """The versions of a package that work: the same as in ``pyproject.toml``."""

    package: str
    extras: str
    lowest: tuple[int, int]
    below: tuple[int, int]

    @property
    def specifier(self) -> str:
        """The range as pip takes it."""
        return f">={self.lowest[0]}.{self.lowest[1]},<{self.below[0]}.{self.below[1]}"

    @property
    def requirement(self) -> str:
        """The package and its range as pip takes them."""
        return f"{self.package}[{self.extras}]{self.specifier}"


PYICEBERG = VersionRange("pyiceberg", "pyarrow,sql-sqlite", (0, 12), (0, 13))
PYSPARK = VersionRange("pyspark", "sql", (4, 0), (4, 4))


def unsupported(supported: VersionRange) -> str | None:
    """Return why the installed version of a package does not work, with the command to type; ``None`` if it does.

    It imports the package, which must be installed.
    """
    installed = str(import_module(supported.package).__version__)
    if supported.lowest <= _numbers(installed) < supported.below:
        return None
    return (
        f"{supported.package} {installed} is installed, and sidecar works with {supported.package} "
        f"{supported.specifier}: pip install '{supported.requirement}'"
    )


def _numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version. What follows, such as a suffix, does not matter."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


@cache
def check_pyiceberg() -> None:
    """Raise :class:`UsageError` if the installed pyiceberg does not work. Called before anything loads it."""
    if why := unsupported(PYICEBERG):
        raise UsageError(why)
