"""Common types of the encrypted parts of a file's body: regions, and the units in them.

A *unit* is a range of bytes that is decrypted as a whole. Its plaintext has the same length, so no offset and no length
elsewhere in the file changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from sidecar.parquet.encrypted.modules import FileEncryption, Module
from sidecar.parquet.footer import ColumnChunk

ModuleOpener = Callable[[memoryview], bytes]


class EncryptedUnit(NamedTuple):
    """A range of the file that is decrypted as a whole: a region of one unit.

    ``open`` returns plaintext of the same length.
    """

    start: int
    end: int
    column: str
    open: ModuleOpener

    def units(self, start: int, end: int) -> list[EncryptedUnit]:
        """Return this unit."""
        return [self]


@dataclass(frozen=True, repr=False)
class EncryptedChunk:
    """An encrypted column chunk, with the key that decrypts its modules."""

    chunk: ColumnChunk
    encryption: FileEncryption
    key: bytes

    @property
    def path(self) -> str:
        """The column's dotted path."""
        return self.chunk.leaf.path

    def open(self, data: bytes | memoryview, module: Module, page: int = 0) -> bytes:
        """Decrypt a module of this chunk. Raises :class:`DamagedFileError`."""
        place = (self.chunk.row_group, self.chunk.leaf.index, page)
        return self.encryption.open_module(self.key, data, module, *place)
