"""Finds the files that paths, folders and globs name, local or by URL.

A folder gives the data files and Puffin files below it, by the endings of their names. Names that begin with a dot or
an underscore are hidden, as in Spark; a name with ``=`` in it, such as ``_day=1``, is a partition and not hidden.

A glob has ``*``, ``?`` and ``[abc]`` inside a name, and ``**`` for any number of folders. It gives the files that it
matches, whatever their endings, and the files below the folders that it matches. ``*`` matches no hidden name, ``.*``
and ``_*`` do; ``**`` and what comes after it match none. A path that exists is never a glob, whatever characters its
name has.

A file with several names (links, ``./a`` and ``a``) comes once, by the name in the fewest folders. A linked folder is
walked once, so loops end.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from sidecar.access import Access
from sidecar.errors import SidecarError, StorageError, UsageError, foreign_reason
from sidecar.many_files.stored_files import filesystem_of
from sidecar.storage.locations import check_scheme, local_path
from sidecar.storage.stores import denied_hint

DATA_ENDINGS = (".parquet", ".parq", ".orc")
"""Endings of data files in a folder, in any case."""

PUFFIN_ENDINGS = (".puffin", ".stats")
"""Endings of Puffin files in a folder, in any case."""

ENDINGS = DATA_ENDINGS + PUFFIN_ENDINGS

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""A path, a folder or a glob, or several of them."""
Parts = tuple[str, ...]

_ANY_DEPTH = "**"
GLOB_CHARACTERS = re.compile(r"[*?\[]")
_ROOT = re.compile(r"(?i:file):/+|[\w+.-]+://[^/]*/?|/*")


@dataclass(frozen=True)
class FoundFiles:
    """The files that paths, folders and globs name."""

    files: tuple[str, ...]
    """Locations, sorted for each path, in the order of the paths, without repeats."""
    roots: tuple[str, ...]
    """For each file, the folder that was named: the folder itself, that of a plain path, or a glob's fixed part."""
    failed: dict[str, SidecarError]
    """Folders that could not be listed, each with the error."""
    others: int = 0
    """Files in the named folders that are not hidden and have other endings."""
    is_one: bool = False
    """Whether one plain path was named, which is no folder and no glob."""


def find_files(paths: Paths, access: Access, *, endings: Sequence[str] = ENDINGS) -> FoundFiles:
    """Return the files that ``paths`` name: one path or several, each a file, a folder or a glob, local or by URL.

    ``endings`` are those of files that are taken from folders. ``access`` lists remote folders. A path that is not
    there is returned, and opening it says what is wrong. Raises :class:`StorageError` if nothing
    is found because a folder cannot be listed, and :class:`UsageError` for a glob without a match, a folder without
    such a file, no path at all, a name that may be a table's, and a URL that cannot be read.
    """
    named = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not named:
        raise UsageError("no file was named")
    search = _FileSearch(access, tuple(endings))
    plain = [search.add(os.fspath(path)) for path in named]
    if not search.found:
        raise next(iter(search.failed.values()))
    names, roots = zip(*search.found.values(), strict=True)
    return FoundFiles(names, roots, search.failed, search.others, is_one=plain == [True])


