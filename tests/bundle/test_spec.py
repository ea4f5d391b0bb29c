"""SPEC.md is enough: the reader in ``spec_reader``, written from it alone, gives the answers beside the vectors.

The vectors are frozen. Up to the line that says so, nothing of sidecar is used; sidecar's own reader must give the same
answers.
"""

from __future__ import annotations

import hashlib
import json
import struct

import pytest
from xxhash import xxh64_intdigest

from tests.bundle.spec_reader import (
    NAMES,
    VECTORS,
    Blob,
    Vector,
    ask_group,
    footer,
    group_sketches,
    members,
    orc_hash,
    page_index,
    row_index,
    sections,
)


@pytest.fixture(params=NAMES, scope="module")
def vector(request) -> Vector:
    data = (VECTORS / f"{request.param}.stats").read_bytes()
    expected = json.loads((VECTORS / f"{request.param}.expected.json").read_text())
    meta = footer(data)
    cut = {(b["type"], tuple(b["fields"])): data[b["offset"] : b["offset"] + b["length"]] for b in meta["blobs"]}
    masters = expected.get("master_keys")
    kinds = {"sidecar-sbbf-v1": b"SCBF", "sidecar-orc-bloom-v1": b"SCOB"}
    bundles: dict[int, list[Blob]] = {}
    for (kind, fields), blob in cut.items():
        if kind in kinds:
            bundles.setdefault(fields[0], []).append(Blob.of(blob, kinds[kind]))
    indexes = {
        name: {fields[0]: Blob.of(blob, magic) for (kind, fields), blob in cut.items() if kind == name}
        for name, magic in (
            ("sidecar-page-index-v1", b"SCPI"),
            ("sidecar-row-index-v1", b"SCRI"),
            ("sidecar-theta-groups-v1", b"SCTG"),
        )
    }
    units = Blob.of(cut["sidecar-units-v1", ()], b"SCUN")
    filters = [blob for several in bundles.values() for blob in several]
    for blob in (*filters, *(blob for kind in indexes.values() for blob in kind.values())):
        blob.unlock(masters or {}, units)
    return Vector(data, expected, meta, bundles, *indexes.values(), units)


def test_hashes_of_the_page():
    for number, digest in ((1, 0x5BCA7C69B794F8CE), (-1, 0x5BCA868437950D03), (0, 0)):
        assert orc_hash("orc/long", number.to_bytes(8, "little", signed=True)) == digest
    assert orc_hash("orc/bytes", b"abcdefghi") == 0x2B0BC4F4E20036A9
    assert orc_hash("orc/decimal:2", b"") == 0x74A18DC8F20ADB48


def test_page_indexes(vector):
    for described in vector.expected.get("page_indexes", ()):
        found = page_index(vector.page_indexes[described["field"]], described["unit"])
        wanted = {key: value for key, value in described.items() if key not in ("field", "unit")}
        assert (found or {"column_index": None, "offset_index": None}) == wanted


def test_row_indexes(vector):
    for described in vector.expected.get("row_indexes", ()):
        found = row_index(vector.row_indexes[described["field"]], described["unit"])
        wanted = {key: value for key, value in described.items() if key not in ("field", "unit")}
        assert (found or {"entry": None}) == wanted


def test_sketches_of_groups(vector):
    found = [{"field": field, **group} for field, blob in vector.sketches.items() for group in group_sketches(blob)]
    assert found == vector.expected.get("sketches", [])


def test_names_of_columns(vector):
    blobs = [blob for several in vector.bundles.values() for blob in several]
    blobs += [*vector.page_indexes.values(), *vector.row_indexes.values(), *vector.sketches.values()]
    for blob in blobs:
        assert blob.toc.get("column") == vector.expected["columns"].get(str(blob.toc["field"]))


