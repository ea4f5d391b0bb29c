"""Encrypted files of every kind that parquet-java and pyarrow write, and how each of them opens one.

A kind is footer mode x algorithm x key size x AAD prefix x layout of keys. Key metadata is Arrow's and parquet-java's
standard key material with the key itself in it, so that pyarrow's CryptoFactory opens files of both writers.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from sidecar.crypto.keys import EncryptionKeys
from sidecar.parquet.footer import Footer
from tests.embedding.parquet_java import ParquetJava

ROWS, GROUP_ROWS, PAGE_ROWS = 300, 160, 25
PREFIX = b"table-part-7"
COLUMNS = ("k", "s", "n", "d", "c", "p")

FOOTERS = ("encrypted", "plaintext")
ALGORITHMS = ("AES_GCM_V1", "AES_GCM_CTR_V1")
KEY_BYTES = (16, 24, 32)
AADS = ("none", "stored", "supplied")
LAYOUTS: dict[str, Mapping[str, str | None]] = {
    "uniform": dict.fromkeys(COLUMNS, "kf"),
    "columns": {name: ("kc1", "kc2")[number % 2] for number, name in enumerate(COLUMNS)},
    "mixed": {"k": "kc1", "s": "kc2", "n": "kf", "c": "kf", "d": None, "p": None},
}
"""The key of each column, ``None`` for one that is not encrypted."""


@dataclass(frozen=True)
class Kind:
    """How a file is encrypted."""

    writer: str
    footer: str
    algorithm: str
    key_bytes: int
    aad: str
    layout: str

    def __str__(self) -> str:
        return "-".join((self.writer, self.footer, self.algorithm, str(self.key_bytes), self.aad, self.layout))

    def key(self, name: str) -> bytes:
        """The data key of that name."""
        return (name.encode() * 16)[: self.key_bytes]

    @property
    def keys(self) -> Mapping[str, str | None]:
        """The key of each column."""
        return LAYOUTS[self.layout]

    @property
    def prefix(self) -> bytes | None:
        """The AAD prefix, stored or not."""
        return None if self.aad == "none" else PREFIX

    def ours(self, **changed: Any) -> EncryptionKeys:
        """The keys as sidecar takes them."""
        keys = {
            "retriever": MaterialKeys(),
            "aad_prefix": self.prefix if self.aad == "supplied" else None,
            "footer_key": self.key("kf") if self.writer == "arrow" and self.prefix else None,
        }
        return EncryptionKeys(**(keys | changed))


JAVA_KINDS = [Kind("java", *parts) for parts in itertools.product(FOOTERS, ALGORITHMS, KEY_BYTES, AADS, LAYOUTS)]
ARROW_KINDS = [
    Kind("arrow", *parts)
    for parts in itertools.product(FOOTERS, ALGORITHMS, KEY_BYTES, AADS, LAYOUTS)
    if parts[3] == "none" or parts[4] == "uniform"  # its CryptoFactory knows no prefix
]


def chosen(kinds: Sequence[Kind]) -> list[Kind]:
    """Kinds that have every pair of properties; all of them if SIDECAR_ENCRYPTION_MATRIX is set."""
    if os.environ.get("SIDECAR_ENCRYPTION_MATRIX"):
        return list(kinds)
    left = {pair for kind in kinds for pair in _pairs(kind)}
    picked: list[Kind] = []
    while left:
        best = max(kinds, key=lambda kind: len(left & _pairs(kind)))
        picked.append(best)
        left -= _pairs(best)
    return picked


def _pairs(kind: Kind) -> set[tuple[Any, ...]]:
    parts = enumerate((kind.footer, kind.algorithm, kind.key_bytes, kind.aad, kind.layout))
    return set(itertools.combinations(parts, 2))


def rows() -> pa.Table:
    """Random keys, secrets, sorted numbers, doubles with nulls, few categories and random numbers."""
    rng = np.random.default_rng(5)
    keys = rng.integers(2**33, 2**50, ROWS) * 2
    doubles = rng.normal(size=ROWS)
    return pa.table(
        {
            "k": keys,
            "s": [f"secret-{key}" for key in keys],
            "n": np.arange(ROWS) + 2**40,
            "d": pa.array(doubles, mask=rng.random(ROWS) < 0.1),
            "c": [f"category-{key % 7}" for key in keys],
            "p": rng.integers(2**33, 2**50, ROWS) * 2,
        },
        pa.schema(
            [
                pa.field("k", pa.int64(), nullable=False),
                pa.field("s", pa.string(), nullable=False),
                pa.field("n", pa.int64(), nullable=False),
                pa.field("d", pa.float64()),
                pa.field("c", pa.string(), nullable=False),
                pa.field("p", pa.int64(), nullable=False),
            ]
        ),
    )


# --- key material ---------------------------------------------------------------------------------------------


def wrapped(key: bytes, name: str) -> str:
    """A key "wrapped" by a master key of that name: readable, as nothing here is secret."""
    return base64.b64encode(name.encode() + b":" + key).decode()


def unwrapped(text: str | bytes, name: str) -> bytes:
    master, _, key = base64.b64decode(text).partition(b":")
    assert master.decode() == name
    return key


def material(key: bytes, name: str, *, is_footer: bool) -> str:
    """Key metadata as CryptoFactory reads them."""
    kms = {"kmsInstanceID": "DEFAULT", "kmsInstanceURL": "DEFAULT"} if is_footer else {}
    return json.dumps(
        {
            "keyMaterialType": "PKMT1",
            "internalStorage": True,
            "isFooterKey": is_footer,
            **kms,
            "masterKeyID": name,
            "wrappedDEK": wrapped(key, name),
            "doubleWrapping": False,
        }
    )


class MaterialKeys:
    """A key retriever for such key material."""

    def key(self, key_metadata: bytes) -> bytes | None:
        value = json.loads(key_metadata)
        return unwrapped(value["wrappedDEK"], value["masterKeyID"])


class Kms(pe.KmsClient):
    """The same, as pyarrow wants it."""

    def __init__(self, _config: Any) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return wrapped(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        return unwrapped(wrapped_key, master_key_identifier)


# --- pyarrow --------------------------------------------------------------------------------------------------


def write_by_arrow(kind: Kind, path: Path, table: pa.Table, *, outside: bool = False) -> None:
    """``outside``: key material in a file beside it."""
    factory = pe.CryptoFactory(Kms)
    if kind.aad != "none":
        properties = pe.create_encryption_properties(
            kind.key("kf"),
            aad_prefix=kind.prefix,
            store_aad_prefix=kind.aad == "stored",
            encryption_algorithm=kind.algorithm,
            plaintext_footer=kind.footer == "plaintext",
        )
    else:
        columns: dict[str, list[str]] = {}
        for name, key in kind.keys.items():
            if key is not None:
                columns.setdefault(key, []).append(name)
        properties = factory.file_encryption_properties(
            pe.KmsConnectionConfig(),
            pe.EncryptionConfiguration(
                footer_key="kf",
                column_keys=None if kind.layout == "uniform" else columns,
                uniform_encryption=kind.layout == "uniform" or None,
                encryption_algorithm=kind.algorithm,
                plaintext_footer=kind.footer == "plaintext",
                double_wrapping=False,
                internal_key_material=not outside,
                data_key_length_bits=8 * kind.key_bytes,
            ),
            parquet_file_path=str(path) if outside else None,
        )
    pq.write_table(
        table,
        path,
        encryption_properties=properties,
        row_group_size=GROUP_ROWS,
        max_rows_per_page=PAGE_ROWS,
        write_batch_size=PAGE_ROWS,
        use_dictionary=["c"],
    )


def arrow_can_open(kind: Kind) -> bool:
    """It has prefixes for uniform keys alone; one that is stored it finds itself."""
    return kind.layout == "uniform" or kind.aad != "supplied"


def read_by_arrow(kind: Kind, path: Path) -> pa.Table:
    if kind.layout == "uniform" and kind.aad != "none":
        properties = pe.create_decryption_properties(kind.key("kf"), aad_prefix=kind.prefix)
    else:
        factory = pe.CryptoFactory(Kms)
        properties = factory.file_decryption_properties(pe.KmsConnectionConfig(), pe.DecryptionConfiguration())
    with pq.ParquetFile(path, decryption_properties=properties) as file:
        return file.read()


# --- parquet-java ---------------------------------------------------------------------------------------------


class EncryptingJava(ParquetJava):
    """parquet-java with encryption; loops run inside the JVM."""

    @property
    def parquet(self) -> Any:
        return self.jvm.org.apache.parquet

    def write(self, files: Mapping[Kind, Path], table: pa.Table) -> None:
        """Write all files; strings have filters, every column has page indexes."""
        schema = self.parquet.schema.MessageTypeParser.parseMessageType(
            "message rows {required int64 k; required binary s (STRING); required int64 n; "
            "optional double d; required binary c (STRING); required int64 p;}"
        )
        groups = self.jvm.java.util.ArrayList()
        factory = self.parquet.example.data.simple.SimpleGroupFactory(schema)
        for row in table.to_pylist():
            group = factory.newGroup()
            for name, value in row.items():
                if value is not None:
                    group.append(name, value)
            groups.add(group)
        for kind, path in files.items():
            self._write(kind, path, schema, groups)

    def _write(self, kind: Kind, path: Path, schema: Any, groups: Any) -> None:
        builder = self.parquet.hadoop.example.ExampleParquetWriter.builder(
            self.jvm.org.apache.hadoop.fs.Path(str(path))
        )
        builder = (
            builder.withType(schema)
            .withEncryption(self.encryption(kind))
            .withRowGroupRowCountLimit(GROUP_ROWS)
            .withPageRowCountLimit(PAGE_ROWS)
            .withMinRowCountForPageSizeCheck(1)
            .withDictionaryEncoding(False)
            .withDictionaryEncoding("c", True)
            .withBloomFilterEnabled("s", True)
            .withBloomFilterNDV("s", GROUP_ROWS)
            .withPageWriteChecksumEnabled(kind.aad == "stored")
        )
        if kind.key_bytes == 32:
            version = self.parquet.column.ParquetProperties.WriterVersion.PARQUET_2_0
            builder = builder.withWriterVersion(version)
        if kind.aad != "none":
            builder = builder.withCompressionCodec(self.parquet.hadoop.metadata.CompressionCodecName.SNAPPY)
        writer = builder.build()
        try:
            groups.forEach(self._consumer(writer, "org.apache.parquet.hadoop.ParquetWriter", "write"))
        finally:
            writer.close()

    def _consumer(self, receiver: Any, class_name: str, method: str) -> Any:
        """A method of an object as a java.util.function.Consumer."""
        lang = self.jvm.java.lang
        of = lang.Class.forName
        kind = lang.invoke.MethodType.methodType(lang.Void.TYPE, of("java.lang.Object"))
        handle = lang.invoke.MethodHandles.publicLookup().findVirtual(of(class_name), method, kind)
        interface = of("java.util.function.Consumer")
        return lang.invoke.MethodHandleProxies.asInterfaceInstance(interface, handle.bindTo(receiver))

    def encryption(self, kind: Kind) -> Any:
        footer_key = kind.key("kf")
        builder = self.parquet.crypto.FileEncryptionProperties.builder(footer_key)
        builder = builder.withFooterKeyMetadata(material(footer_key, "kf", is_footer=True).encode())
        builder = builder.withAlgorithm(getattr(self.parquet.crypto.ParquetCipher, kind.algorithm))
        if kind.footer == "plaintext":
            builder = builder.withPlaintextFooter()
        if kind.prefix is not None:
            builder = builder.withAADPrefix(kind.prefix)
        if kind.aad == "supplied":
            builder = builder.withoutAADPrefixStorage()
        if kind.layout == "uniform":
            return builder.build()
        columns = self.jvm.java.util.HashMap()
        for name, key_name in kind.keys.items():
            if key_name is None:
                continue
            where = self.column_path(name)
            column = self.parquet.crypto.ColumnEncryptionProperties.builder(where)
            if key_name != "kf":
                key = kind.key(key_name)
                column = column.withKey(key).withKeyMetaData(material(key, key_name, is_footer=False).encode())
            columns.put(where, column.build())
        return builder.withEncryptedColumns(columns).build()

    def decryption(self, kind: Kind, footer: Footer) -> Any:
        """All keys that our own reader found."""
        found = footer.encryption
        assert found is not None
        builder = self.parquet.crypto.FileDecryptionProperties.builder().withFooterKey(found.footer_key)
        if kind.aad == "supplied":
            builder = builder.withAADPrefix(kind.prefix)
        keys = self.jvm.java.util.HashMap()
        for (row_group, leaf), column in found.columns.items():
            if row_group == 0 and not column.uses_footer_key:
                where = self.column_path(footer.columns[leaf].path)
                key = self.parquet.crypto.ColumnDecryptionProperties.builder(where).withKey(column.key)
                keys.put(where, key.build())
        return (builder.withColumnKeys(keys) if keys else builder).build()

    def finds_all(self, bloom: Any, numbers: Iterable[int]) -> bool:
        """Whether a BloomFilter finds these 64-bit numbers."""
        lang = self.jvm.java.lang
        of, method_type = lang.Class.forName, lang.invoke.MethodType.methodType
        bloom_class = of("org.apache.parquet.column.values.bloomfilter.BloomFilter")
        lookup, long_class = lang.invoke.MethodHandles.publicLookup(), lang.Long.TYPE
        hashing = lookup.findVirtual(bloom_class, "hash", method_type(long_class, long_class)).bindTo(bloom)
        finding = lookup.findVirtual(bloom_class, "findHash", method_type(lang.Boolean.TYPE, long_class))
        found = lang.invoke.MethodHandles.filterReturnValue(hashing, finding.bindTo(bloom))
        test = lang.invoke.MethodHandleProxies.asInterfaceInstance(of("java.util.function.LongPredicate"), found)
        stream = self.jvm.java.util.Arrays.stream(self._longs(numbers))
        return bool(stream.allMatch(test))

    def _longs(self, numbers: Iterable[int]) -> Any:
        data = np.fromiter(numbers, ">i8").tobytes()
        buffer = self.jvm.java.nio.ByteBuffer.wrap(data).asLongBuffer()
        array = self.jvm.java.lang.reflect.Array.newInstance(self.jvm.java.lang.Long.TYPE, len(data) // 8)
        buffer.get(array)
        return array

    def bitset(self, bloom: Any) -> bytes:
        """The bits of a BloomFilter."""
        out = self.jvm.java.io.ByteArrayOutputStream()
        bloom.writeTo(out)
        return bytes(out.toByteArray())

    def record(self, path: Path, predicate: Any, keys: Any) -> str:
        """The first record that page indexes and filters find, as text."""
        support = self.parquet.hadoop.example.GroupReadSupport()
        reader = (
            self.parquet.hadoop.ParquetReader.builder(support, self.jvm.org.apache.hadoop.fs.Path(str(path)))
            .withFilter(self.parquet.filter2.compat.FilterCompat.get(predicate))
            .withDecryption(keys)
            .build()
        )
        try:
            group = reader.read()
            return "" if group is None else str(group.toString())
        finally:
            reader.close()

    def column_path(self, name: str) -> Any:
        return self.parquet.hadoop.metadata.ColumnPath.fromDotString(name)
