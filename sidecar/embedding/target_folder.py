"""The paths of many new files in one folder: each keeps its path below the folder that all sources share."""

from __future__ import annotations

import os
from collections.abc import Sequence

from sidecar.errors import StorageError, UsageError
from sidecar.storage.locations import local_path


def targets_in(folder: str, paths: Sequence[str], roots: Sequence[str] | None = None) -> list[str]:
    """Return the paths of the files in ``folder``: their paths below the deepest folder that all of them share.

    With ``roots``, a folder above each path, it is the deepest folder that all roots share. Raises :class:`UsageError`
    if two files would have one path, and for a path that could lead out of ``folder``.
    """
    split = [path.split("/") for path in paths]
    if len({tuple(parts) for parts in split}) < len(paths):
        raise UsageError("a file is named twice")
    common = _shared(split if roots is None else [[*root.rstrip("/").split("/"), ""] for root in roots])
    for path, parts in zip(paths, split, strict=True):
        if ".." in parts[common:] or "\0" in path:
            raise UsageError(
                "the path of a file has '..' or a zero byte in it, and could lead out of the folder",
                file=path,
                hint="Embed the files one by one, each to a target of its own.",
            )
    return ["/".join([folder.rstrip("/"), *parts[common:]]) for parts in split]


def _shared(split: Sequence[Sequence[str]]) -> int:
    """Return how many folders all paths share; the last part of a path is not a folder."""
    shortest = min(len(parts) for parts in split) - 1
    return next((n for n in range(shortest) if len({parts[n] for parts in split}) > 1), shortest)


def check_inside(folder: str, targets: Sequence[str]) -> None:
    """Raise :class:`UsageError` if a symbolic link in ``folder`` would put a target outside of it."""
    root = local_path(folder)
    if root is None:
        return
    inside = os.path.realpath(root)
    for target in targets:
        parent = os.path.realpath(os.path.dirname(local_path(target) or target))
        if os.path.commonpath([inside, parent]) != inside:
            raise UsageError(
                "a symbolic link leads out of the folder that files are to be written to",
                file=target,
                expected=f"a folder in {inside}",
                found=parent,
            )


def make_folder_of(target: str) -> None:
    """Make the folder of a local target; object stores need none. Raises :class:`StorageError`."""
    local = local_path(target)
    if local is not None:
        folder = os.path.dirname(local) or "."
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot make the folder: {error.strerror}", file=target) from error
