"""pyiceberg's private API: what is used of it for manifests, and that raw records decode to the same entries."""

from __future__ import annotations

import inspect
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.avro import file as avro_file
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from sidecar.errors import DamagedFileError, SidecarError, StorageError, UnsupportedFeatureError
from sidecar.iceberg import manifests
from sidecar.iceberg.manifests import decode_manifest, entry_decoder, read_manifest, read_manifests
from tests import memoized_pyiceberg
from tests.iceberg.table_cases import with_rewritten_manifest
from tests.tables import iceberg_schema

ROWS = pa.table({"id": pa.array(range(40), pa.int64()), "part": ["a", "b"] * 20, "price": pa.array([1.5] * 40)})


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    return with_rewritten_manifest(catalog, "db.internals", ROWS)


def manifests_of(table: Table) -> list[ManifestFile]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return read_manifests(table.io, snapshot.manifest_list)


def values(record: Any) -> Any:
    """An entry as plain values: pyiceberg compares data files by their path alone."""
    if isinstance(record, ManifestEntry | DataFile):
        more = (record.spec_id,) if isinstance(record, DataFile) else ()
        return (type(record).__name__, *(values(value) for value in record._data), *more)
    return dict(record) if hasattr(record, "items") else record


def assert_raw_records_decode(table: Table, manifests: list[ManifestFile]) -> int:
    """Each raw record decodes to what pyiceberg's own loop reads; the number of entries."""
    count = 0
    for manifest in manifests:
        theirs = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        contents = read_manifest(table.io, manifest)
        assert len(contents.entries) == len(theirs)
        for ours, entry in zip(contents.entries, theirs, strict=True):
            assert values(ours.entry) == values(entry)
            again = entry_decoder(contents.avro_schema).decode(ours.raw, manifest)
            assert values(again) == values(entry)
            count += 1
    return count


def test_the_private_api_is_the_one_this_was_written_for() -> None:
    """Fails when pyiceberg changes what internals.py relies on: read its notes again, then adapt it."""
    assert pyiceberg.__version__.startswith("0.12."), "pyproject.toml pins pyiceberg below 0.13"
    assert list(inspect.signature(manifests.inherit_from_manifest).parameters) == ["entry", "manifest"]
    assert list(inspect.signature(manifests.resolve_reader).parameters) == [
        "file_schema",
        "read_schema",
        "read_types",
        "read_enums",
    ]
    assert (avro_file.MAGIC, avro_file.SYNC_SIZE, avro_file._SCHEMA_KEY) == (b"Obj\x01", 16, "avro.schema")
    assert manifests.DEFAULT_READ_VERSION == 2
    fetch = inspect.getsource(ManifestFile.fetch_manifest_entry)
    assert "MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION]" in fetch
    assert "read_types={-1: ManifestEntry, 2: DataFile}" in fetch
    assert "read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent}" in fetch


def test_raw_records_decode_to_the_same_entries(table: Table) -> None:
    assert assert_raw_records_decode(table, manifests_of(table)) >= 5


@pytest.mark.parametrize("codec", ["uncompressed", "null", "gzip", "zstd", "bzip2"])
def test_every_codec_of_pyiceberg_is_read(catalog: Any, codec: str) -> None:
    name = {"uncompressed": "null"}.get(codec, codec)
    properties = {"write.avro.compression-codec": name}
    table = catalog.create_table(f"db.internals_{codec}", ROWS.schema, properties=properties)
    table.append(ROWS)
    (manifest,) = manifests_of(table)
    metadata = read_manifest(table.io, manifest).metadata
    assert metadata["avro.codec"] == {"gzip": "deflate", "zstd": "zstandard"}.get(name, name)
    assert assert_raw_records_decode(table, [manifest]) == 1


def test_a_codec_without_its_package_is_unsupported(table: Table) -> None:
    manifest = manifests_of(table)[0]
    data = manifest_bytes(manifest).replace(b"\x0edeflate", b"\x0csnappy", 1)
    with pytest.raises(UnsupportedFeatureError, match=f"Snappy.*file {manifest.manifest_path}"):
        decode_manifest(data, manifest)
    with pytest.raises(UnsupportedFeatureError, match="Avro codec 'xyzzy12'"):
        decode_manifest(manifest_bytes(manifest).replace(b"\x0edeflate", b"\x0exyzzy12", 1), manifest)


def test_manifest_metadata_and_the_writers_schema_are_given(table: Table) -> None:
    contents = read_manifest(table.io, manifests_of(table)[0])
    assert contents.metadata["format-version"] == "2"
    assert '"manifest_entry"' in contents.avro_schema
    assert [(f.name, str(f.field_type)) for f in contents.partition_fields] == [("part", "string")]


def test_a_manifest_is_opened_once(table: Table) -> None:
    class CountingIO(PyArrowFileIO):
        opened = 0

        def new_input(self, location: str) -> Any:
            self.opened += 1
            return super().new_input(location)

    io = CountingIO()
    read_manifest(io, manifests_of(table)[0])
    assert io.opened == 1


def test_a_missing_manifest_is_a_storage_error(table: Table) -> None:
    manifest = manifests_of(table)[0]
    gone = ManifestFile(*manifest._data)
    gone._data[0] = manifest.manifest_path + ".gone"
    with pytest.raises(StorageError, match=r"\.avro\.gone"):
        read_manifest(table.io, gone)
    with pytest.raises(StorageError, match="nowhere"):
        read_manifests(table.io, "file:/nowhere.avro")


