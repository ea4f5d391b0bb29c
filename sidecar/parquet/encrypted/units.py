"""What the parts of an encrypted file's body have in common: a region of the file, and the units that it opens in.

A *unit* is a range of bytes that is decrypted as one and becomes plaintext of the same length, so that no offset and
no length elsewhere in the file changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from sidecar.parquet.encrypted.modules import FileEncryption, Module
from sidecar.parquet.footer import ColumnChunk

Opener = Callable[[memoryview], bytes]


class EncryptedUnit(NamedTuple):
    """Bytes of the file that are decrypted together; ``open`` gives as many in clear."""

    start: int
    end: int
    column: str
    open: Opener


class Region(Protocol):
    """A range of the file whose units are found when it is read."""

    @property
    def start(self) -> int:
        """Where it begins."""

    @property
    def end(self) -> int:
        """Where it ends."""

    def units(self, start: int, end: int) -> list[EncryptedUnit]:
        """Its units in their order, all of them or those that ``[start, end)`` touches; gaps are in clear.

        Raises :class:`DamagedFileError`.
        """


@dataclass(frozen=True, repr=False)
class EncryptedChunk:
    """A column chunk with what opens its modules."""

    chunk: ColumnChunk
    encryption: FileEncryption
    key: bytes

    @property
    def path(self) -> str:
        """The column's dotted path."""
        return self.chunk.leaf.path

    def open(self, data: bytes | memoryview, module: Module, page: int = 0) -> bytes:
        """What is in a module of this chunk."""
        place = (self.chunk.row_group, self.chunk.leaf.index, page)
        return self.encryption.open_module(self.key, data, module, *place)
