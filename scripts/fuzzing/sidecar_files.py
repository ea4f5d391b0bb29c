"""The blobs of sidecars: units, filters, indexes, sketches, tables of contents, encrypted ones, and the properties.

A changed field has good checksums everywhere, so only what a reader checks beside them protects it. Whatever is changed
without these (blind bytes, the footer, and anything that nobody without a key can make good) must not drop a file.
"""

from __future__ import annotations

import json
import random
import struct
from functools import cache
from typing import Any, ClassVar

import pyarrow as pa

from scripts.fuzzing.cases import Case, Change, Fuzzer, WrongAnswerError
from scripts.fuzzing.encrypted_layout import data_keys_of, encrypted_pieces_of, lock, put_encrypted
from scripts.fuzzing.mutation import bytes_like, number_like, text_like
from scripts.fuzzing.puffin_files import payload_of, with_payload
from scripts.fuzzing.sidecar_layout import (
    StoredSketches,
    content_of,
    pieces_of,
    put_lengths,
    put_piece,
    put_section,
    with_directory,
    with_properties,
)
from scripts.fuzzing.sidecar_reading import Truth, answers_of, denied, read_everything, truth_of, vector
from scripts.fuzzing.theta_sketches import sketch_changed
from scripts.fuzzing.trees import MANY, json_bytes, json_changed, json_extended
from tests.iceberg.forging import Forgery, StoredBlob, sections_of


class SidecarFuzzer(Fuzzer):
    """What all parts of a sidecar have in common: the seeds are the frozen vectors."""

    vectors: ClassVar[tuple[str, ...]] = ("small", "orc", "pages", "rows", "sketches")
    never_denies: ClassVar[bool] = False
    """Whether no change of fields may drop a file: what is changed has no meaning for lookups, or is authenticated."""

    def make_seeds(self) -> list[bytes]:
        return [vector(name) for name in self.vectors]

    def truth(self, seed: int) -> Truth:
        return truth_of(self.vectors[seed])

    def read(self, case: Case) -> None:
        truth = self.truth(case.seed)
        if case.change is Change.NEUTRAL and answers_of(case.data, truth) != _sound_answers(self.vectors[case.seed]):
            raise WrongAnswerError("something that readers ignore changes the answers")
        if case.change is Change.BLIND or self.never_denies:
            lost = denied(case.data, truth)
            if lost:
                raise WrongAnswerError(f"{len(lost)} denied: {lost[0]}")
        read_everything(case.data, truth)

    def extended(self, rng: random.Random, seed: int) -> bytes | None:
        """A member that no reader knows in the table of contents of some blob."""
        forged = Forgery.of(self.seeds[seed])
        blob = rng.choice([blob for blob in forged.blobs if blob.version != 3])
        blob.toc = json_extended(rng, blob.toc)
        forged.link()
        return forged.stored()


@cache
def _sound_answers(name: str) -> list[Any]:
    return answers_of(vector(name), truth_of(name))


class SidecarUnits(SidecarFuzzer):
    name = "sidecar-units"
    what = "units tables of sidecars: files, bounds, manifests, coverage"

    def changed(self, rng: random.Random, seed: int) -> bytes:
        forged = Forgery.of(self.seeds[seed])
        units = forged.units()
        sections = {name: pieces for name, pieces in sections_of(units).items() if pieces}
        name = rng.choice(list(sections))
        if name[0] == "lengths":
            put_lengths(units, _numbers_changed(rng, sections[name][0], "<I"))
        else:
            number = rng.randrange(len(sections[name]))
            put_section(units, name, number, section_changed(rng, name[0], sections[name][number]))
        if rng.random() < 0.1:
            units.toc = toc_changed(rng, units)
        if rng.random() < 0.9:
            _link(forged)
        return forged.stored()


def toc_changed(rng: random.Random, blob: StoredBlob) -> dict[str, Any]:
    """A table of contents with another value. It keeps the segment, without which the blob cannot be stored."""
    changed = json_changed(rng, {name: value for name, value in blob.toc.items() if name != "segment"})
    return (changed if isinstance(changed, dict) else {"groups": changed}) | {"segment": blob.segment}


