"""Slow pure-Python twins of the kernels, written from the specifications and not from the kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

M32 = (1 << 32) - 1
M64 = (1 << 64) - 1

# --- XXH64 (xxHash specification 0.1.1) ---------------------------------------------------------------------

_P1, _P2, _P3 = 11400714785074694791, 14029467366897019727, 1609587929392839161
_P4, _P5 = 9650029242287828579, 2870177450012600261


def _rotl(x: int, r: int) -> int:
    return ((x << r) | (x >> (64 - r))) & M64


def _round(acc: int, lane: int) -> int:
    return _rotl((acc + lane * _P2) & M64, 31) * _P1 & M64


def xxh64(data: bytes, seed: int = 0) -> int:
    at, length = 0, len(data)
    if length >= 32:
        accs = [(seed + _P1 + _P2) & M64, (seed + _P2) & M64, seed, (seed - _P1) & M64]
        while at + 32 <= length:
            for i in range(4):
                accs[i] = _round(accs[i], int.from_bytes(data[at : at + 8], "little"))
                at += 8
        h = sum(_rotl(acc, r) for acc, r in zip(accs, (1, 7, 12, 18), strict=True)) & M64
        for acc in accs:
            h = ((h ^ _round(0, acc)) * _P1 + _P4) & M64
    else:
        h = (seed + _P5) & M64
    h = (h + length) & M64
    while at + 8 <= length:
        h ^= _round(0, int.from_bytes(data[at : at + 8], "little"))
        h = (_rotl(h, 27) * _P1 + _P4) & M64
        at += 8
    if at + 4 <= length:
        h ^= int.from_bytes(data[at : at + 4], "little") * _P1 & M64
        h = (_rotl(h, 23) * _P2 + _P3) & M64
        at += 4
    for byte in data[at:]:
        h = _rotl(h ^ (byte * _P5 & M64), 11) * _P1 & M64
    h = (h ^ (h >> 33)) * _P2 & M64
    h = (h ^ (h >> 29)) * _P3 & M64
    return h ^ (h >> 32)


# --- MurmurHash3 x64-128 ------------------------------------------------------------------------------------

_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def _fmix(k: int) -> int:
    k = (k ^ (k >> 33)) * 0xFF51AFD7ED558CCD & M64
    k = (k ^ (k >> 33)) * 0xC4CEB9FE1A85EC53 & M64
    return k ^ (k >> 33)


def murmur3_h1(data: bytes, seed: int) -> int:
    """First 64-bit half."""
    h1 = h2 = seed
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        k1 = int.from_bytes(data[at : at + 8], "little")
        k2 = int.from_bytes(data[at + 8 : at + 16], "little")
        h1 ^= _rotl(k1 * _C1 & M64, 31) * _C2 & M64
        h1 = ((_rotl(h1, 27) + h2) * 5 + 0x52DCE729) & M64
        h2 ^= _rotl(k2 * _C2 & M64, 33) * _C1 & M64
        h2 = ((_rotl(h2, 31) + h1) * 5 + 0x38495AB5) & M64
    k1 = int.from_bytes(data[whole : whole + 8], "little")
    k2 = int.from_bytes(data[whole + 8 :], "little")
    h2 ^= _rotl(k2 * _C2 & M64, 33) * _C1 & M64
    h1 ^= _rotl(k1 * _C1 & M64, 31) * _C2 & M64
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & M64
    h2 = (h2 + h1) & M64
    return (_fmix(h1) + _fmix(h2)) & M64


# --- split blocks (Parquet specification, "Bloom filter") ---------------------------------------------------

SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)

Blocks = list[list[int]]


def empty_blocks(z: int) -> Blocks:
    return [[0] * 8 for _ in range(z)]


def block_and_mask(h: int, z: int) -> tuple[int, list[int]]:
    return ((h >> 32) * z) >> 32, [1 << ((h & M32) * salt % (1 << 32) >> 27) for salt in SALT]


def sbbf_insert(blocks: Blocks, hashes: Iterable[int]) -> None:
    for h in hashes:
        b, mask = block_and_mask(h, len(blocks))
        blocks[b] = [word | bit for word, bit in zip(blocks[b], mask, strict=True)]


def sbbf_check(blocks: Blocks, h: int) -> bool:
    b, mask = block_and_mask(h, len(blocks))
    return all(word & bit for word, bit in zip(blocks[b], mask, strict=True))


def sbbf_fold(blocks: Blocks, factor: int) -> Blocks:
    folded = empty_blocks(len(blocks) // factor)
    for i, block in enumerate(blocks):
        folded[i // factor] = [a | b for a, b in zip(folded[i // factor], block, strict=True)]
    return folded


# --- theta --------------------------------------------------------------------------------------------------


def theta_below(hashes: Sequence[int], theta: int) -> list[int]:
    return [h for h in hashes if 0 < h < theta]


# --- decimals -----------------------------------------------------------------------------------------------


def sign_bytes(row: bytes) -> int:
    """By trying: the shortest tail that is the same number."""
    number = int.from_bytes(row, "big", signed=True)
    tails = range(len(row) - 1, -1, -1)
    return next(n for n in tails if int.from_bytes(row[n:], "big", signed=True) == number)
