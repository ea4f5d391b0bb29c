"""Compares paths that are spelled in several ways: writers differ, and manifests keep the spelling of the writer."""

from __future__ import annotations

_SPELLINGS = (("file:///", "file:/", "/"), ("s3://", "s3a://", "s3n://"))
"""Groups of prefixes that mean the same; in a group longer ones come first."""


def spellings(path: str) -> tuple[str, ...]:
    """Return a path as it is and with the other spellings of its scheme."""
    for group in _SPELLINGS:
        for prefix in group:
            if path.startswith(prefix):
                return tuple(dict.fromkeys((path, *(other + path[len(prefix) :] for other in group))))
    return (path,)


def normal_path(path: str) -> str:
    """Return the normal spelling of a path; all spellings of a path have the same."""
    for group in _SPELLINGS:
        for prefix in group:
            if path.startswith(prefix):
                return group[0] + path[len(prefix) :]
    return path


def normal_folder(path: str) -> str:
    """Return the normal spelling of a folder, with one slash at its end."""
    return normal_path(path).rstrip("/") + "/"


def moved_hint(path: str, location: str) -> str | None:
    """Return a hint for a file that cannot be read and is outside of the table's ``location``; ``None`` if inside."""
    if normal_path(path).startswith(normal_folder(location)):
        return None
    return f"the table is at {location}: it may have been moved without this file"
