"""Opens and writes files by the ``FileIO`` of a caller, or one for each store, and by the keys of encrypted files.

A public function takes ``io`` and ``encryption_keys``, and makes one :class:`Access` of them. Everything below it takes
the access, so that whoever can open a file also has its keys.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from sidecar.storage.locations import check_scheme, local_path, refuse_control_characters
from sidecar.storage.opening import open_source
from sidecar.storage.source import AnyPath, Source
from sidecar.storage.stores import store_io

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from sidecar.crypto.keys import EncryptionKeys
    from sidecar.storage.target import Target


class Access:
    """Opens and writes files, and has the keys of those that are encrypted.

    ``io`` opens all files; without it each store gets one ``FileIO``, so that files share connections. What is a store
    is said by scheme and host of a URL, as the host may name an account. An access can be pickled for other processes,
    which connect anew. Keys, and properties of a ``FileIO``, which may hold secrets, are not shown.

    Work ``is_repeated`` if it may run twice: a file that is there already, with the same bytes, is then its own.
    """

    def __init__(self, io: FileIO | None = None, keys: EncryptionKeys | None = None, is_repeated: bool = False) -> None:
        self.io = io
        self.keys = keys
        self.is_repeated = is_repeated
        self._by_store: dict[str, FileIO] = {}
        self._lock = threading.Lock()

    def open(self, path: AnyPath, size: int | None = None) -> Source:
        """Open a file as it is stored, ``size`` bytes long if that is known. Raises as :func:`open_source`."""
        io = self.io_of(os.fspath(path)) if isinstance(path, str | os.PathLike) else self.io
        return open_source(path, io, size)

    def create(self, path: str) -> AbstractContextManager[Target]:
        """Create a file within a block, as :func:`create_target` does."""
        from sidecar.storage.target import create_target  # plans write nothing

        return create_target(path, self.io_of(path), is_repeated=self.is_repeated)

    def repeated(self) -> Access:
        """Return an access for work that may run twice."""
        return Access(self.io, self.keys, is_repeated=True)

    def io_of(self, path: str) -> FileIO | None:
        """Return what opens a file; ``None`` for a local file if no ``FileIO`` was given."""
        if self.io is not None or local_path(path) is not None:
            return self.io
        refuse_control_characters(path)
        check_scheme(path, None)
        scheme, _, rest = path.partition("://")
        store = f"{scheme}://{rest.partition('/')[0]}"
        with self._lock:
            if store not in self._by_store:
                self._by_store[store] = store_io(path)
            return self._by_store[store]

    def __reduce__(self) -> tuple[type[Access], tuple[FileIO | None, EncryptionKeys | None, bool]]:
        return Access, (self.io, self.keys, self.is_repeated)
