"""SPEC.md is enough: a second reader, written from it with the standard library and xxhash alone.

Nothing of sidecar is used up to the line where it says so. The vectors are frozen; this reader and sidecar's must
both give the answers beside them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest
from xxhash import xxh64_intdigest

VECTORS = Path(__file__).resolve().parents[2] / "spec_vectors" / "bundle"
NAMES = ("small", "rows", "pages")
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


def unseal(
    piece: bytes, kind: int, field: int, segment: str, position: int, group: int = 0, row: int = 0
) -> bytes:
    context = struct.pack("<Ii16sIIQ", kind, field, bytes.fromhex(segment), group, row, position)
    assert xxh64_intdigest(context + piece[:-8]) == int.from_bytes(piece[-8:], "little")
    return piece[:-8]


@dataclass
class Blob:
    data: bytes
    toc: dict

    @classmethod
    def of(cls, data: bytes, magic: bytes) -> Blob:
        found, version, zero, length, zero_too, offset, digest = struct.unpack_from("<4sHHIIQQ", data)
        assert (found, version, zero, zero_too) == (magic, 1, 0, 0)
        assert offset + length == len(data)
        assert xxh64_intdigest(data[offset:]) == digest
        return cls(data, json.loads(data[offset:]))


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


def ask_group(bundle: Blob, number: int, plain: bytes) -> set[int]:
    """Units of a group that might hold the value."""
    group, toc = bundle.toc["groups"][number], bundle.toc
    assert (group["version"], group["hash"], group["index"]) == (1, "xxh64", "parquet")
    units, count, blocks = members(group["units"]), group["members"], group["blocks"]
    digest = xxh64_intdigest(plain)
    region = ((digest >> 32) * blocks) >> 32
    bits = [((digest & 0xFFFFFFFF) * salt & 0xFFFFFFFF) >> 27 for salt in SALT]
    if group["layout"] == "transposed":
        assert count < 64
        regions = max(1, 4096 // (32 * count))
        page = region // regions
        at = group["offset"] + page * (regions * 32 * count + 8)
        length = min(regions, blocks - page * regions) * 32 * count
        data = unseal(bundle.data[at : at + length + 8], 3, toc["field"], toc["segment"], page, number)
        start = (region % regions) * 32 * count
        words = [struct.unpack_from("<8I", data, start + 32 * member) for member in range(count)]
        return {
            unit
            for unit, eight in zip(units, words, strict=True)
            if all(w >> b & 1 for w, b in zip(eight, bits, strict=True))
        }
    assert (group["layout"], count >= 64) == ("sliced", True)
    width = (count + 7) // 8
    if width >= 256:
        at = group["offset"] + region * 256 * (width + 8)
        rows = []
        for word, bit in enumerate(bits):
            row = 32 * word + bit
            start = at + row * (width + 8)
            piece = bundle.data[start : start + width + 8]
            rows.append(unseal(piece, 1, toc["field"], toc["segment"], region, number, row))
    else:
        at = group["offset"] + region * (256 * width + 8)
        data = unseal(bundle.data[at : at + 256 * width + 8], 2, toc["field"], toc["segment"], region, number)
        rows = [
            data[(32 * word + bit) * width : (32 * word + bit + 1) * width] for word, bit in enumerate(bits)
        ]
    both = int.from_bytes(rows[0], "little")
    for row in rows[1:]:
        both &= int.from_bytes(row, "little")
    return {unit for place, unit in enumerate(units) if both >> place & 1}


def sections(units: Blob) -> dict[tuple[str, int], list[bytes]]:
    """All pieces of a units blob, verified."""
    lines = units.toc["sections"]
    lengths = {}
    for name, _, offset, _, length in lines:
        if name == "lengths":
            piece = units.data[offset : offset + length]
            numbers = list(struct.iter_unpack("<I", unseal(piece, 24, 0, units.toc["segment"], 0)))
    numbers = [number for (number,) in numbers]
    for name, field, _, count, length in lines:
        lengths[name, field] = [length] if count == 1 else [numbers.pop(0) for _ in range(count)]
    assert not numbers
    found = {}
    for name, field, offset, _, length in lines:
        pieces, at = [], offset
        for place, size in enumerate(lengths[name, field]):
            pieces.append(unseal(units.data[at : at + size], KINDS[name], field, units.toc["segment"], place))
            at += size
        assert at == offset + length
        found[name, field] = pieces
    return found


def page_index(blob: Blob, unit: int) -> dict | None:
    """The two structures of a unit, and what its group says of them."""
    toc = blob.toc
    for number, group in enumerate(toc["groups"]):
        assert group["version"] == 1
        units, count = members(group["units"]), group["members"]
        assert len(units) == count
        if unit not in units:
            continue
        position = units.index(unit)
        piece = position // 1024
        pieces = (count + 1023) // 1024
        table = group["offset"] + group["length"] - 8 * count - 16 * pieces
        at = table + piece * (8 * 1024 + 16)
        held = min(1024, count - 1024 * piece)
        data = unseal(blob.data[at : at + 8 * held + 16], 7, toc["field"], toc["segment"], piece, number)
        (start,) = struct.unpack_from("<Q", data)
        lengths = list(struct.iter_unpack("<II", data[8:]))
        before = lengths[: position - 1024 * piece]
        column, offset = lengths[position - 1024 * piece]
        start += group["offset"] + sum(sum(pair) + 8 for pair in before)
        entry = blob.data[start : start + column + offset + 8]
        entry = unseal(entry, 6, toc["field"], toc["segment"], unit, number)
        said = {
            key: group[key] for key in ("encoding", "resolution", "comparison", "order", "max_def", "max_rep")
        }
        return {**said, "column_index": entry[:column].hex(), "offset_index": entry[column:].hex()}
    return None


@dataclass
class Vector:
    data: bytes
    expected: dict
    footer: dict
    bundles: dict[int, Blob]
    page_indexes: dict[int, Blob]
    units: Blob


@pytest.fixture(params=NAMES, scope="module")
def vector(request) -> Vector:
    data = (VECTORS / f"{request.param}.stats").read_bytes()
    expected = json.loads((VECTORS / f"{request.param}.expected.json").read_text())
    meta = footer(data)
    cut = {
        (b["type"], tuple(b["fields"])): data[b["offset"] : b["offset"] + b["length"]] for b in meta["blobs"]
    }
    bundles = {
        fields[0]: Blob.of(blob, b"SCBF") for (kind, fields), blob in cut.items() if kind == "sidecar-sbbf-v1"
    }
    pages = {
        fields[0]: Blob.of(blob, b"SCPI")
        for (kind, fields), blob in cut.items()
        if kind == "sidecar-page-index-v1"
    }
    return Vector(data, expected, meta, bundles, pages, Blob.of(cut["sidecar-units-v1", ()], b"SCUN"))


def test_page_indexes(vector):
    for described in vector.expected.get("page_indexes", ()):
        found = page_index(vector.page_indexes[described["field"]], described["unit"])
        wanted = {key: value for key, value in described.items() if key not in ("field", "unit")}
        assert (found or {"column_index": None, "offset_index": None}) == wanted


def test_lookups(vector):
    total = vector.expected["units"]
    for lookup in vector.expected["lookups"]:
        bundle = vector.bundles[lookup["field"]]
        keep = set(range(total))
        for number, group in enumerate(bundle.toc["groups"]):
            plain = bytes.fromhex(lookup["plain"][group["encoding"]])
            keep -= set(members(group["units"])) - ask_group(bundle, number, plain)
        assert sorted(keep) == lookup["units"]
        assert bundle.toc["units"]["count"] == total


def test_the_directory_repeats_every_table_of_contents(vector):
    place = json.loads(vector.footer["properties"]["sidecar.toc"])
    directory = Blob.of(vector.data[place["offset"] : place["offset"] + place["length"]], b"SCTC")
    others = [blob for blob in vector.footer["blobs"] if blob["type"] != "sidecar-toc-v1"]
    for blob, entry in zip(others, directory.toc["blobs"], strict=True):
        assert all(blob[key] == entry[key] for key in ("type", "fields", "offset", "length"))
        at, length = entry["toc"]
        copy = directory.data[at : at + length]
        assert copy == vector.data[blob["offset"] + blob["length"] - length : blob["offset"] + blob["length"]]
        assert f"{xxh64_intdigest(copy):016x}" == entry["digest"]
        assert entry["segment"] == vector.expected["segment"]


def test_bundles_name_their_units(vector):
    toc = vector.units.toc
    digest = f"{xxh64_intdigest(vector.units.data[toc['toc_offset'] :]):016x}"
    for field, bundle in [*vector.bundles.items(), *vector.page_indexes.items()]:
        assert bundle.toc["units"] == {"count": toc["units"], "digest": digest}
        assert (bundle.toc["field"], bundle.toc["segment"]) == (field, toc["segment"])
        assert bundle.toc["table"] == toc["table"] == vector.expected["table_uuid"]


def test_units(vector):
    expected, toc = vector.expected, vector.units.toc
    pieces = sections(vector.units)
    files = expected["files"]
    assert (toc["files"], toc["units"], toc["snapshot"]) == (
        len(files),
        expected["units"],
        expected["snapshot_id"],
    )
    prints = b"".join(pieces["fingerprints", 0])
    assert [prints[at : at + 16].hex() for at in range(0, len(prints), 16)] == [
        f["fingerprint"] for f in files
    ]
    for file in files:
        hashed = file["path"].encode() + struct.pack("<QQ", file["file_size"], file["record_count"])
        digests = xxh64_intdigest(hashed, 0), xxh64_intdigest(hashed, 1)
        assert struct.pack("<QQ", *digests).hex() == file["fingerprint"]
    counts = [1] * len(files)
    if toc["unit_width"]:
        code = {1: "B", 2: "H", 4: "I"}[toc["unit_width"]]
        counts = [n for (n,) in struct.iter_unpack("<" + code, b"".join(pieces["unit_counts", 0]))]
    starts = [sum(counts[:ordinal]) for ordinal in range(len(files))]
    assert [list(pair) for pair in zip(starts, counts, strict=True)] == [file["units"] for file in files]
    for piece, coverage in zip(pieces["coverage", 0], expected["coverage"], strict=True):
        (length,) = struct.unpack_from("<I", piece)
        said = json.loads(piece[4 : 4 + length])
        runs = [[n, *said["states"][place]] for n, place in struct.iter_unpack("<II", piece[4 + length :])]
        assert (said["field"], said["kind"], runs) == (coverage["field"], coverage["kind"], coverage["runs"])


def test_each_deviation_names_a_test_that_exists():
    page = (VECTORS.parent / "SPEC.md").read_text()
    table = page.partition("## Deviations from the published text")[2]
    lines = [line for line in table.splitlines() if line.startswith("| ") and "---" not in line][1:]
    assert lines
    for line in lines:
        path, _, name = line.rstrip("| ").rpartition("`")[0].rpartition("`")[2].partition("::")
        assert f"def {name}(" in (VECTORS.parents[1] / path).read_text(), line


# --- from here on, sidecar's own reader -----------------------------------------------------------------------


def test_sidecar_gives_the_same_answers(vector):
    from sidecar.bundle.extract import extract_filters
    from sidecar.bundle.sidecar_file import SidecarFile
    from sidecar.bundle.verify import verify_sidecar
    from sidecar.filters.values import Probe
    from sidecar.source import BytesSource

    source, expected = BytesSource(vector.data), vector.expected
    assert verify_sidecar(source) == []
    (segment,) = SidecarFile.open(source, strict=True).segments
    for lookup in expected["lookups"]:

        def probe(encoding, plain=lookup["plain"]):
            return Probe("probe", (xxh64_intdigest(bytes.fromhex(plain[encoding.name])),))

        assert segment.might_match(lookup["field"], probe).nonzero()[0].tolist() == lookup["units"]
    for ordinal, file in enumerate(expected["files"]):
        assert segment.file_ordinal(file["path"], file["file_size"], file["record_count"]) == ordinal
        (entry,) = segment.files([ordinal])
        assert (entry.path, entry.manifest, entry.entry.hex()) == (
            file["path"],
            file["manifest"],
            file["entry"],
        )
    assert [vars(manifest) for manifest in segment.listed_manifests] == expected["manifests"]
    for described in expected.get("page_indexes", ()):
        stored = segment.page_index(described["field"], described["unit"])
        column, offset, kind = stored or (None, None, None)
        assert (column or b"").hex() == (described["column_index"] or "")
        assert (offset or b"").hex() == (described["offset_index"] or "")
        assert kind is None or kind._asdict().items() <= described.items()
    bitsets = {
        (field_id, unit): bitset
        for field_id, groups in segment.fields.items()
        for group in groups
        for unit, bitset in extract_filters(segment, field_id, group)
    }
    for described in expected["filters"]:
        bitset = bitsets[described["field"], described["unit"]]
        assert len(bitset) == described["bytes"]
        assert hashlib.sha256(bitset).hexdigest() == described["sha256"]


def test_the_script_still_makes_these_answers(monkeypatch, tmp_path):
    """Answers, not bytes: those of the Arrow pieces may differ from one pyarrow to the next."""
    import importlib.util

    script = VECTORS.parent / "make_vectors.py"
    spec = importlib.util.spec_from_file_location("make_vectors", script)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, "make_vectors", module)
    spec.loader.exec_module(module)
    for name in NAMES:
        _, answers = getattr(module, name)()
        frozen = json.loads((VECTORS / f"{name}.expected.json").read_text())
        del frozen["blobs"]
        assert json.loads(json.dumps(answers)) == frozen
