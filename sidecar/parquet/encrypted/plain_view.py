"""Shows an encrypted Parquet file as a plain file of the same length, with every part at the same offset.

:func:`unlock` returns such a view for a file and its keys. All readers of plain files can read it: footer, pages,
dictionaries, filters, page indexes, scans, and pyarrow. :mod:`sidecar.parquet.encrypted.body` describes how a module
becomes plaintext of the same length. The plain footer takes the place of footer and crypto metadata (or signature),
and the magic is ``PAR1`` at both ends.

Only modules that a read touches are decrypted, each as a whole, because only a whole module can be authenticated.
Columns whose key is not available stay encrypted: their chunks are absent from the footer
(:class:`sidecar.parquet.footer.ColumnChunks`).

Some changes go unnoticed (Encryption.md, 4.1.2 and 4.4): changed page bodies under AES_GCM_CTR_V1, unless the header
has a checksum that no longer fits; a whole file in the place of another one, if no AAD prefix is expected; a module
from an older version of this file that has the same file id and keys.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict

from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import located
from sidecar.parquet.compression import MAX_PAGE
from sidecar.parquet.encrypted.body import refused, regions_of
from sidecar.parquet.encrypted.footer import unlock_footer
from sidecar.parquet.encrypted.modules import FileEncryption
from sidecar.parquet.encrypted.pages import Region
from sidecar.parquet.encrypted.units import EncryptedChunk, EncryptedUnit
from sidecar.parquet.footer import MAGIC, Footer, Tail, decode_footer, footer_of, read_tail
from sidecar.parquet.pages import MAX_HEADER
from sidecar.parquet.thrift import PADDING, Struct, encode_padded
from sidecar.storage.source import Source, WrappingSource, check_range

_CACHE = 8 << 20
"""Bytes of decrypted units in the cache. The least recently used are dropped first."""

_LARGEST = MAX_PAGE + MAX_HEADER
"""Bytes of a single unit that is cached even if it is larger than the cache, because it may be read in many steps.
Every page is smaller."""


def unlock(source: Source, encryption_keys: EncryptionKeys | None) -> Source:
    """Return the plaintext view of an encrypted Parquet file; ``source`` itself if it is plain or no keys are given.

    Raises :class:`DamagedFileError` if the footer does not authenticate or the AAD prefix is not the expected one,
    :class:`sidecar.errors.UsageError` if the key of the footer or the prefix is missing, and the errors of
    :func:`sidecar.parquet.footer.read_footer`.
    """
    return source if encryption_keys is None else open_parquet(source, encryption_keys)[0]


def open_parquet(source: Source, encryption_keys: EncryptionKeys | None) -> tuple[Source, Footer]:
    """Return the view that :func:`unlock` returns, and the footer, which is read once. Raises as :func:`unlock`."""
    with located(source.name):
        tail = read_tail(source)
        unlocked = None if encryption_keys is None else unlock_footer(source.name, tail, encryption_keys)
        if unlocked is None:
            return source, decode_footer(source, tail)
        view = DecryptedSource(source, *unlocked, tail)
        return view, view.footer


class DecryptedSource(WrappingSource):
    """The plaintext view of an encrypted file. Threads may share it if they may share ``inner``; closes ``inner``."""

    def __init__(self, inner: Source, encryption: FileEncryption, metadata: Struct, tail: Tail) -> None:
        super().__init__(inner)
        self.encryption = encryption
        self._tail = tail.offset
        metadata.fields.pop(PADDING, None)
        raw = encode_padded(metadata, len(tail.data))
        self._fixed = {0: MAGIC, tail.offset: raw + len(raw).to_bytes(4, "little") + MAGIC}
        self._cache: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._cached = 0
        self._lock = threading.Lock()
        self._regions: list[Region] = []
        self.footer = footer_of(self, tail.offset, raw, metadata)
        self._regions = self._find_regions(self.footer)

    def read(self, offset: int, length: int) -> bytes:
        """See :meth:`Source.read`. Raises :class:`DamagedFileError` for a module that does not authenticate."""
        check_range(self.name, self.size, offset, length)
        end = offset + length
        pieces = {start: data for start, data in self._fixed.items() if start < end and start + len(data) > offset}
        missing: list[EncryptedUnit] = []
        for unit in self._units(offset, end):
            known = self._decrypted(unit[:2])
            if known is None:
                missing.append(unit)
            else:
                pieces[unit.start] = known
        taken = sorted([(start, start + len(data)) for start, data in pieces.items()] + [u[:2] for u in missing])
        clear = _between(taken, offset, end)
        ranges = [*clear, *(unit[:2] for unit in missing)]
        if ranges:
            first = min(start for start, _ in ranges)
            raw = memoryview(self.inner.read(first, max(stop for _, stop in ranges) - first))
            for start, stop in clear:
                pieces[start] = bytes(raw[start - first : stop - first])
            for unit in missing:
                pieces[unit.start] = self._decrypt(unit, raw[unit.start - first : unit.end - first])
        return b"".join(pieces[at][max(offset - at, 0) : end - at] for at in sorted(pieces))

    def _find_regions(self, footer: Footer) -> list[Region]:
        """Return the regions that can be decrypted, by offset. Where two overlap, the second one is refused."""
        found: list[Region] = []
        for group in footer.row_groups:
            for chunk in group.columns:
                how = self.encryption.columns.get((group.ordinal, chunk.leaf.index))
                if how is not None and how.key is not None and chunk.file_path is None:
                    column = EncryptedChunk(chunk, self.encryption, how.key)
                    found += regions_of(column, self.inner, self.read, self._tail)
        regions: list[Region] = []
        end = 0
        for region in sorted(found, key=lambda region: region.start):
            if region.start < end:
                region = refused(end, region.end, "", "two encrypted parts of the file overlap")
            if region.start < region.end:
                regions.append(region)
                end = region.end
        return regions

    def _units(self, start: int, end: int) -> list[EncryptedUnit]:
        """Return the units that overlap ``[start, end)``, in order."""
        units: list[EncryptedUnit] = []
        at = max(bisect_right(self._regions, start, key=lambda region: region.start) - 1, 0)
        while at < len(self._regions) and self._regions[at].start < end:
            region = self._regions[at]
            at += 1
            if region.end > start:
                inside = region.units(start, end)
                first = max(bisect_right(inside, start, key=lambda unit: unit.start) - 1, 0)
                last = bisect_left(inside, end, key=lambda unit: unit.start)
                units += [unit for unit in inside[first:last] if unit.end > start]
        return units

    def _decrypt(self, unit: EncryptedUnit, raw: memoryview) -> bytes:
        with located(self.name, unit.column, unit.start):
            data = unit.open(raw)
        with self._lock:
            self._cached += len(data) - len(self._cache.pop(unit[:2], b""))
            self._cache[unit[:2]] = data
            while self._cached > (_CACHE if len(self._cache) > 1 else _LARGEST):
                self._cached -= len(self._cache.popitem(last=False)[1])
        return data

    def _decrypted(self, place: tuple[int, int]) -> bytes | None:
        with self._lock:
            data = self._cache.get(place)
            if data is not None:
                self._cache.move_to_end(place)
            return data


def _between(taken: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """Return the ranges of ``[start, end)`` that are in none of ``taken``, which is sorted."""
    free: list[tuple[int, int]] = []
    for low, high in taken:
        if start < low:
            free.append((start, low))
        start = max(start, high)
    if start < end:
        free.append((start, end))
    return free
