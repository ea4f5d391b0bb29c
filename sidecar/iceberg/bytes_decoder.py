"""Decodes Avro values out of bytes, in Python, for pyiceberg's readers of records.

pyiceberg's compiled decoder reads beyond the end of the buffer, and its Python decoder calls a stream for each byte.
This one indexes the bytes, and ends with an error where they end.
"""

from __future__ import annotations

from pyiceberg.avro.decoder import BinaryDecoder

_LONGEST = 70
"""Bits in the ten bytes that the longest varint has."""


class BytesDecoder(BinaryDecoder):
    """A position in ``data``. Methods are those of pyiceberg's decoders.

    They raise EOFError where the bytes end too early or a length is negative, and ValueError for numbers that no writer
    makes.
    """

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._at

    def read(self, n: int) -> bytes:
        """Return the next ``n`` bytes."""
        start, end = self._at, self._at + n
        if not start <= end <= len(self._data):
            raise EOFError(f"{n} bytes are wanted, {len(self._data) - start} are left")
        self._at = end
        return self._data[start:end]

    def skip(self, n: int) -> None:
        """Go ``n`` bytes on."""
        self.read(n)

    def read_int(self) -> int:
        """Return the next varint in zigzag coding."""
        at = self._at
        if at < len(self._data) and (byte := self._data[at]) < 0x80:  # as most are
            self._at = at + 1
            return (byte >> 1) ^ -(byte & 1)
        return self.read_ints(1)[0]

    def skip_int(self) -> None:
        """Go on to what is after the next varint."""
        self.read_int()

    def read_bytes(self) -> bytes:
        """Return the next bytes, before which their number is."""
        return self.read(self.read_int())

    def read_int_bytes_dict(self, n: int, dest: dict[int, bytes]) -> None:
        """Add the next ``n`` pairs of a number and bytes to ``dest``."""
        for _ in range(n):
            key = self.read_int()
            dest[key] = self.read_bytes()

    def read_ints(self, n: int) -> tuple[int, ...]:
        """Return the next ``n`` varints."""
        data, at, found = self._data, self._at, list[int]()
        try:
            for _ in range(n):
                byte = data[at]
                at += 1
                number = byte & 0x7F
                shift = 7
                while byte & 0x80:
                    if shift == _LONGEST:
                        raise ValueError("a number has more than ten bytes")
                    byte = data[at]
                    at += 1
                    number |= (byte & 0x7F) << shift
                    shift += 7
                found.append((number >> 1) ^ -(number & 1))
        except IndexError:
            raise EOFError("a number goes on after the end") from None
        self._at = at
        return tuple(found)
