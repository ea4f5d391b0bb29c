"""Manifests as no writer here makes them, by a small Avro writer of its own.

The order of fields, the fields that are there, fields that no reader knows, codecs, the division of files into Avro
blocks and of lists and maps into blocks with and without their length are all random.
"""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import zstandard
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from sidecar.iceberg.bytes_decoder import BytesDecoder
from sidecar.iceberg.manifests import ManifestContents

CODECS = {
    "null": lambda data: data,
    "deflate": lambda data: zlib.compress(data, 6)[2:-4],
    "zstandard": lambda data: zstandard.compress(data),
}
SYNC = bytes(range(16))
PARTITION_TYPES: list[Any] = [
    "int", "long", "string", "boolean", "float", "double", "bytes",
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
    {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"},
    {"type": "fixed", "name": "decimal_9_2", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2},
]  # fmt: skip


def long(value: int) -> bytes:
    """A zigzag varint."""
    coded, out = (value << 1) ^ (value >> 63), bytearray()
    while coded >= 0x80:
        out.append(coded & 0x7F | 0x80)
        coded >>= 7
    return bytes([*out, coded])


@dataclass
class AvroWriter:
    """Encodes values of Avro types. ``sized`` is the share of blocks of lists and maps that have their length."""

    rng: random.Random
    sized: float

    def encode(self, kind: Any, value: Any) -> bytes:
        if isinstance(kind, list):
            return long(0) if value is None else long(1) + self.encode(kind[1], value)
        name = kind["type"] if isinstance(kind, dict) else kind
        if isinstance(name, dict):
            return self.encode(name, value)
        if name == "record":
            return b"".join(self.encode(part["type"], value[part["name"]]) for part in kind["fields"])
        if name == "array":
            return self._blocks([self.encode(kind["items"], one) for one in value])
        if name in ("int", "long"):
            return long(value)
        if name in ("string", "bytes"):
            data = value.encode() if isinstance(value, str) else value
            return long(len(data)) + data
        if name == "fixed":
            return bytes(value)
        if name == "boolean":
            return bytes([value])
        return struct.pack({"float": "<f", "double": "<d"}[name], value)

    def file(self, metadata: Mapping[str, str], records: Sequence[bytes]) -> bytes:
        """An Avro file of these records, in blocks of any number of records."""
        codec, left = self.rng.choice(list(CODECS)), list(records)
        meta = {**metadata, "avro.codec": codec}
        pairs = [self.encode("string", key) + self.encode("string", value) for key, value in meta.items()]
        out = b"Obj\x01" + self._blocks(pairs) + SYNC
        while left:
            count = self.rng.randint(1, len(left))
            block, left = CODECS[codec](b"".join(left[:count])), left[count:]
            out += long(count) + long(len(block)) + block + SYNC
        return out

    def _blocks(self, items: list[bytes]) -> bytes:
        out = b""
        while items:
            count = self.rng.randint(1, len(items))
            block, items = b"".join(items[:count]), items[count:]
            out += long(-count) + long(len(block)) + block if self.rng.random() < self.sized else long(count) + block
        return out + long(0)


@dataclass
class RandomManifest:
    """A manifest file: its bytes, the writer's schema, and for each status how many entries have it."""

    rng: random.Random
    version: int
    statuses: list[int] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    known: dict[str, Any] = field(default_factory=dict)
    """Values that all entries have, by the names of their fields."""

    def __post_init__(self) -> None:
        self._writer = AvroWriter(self.rng, self.rng.choice((0.0, 0.5, 1.0)))
        self._names = 0
        self.file_fields = self._shuffled([*self._file_fields(), *self._foreign_fields()])
        data_file = {"type": "record", "name": "r2", "fields": self.file_fields}
        fields = [
            self._field(0, "status", "int"),
            self._field(1, "snapshot_id", "long" if self.version == 1 else ["null", "long"]),
            self._field(2, "data_file", data_file),
            *self._foreign_fields(),
        ]
        if self.version > 1:
            fields += [self._field(3, "sequence_number", ["null", "long"])]
            fields += [self._field(4, "file_sequence_number", ["null", "long"])]
        self.schema = {"type": "record", "name": "manifest_entry", "namespace": "n", "fields": self._shuffled(fields)}

    def data(self, entries: int) -> bytes:
        """The bytes of the file, with so many entries."""
        for number in range(entries):
            self._add_entry(number)
        return self._writer.file({"avro.schema": json.dumps(self.schema)}, self.records)

    def written_anew(self, contents: ManifestContents) -> bytes:
        """A manifest with the entries and the fields of another one, and with fields that no reader knows."""
        schema = json.loads(contents.avro_schema)
        reader = construct_reader(AvroSchemaConversion().avro_to_iceberg(schema))
        found = [_plain(schema, reader.read(BytesDecoder(one.raw))) for one in contents.entries]
        (data_file,) = [part["type"] for part in schema["fields"] if part["name"] == "data_file"]
        for record in (schema, data_file):
            record["fields"] = self._shuffled([*record["fields"], *self._foreign_fields()])
        records = [self._writer.encode(schema, self._with_foreign(schema, entry)) for entry in found]
        return self._writer.file({**contents.metadata, "avro.schema": json.dumps(schema)}, records)

    def _with_foreign(self, record: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
        made = {part["name"]: self._named(part, known) for part in record["fields"]}
        for part in record["fields"]:
            if part["name"] == "data_file":
                made["data_file"] = self._with_foreign(part["type"], known["data_file"])
        return made

    def _shuffled(self, fields: list[Any]) -> list[Any]:
        self.rng.shuffle(fields)
        return fields

    def _field(self, field_id: int, name: str, kind: Any) -> dict[str, Any]:
        found = {"name": name, "type": kind, "field-id": field_id}
        if isinstance(kind, list):
            found["default"] = None
        if self.rng.random() < 0.2:
            found |= {"aliases": [f"old_{name}"], "doc": "text", "order": "ignore"}
        return found

    def _map(self, key_id: int, value: str) -> Any:
        pair = [self._field(key_id, "key", "int"), self._field(key_id + 1, "value", value)]
        name = f"k{key_id}_v{key_id + 1}"
        return {"type": "array", "logicalType": "map", "items": {"type": "record", "name": name, "fields": pair}}

    def _file_fields(self) -> list[Any]:
        parts = self.rng.sample(PARTITION_TYPES, self.rng.randrange(5))
        partition = [self._field(1000 + at, f"part{at}", ["null", kind]) for at, kind in enumerate(parts)]
        needed = [
            self._field(100, "file_path", self.rng.choice(("string", {"type": "string"}))),
            self._field(101, "file_format", "string"),
            self._field(102, "partition", {"type": "record", "name": "r102", "fields": partition}),
            self._field(103, "record_count", "long"),
            self._field(104, "file_size_in_bytes", "long"),
        ]
        optional = [
            self._field(108, "column_sizes", ["null", self._map(117, "long")]),
            self._field(109, "value_counts", ["null", self._map(119, "long")]),
            self._field(110, "null_value_counts", ["null", self._map(121, "long")]),
            self._field(137, "nan_value_counts", ["null", self._map(138, "long")]),
            self._field(125, "lower_bounds", ["null", self._map(126, "bytes")]),
            self._field(128, "upper_bounds", ["null", self._map(129, "bytes")]),
            self._field(131, "key_metadata", ["null", "bytes"]),
            self._field(132, "split_offsets", ["null", {"type": "array", "items": "long", "element-id": 133}]),
            self._field(140, "sort_order_id", ["null", "int"]),
        ]
        if self.version > 1:
            needed.append(self._field(134, "content", "int"))
            optional.append(
                self._field(135, "equality_ids", ["null", {"type": "array", "items": "int", "element-id": 136}])
            )
            optional.append(self._field(143, "referenced_data_file", ["null", "string"]))
            optional.append(self._field(142, "first_row_id", ["null", "long"]))
        else:
            needed.append(self._field(105, "block_size_in_bytes", "long"))
        return needed + [one for one in optional if self.rng.random() < 0.7]

    def _foreign_fields(self) -> list[Any]:
        """Fields that no reader knows. pyiceberg refuses structs, lists and maps among them."""
        fields = []
        for _ in range(self.rng.randrange(4)):
            self._names += 1
            number = 5000 + 10 * self._names
            kind = self.rng.choice(
                (
                    "long", "string", "boolean", "float", "bytes",
                    {"type": "fixed", "name": f"fixed_{number}", "size": 5},
                )
            )  # fmt: skip
            fields.append(self._field(number, f"foreign{number}", kind if self.rng.random() < 0.5 else ["null", kind]))
        return fields

    def _add_entry(self, number: int) -> None:
        status = self.rng.choice((0, 1, 1, 2))
        self.statuses.append(status)
        known: dict[str, Any] = {
            "status": status,
            "content": 0,
            "file_path": f"s3://lake/é {number}.parquet",
            "file_format": self.rng.choice(("PARQUET", "parquet", "ORC", "AVRO")),
            "record_count": self.rng.randrange(1 << 40),
            "snapshot_id": self.rng.randrange(1, 1 << 62),
        }
        is_added = status == 1 and self.version > 1
        for name in ("snapshot_id", "sequence_number", "file_sequence_number"):
            if is_added and self.rng.random() < 0.5:
                known[name] = None
        self.records.append(self._writer.encode(self.schema, self._record(self.schema["fields"], known | self.known)))

    def _record(self, fields: list[Any], known: dict[str, Any]) -> dict[str, Any]:
        return {part["name"]: self._named(part, known) for part in fields}

    def _named(self, part: dict[str, Any], known: dict[str, Any]) -> Any:
        name = part["name"]
        return known[name] if name in known else self._value(part["type"], known)

    def _value(self, kind: Any, known: dict[str, Any]) -> Any:
        rng = self.rng
        if isinstance(kind, list):
            return None if rng.random() < 0.3 else self._value(kind[1], known)
        name = kind["type"] if isinstance(kind, dict) else kind
        if name == "record":
            return self._record(kind["fields"], known)
        if name == "array":
            # pyiceberg's compiled decoder gives other numbers for negative ones in lists and maps, which have none.
            items = [_not_negative(self._value(kind["items"], known)) for _ in range(rng.randrange(5))]
            if kind.get("logicalType") == "map":  # no key twice: readers may keep either value
                items = list({item["key"]: item for item in items}.values())
            return items
        if name == "int":
            return rng.randrange(-(1 << 31), 1 << 31) if rng.random() < 0.2 else rng.randrange(100)
        if name == "long":
            return rng.randrange(-(1 << 63), 1 << 63) if rng.random() < 0.1 else rng.randrange(1 << 45)
        if name == "string":
            return "".join(rng.choice("aé\U0001f422 '") for _ in range(rng.randrange(6)))
        if name == "bytes":
            return rng.randbytes(rng.randrange(200))
        if name == "fixed":
            return rng.randbytes(kind["size"])
        return rng.random() < 0.5 if name == "boolean" else float(rng.randrange(1000))


def _plain(kind: Any, value: Any) -> Any:
    """A value as :class:`AvroWriter` takes it, of what pyiceberg reads."""
    if isinstance(kind, list):
        return None if value is None else _plain(kind[1], value)
    name = kind["type"] if isinstance(kind, dict) else kind
    if name == "record":
        return {part["name"]: _plain(part["type"], value[at]) for at, part in enumerate(kind["fields"])}
    if isinstance(kind, dict) and kind.get("logicalType") == "map":
        return [{"key": key, "value": one} for key, one in value.items()]
    return value


def _not_negative(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _not_negative(part) for name, part in value.items()}
    return abs(value) if isinstance(value, int) else value
