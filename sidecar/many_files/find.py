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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sidecar.errors import SidecarError, StorageError, UsageError, foreign_reason
from sidecar.many_files.stored_files import filesystem_of
from sidecar.results.base import Result
from sidecar.source import check_scheme, local_path

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

DATA_ENDINGS = (".parquet", ".parq", ".orc")
"""Endings of data files in a folder, in any case."""

PUFFIN_ENDINGS = (".puffin", ".stats")
"""Endings of Puffin files in a folder, in any case."""

ENDINGS = DATA_ENDINGS + PUFFIN_ENDINGS

ANY_DEPTH = "**"
_MAGIC = re.compile(r"[*?\[]")
_ROOT = re.compile(r"file:/+|[\w+.-]+://[^/]*/?|/*")

Parts = tuple[str, ...]
OnError = Callable[[SidecarError], None]


@dataclass(frozen=True, repr=False)
class SkippedFile(Result):
    """A file or folder that could not be read, and the error."""

    file: str
    """The path of the file or folder."""
    error: SidecarError
    """Why it could not be read."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: the path, and the parts of the error."""
        return {"file": self.file, "error": self.error.to_dict()}


@dataclass(frozen=True, repr=False)
class FoundFiles(Result):
    """The files that paths, folders and globs name."""

    files: tuple[str, ...]
    """Locations, sorted for each path, in the order of the paths, without repeats."""
    roots: tuple[str, ...]
    """For each file, the folder that was named: the folder itself, that of a plain path, or a glob's fixed part."""
    unreadable: tuple[SkippedFile, ...] = ()
    """Folders that could not be listed."""
    others: int = 0
    """Files in the named folders that are not hidden and have other endings."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: the attributes, with lists for tuples and the parts of errors."""
        return {
            "files": list(self.files),
            "roots": list(self.roots),
            "unreadable": [file.to_dict() for file in self.unreadable],
            "others": self.others,
        }


def find_files(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    io: FileIO | None = None,
    *,
    endings: Sequence[str] = ENDINGS,
    skip_bad: bool = False,
) -> FoundFiles:
    """Return the files that ``paths`` name: one path or several, each a file, a folder or a glob, local or by URL.

    ``endings`` are those of the files that are taken from folders. ``io`` lists remote folders if it is given. A plain
    path that does not exist is returned as it is, so that opening it says what is wrong. A folder that cannot be listed
    raises :class:`StorageError`; with ``skip_bad`` it is in ``unreadable``. Raises :class:`UsageError` for a glob
    without a match, for a folder without such a file, for no path at all, and for a URL that cannot be read.
    """
    named = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not named:
        raise UsageError("no file was named")
    search = _FileSearch(io, tuple(endings), skip_bad)
    for path in named:
        search.add(os.fspath(path))
    found = search.found
    return FoundFiles(
        tuple(name for name, _ in found.values()),
        tuple(root for _, root in found.values()),
        tuple(search.unreadable),
        search.others,
    )


def is_one_file(paths: Sequence[str]) -> bool:
    """Whether ``paths`` are one plain path that is not a folder and not a glob; it need not exist."""
    if len(paths) != 1:
        return False
    state = _FileSearch(None, ENDINGS, skip_bad=False).tree(paths[0]).is_folder(paths[0])
    return state is False or (state is None and not is_glob(paths[0]))


def has_data_ending(path: str) -> bool:
    """Whether a path ends as data files and Puffin files do, in any case."""
    return path.lower().endswith(ENDINGS)


def is_glob(path: str) -> bool:
    """Whether a path has a character that globs have."""
    return _MAGIC.search(path) is not None


class _FolderEntry(NamedTuple):
    """A file or folder in a folder."""

    name: str
    is_folder: bool
    is_link: bool = False


class _FolderTree(Protocol):
    """The folders of one storage, by location."""

    def is_folder(self, location: str) -> bool | None:
        """Whether a location is a folder; ``None`` if nothing is there."""

    def entries(self, folder: str) -> list[_FolderEntry]:
        """Return what is in a folder, sorted by name; nothing if there is no such folder."""

    def below(self, folder: str) -> Iterator[Parts]:
        """Yield the path of each file below a folder, relative to it, except hidden ones."""

    def key(self, location: str) -> str:
        """Return the same text for all names of a file."""


