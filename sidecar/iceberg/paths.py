"""Paths that are spelt in several ways and name one file: writers differ, and manifests keep what was written."""

from __future__ import annotations

_SPELLINGS = (("file:///", "file:/", "/"), ("s3://", "s3a://", "s3n://"))
"""Beginnings of paths that mean the same, the longest of a kind first."""


def spellings(path: str) -> tuple[str, ...]:
    """A path as it stands, and with the other spellings of its scheme."""
    for group in _SPELLINGS:
        for prefix in group:
            if path.startswith(prefix):
                return tuple(dict.fromkeys((path, *(other + path[len(prefix) :] for other in group))))
    return (path,)


def normal_path(path: str) -> str:
    """The one spelling that stands for all of a path's."""
    for group in _SPELLINGS:
        for prefix in group:
            if path.startswith(prefix):
                return group[0] + path[len(prefix) :]
    return path


def normal_folder(path: str) -> str:
    """The same of a folder, with one slash at its end."""
    return normal_path(path).rstrip("/") + "/"


def moved_hint(path: str, location: str) -> str | None:
    """That a table at ``location`` seems to have moved without a file, for one that cannot be read."""
    if normal_path(path).startswith(normal_folder(location)):
        return None
    return f"the table lies at {location}: it may have moved without this file"