def _link(forged: Forgery) -> None:
    """Have the blobs name the changed units, if the units can still be named."""
    if "units" in forged.units().toc:
        forged.link()


def section_changed(rng: random.Random, name: str, content: bytes) -> bytes:
    """Other content of a piece of a section, mostly of the same form."""
    if rng.random() < 0.25:
        return bytes_like(rng, content)
    if name == "fingerprints":
        return _numbers_changed(rng, content, "<q")
    if name == "unit_counts":
        return bytes_like(rng, content)
    if name == "coverage":
        return coverage_changed(rng, content)
    return arrow_changed(rng, content)


def _numbers_changed(rng: random.Random, content: bytes, form: str) -> bytes:
    size = struct.calcsize(form)
    numbers = [n for (n,) in struct.iter_unpack(form, content[: len(content) // size * size])]
    if numbers:
        numbers[rng.randrange(len(numbers))] = number_like(rng, rng.choice(numbers))
    mask = (1 << 8 * size) - 1
    return b"".join((number & mask).to_bytes(size, "little") for number in numbers)


def coverage_changed(rng: random.Random, content: bytes) -> bytes:
    """Other states or runs of a coverage: u32 length, JSON, and pairs of u32."""
    (length,) = struct.unpack_from("<I", content)
    said, runs = content[4 : 4 + length], content[4 + length :]
    if rng.random() < 0.5:
        said = json_bytes(json_changed(rng, json.loads(said)))
    else:
        runs = _numbers_changed(rng, runs, "<I")
    stated = len(said) if rng.random() < 0.8 else number_like(rng, len(said)) & 0xFFFFFFFF
    return struct.pack("<I", stated) + said + runs


def arrow_changed(rng: random.Random, content: bytes) -> bytes:
    """An Arrow stream with another value, another type of a column, other rows, or damage of its bytes."""
    with pa.ipc.open_stream(content) as reader:
        table = reader.read_all()
    rows, schema = table.to_pylist(), table.schema
    way = rng.randrange(8)
    if way == 0:
        at = rng.randrange(len(schema))
        kind = rng.choice((pa.int8(), pa.string(), pa.binary(), pa.list_(pa.int64()), pa.null()))
        schema = schema.set(at, pa.field(schema.names[at], kind))
        rows = [row | {schema.names[at]: None} for row in rows]
    elif way == 1 and rows:
        rows = rows[: rng.randrange(len(rows))] + rows[-1:] * rng.choice(MANY)
    elif rows:
        row, name = rng.choice(rows), rng.choice(schema.names)
        row[name] = _other_cell(rng, row[name])
    try:
        batch = pa.RecordBatch.from_pylist(rows, schema)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return bytes_like(rng, content)
    options = pa.ipc.IpcWriteOptions(compression=rng.choice((None, "zstd", "lz4")))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for _ in range(rng.choice((1, 1, 1, 0, 2))):
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _other_cell(rng: random.Random, value: Any) -> Any:
    if rng.random() < 0.1:
        return None
    if isinstance(value, bytes):
        return bytes_like(rng, value)
    if isinstance(value, str):
        return text_like(rng, value).encode("utf-8", "replace").decode("utf-8", "replace")
    if isinstance(value, list):
        if value and rng.random() < 0.7:
            at = rng.randrange(len(value))
            return [*value[:at], _other_cell(rng, value[at]), *value[at + 1 :]]
        return value * rng.choice(MANY)
    if isinstance(value, dict):
        name = rng.choice(list(value))
        return value | {name: _other_cell(rng, value[name])}
    return number_like(rng, value or 0)


class SidecarPieces(SidecarFuzzer):
    """Pieces of the blobs of fields, changed in their place."""

    def make_seeds(self) -> list[bytes]:
        seeds = super().make_seeds()
        self.pieces = [pieces_of(data) for data in seeds]
        return seeds

    def changed(self, rng: random.Random, seed: int) -> bytes:
        forged = Forgery.of(self.seeds[seed])
        choices = [
            (blob, pieces)
            for blob, pieces in zip(forged.blobs, self.pieces[seed], strict=True)
            if blob.fields and pieces
        ]
        blob, pieces = rng.choice(choices)
        kinds: dict[bytes, list[Any]] = {}
        for piece in pieces:
            kinds.setdefault(piece.context[:4], []).append(piece)  # there are far fewer tables than entries
        piece = rng.choice(kinds[rng.choice(list(kinds))])
        content = content_of(blob, piece)
        put_piece(blob, piece, rng.choice((bytes_like, _as_numbers))(rng, content))
        if rng.random() < 0.3:
            blob.toc["groups"] = json_changed(rng, blob.toc["groups"])
        return forged.stored()


def _as_numbers(rng: random.Random, content: bytes) -> bytes:
    return _numbers_changed(rng, content, rng.choice(("<I", "<q")))


class SidecarFilters(SidecarPieces):
    name = "sidecar-filter"
    what = "bundles of split-block and ORC filters in sidecars"
    vectors = ("small", "orc", "rows")


class SidecarIndexes(SidecarPieces):
    name = "sidecar-index"
    what = "page indexes and row indexes in sidecars"
    vectors = ("pages", "orc")


class SidecarSketches(SidecarFuzzer):
    name = "sidecar-sketch"
    what = "theta sketches of groups of files in sidecars"
    vectors = ("sketches",)
    never_denies = True  # no plan reads a sketch

    def changed(self, rng: random.Random, seed: int) -> bytes:
        forged = Forgery.of(self.seeds[seed])
        blob = rng.choice([blob for blob in forged.blobs if blob.toc["kind"] == "theta-groups"])
        stored = StoredSketches.of(blob)
        if rng.random() < 0.5:
            at = rng.randrange(len(stored.sketches))
            stored.sketches[at] = sketch_changed(rng, stored.sketches[at])
            if rng.random() < 0.9:
                stored.table["sketches"][at]["length"] = len(stored.sketches[at])
        else:
            stored.table = json_changed(rng, stored.table)
        stored.put(blob, bytes_like(rng, json_bytes(stored.table)) if rng.random() < 0.1 else None)
        if rng.random() < 0.2:
            blob.toc["groups"] = json_changed(rng, blob.toc["groups"])
        return forged.stored()


class SidecarContents(SidecarFuzzer):
    name = "sidecar-contents"
    what = "tables of contents, their copies and the directory of sidecars"

    def changed(self, rng: random.Random, seed: int) -> bytes:
        if rng.random() < 0.3:
            return with_directory(self.seeds[seed], lambda toc: json_changed(rng, toc))
        forged = Forgery.of(self.seeds[seed])
        blob = rng.choice(forged.blobs)
        if rng.random() < 0.8:
            blob.toc = toc_changed(rng, blob)
        if rng.random() < 0.2:
            blob.version = rng.choice((0, 1, 2, 3, 4))
        if rng.random() < 0.2:
            blob.magic = rng.choice([other.magic for other in forged.blobs])
        if rng.random() < 0.5:
            _link(forged)
        change_copies = rng.random() < 0.3
        return forged.stored(lambda toc: change_copies and toc.update(self._changed_copy(rng, toc)))

    @staticmethod
    def _changed_copy(rng: random.Random, toc: dict[str, Any]) -> dict[str, Any]:
        changed = json_changed(rng, toc)
        return changed if isinstance(changed, dict) else {}

    def extended(self, rng: random.Random, seed: int) -> bytes | None:
        if rng.random() < 0.5:
            return super().extended(rng, seed)
        return with_directory(self.seeds[seed], lambda toc: json_extended(rng, toc))


class EncryptedSidecars(SidecarFuzzer):
    """Half of the changes are by somebody without keys, half by a writer with keys who writes nonsense."""

    name = "sidecar-encrypted"
    what = "encrypted filters and indexes in sidecars"
    vectors = ("encrypted",)

    def make_seeds(self) -> list[bytes]:
        seeds = super().make_seeds()
        truth = truth_of("encrypted")
        assert truth.keys is not None
        self.pieces = encrypted_pieces_of(seeds[0], truth.keys)
        self.data_keys = data_keys_of(seeds[0], truth.masters)
        return seeds

    def extended(self, rng: random.Random, seed: int) -> bytes | None:
        """Every table of contents is authenticated: who adds a member without the keys is noticed."""
        return None

    def changed(self, rng: random.Random, seed: int) -> bytes:
        """What somebody with the keys can write."""
        forged = Forgery.of(self.seeds[seed])
        at = rng.choice([number for number, key in enumerate(self.data_keys) if key is not None])
        blob, key = forged.blobs[at], self.data_keys[at]
        assert key is not None
        if rng.random() < 0.6:
            piece = rng.choice(self.pieces[at])
            put_encrypted(rng, blob, piece, bytes_like(rng, piece.data))
        else:
            blob.toc["groups"] = json_changed(rng, blob.toc["groups"])
            lock(rng, forged, blob, key, truth_of("encrypted").masters)
        return forged.stored()

    def blind(self, rng: random.Random, seed: int) -> bytes:
        """What somebody without keys can write: any bytes, and any field with good checksums."""
        if rng.random() < 0.3:
            return super().blind(rng, seed)
        forged = Forgery.of(self.seeds[seed])
        blob = rng.choice(forged.blobs)
        way = rng.random()
        if way < 0.5:
            blob.toc = toc_changed(rng, blob)
            if rng.random() < 0.5:
                blob.version = rng.choice((1, 2, 3))
        elif way < 0.8:
            units = forged.units()
            sections = {name: pieces for name, pieces in sections_of(units).items() if pieces}
            name = rng.choice([name for name in sections if name[0] != "lengths"])
            number = rng.randrange(len(sections[name]))
            put_section(units, name, number, section_changed(rng, name[0], sections[name][number]))
        else:
            other = rng.choice(forged.blobs)
            blob.body, blob.toc["groups"] = other.body, other.toc.get("groups", [])
        if rng.random() < 0.7:
            _link(forged)
        return forged.stored()


class SidecarProperties(SidecarFuzzer):
    """No plan uses the state or the history, so nothing that they say may change an answer."""

    name = "sidecar-state"
    what = "state and history in the properties of sidecars"
    never_denies = True
    STATE: ClassVar[dict[str, Any]] = {
        "snapshot": 77,
        "mapping": "0123456789abcdef",
        "columns": {
            "1": {"type": "long", "kinds": ["bloom", "theta"], "fpp": 0.01, "left": {"bloom": 2}},
            "4": {"type": "decimal(9, 2)", "kinds": ["page-index"], "fpp": "auto", "left": {}},
        },
    }
    HISTORY: ClassVar[list[dict[str, Any]]] = [
        {
            "at": "2026-01-01T00:00:00+00:00", "seconds": 1.5, "what": what, "snapshot_id": 77, "files": 3,
            "indexed": 2, "carried": 1, "left": 0, "bytes_read": 10, "bytes_carried": 20,
        }
        for what in ("build", "refresh")
    ]  # fmt: skip

    def changed(self, rng: random.Random, seed: int) -> bytes:
        state, history = json.dumps(self.STATE), json.dumps(self.HISTORY)
        way = rng.random()
        if way < 0.5:
            state = json.dumps(json_changed(rng, self.STATE))
        elif way < 0.8:
            history = json.dumps(json_changed(rng, self.HISTORY))
        else:
            state = text_like(rng, state)
        return with_properties(self.seeds[seed], {"sidecar.state": state, "sidecar.history": history})

    def extended(self, rng: random.Random, seed: int) -> bytes | None:
        return with_properties(self.seeds[seed], {"sidecar.state": json.dumps(json_extended(rng, self.STATE))})


class SidecarFooters(SidecarFuzzer):
    """The footer has no checksum, so it is only a hint: whatever it says, no file is dropped."""

    name = "sidecar-footer"
    what = "Puffin footers of sidecars"
    vectors = ("small", "orc", "pages", "rows", "sketches", "encrypted")
    never_denies = True

    def changed(self, rng: random.Random, seed: int) -> bytes:
        return with_payload(self.seeds[seed], json_changed(rng, payload_of(self.seeds[seed])))

    def extended(self, rng: random.Random, seed: int) -> bytes | None:
        payload = payload_of(self.seeds[seed])
        blob = rng.choice(payload["blobs"])
        blob["later"] = 1
        return with_payload(self.seeds[seed], payload)