def test_every_truncation_of_a_manifest_is_damage_or_leaves_whole_blocks(table: Table) -> None:
    manifest = manifests_of(table)[0]
    data = manifest_bytes(manifest)
    entries = decode_manifest(data, manifest).entries
    cut_between_blocks = []
    for length in range(len(data)):
        found = error_or_entries(data[:length], manifest)
        if isinstance(found, tuple):
            cut_between_blocks.append(length)
            assert found == entries[: len(found)]
            assert len(found) < len(entries)
    # after the header and after each block but the last; the listing knows how many entries to expect
    assert len(cut_between_blocks) <= len(entries)


def error_or_entries(data: bytes, manifest: ManifestFile) -> tuple[Any, ...] | str:
    """The entries, or the message of one of our errors, which names the manifest."""
    try:
        return decode_manifest(data, manifest).entries
    except SidecarError as error:
        found = error
    assert found.file == manifest.manifest_path
    return str(found)


def test_a_truncated_manifest_list_is_damage(table: Table, tmp_path: Path) -> None:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    data = Path(snapshot.manifest_list.removeprefix("file:")).read_bytes()
    for length in (0, 3, 100, len(data) - 20, len(data) - 1):
        path = tmp_path / f"{length}.avro"
        path.write_bytes(data[:length])
        with pytest.raises(DamagedFileError, match=str(path)):
            read_manifests(table.io, str(path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
@given(position=st.integers(min_value=0), value=st.integers(1, 255))
def test_any_changed_byte_gives_a_manifest_or_our_error(table: Table, position: int, value: int) -> None:
    manifest = manifests_of(table)[0]
    data = bytearray(manifest_bytes(manifest))
    data[position % len(data)] ^= value
    error_or_entries(bytes(data), manifest)


def test_a_block_that_claims_more_than_the_file_is_damage(table: Table) -> None:
    manifest = manifests_of(table)[0]
    data = manifest_bytes(manifest)
    sync = data[-16:]
    body = data.index(sync) + 16
    for block in (b"\x02" + b"\xfe\xff\xff\xff\x0f", b"\x01\x02\x00", b"\x02\x01"):
        with pytest.raises(DamagedFileError, match="an Avro block exceeds the file; file"):
            decode_manifest(data[:body] + block + sync, manifest)
    with pytest.raises(DamagedFileError, match="lacks its sync marker"):
        decode_manifest(data[:-1] + struct.pack("B", data[-1] ^ 1), manifest)


def test_a_record_must_be_exactly_one_entry(table: Table) -> None:
    manifest = manifests_of(table)[0]
    contents = read_manifest(table.io, manifest)
    decoder, raw = entry_decoder(contents.avro_schema), contents.entries[0].raw
    with pytest.raises(DamagedFileError, match="is shorter than its bytes"):
        decoder.decode(raw + b"\0", manifest)
    with pytest.raises(DamagedFileError, match="cannot be decoded"):
        decoder.decode(raw[:-1], manifest)
    with pytest.raises(DamagedFileError, match="Avro schema"):
        entry_decoder('{"type": "string"}')


def manifest_bytes(manifest: ManifestFile) -> bytes:
    return Path(manifest.manifest_path.removeprefix("file:")).read_bytes()


@pytest.fixture(scope="module")
def spark_table(spark: Any, catalog: Any) -> Iterator[Table]:
    """Written by Spark: position deletes, existing entries, and a partition spec that changed twice."""
    name = "cat.db.internals_spark"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, d DATE, ts TIMESTAMP, dec DECIMAL(9,2), s STRING) USING iceberg "
        "PARTITIONED BY (days(ts)) TBLPROPERTIES ('format-version'='2', 'write.delete.mode'='merge-on-read')"
    )
    insert = (
        f"INSERT INTO {name} SELECT id, date_add(DATE'2024-01-01', CAST(id % 3 AS INT)), "
        "timestamp_seconds(id * 40000), CAST(id / 4 AS DECIMAL(9,2)), 'x' FROM range(12)"
    )
    spark.sql(insert)
    spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD bucket(4, dec)")
    spark.sql(insert)
    spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD d")
    spark.sql(insert)
    spark.sql(f"DELETE FROM {name} WHERE id = 5")
    spark.sql(f"CALL cat.system.rewrite_manifests('{name.removeprefix('cat.')}')")
    yield catalog.load_table("db.internals_spark")
    spark.sql(f"DROP TABLE {name} PURGE")


@pytest.mark.jvm
def test_sparks_manifests_decode_to_the_same_entries(spark_table: Table) -> None:
    manifests = manifests_of(spark_table)
    assert len({manifest.partition_spec_id for manifest in manifests}) == 3
    assert any(manifest.content == 1 for manifest in manifests)
    assert assert_raw_records_decode(spark_table, manifests) > 20


def test_a_list_without_counts_that_only_version_1_may_lack_is_no_damage(table: Table, tmp_path: Path) -> None:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    data = Path(snapshot.manifest_list.removeprefix("file:")).read_bytes()
    assert data.count(b'"field-id": 504') == 1
    path = tmp_path / "list.avro"
    path.write_bytes(data.replace(b'"field-id": 504', b'"field-id": 904'))  # the id of another field
    with pytest.raises(UnsupportedFeatureError, match=r"added_files_count.*list\.avro"):
        read_manifests(table.io, str(path))


def test_these_tests_run_on_pyiceberg_as_it_is() -> None:
    calls: list[Schema] = []
    schema = iceberg_schema("k long")
    called = memoized_pyiceberg.memoized(calls.append, id)
    called(schema)
    called(schema)
    assert len(calls) == 2
    root = Path(__file__).resolve().parents[2]
    assert [place for place in memoized_pyiceberg.PLAIN if not any(root.glob(f"{place}*"))] == []