@dataclass
class _FileSearch:
    """Collects files. Each storage has one tree."""

    io: FileIO | None
    endings: tuple[str, ...]
    skip_bad: bool
    found: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name and root of each file, by the text that all its names share."""
    unreadable: list[SkippedFile] = field(default_factory=list)
    others: int = 0

    def add(self, path: str) -> None:
        """Add the files that a path names."""
        tree, unreadable = self.tree(path), len(self.unreadable)
        state = tree.is_folder(path)
        root, problem, hint = path, "", ""
        if state:
            matches = list(self._folder(tree, path))
            problem = f"the folder has no file whose name ends with {', '.join(self.endings)}"
            hint = "A glob such as 'folder/*' names files with other endings."
        elif state is None and is_glob(path):
            root, pattern = _split_glob(path)
            matches = list(self._glob(tree, root, pattern))
            problem, hint = "no file matches", "" if "**" in path else "Write ** for any number of folders."
        else:
            root, matches = _parent(path), [path]
        if not matches and len(self.unreadable) == unreadable:
            raise UsageError(problem, file=path, hint=hint)
        names: dict[str, str] = {}
        for name in sorted(matches, key=lambda match: (match.count("/"), match)):
            names.setdefault(tree.key(name), name)
        for key, name in sorted(names.items(), key=lambda item: item[1]):
            self.found.setdefault(key, (name, root))

    def tree(self, path: str) -> _FolderTree:
        """Return the tree of a path. Raises :class:`UsageError` for a URL that cannot be read."""
        if local_path(path) is not None:
            return _LocalFolders(self._fail)
        check_scheme(path, self.io)
        if "#" in path:
            raise UsageError("a URL with '#' names another file: pyiceberg cuts it there", file=path)
        return _RemoteFolders(path, self.io, self._fail)

    def _fail(self, error: SidecarError) -> None:
        if not self.skip_bad:
            raise error
        self.unreadable.append(SkippedFile(error.file or "", error))

    def _folder(self, tree: _FolderTree, folder: str) -> Iterator[str]:
        for parts in tree.below(folder):
            if parts[-1].lower().endswith(self.endings):
                yield _join(folder, *parts)
            else:
                self.others += 1

    def _glob(self, tree: _FolderTree, folder: str, pattern: Parts) -> Iterator[str]:
        if pattern[0] == ANY_DEPTH:
            for parts in tree.below(folder):
                in_match = any(_match(parts[:n], pattern) for n in range(1, len(parts)))
                if _match(parts, pattern) or (in_match and parts[-1].lower().endswith(self.endings)):
                    yield _join(folder, *parts)
            return
        for entry in tree.entries(folder):
            if not _match((entry.name,), pattern[:1]):
                continue
            location = _join(folder, entry.name)
            if entry.is_folder:
                yield from (self._glob(tree, location, pattern[1:]) if pattern[1:] else self._folder(tree, location))
            elif not pattern[1:]:
                yield location


class _LocalFolders:
    """The local file system."""

    def __init__(self, fail: OnError) -> None:
        self._fail = fail

    def is_folder(self, location: str) -> bool | None:
        """See :meth:`_FolderTree.is_folder`."""
        path = _local(location)
        return os.path.isdir(path) if os.path.lexists(path) else None

    def entries(self, folder: str) -> list[_FolderEntry]:
        """See :meth:`_FolderTree.entries`. Pipes, sockets and devices are left out: reading them may never end."""
        path = _local(folder)
        try:
            with os.scandir(path) as found:
                entries = [entry for entry in map(_entry, found) if entry is not None]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self._fail(StorageError(f"cannot list the folder: {error.strerror}", file=folder or "."))
            return []
        return sorted(entries)

    def below(self, folder: str) -> Iterator[Parts]:
        """See :meth:`_FolderTree.below`. Linked folders come last, so that files have their own names if they can."""
        seen: set[str] = set()
        folders: list[Parts] = [()]
        links: list[Parts] = []
        while folders or links:
            parts = folders.pop() if folders else links.pop(0)
            location = _join(folder, *parts)
            resolved = os.path.realpath(_local(location))
            if resolved in seen:
                continue
            seen.add(resolved)
            for entry in self.entries(location):
                path = (*parts, entry.name)
                if entry.is_folder and not is_hidden_name(entry.name):
                    (links if entry.is_link else folders).append(path)
                elif not is_hidden_name(entry.name):
                    yield path

    def key(self, location: str) -> str:
        """See :meth:`_FolderTree.key`."""
        return os.path.realpath(_local(location))


def _entry(found: os.DirEntry[str]) -> _FolderEntry | None:
    """Return a folder or file of the local file system. A link to nothing is a file, so that reading it fails."""
    try:
        is_folder, is_file = found.is_dir(), found.is_file()
    except OSError:  # a loop of links
        is_folder, is_file = False, True
    is_broken = found.is_symlink() and not os.path.exists(found.path)
    return _FolderEntry(found.name, is_folder, found.is_symlink()) if is_folder or is_file or is_broken else None


class _RemoteFolders:
    """An object store behind a ``FileIO`` on Arrow's file systems or on fsspec."""

    def __init__(self, location: str, io: FileIO | None, fail: OnError) -> None:
        if io is None:
            from pyiceberg.io import load_file_io

            io = load_file_io(location=location)
        self._io = io
        self._fail = fail

    def is_folder(self, location: str) -> bool | None:
        """See :meth:`_FolderTree.is_folder`. If the storage does not say, a plain location is taken for a file."""
        if "?" in location:
            return None
        try:
            return self._kind(location)
        except Exception:  # opening or listing says what is wrong
            return None if is_glob(location) else False

    def entries(self, folder: str) -> list[_FolderEntry]:
        """See :meth:`_FolderTree.entries`."""
        return sorted(_FolderEntry(path, is_folder) for path, is_folder in self._listed(folder, recursive=False))

    def below(self, folder: str) -> Iterator[Parts]:
        """See :meth:`_FolderTree.below`. The whole tree is one listing."""
        for path, is_folder in self._listed(folder, recursive=True):
            parts = tuple(path.split("/"))
            if not is_folder and not any(map(is_hidden_name, parts)):
                yield parts

    def key(self, location: str) -> str:
        """See :meth:`_FolderTree.key`."""
        return location

    def _kind(self, location: str) -> bool | None:
        filesystem, path, is_arrow = filesystem_of(self._io, location)
        if is_arrow:
            from pyarrow.fs import FileType

            found = filesystem.get_file_info([path])[0].type
            return None if found == FileType.NotFound else found == FileType.Directory
        return True if filesystem.isdir(path) else False if filesystem.isfile(path) else None

    def _listed(self, folder: str, recursive: bool) -> list[tuple[str, bool]]:
        """Return the path below ``folder`` of each file or folder, and whether it is a folder."""
        try:
            filesystem, path, is_arrow = filesystem_of(self._io, folder)
            found = (_arrow_listing if is_arrow else _fsspec_listing)(filesystem, path, recursive)
            listed = [(name[len(path) :].strip("/"), is_folder) for name, is_folder in found]
        except Exception as error:
            self._fail(StorageError(f"cannot list the folder: {foreign_reason(error)}", file=folder))
            return []
        return [(name, is_folder) for name, is_folder in listed if name and self._has_url(folder, name)]

    def _has_url(self, folder: str, name: str) -> bool:
        """Whether a name can be part of a URL: pyiceberg cuts off what comes after ``#`` or ``?``."""
        if "#" not in name and "?" not in name:
            return True
        self._fail(StorageError("a file with '#' or '?' in its name has no URL", file=_join(folder, name)))
        return False


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


def is_hidden_name(name: str) -> bool:
    """Whether Spark leaves out a file or folder of this name: it begins with a dot, or with ``_`` and has no ``=``."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _match(parts: Parts, pattern: Parts) -> bool:
    """Whether the parts of a path match those of a glob."""
    if not pattern:
        return not parts
    if pattern[0] == ANY_DEPTH:
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


def _parent(path: str) -> str:
    return path[: path.rstrip("/").rfind("/") + 1]


def _local(location: str) -> str:
    """Return the local path of a location; the present folder for an empty one."""
    return local_path(location) or "."
