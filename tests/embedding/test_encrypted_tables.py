"""Embedding into encrypted tables: out of sidecars and by replacing files; conversions that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from sidecar.crypto.keys import EncryptionKeys
from sidecar.embedding.convert import convert
from sidecar.embedding.embed import embed
from sidecar.errors import SidecarError, UnsupportedFeatureError, UsageError
from sidecar.indexing.driver import build
from sidecar.parquet.verify.file import verify_file
from sidecar.storage.locations import local_path
from tests.embedding.encrypted_cases import (
    BUNDLES,
    ENCRYPTED_FOOTER,
    PLAIN_FOOTER,
    PREFIXED,
    TABLE,
    Keys,
    WithoutKey,
    filters_of,
    opened,
    written,
)
from tests.embedding.encryption_matrix import (
    read_by_arrow,
)
from tests.iceberg.cases import file_in_manifest
from tests.iceberg.encrypted_tables import bundle_keys, encrypted_table, file_keys, trusting


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    """Three encrypted files: of either footer, and one whose key metadata says nothing."""
    found: Table = catalog.create_table("db.encrypted_embedding", TABLE.schema)
    mapping = found.schema().name_mapping.model_dump_json()
    with found.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": mapping})
    folder = Path(local_path(found.location()) or "") / "data"
    folder.mkdir(parents=True, exist_ok=True)
    with found.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for kind in (PLAIN_FOOTER, ENCRYPTED_FOOTER, PREFIXED):
            path = written(kind, folder)
            file = file_in_manifest(f"file:{path}", len(TABLE), path.stat().st_size)
            file.spec_id = 0
            append.append_data_file(file)
    return catalog.load_table("db.encrypted_embedding")


def paths_of(table: Table) -> list[str]:
    return [task.file.file_path for task in table.scan().plan_files()]


def test_a_sidecar_of_encrypted_files_goes_into_them(table: Table, tmp_path: Path) -> None:
    keys = EncryptionKeys(retriever=Keys(), bundle_keys={"s": BUNDLES})
    built = build(table, ["s", "p"], kinds=["bloom", "page-index"], encryption_keys=keys)
    path = built.statistics_path
    assert path is not None
    sources = [path_ for path_ in paths_of(table) if "stored" not in path_]
    assert len(sources) == 2
    for number, report in enumerate(embed(sources, into=str(tmp_path), from_=path, encryption_keys=keys)):
        kind = (PLAIN_FOOTER, ENCRYPTED_FOOTER)["encrypted-AES_GCM_V1" in sources[number]]
        assert {o.way for o in report.outcomes if o.kind == "bloom" and o.column in "sp"} == {"exact"}
        assert any("DuckDB" in warning for warning in report.warnings())
        target = Path(report.target)
        own, data = filters_of(target, kind.ours()), target.read_bytes()
        assert {column for _, column in own} == {"s", "p"}
        for (_, column), bits in own.items():
            assert (bits in data) == (column == "p")
        assert verify_file(opened(target, kind.ours())[0]) == []
        assert read_by_arrow(kind, target).equals(TABLE)
    one = tmp_path / "one.parquet"
    some = EncryptionKeys(retriever=WithoutKey("kc2"))
    report = embed(sources[0], into=str(one), from_=path, encryption_keys=some).only
    assert {o.reason for o in report.outcomes if o.column == "s" and o.kind == "bloom"} == {
        "the key of the column is missing"
    }
    with pytest.raises(SidecarError, match="encrypted"):
        embed(sources[0], into=str(tmp_path / "none.parquet"), from_=path)


def test_plaintext_filters_of_a_column_with_a_key_are_refused(catalog: Any, tmp_path: Path) -> None:
    """Whoever names a key for the second of three columns believes no filter of it that anybody could have written."""
    table = encrypted_table(catalog, "db.encrypted_named", 1)
    build(table, ["id", "ssn"], kinds=["bloom"], encryption_keys=file_keys(), allow_plaintext=True)
    table.refresh()
    (source,) = paths_of(table)
    trusted = trusting(file_keys())
    report = embed(source, into=str(tmp_path / "all.parquet"), from_=table, encryption_keys=trusted).only
    filters = {(o.column, o.way) for o in report.outcomes if o.kind == "bloom" and o.column != "v"}
    assert filters == {("id", "exact"), ("ssn", "exact")}
    for keys, why in ((bundle_keys("ssn"), "its key was given"), (file_keys(), "keys of encrypted files were given")):
        with pytest.raises(UsageError, match=f"in plaintext although {why}"):
            embed(source, into=str(tmp_path / "no.parquet"), from_=table, encryption_keys=keys)
        assert not (tmp_path / "no.parquet").exists()


def test_files_of_a_table_are_replaced(table: Table) -> None:
    before = set(paths_of(table))
    report = embed(table, bloom=["k"], page_index=True)
    assert len(report.failed) == 3
    assert report.snapshot_id is None

    def rule(file: str) -> bytes | None:
        return PREFIXED.prefix if f"file:{file}" in before else b"of another path"

    only_prefixed = EncryptionKeys(footer_key=PREFIXED.key("kf"), aad_prefix=rule)
    report = embed(table, bloom=["k"], page_index=True, encryption_keys=only_prefixed)
    assert {left.failed for left in report.left_alone if "stored" in left.path} == {False}
    assert ["it keeps its AAD prefix" in left.reason for left in report.left_alone].count(True) == 1
    assert report.snapshot_id is None

    report = embed(table, bloom=["k"], page_index=True, encryption_keys=EncryptionKeys(Keys()))
    assert [left.reason.split(":")[0] for left in report.left_alone] == [
        "the key for the footer of an encrypted file is missing"
    ]
    assert any("DuckDB" in warning for warning in report.warnings())
    assert len(report.replaced) == 2
    for path in set(paths_of(table)) - before:
        file = Path(local_path(path) or "")
        kind = (PLAIN_FOOTER, ENCRYPTED_FOOTER)["encrypted-AES_GCM_V1" in path]
        assert {column for _, column in filters_of(file, kind.ours())} == {"k"}
        assert verify_file(opened(file, kind.ours())[0]) == []
        assert read_by_arrow(kind, file).equals(TABLE)


def test_conversions_refuse_encrypted_files(tmp_path: Path) -> None:
    path, plain = written(PLAIN_FOOTER, tmp_path), tmp_path / "plain.parquet"
    pq.write_table(TABLE, plain)
    for source, target, data in (
        (path, "a.puffin", None),
        (path, "a.parquet", None),
        (plain, "a.orc", path),
    ):
        with pytest.raises(UnsupportedFeatureError, match="conversions do not open encrypted files"):
            convert([str(source)], str(tmp_path / target), onto=data and str(data))
