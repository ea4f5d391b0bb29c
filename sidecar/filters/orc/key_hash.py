"""Hashes one key of an ORC Bloom filter. Planning uses these functions, and the tests compare the kernels with them.

A key is a 64-bit integer or a string of bytes; see :mod:`sidecar.filters.orc.encoding`.

*integer keys*: Thomas Wang's 64-bit mix on a **signed** number; additions wrap, right shifts keep the sign.
C++ writers up to 1.6.11 and 1.7.0 did not keep the sign: their filters deny values that they hold.

*byte keys*: a MurmurHash3 of one 64-bit lane, seed 104729. It is not half of MurmurHash3 x64-128: it has only one
accumulator, and the last 1 to 7 bytes are mixed in without the rotation that whole words get.

The published specification differs in places (it mentions 32-bit float patterns and half of Murmur3-128). All writers
agree with each other and with this module.
"""

from __future__ import annotations

SEED = 104729
C1 = 0x87C37B91114253D5
C2 = 0x4CF5AD432745937F

_M64 = (1 << 64) - 1


def hash_long(key: int) -> int:
    """Return the hash of an integer key, a signed or unsigned 64-bit number; the hash is below 2**64."""
    k = _signed(key)
    k = _signed(~k + (k << 21))
    k ^= k >> 24
    k = _signed(k + (k << 3) + (k << 8))
    k ^= k >> 14
    k = _signed(k + (k << 2) + (k << 4))
    k ^= k >> 28
    return (k + (k << 31)) & _M64


def hash_bytes(key: bytes) -> int:
    """Return the hash of a byte key, a number below 2**64."""
    h = SEED
    whole = len(key) & ~7
    for at in range(0, whole, 8):
        h ^= _mix(int.from_bytes(key[at : at + 8], "little"))
        h = (_rotl(h, 27) * 5 + 0x52DCE729) & _M64
    h ^= _mix(int.from_bytes(key[whole:], "little")) ^ len(key)
    h = (h ^ (h >> 33)) * 0xFF51AFD7ED558CCD & _M64
    h = (h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53 & _M64
    return h ^ (h >> 33)


def _signed(number: int) -> int:
    """Return the number wrapped to the range of signed 64-bit integers."""
    return ((number + (1 << 63)) & _M64) - (1 << 63)


def _rotl(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (64 - bits))) & _M64


def _mix(k: int) -> int:
    return _rotl(k * C1 & _M64, 31) * C2 & _M64
