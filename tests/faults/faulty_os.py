"""Local paths that break a request: modules that open, write and list local files get :class:`FaultyOs` as ``os``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from sidecar.many_files import stored_files
from sidecar.storage import local, remote, target
from tests.faults.faults import FAULTS, Mode, Request, error_of


class FaultyOs:
    """The module ``os``, whose requests to files that :data:`FAULTS` covers may break."""

    def __init__(self) -> None:
        self._paths: dict[int, str] = {}
        self._created: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        if not FAULTS.covers(path) or os.path.isdir(path):
            return os.open(path, flags, mode)
        kind = "create" if flags & os.O_CREAT else "open"
        how = FAULTS.mode_of(Request(kind, str(path)))
        if how is Mode.STALE:
            FAULTS.stale(str(path))
        elif how is Mode.LATE:
            os.close(os.open(path, flags, mode))
        if how not in (None, Mode.STALE):
            raise error_of(how)
        fd = os.open(path, flags, mode)
        self._paths[fd] = str(path)
        if kind == "create":
            self._created.add(fd)
        return fd

    def close(self, fd: int) -> None:
        """Close a file, also if the request breaks, as systems do. What is wrong with a write may show up only now."""
        path, is_new = self._paths.pop(fd, None), fd in self._created
        self._created.discard(fd)
        os.close(fd)
        if path is not None and is_new:
            FAULTS.ask(Request("close", path), lambda: None)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        if fd not in self._paths:
            return os.pread(fd, length, offset)
        request = Request("read", self._paths[fd], offset, length)
        return FAULTS.read(request, lambda: os.pread(fd, length, offset))

    def write(self, fd: int, data: Any) -> int:
        half = memoryview(data)[: len(data) // 2]
        if fd not in self._paths:
            return os.write(fd, data)
        request = Request("write", self._paths[fd], 0, len(data))
        mode = FAULTS.mode_of(request)
        if mode is None:
            return os.write(fd, data)
        if mode is Mode.SHORT:
            return os.write(fd, half if len(half) else data)
        if mode in (Mode.RESET, Mode.FULL):
            os.write(fd, half)
        if mode is Mode.LATE:
            os.write(fd, data)
        raise error_of(mode)

    def copy_file_range(self, src: int, dst: int, count: int, offset_src: int | None = None) -> int:
        mode = FAULTS.mode_of(Request("copy", self._paths.get(dst, ""), 0, count))
        if mode in (Mode.SHORT, Mode.RESET, Mode.FULL):
            done = os.copy_file_range(src, dst, max(count // 2, 1), offset_src)
            if mode is Mode.SHORT:
                return done
        if mode is not None:
            raise error_of(Mode.ERROR if mode is Mode.LATE else mode)
        return os.copy_file_range(src, dst, count, offset_src)

    def fsync(self, fd: int) -> None:
        if fd in self._paths:
            FAULTS.ask(Request("flush", self._paths[fd]), lambda: os.fsync(fd))
        else:
            os.fsync(fd)

    def link(self, old: str, new: str) -> None:
        self._covered("publish", new, lambda: os.link(old, new))

    def rename(self, old: str, new: str) -> None:
        self._covered("publish", new, lambda: os.rename(old, new))

    def unlink(self, path: str) -> None:
        self._covered("delete", path, lambda: os.unlink(path))

    def scandir(self, path: str) -> Any:
        if not FAULTS.covers(path):
            return os.scandir(path)
        mode = FAULTS.mode_of(Request("list", str(path)))
        if mode is None:
            return os.scandir(path)
        if mode is Mode.STALE:
            return _Listing([_StaleEntry(name, state) for name, state in FAULTS.stale_names(str(path)).items()])
        raise error_of(mode)

    @staticmethod
    def _covered(kind: str, path: str, do: Callable[[], None]) -> None:
        if FAULTS.covers(path):
            FAULTS.ask(Request(kind, str(path)), do)
        else:
            do()


class _StaleEntry:
    """An entry of a listing that is not true any more."""

    def __init__(self, path: str, state: os.stat_result) -> None:
        self.path, self.name, self._state = path, os.path.basename(path), state

    def stat(self, follow_symlinks: bool = True) -> os.stat_result:
        return self._state

    def is_file(self, follow_symlinks: bool = True) -> bool:
        return True


class _Listing(list[Any]):
    def __enter__(self) -> _Listing:
        return self

    def __exit__(self, *_: object) -> None: ...


@contextmanager
def local_storage() -> Iterator[None]:
    """Have sidecar's own modules reach local files through :class:`FaultyOs`."""
    faulty = FaultyOs()
    patches = [mock.patch.object(module, "os", faulty) for module in (local, remote, target, stored_files)]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()
