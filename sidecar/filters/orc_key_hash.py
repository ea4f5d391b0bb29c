"""The hash functions of ORC Bloom filters, for one key: what planning asks with, and what kernels are tested by.

A filter knows each value by a key that is a 64-bit integer or a string of bytes.

*integer keys*: Thomas Wang's 64-bit mix on a **signed** number; additions wrap, right shifts keep the sign.
C++ writers up to 1.6.11 and 1.7.0 shifted without it: their filters deny what they hold.

*byte keys*: a MurmurHash3 of one 64-bit lane, seed 104729. It is not half of MurmurHash3 x64-128: there is one
accumulator only, and the last 1 to 7 bytes are mixed in without the rotation that whole words get.

The published text says otherwise in places (it speaks of 32-bit float patterns and of half a Murmur3-128); the
writers agree with each other, and with this.
"""

from __future__ import annotations

SEED = 104729
C1 = 0x87C37B91114253D5
C2 = 0x4CF5AD432745937F

_M64 = (1 << 64) - 1


def hash_long(key: int) -> int:
    """Hash of an integer key, given as a signed or unsigned 64-bit number; below 2**64."""
    k = _signed(key)
    k = _signed(~k + (k << 21))
    k ^= k >> 24
    k = _signed(k + (k << 3) + (k << 8))
    k ^= k >> 14
    k = _signed(k + (k << 2) + (k << 4))
    k ^= k >> 28
    return (k + (k << 31)) & _M64


def hash_bytes(key: bytes) -> int:
    """Hash of a byte key; below 2**64."""
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
    """The number as a signed 64-bit register holds it."""
    return ((number + (1 << 63)) & _M64) - (1 << 63)


def _rotl(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (64 - bits))) & _M64


def _mix(k: int) -> int:
    return _rotl(k * C1 & _M64, 31) * C2 & _M64
