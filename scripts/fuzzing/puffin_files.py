"""The footer of Puffin files: JSON, plain or in an LZ4 frame."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import lz4.frame

from scripts.fuzzing.cases import Case, Change, Fuzzer, WrongAnswerError, attempt_each, value_of
from scripts.fuzzing.trees import UNKNOWN, json_changed, json_extended
from sidecar.puffin.inspect import inspect_puffin, verify_puffin
from sidecar.puffin.metadata import FileMetadata
from sidecar.puffin.reader import PuffinReader
from sidecar.storage.source import BytesSource

ROOT = Path(__file__).resolve().parents[2]
MAGIC = b"PFA1"


def payload_of(data: bytes) -> Any:
    """The JSON of a plain footer."""
    length = int.from_bytes(data[-12:-8], "little")
    return json.loads(data[-12 - length : -12])


def with_payload(data: bytes, payload: Any, *, compressed: bool = False) -> bytes:
    """The file with another footer around the same blobs."""
    old = int.from_bytes(data[-12:-8], "little") + 16
    text = json.dumps(payload).encode("utf-8", "surrogatepass")
    if compressed:
        text = lz4.frame.compress(text, content_checksum=True, store_size=True)
    return data[:-old] + MAGIC + text + len(text).to_bytes(4, "little") + bytes([compressed, 0, 0, 0]) + MAGIC


class PuffinFooters(Fuzzer):
    name = "puffin-footer"
    what = "footer and blobs of Puffin files"

    def make_seeds(self) -> list[bytes]:
        folder = ROOT / "tests" / "data" / "puffin"
        plain = [(folder / "sample-metric-data-uncompressed.bin").read_bytes()]
        plain.append((ROOT / "spec_vectors" / "published" / "iceberg.puffin").read_bytes())
        self.compressed = len(plain)
        packed = with_payload(plain[0], payload_of(plain[0]), compressed=True)
        return [*plain, packed, (folder / "sample-metric-data-compressed-zstd.bin").read_bytes()]

    def _document(self, seed: int) -> tuple[bytes, Any]:
        data = self.seeds[seed if seed != self.compressed else 0]
        return data, payload_of(data)

    def changed(self, rng: random.Random, seed: int) -> bytes:
        data, document = self._document(seed)
        return with_payload(data, json_changed(rng, document), compressed=rng.random() < 0.2)

    def extended(self, rng: random.Random, seed: int) -> bytes:
        data, document = self._document(seed)
        holder = rng.choice([document, *document["blobs"]])
        holder[UNKNOWN] = json_extended(rng, {"a": 1})
        return with_payload(data, document, compressed=rng.random() < 0.2)

    def read(self, case: Case) -> None:
        source = BytesSource(case.data, "it.puffin")
        verify_puffin(source)
        attempt_each([lambda: PuffinReader(source), lambda: inspect_puffin(source), lambda: self._blobs(source)])
        found = value_of(lambda: PuffinReader(source).metadata)
        sound = PuffinReader(BytesSource(self.seeds[case.seed])).metadata
        if case.change is Change.NEUTRAL and (found is None or known_part(found) != known_part(sound)):
            raise WrongAnswerError("an unknown key changes what the footer says")
        is_sealed = case.seed == self.compressed and case.change is Change.BLIND
        if is_sealed and found is not None and known_part(found) != known_part(sound):
            raise WrongAnswerError("damage of a footer with a checksum is not noticed")

    @staticmethod
    def _blobs(source: BytesSource) -> None:
        reader = PuffinReader(source)
        for blob in reader.metadata.blobs[:8]:
            value_of(lambda blob=blob: reader.read_blob(blob))  # type: ignore[misc]


def known_part(metadata: FileMetadata) -> list[tuple[object, ...]]:
    """What a footer says, without unknown keys."""
    return [
        (b.type, b.fields, b.snapshot_id, b.sequence_number, b.offset, b.length, b.compression_codec, b.properties)
        for b in metadata.blobs
    ]