def every_file_below(folder: str, access: Access) -> list[str]:
    """Return all files below a folder, whatever their names are, hidden ones too, and behind links.

    Raises :class:`StorageError`.
    """
    local, failed = local_path(folder), dict[str, SidecarError]()
    if local is None:
        remote = _RemoteFolders(failed, folder, access)
        found = [_join(folder, name) for name, is_folder in remote._listed(folder, recursive=True) if not is_folder]
    else:

        def note(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                failed[folder] = _no_listing(folder, str(error.strerror))

        start = folder[: len(folder) - len(local)] if folder.endswith(local) else ""
        found, walked = [], set[str]()
        for parent, folders, names in os.walk(local, onerror=note, followlinks=True):
            found += [start + os.path.join(parent, name) for name in names]
            walked.add(os.path.realpath(parent))
            folders[:] = [one for one in folders if os.path.realpath(os.path.join(parent, one)) not in walked]
    for error in failed.values():
        raise error
    return sorted(found)


def has_data_ending(path: str) -> bool:
    """Whether a path ends as data files and Puffin files do, in any case."""
    return path.lower().endswith(ENDINGS)


def is_glob(path: str) -> bool:
    """Whether a path has a character that globs have."""
    return GLOB_CHARACTERS.search(path) is not None


def is_hidden_name(name: str) -> bool:
    """Whether Spark leaves out a file or folder of this name: it begins with a dot, or with ``_`` and has no ``=``."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


class _FileSearch:
    """Collects files."""

    def __init__(self, access: Access, endings: tuple[str, ...]) -> None:
        self.access = access
        self.endings = endings
        self.found: dict[str, tuple[str, str]] = {}
        """Name and root of each file, by the text that all its names share."""
        self.failed: dict[str, SidecarError] = {}
        self.others = 0

    def add(self, path: str) -> bool:
        """Add the files that a path names; return whether it is a plain path. Raises as :func:`find_files`."""
        if "\0" in path:
            raise UsageError("a path has a zero byte in it", file=path)
        tree = self._tree(path)
        state, before = tree.is_folder(path), len(self.failed)
        root, hint = path, ""
        pattern: Parts = ()
        if state:
            problem = f"the folder has no file whose name ends with {', '.join(self.endings)}"
            hint = "A glob such as 'folder/*' names files with other endings."
        elif state is None and is_glob(path):
            root, pattern = _split_glob(path)
            problem, hint = "no file matches", "" if _ANY_DEPTH in path else "Write ** for any number of folders."
        else:
            if state is None and "." in path and "/" not in path and not has_data_ending(path):
                raise UsageError(
                    "there is no such file",
                    file=path,
                    hint=f"If it is a table, open it first: sidecar.open_table({path!r}, catalog). A file is ./{path}.",
                )
            self.found.setdefault(tree.key(path), (path, path[: path.rstrip("/").rfind("/") + 1]))
            return True
        matches = list(self._matches(tree, root, pattern))
        if not matches and len(self.failed) == before:
            raise UsageError(problem, file=path, hint=hint)
        names: dict[str, str] = {}
        for name in sorted(matches, key=lambda match: (match.count("/"), match)):
            names.setdefault(tree.key(name), name)
        for key, name in sorted(names.items(), key=lambda item: item[1]):
            self.found.setdefault(key, (name, root))
        return False

    def _tree(self, path: str) -> _Folders:
        """Return the storage of a path. Raises :class:`UsageError` for a URL that cannot be read."""
        if local_path(path) is not None:
            return _LocalFolders(self.failed)
        check_scheme(path, self.access.io)
        return _RemoteFolders(self.failed, path, self.access)

    def _matches(self, tree: _Folders, folder: str, pattern: Parts) -> Iterator[str]:
        """Yield the files that a glob matches; without a glob, the files below ``folder`` that have the endings."""
        if not pattern or pattern[0] == _ANY_DEPTH:
            for parts in tree.below(folder):
                is_named = parts[-1].lower().endswith(self.endings)
                if not pattern:
                    self.others += not is_named
                    matched = is_named
                else:
                    depths = range(1, len(parts) + 1) if is_named else (len(parts),)
                    matched = any(_match(parts[:depth], pattern) for depth in depths)
                if matched:
                    yield _join(folder, *parts)
            return
        for entry in tree.entries(folder):
            if _match((entry.name,), pattern[:1]):
                location = _join(folder, entry.name)
                if entry.is_folder:
                    yield from self._matches(tree, location, pattern[1:])
                elif not pattern[1:]:
                    yield location


class _FolderEntry(NamedTuple):
    """A file or folder in a folder."""

    name: str
    is_folder: bool
    is_link: bool = False


class _LocalFolders:
    """The local file system. Links are followed; pipes, sockets and devices are left out: reading may never end."""

    def __init__(self, failed: dict[str, SidecarError]) -> None:
        self._failed = failed

    def is_folder(self, location: str) -> bool | None:
        """Whether a location is a folder; ``None`` if nothing is there."""
        path = _local(location)
        return os.path.isdir(path) if os.path.lexists(path) else None

    def entries(self, folder: str) -> list[_FolderEntry]:
        """Return what is in a folder, sorted by name; nothing if there is no such folder."""
        try:
            with os.scandir(_local(folder)) as found:
                return sorted(entry for entry in map(_local_entry, found) if entry is not None)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self._failed[folder or "."] = _no_listing(folder or ".", str(error.strerror))
            return []

    def below(self, folder: str) -> Iterator[Parts]:
        """Yield the path of each file below a folder, relative to it, except hidden ones.

        Linked folders come last, so that files have their own names if they can.
        """
        seen: set[str] = set()
        folders: list[Parts] = [()]
        links: list[Parts] = []
        while folders or links:
            parts = folders.pop() if folders else links.pop(0)
            location = _join(folder, *parts)
            resolved = self.key(location)
            for entry in () if resolved in seen else self.entries(location):
                if is_hidden_name(entry.name):
                    continue
                path = (*parts, entry.name)
                if entry.is_folder:
                    (links if entry.is_link else folders).append(path)
                else:
                    yield path
            seen.add(resolved)

    def key(self, location: str) -> str:
        """Return the same text for all names of a file."""
        return os.path.realpath(_local(location))


def _local_entry(found: os.DirEntry[str]) -> _FolderEntry | None:
    """Return a folder or file. A link to nothing, or to itself, is a file, so that reading it fails."""
    if found.is_symlink() and not os.path.exists(found.path):
        return _FolderEntry(found.name, False, True)
    is_folder = found.is_dir()
    return _FolderEntry(found.name, is_folder, found.is_symlink()) if is_folder or found.is_file() else None


class _RemoteFolders:
    """An object store behind a ``FileIO`` on Arrow's file systems or on fsspec. Methods as for local folders."""

    def __init__(self, failed: dict[str, SidecarError], location: str, access: Access) -> None:
        self._failed = failed
        io = access.io_of(location)
        assert io is not None  # only local files need none
        self._io = io

    def is_folder(self, location: str) -> bool | None:
        """If the storage does not say, a plain location is taken for a file."""
        if "?" in location:
            return None
        try:
            filesystem, path, is_arrow = filesystem_of(self._io, location)
            if is_arrow:
                kind = filesystem.get_file_info([path])[0].type.name
                return {"NotFound": None, "Directory": True}.get(kind, False)
            return True if filesystem.isdir(path) else False if filesystem.isfile(path) else None
        except Exception:  # opening or listing says what is wrong
            return None if is_glob(location) else False

    def entries(self, folder: str) -> list[_FolderEntry]:
        return sorted(_FolderEntry(path, is_folder) for path, is_folder in self._listed(folder, recursive=False))

    def below(self, folder: str) -> Iterator[Parts]:
        """The whole tree is one listing."""
        for path, is_folder in self._listed(folder, recursive=True):
            parts = tuple(path.split("/"))
            if not is_folder and not any(map(is_hidden_name, parts)):
                yield parts

    def key(self, location: str) -> str:
        return location

    def _listed(self, folder: str, recursive: bool) -> Iterator[tuple[str, bool]]:
        """Yield the path below ``folder`` of each file or folder, and whether it is a folder."""
        try:
            filesystem, path, is_arrow = filesystem_of(self._io, folder)
            found = (_arrow_listing if is_arrow else _fsspec_listing)(filesystem, path, recursive)
        except Exception as error:
            self._failed[folder] = _no_listing(folder, foreign_reason(error))
            return
        for location, is_folder in found:
            name = location[len(path) :].strip("/")
            if "#" in name or "?" in name:
                one = _join(folder, name)
                self._failed[one] = StorageError("a file with '#' or '?' in its name has no URL", file=one)
            elif name:
                yield name, is_folder


_Folders = _LocalFolders | _RemoteFolders


def _no_listing(folder: str, reason: str) -> StorageError:
    return StorageError(f"cannot list the folder: {reason}", file=folder, hint=denied_hint(folder, reason))


def _arrow_listing(filesystem: Any, path: str, recursive: bool) -> list[tuple[str, bool]]:
    from pyarrow.fs import FileSelector, FileType

    found = filesystem.get_file_info(FileSelector(path, allow_not_found=True, recursive=recursive))
    return [(info.path, info.type == FileType.Directory) for info in found]


def _fsspec_listing(filesystem: Any, path: str, recursive: bool) -> list[tuple[str, bool]]:
    try:
        if recursive:
            return [(name, False) for name in filesystem.find(path)]
        return [(info["name"], info["type"] == "directory") for info in filesystem.ls(path, detail=True)]
    except FileNotFoundError:
        return []


def _match(parts: Parts, pattern: Parts) -> bool:
    """Whether the parts of a path match those of a glob."""
    if not pattern:
        return not parts
    if pattern[0] == _ANY_DEPTH:
        rest = pattern[1:]
        return not rest or any(_match(parts[start:], rest) for start in range(len(parts) + 1))
    return bool(parts) and _match_name(parts[0], pattern[0]) and _match(parts[1:], pattern[1:])


def _match_name(name: str, pattern: str) -> bool:
    if name == pattern:
        return True
    if is_hidden_name(name) and pattern[:1] != name[:1]:
        return False
    return fnmatchcase(name, pattern)


def _split_glob(path: str) -> tuple[str, Parts]:
    """Return the folder before the first part with glob characters, and the parts of the glob."""
    matched = _ROOT.match(path)
    root = matched[0] if matched else ""
    parts = [part for part in path[len(root) :].split("/") if part]
    first = next(number for number, part in enumerate(parts) if is_glob(part))
    pattern = [part for n, part in enumerate(parts) if n >= first and (part, parts[n - 1 : n]) != ("**", ["**"])]
    return _join(root, *parts[:first]), tuple(pattern)


def _join(folder: str, *parts: str) -> str:
    between = "" if not folder or folder.endswith("/") or not parts else "/"
    return folder + between + "/".join(parts)


def _local(location: str) -> str:
    """Return the local path of a location; the present folder for an empty one."""
    return local_path(location) or "."