def test_lookups(vector):
    total = vector.expected["units"]
    for lookup in vector.expected["lookups"]:
        keep = set(range(total))
        for bundle in vector.bundles[lookup["field"]]:
            for number, group in enumerate(bundle.toc["groups"]):
                plain = bytes.fromhex(lookup["plain"][group["encoding"]])
                keep -= set(members(group["units"])) - ask_group(bundle, number, plain)
            assert bundle.toc["units"]["count"] == total
        assert sorted(keep) == lookup["units"]


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
    bundles = [(field, bundle) for field, several in vector.bundles.items() for bundle in several]
    for field, bundle in [
        *bundles,
        *vector.page_indexes.items(),
        *vector.row_indexes.items(),
        *vector.sketches.items(),
    ]:
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
    assert [prints[at : at + 24].hex() for at in range(0, len(prints), 24)] == [f["fingerprint"] for f in files]
    for file in files:
        named = file["path"].encode() + struct.pack("<QQ", file["file_size"], file["record_count"])
        added, who = 0, file["added_snapshot_id"]
        if who is not None:
            added = xxh64_intdigest(named + struct.pack("<q", who), 1)
        numbers = xxh64_intdigest(named, 0), added, file["file_sequence_number"]
        assert struct.pack("<QQq", *numbers).hex() == file["fingerprint"]
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


# --- from here on, sidecar's own reader -----------------------------------------------------------------------


def test_sidecar_gives_the_same_answers(vector):
    from sidecar.bundle.file_identity import DataFileIdentity
    from sidecar.bundle.sidecar_file import SidecarFile
    from sidecar.bundle.verify import verify_sidecar
    from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys
    from sidecar.filters.probes import FieldQuestion
    from sidecar.filters.values import Probe
    from sidecar.storage.source import BytesSource
    from tests.bundle.cases import OneProbe, group_filters

    source, expected = BytesSource(vector.data), vector.expected
    masters = expected.get("master_keys", {})
    keys = EncryptionKeys(ExplicitKeys({n.encode(): bytes.fromhex(key) for n, key in masters.items()}))
    assert verify_sidecar(source, encryption_keys=keys) == []
    (segment,) = SidecarFile.open(source, strict=True, encryption_keys=keys).segments
    for lookup in expected["lookups"]:

        def probe(encoding, plain=lookup["plain"]):
            hashed = bytes.fromhex(plain[encoding.name])
            orc = encoding.name.startswith("orc/")
            return Probe("probe", (orc_hash(encoding.name, hashed) if orc else xxh64_intdigest(hashed),))

        assert (
            segment.might_match(FieldQuestion(lookup["field"], OneProbe(probe))).nonzero()[0].tolist()
            == lookup["units"]
        )
    columns = {str(i): {"name": list(c.path), "type": c.type} for i, c in segment.columns.items() if c is not None}
    assert columns == expected["columns"]
    for ordinal, file in enumerate(expected["files"]):
        named = file["path"], file["file_size"], file["record_count"]
        identity = DataFileIdentity(*named, file["added_snapshot_id"], file["file_sequence_number"])
        assert segment.file_ordinal(identity) == (None if file["added_snapshot_id"] is None else ordinal)
        assert segment.named_file(*named) == ordinal
        (entry,) = segment.files([ordinal])
        assert (entry.identity, entry.manifest, entry.entry.hex()) == (
            identity,
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
    for described in expected.get("row_indexes", ()):
        found = segment.row_indexes(described["field"], [described["unit"]]).get(described["unit"])
        assert (found and found.entry.hex()) == described["entry"]
        assert found is None or found.kind._asdict().items() <= described.items()
    loaded = [{"field": i, **vars(group)} for i, blob in segment.sketch_blobs.items() for group in blob.load()]
    as_text = [{**one, "files": one["files"].tolist(), "sketch": one["sketch"].hex()} for one in loaded]
    assert as_text == expected.get("sketches", [])
    bitsets = {
        (field_id, unit): bitset
        for field_id, groups in segment.fields.items()
        for group in groups
        for unit, bitset in group_filters(segment, field_id, group)
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
