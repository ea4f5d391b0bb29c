"""Slow pure-Python twins of the ORC run-length kernels, written from the specification, and runs to feed them with."""

from __future__ import annotations

import random

M64 = (1 << 64) - 1


def signed64(value: int) -> int:
    return ((value + (1 << 63)) & M64) - (1 << 63)


def unzigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


class Bytes:
    """Numbers out of bytes, from the first."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def big_endian(self, width: int) -> int:
        self.at += width
        assert self.at <= len(self.data)
        return int.from_bytes(self.data[self.at - width : self.at], "big")

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def packed(self, width: int, count: int) -> list[int]:
        size = (width * count + 7) // 8
        whole = self.big_endian(size)
        spare = size * 8 - width * count
        return [(whole >> (spare + width * (count - 1 - i))) & ((1 << width) - 1) for i in range(count)]


WIDTHS = [*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64]


def bytes_rle(data: bytes) -> list[int]:
    source, out = Bytes(data), []
    while source.at < len(data):
        control = source.byte()
        if control < 128:
            out += [source.byte()] * (control + 3)
        else:
            out += [source.byte() for _ in range(256 - control)]
    return out


def integers_v1(data: bytes, signed: bool) -> list[int]:
    source, out = Bytes(data), []

    def number() -> int:
        return unzigzag(source.varint()) if signed else signed64(source.varint())

    while source.at < len(data):
        control = source.byte()
        if control < 128:
            step = source.byte()
            base = number()
            out += [signed64(base + i * (step - 256 * (step > 127))) for i in range(control + 3)]
        else:
            out += [number() for _ in range(256 - control)]
    return out


def integers_v2(data: bytes, signed: bool) -> list[int]:
    source, out = Bytes(data), []

    def number(value: int) -> int:
        return unzigzag(value) if signed else signed64(value)

    while source.at < len(data):
        first = source.byte()
        kind, code = first >> 6, first >> 1 & 31
        if kind == 0:
            out += [number(source.big_endian((first >> 3 & 7) + 1))] * ((first & 7) + 3)
            continue
        count = ((first & 1) << 8 | source.byte()) + 1
        if kind == 1:
            out += map(number, source.packed(WIDTHS[code], count))
        elif kind == 2:
            third, fourth = source.byte(), source.byte()
            base_width = (third >> 5) + 1
            base = source.big_endian(base_width)
            sign = 1 << (base_width * 8 - 1)
            base = -(base & ~sign) if base & sign else base
            values = source.packed(WIDTHS[code], count)
            gap_width, patch_width = (fourth >> 5) + 1, WIDTHS[third & 31]
            entry = next(w for w in WIDTHS if w >= gap_width + patch_width)
            place = 0
            for patch in source.packed(entry, fourth & 31):
                place += patch >> patch_width
                values[place] |= (patch & ((1 << patch_width) - 1)) << WIDTHS[code]
            out += [signed64(base + v) for v in values]
        else:
            value = number(source.varint())
            step = unzigzag(source.varint())
            run = [value]
            if code == 0:
                run += [signed64(value + i * step) for i in range(1, count)]
            else:
                deltas = source.packed(WIDTHS[code], max(count - 2, 0))
                for delta in [step, *(-d if step < 0 else d for d in deltas)][: count - 1]:
                    run.append(signed64(run[-1] + delta))
            out += run
    return out


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def random_run_v2(rng: random.Random, kind: int) -> bytes:
    """A well-formed run of the kind with random content."""
    if kind == 0:
        width = rng.randint(1, 8)
        return bytes([(width - 1) << 3 | rng.randrange(8)]) + rng.randbytes(width)
    code, count = rng.randrange(32), rng.choice([1, 2, 3, 7, 8, 9, 100, 511, 512, rng.randint(1, 512)])
    width = WIDTHS[code]
    head = bytes([kind << 6 | code << 1 | (count - 1) >> 8, (count - 1) & 255])
    packed = rng.randbytes((width * count + 7) // 8)
    if kind == 1:
        return head + packed
    if kind == 3:
        ends = varint(rng.getrandbits(rng.randint(1, 64))) + varint(rng.getrandbits(rng.randint(1, 64)))
        return head + ends + (b"" if code == 0 else rng.randbytes((width * max(count - 2, 0) + 7) // 8))
    code = rng.randrange(24)
    width = WIDTHS[code]
    head = bytes([2 << 6 | code << 1 | (count - 1) >> 8, (count - 1) & 255])
    base_width, gap_width = rng.randint(1, 8), rng.randint(1, 8)
    patch_code = rng.choice([c for c in range(32) if WIDTHS[c] + gap_width <= 64 and WIDTHS[c] + width <= 64])
    patch_width = WIDTHS[patch_code]
    entry = next(w for w in WIDTHS if w >= gap_width + patch_width)
    patches, left, total = [], count - 1, 0
    for _ in range(rng.randint(0, 31)):
        gap = rng.randint(0, min(left, (1 << gap_width) - 1))
        left -= gap
        patches.append(gap << patch_width | rng.getrandbits(patch_width))
    for patch in patches:
        total = total << entry | patch
    size = (entry * len(patches) + 7) // 8
    tail = (total << (size * 8 - entry * len(patches))).to_bytes(size, "big")
    bounds = bytes([(base_width - 1) << 5 | patch_code, (gap_width - 1) << 5 | len(patches)])
    values = rng.randbytes((width * count + 7) // 8)
    return head + bounds + rng.randbytes(base_width) + values + tail


def random_run_v1(rng: random.Random) -> bytes:
    control = rng.randrange(256)
    numbers = [varint(rng.getrandbits(rng.randint(1, 64))) for _ in range(1 if control < 128 else 256 - control)]
    return bytes([control]) + (rng.randbytes(1) if control < 128 else b"") + b"".join(numbers)


def random_run_bytes(rng: random.Random) -> bytes:
    control = rng.randrange(256)
    return bytes([control]) + rng.randbytes(1 if control < 128 else 256 - control)
