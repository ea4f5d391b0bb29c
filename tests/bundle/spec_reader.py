"""A second reader of sidecars, written from SPEC.md with the standard library and xxhash alone.

Encrypted blobs need AES too. Nothing of sidecar is used here.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from xxhash import xxh64_intdigest

VECTORS = Path(__file__).resolve().parents[2] / "spec_vectors" / "bundle"
NAMES = ("small", "rows", "pages", "orc", "sketches", "encrypted")
M64 = (1 << 64) - 1
VERSIONS = {"encryption": 3, "units": 2, "toc": 1}
SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
KINDS = {
    "files": 16,
    "bounds": 17,
    "partitions": 18,
    "fingerprints": 19,
    "unit_counts": 20,
    "schemas": 21,
    "manifests": 22,
    "coverage": 23,
    "lengths": 24,
}


def unseal(piece: bytes, kind: int, field: int, segment: str, position: int, group: int = 0, row: int = 0) -> bytes:
    context = struct.pack("<Ii16sIIQ", kind, field, bytes.fromhex(segment), group, row, position)
    assert xxh64_intdigest(context + piece[:-8]) == int.from_bytes(piece[-8:], "little")
    return piece[:-8]


@dataclass
class Blob:
    data: bytes
    toc: dict
    key: bytes | None = None

    @classmethod
    def of(cls, data: bytes, magic: bytes) -> Blob:
        found, version, zero, length, zero_too, offset, digest = struct.unpack_from("<4sHHIIQQ", data)
        assert (found, zero, zero_too) == (magic, 0, 0)
        assert offset + length == len(data)
        assert xxh64_intdigest(data[offset:]) == digest
        toc = json.loads(data[offset:])
        assert version == toc["version"] == VERSIONS.get("encryption" if "encryption" in toc else toc["kind"], 4)
        return cls(data, toc)

    def unlock(self, masters: dict[str, str], units: Blob) -> None:
        """Find the data key of an encrypted blob."""
        if self.toc["version"] == 3:
            self.key = data_key(self.data[self.toc["toc_offset"] :], masters, units)

    @property
    def seal(self) -> int:
        """Bytes that a piece has more than its data."""
        return 8 if self.key is None else 28

    def open(self, piece: bytes, kind: int, position: int, group: int = 0, row: int = 0) -> bytes:
        field, segment = self.toc["field"], self.toc["segment"]
        if self.key is None:
            return unseal(piece, kind, field, segment, position, group, row)
        context = struct.pack("<Ii16sIIQ", kind, field, bytes.fromhex(segment), group, row, position)
        name = struct.pack("<17sIII", b"sidecar piece key", kind, group, (256 * position + row) >> 31)
        key = hmac.digest(self.key, name, "sha256")[: len(self.key)]
        return AESGCM(key).decrypt(piece[:12], piece[12:], table_bytes(self.toc) + context)


def table_bytes(toc: dict) -> bytes:
    return bytes.fromhex(toc["table"].replace("-", ""))


def data_key(stored: bytes, masters: dict[str, str], units: Blob) -> bytes:
    """Section 2.1."""
    toc = json.loads(stored)
    said = toc["encryption"]
    first = json.dumps({"encryption": said}, sort_keys=True, separators=(",", ":"))[:-1].encode() + b","
    assert stored.startswith(first)
    bound = b"{" + stored[len(first) :]
    assert said["algorithm"] == "AES_GCM"
    master = bytes.fromhex(masters[base64.b64decode(said["key_metadata"]).decode()])
    wrapped = base64.b64decode(said["wrapped_key"])
    place = table_bytes(toc) + bytes.fromhex(toc["segment"]) + struct.pack("<i", toc["field"])
    tocs = [units.data[units.toc["toc_offset"] :], bound]
    aad = b"sidecar bundle key" + place + b"".join(hashlib.sha256(one).digest() for one in tocs)
    aad += toc["kind"].encode()
    return AESGCM(master).decrypt(wrapped[:12], wrapped[12:], aad)


def footer(data: bytes) -> dict:
    assert data[:4] == data[-4:] == b"PFA1"
    length, flags = struct.unpack("<iI", data[-12:-4])
    assert flags == 0
    return json.loads(data[-12 - length : -12])


def members(described: dict) -> list[int]:
    if "runs" in described:
        return [unit for first, count in described["runs"] for unit in range(first, first + count)]
    bitmap = base64.b64decode(described["bitmap"])
    return [unit for unit in range(8 * len(bitmap)) if bitmap[unit >> 3] >> (unit & 7) & 1]


def orc_hash(encoding: str, key: bytes) -> int:
    """Section 3.5."""
    if encoding.startswith(("orc/bytes", "orc/ascii", "orc/char", "orc/varchar", "orc/decimal:")):
        return orc_hash_of_bytes(key)
    k = signed(int.from_bytes(key, "little"))
    k = signed(~k + (k << 21))
    k ^= k >> 24
    k = signed(k + (k << 3) + (k << 8))
    k ^= k >> 14
    k = signed(k + (k << 2) + (k << 4))
    k ^= k >> 28
    return (k + (k << 31)) & M64


def signed(number: int) -> int:
    number &= M64
    return number - (1 << 64) if number >> 63 else number


def orc_hash_of_bytes(key: bytes) -> int:
    def mix(part: bytes) -> int:
        word = int.from_bytes(part, "little") * 0x87C37B91114253D5 & M64
        return rotl(word, 31) * 0x4CF5AD432745937F & M64

    h = 104729
    whole = len(key) - len(key) % 8
    for at in range(0, whole, 8):
        h ^= mix(key[at : at + 8])
        h = (rotl(h, 27) * 5 + 0x52DCE729) & M64
    h ^= mix(key[whole:])
    h ^= len(key)
    h = (h ^ (h >> 33)) * 0xFF51AFD7ED558CCD & M64
    h = (h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53 & M64
    return h ^ (h >> 33)


def rotl(number: int, by: int) -> int:
    return (number << by | number >> (64 - by)) & M64


def bits_asked(group: dict, plain: bytes) -> tuple[list[int], int]:
    """The bits of a filter that a value tests, and the number of its blocks."""
    if (group["hash"], group["index"]) == ("orc", "orc"):
        digest, chosen = orc_hash(group["encoding"], plain), []
        for i in range(1, group["k"] + 1):
            c = (digest + i * (digest >> 32)) & 0xFFFFFFFF
            chosen.append((c ^ 0xFFFFFFFF if c >> 31 else c) % group["bits"])
        return chosen, (group["bits"] + 255) // 256
    assert (group["hash"], group["index"]) == ("xxh64", "parquet")
    digest, blocks = xxh64_intdigest(plain), group["blocks"]
    region = ((digest >> 32) * blocks) >> 32
    bits = [((digest & 0xFFFFFFFF) * salt & 0xFFFFFFFF) >> 27 for salt in SALT]
    return [256 * region + 32 * word + bit for word, bit in enumerate(bits)], blocks


def ask_group(bundle: Blob, number: int, plain: bytes) -> set[int]:
    """Units of a group that might hold the value."""
    group = bundle.toc["groups"][number]
    assert group["version"] == 1
    bits, blocks = bits_asked(group, plain)
    found = set(range(group["members"]))
    for bit in bits:
        found &= holders(bundle, number, blocks, bit)
    units = members(group["units"])
    return {units[position] for position in found}


def holders(bundle: Blob, number: int, blocks: int, bit: int) -> set[int]:
    """Positions of a group whose filters have this bit set."""
    group, seal = bundle.toc["groups"][number], bundle.seal
    count, region, row = group["members"], bit // 256, bit % 256
    orc = group["index"] == "orc"
    if group["layout"] == "transposed":
        assert count < 64
        regions = max(1, 4096 // (32 * count))
        page = region // regions
        at = group["offset"] + page * (regions * 32 * count + seal)
        length = min(regions, blocks - page * regions) * 32 * count
        piece = bundle.data[at : at + length + seal]
        data = bundle.open(piece, 10 if orc else 3, page, number)
        start = (region % regions) * 32 * count + row // 8
        return {p for p in range(count) if data[start + 32 * p] >> (row % 8) & 1}
    assert (group["layout"], count >= 64) == ("sliced", True)
    width = (count + 7) // 8
    if width >= ((32 if bundle.key is None else 64) if orc else 256):
        start = group["offset"] + region * 256 * (width + seal) + row * (width + seal)
        piece = bundle.data[start : start + width + seal]
        held = bundle.open(piece, 8 if orc else 1, region, number, row)
    else:
        at = group["offset"] + region * (256 * width + seal)
        piece = bundle.data[at : at + 256 * width + seal]
        data = bundle.open(piece, 9 if orc else 2, region, number)
        held = data[row * width : (row + 1) * width]
    number_of_row = int.from_bytes(held, "little")
    assert number_of_row >> count == 0
    return {position for position in range(count) if number_of_row >> position & 1}


def sections(units: Blob) -> dict[tuple[str, int], list[bytes]]:
    """All pieces of a units blob, verified."""
    lines = units.toc["sections"]
    lengths = {}
    for name, _, offset, _, length, _ in lines:
        if name == "lengths":
            piece = units.data[offset : offset + length]
            numbers = list(struct.iter_unpack("<I", unseal(piece, 24, 0, units.toc["segment"], 0)))
    numbers = [number for (number,) in numbers]
    for name, field, _, count, length, _ in lines:
        lengths[name, field] = [length] if count == 1 else [numbers.pop(0) for _ in range(count)]
    assert not numbers
    found = {}
    for name, field, offset, count, length, digests in lines:
        sums = base64.b64decode(digests)
        assert len(sums) == 32 * count
        pieces, at = [], offset
        for place, size in enumerate(lengths[name, field]):
            piece = units.data[at : at + size]
            assert hashlib.sha256(piece).digest() == sums[32 * place : 32 * place + 32]
            pieces.append(unseal(piece, KINDS[name], field, units.toc["segment"], place))
            at += size
        assert at == offset + length
        found[name, field] = pieces
    return found


def stored_entry(blob: Blob, unit: int, parts: int, entry: int, table: int) -> tuple[dict, list[bytes]] | None:
    """The group of a unit and the parts of its entry; ``entry`` and ``table`` are kinds of pieces."""
    fixed = 8 + blob.seal
    for number, group in enumerate(blob.toc["groups"]):
        assert group["version"] == 1
        units, count = members(group["units"]), group["members"]
        assert len(units) == count
        if unit not in units:
            continue
        position = units.index(unit)
        piece = position // 1024
        start = group["offset"] + group["length"] - 4 * parts * count - fixed * ((count + 1023) // 1024)
        at = start + piece * (4 * parts * 1024 + fixed)
        held = min(1024, count - 1024 * piece)
        sealed = blob.data[at : at + 4 * parts * held + fixed]
        data = blob.open(sealed, table, piece, number)
        (start,) = struct.unpack_from("<Q", data)
        lengths = list(struct.iter_unpack(f"<{parts}I", data[8:]))
        before, own = lengths[: position - 1024 * piece], lengths[position - 1024 * piece]
        start += group["offset"] + sum(sum(some) + blob.seal for some in before)
        whole = blob.open(blob.data[start : start + sum(own) + blob.seal], entry, unit, number)
        cuts = [sum(own[:part]) for part in range(parts + 1)]
        return group, [whole[cut:end] for cut, end in pairwise(cuts)]
    return None


def page_index(blob: Blob, unit: int) -> dict | None:
    """The two structures of a unit, and what its group says of them."""
    found = stored_entry(blob, unit, 2, 6, 7)
    if found is None:
        return None
    keys = ("encoding", "resolution", "comparison", "order", "max_def", "max_rep")
    column, offset = found[1]
    said = {key: found[0][key] for key in keys}
    return {**said, "column_index": column.hex(), "offset_index": offset.hex()}


def row_index(blob: Blob, unit: int) -> dict | None:
    """The RowIndexEntry of a unit, and what its group says of it."""
    found = stored_entry(blob, unit, 1, 11, 12)
    if found is None:
        return None
    common = ("version", "offset", "length", "members", "units")
    said = {key: value for key, value in found[0].items() if key not in common}
    return {**said, "entry": found[1][0].hex()}


def group_sketches(blob: Blob) -> list[dict]:
    """All groups of files and their sketches (section 7)."""
    found = []
    assert blob.key is None
    for number, place in enumerate(blob.toc["groups"]):
        assert place["version"] == 1
        end = place["offset"] + place["length"]
        table = json.loads(blob.open(blob.data[end - place["table"] : end], 14, 0, number))["sketches"]
        assert len(table) == place["sketches"]
        at = place["offset"]
        for position, group in enumerate(table):
            sketch = blob.open(blob.data[at : at + group["length"] + 8], 13, position, number)
            at += group["length"] + 8
            facts = {key: group[key] for key in ("counted", "rows", "size", "type")}
            found.append({"files": members(group["files"]), **facts, "sketch": sketch.hex()})
        assert at == end - place["table"]
    return found


@dataclass
class Vector:
    data: bytes
    expected: dict
    footer: dict
    bundles: dict[int, list[Blob]]
    page_indexes: dict[int, Blob]
    row_indexes: dict[int, Blob]
    sketches: dict[int, Blob]
    units: Blob
