"""ORC files: tail, row indexes and filters, stripe footers and streams of values."""

from __future__ import annotations

import io
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.orc

from scripts.fuzzing.cases import Case, Change, ExactSource, Fuzzer, WrongAnswerError, attempt_each, value_of
from scripts.fuzzing.mutation import bytes_like, number_like
from scripts.fuzzing.orc_layout import OrcLayout
from scripts.fuzzing.parquet_files import rows_of, sound_rows
from scripts.fuzzing.trees import protobuf_changed
from sidecar.orc.inspect import inspect_file, probe_file
from sidecar.orc.protobuf import BYTES, VARINT, Field, Message, decode, encode
from sidecar.orc.tail import read_tail
from sidecar.orc.verify.verify import verify_file
from tests.hostile_doors import doors
from tests.orc.decode_cases import random_table
from tests.orc.files import read_all
from tests.orc.test_decode_damage import read_everything

COLUMNS = 6
"""Columns that are asked for a value."""
ROOT = Path(__file__).resolve().parents[2]
FOREIGN = (
    "tests/data/orc/apache_bad_bloom_filter_1.6.11.orc",
    "tests/data/orc/java_encrypted.orc",
    "tests/data/orc/spark_zstd_nested.orc",
    "spec_vectors/published/orc_java.orc",
    "spec_vectors/published/orc_pyorc.orc",
)


@cache
def sound_files() -> tuple[bytes, ...]:
    """Small files of several writers, codecs and types, with row indexes and filters."""
    made = []
    for codec in ("uncompressed", "zstd", "zlib"):
        sink = io.BytesIO()
        table = random_table(random.Random(codec), 90)
        options: dict[str, Any] = {"row_index_stride": 30, "bloom_filter_columns": [0, 3, 7, 8]}
        pyarrow.orc.write_table(table, sink, compression=codec, dictionary_key_size_threshold=0.5, **options)
        made.append(sink.getvalue())
    return (*made, *((ROOT / name).read_bytes() for name in FOREIGN))


class OrcFuzzer(Fuzzer):
    """What all parts of an ORC file have in common: the seeds, and what reads them."""

    every_door = 25
    """One case in so many goes through every door, the others only to what decodes the parts."""

    def make_seeds(self) -> list[bytes]:
        self.folder = tempfile.TemporaryDirectory()
        return list(sound_files())

    def read(self, case: Case) -> None:
        source = ExactSource(case.data, "it.orc")
        if case.change is Change.NEUTRAL:
            found = value_of(lambda: rows_of(case.data))
            if found != value_of(lambda: sound_rows(self.seeds[case.seed])):
                raise WrongAnswerError("a field that readers do not know changes the rows")
        if len(case.data) % self.every_door == 0:
            path = Path(self.folder.name, "it.orc")
            path.write_bytes(case.data)
            for _, call in doors(str(path), Path(self.folder.name)):
                value_of(call)
        verify_file(source)
        read_everything(case.data)
        attempt_each(
            [
                lambda: inspect_file(source),
                lambda: read_all(source, legacy=True),
                lambda: rows_of(case.data),
                *(lambda name=name: probe_file(source, name, 5) for name in leaves_of(source)),
            ]
        )


def leaves_of(source: ExactSource) -> list[str]:
    """The names of columns with values, decimals first; none if the tail cannot be read."""
    tail = value_of(lambda: read_tail(source))
    found = [] if tail is None else [column for column in tail.columns if not column.is_compound]
    return [column.path for column in sorted(found, key=lambda one: one.kind != "DECIMAL")][:COLUMNS]


def unknown_field(rng: random.Random) -> Field:
    """A field that no reader knows."""
    return rng.choice(((5000, VARINT, 1), (6000, BYTES, b"later")))


def with_unknown(rng: random.Random, data: bytes) -> bytes:
    """The bytes of a message with a field that no reader knows."""
    fields = decode(data).fields
    fields.insert(rng.randrange(len(fields) + 1), unknown_field(rng))
    return encode(Message(fields))


def digits_changed(rng: random.Random, data: bytes) -> bytes:
    """A footer with another precision or scale of one of its types, mostly of a decimal."""
    footer = decode(data)
    types = footer.messages(_TYPES)
    decimals = [one for one in types if one.has(_PRECISION)]
    chosen = rng.choice(decimals if decimals and rng.random() < 0.9 else types)
    number = rng.choice((_PRECISION, _SCALE))
    chosen.set(number, number_like(rng, chosen.varint(number)))
    footer.set_all(_TYPES, types)
    return encode(footer)


_TYPES, _PRECISION, _SCALE = 4, 5, 6  # fields of a footer and of a type


class OrcTails(OrcFuzzer):
    name = "orc-tail"
    what = "postscript, footer and statistics of ORC files"

    def changed(self, rng: random.Random, seed: int) -> bytes:
        layout = OrcLayout(self.seeds[seed])
        part = rng.random()
        if part < 0.2:
            layout.change_footer = lambda data: digits_changed(rng, data)
        elif part < 0.7:
            layout.change_footer = lambda data: protobuf_changed(rng, data)
        elif part < 0.85:
            layout.change_postscript = lambda data: protobuf_changed(rng, data)
        elif layout.metadata:
            layout.metadata = layout.packed(protobuf_changed(rng, layout.unpacked(layout.metadata)))
        return layout.file()

    def blind(self, rng: random.Random, seed: int) -> bytes:
        layout = OrcLayout(self.seeds[seed])
        layout.change_footer = lambda data: bytes_like(rng, data)
        return layout.file()

    def extended(self, rng: random.Random, seed: int) -> bytes:
        layout = OrcLayout(self.seeds[seed])
        layout.change_footer = lambda data: with_unknown(rng, data)
        return layout.file()


class OrcRowIndexes(OrcFuzzer):
    name = "orc-row-index"
    what = "row indexes and Bloom filters of ORC files"

    def changed(self, rng: random.Random, seed: int) -> bytes:
        return self._with_index(rng, seed, lambda data: protobuf_changed(rng, data))

    def blind(self, rng: random.Random, seed: int) -> bytes:
        return self._with_index(rng, seed, lambda data: bytes_like(rng, data))

    def extended(self, rng: random.Random, seed: int) -> bytes:
        return self._with_index(rng, seed, lambda data: with_unknown(rng, data))

    def _with_index(self, rng: random.Random, seed: int, change: Any) -> bytes:
        layout = OrcLayout(self.seeds[seed])
        stream = rng.choice(layout.streams(index=True) or OrcLayout(self.seeds[0]).streams(index=True))
        if stream.kind != "ENCRYPTED_INDEX":
            stream.data = layout.packed(change(layout.content(stream)))
        return layout.file()


class OrcStreams(OrcFuzzer):
    name = "orc-stream"
    what = "stripe footers and streams of values of ORC files"

    def changed(self, rng: random.Random, seed: int) -> bytes:
        layout = OrcLayout(self.seeds[seed])
        if rng.random() < 0.4:
            rng.choice(layout.stripes).change = lambda data: protobuf_changed(rng, data)
            return layout.file()
        stream = rng.choice(layout.streams(index=False))
        if stream.kind != "ENCRYPTED_DATA":
            stream.data = layout.packed(bytes_like(rng, layout.content(stream)))
        return layout.file()
