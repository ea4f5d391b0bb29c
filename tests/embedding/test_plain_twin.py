"""A plain file in the place of an encrypted one, where its keys are given: refused as by Arrow, or logged."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import sidecar
from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys, encryption_keys_from
from sidecar.errors import DamagedFileError, SidecarError, UsageError
from tests.iceberg.encrypted_tables import encrypted_table, rows
from tests.tables import new_catalog

KEY = b"key of one file!"
FOOTER = EncryptionKeys(footer_key=KEY)
COLUMN = EncryptionKeys(column_keys={"ssn": KEY})
NAMED = EncryptionKeys(ExplicitKeys({b"name": KEY}))

Door = Callable[[str, str, EncryptionKeys], Any]
DOORS: dict[str, Door] = {
    "inspect": lambda path, to, keys: sidecar.inspect(path, encryption_keys=keys).only,
    "probe": lambda path, to, keys: sidecar.probe(path, "ssn", "a", encryption_keys=keys).only,
    "scan": lambda path, to, keys: sidecar.scan(path, "id = 5", encryption_keys=keys),
    "embed": lambda path, to, keys: sidecar.embed(path, into=to, bloom=["id"], encryption_keys=keys).only,
    "strip": lambda path, to, keys: sidecar.strip(path, to, encryption_keys=keys).only,
    "extract": lambda path, to, keys: sidecar.extract([path], to, encryption_keys=keys),
}


@pytest.fixture
def twin(tmp_path: Path) -> str:
    plain = tmp_path / "plain.parquet"
    pq.write_table(rows(0), plain, write_page_index=True)
    path = tmp_path / "twin.parquet"
    sidecar.embed(str(plain), into=str(path), bloom=["ssn"])
    return str(path)


def test_arrow_refuses_it(twin: str) -> None:
    with pytest.raises(OSError, match="plaintext file"):
        pq.read_table(twin, decryption_properties=pe.create_decryption_properties(KEY))


@pytest.mark.parametrize("keys", [FOOTER, COLUMN], ids=["footer key", "column key"])
@pytest.mark.parametrize("door", DOORS)
def test_it_is_refused_at_every_door(twin: str, door: str, keys: EncryptionKeys, tmp_path: Path) -> None:
    target = tmp_path / "target"
    with pytest.raises(DamagedFileError, match="not encrypted, although the keys") as refused:
        DOORS[door](twin, str(target), keys)
    assert refused.value.file == twin
    assert not target.exists()
    DOORS[door](twin, str(target), replace(keys, allow_plaintext_files=True))


def test_verify_names_it(twin: str) -> None:
    (problem,) = sidecar.verify(twin, encryption_keys=FOOTER).problems
    assert "not encrypted, although" in problem.problem
    assert sidecar.verify(twin, encryption_keys=replace(FOOTER, allow_plaintext_files=True)).problems == []


def test_keys_that_may_be_of_other_files_log_a_warning(twin: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert sidecar.scan(twin, "id = 5", encryption_keys=NAMED).num_rows == 1
    assert [record.getMessage() for record in caplog.records if "not encrypted" in record.getMessage()]
    caplog.clear()
    for quiet in (
        replace(NAMED, allow_plaintext_files=True),
        replace(NAMED, bundle_keys={"ssn": b"name"}),
        None,
    ):
        assert sidecar.scan(twin, "id = 5", encryption_keys=quiet).num_rows == 1
    assert not caplog.records


def test_one_among_the_files_of_a_table_is_neither_indexed_nor_read(tmp_path: Path) -> None:
    catalog = new_catalog(tmp_path, "c")
    table = encrypted_table(catalog, "db.t", 3, key=KEY)
    path = tmp_path / "wh/db/t/data/part-0001.parquet"
    other = rows(1).set_column(0, rows(1).schema.field(0), pa.array(range(500, 600), pa.int64()))
    pq.write_table(other, path)
    report = sidecar.build(table, ["id"], encryption_keys=FOOTER, allow_plaintext=True)
    assert len(report.files_failed) == 1
    table = catalog.load_table("db.t")
    with pytest.raises(SidecarError, match="not encrypted, although"):
        sidecar.scan(table, "id = 50", encryption_keys=FOOTER)  # that file may have a row, too


def test_the_key_file_may_allow_it(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    for name in ("allow_plaintext_files", "allow_plaintext_indexes"):
        for said, allowed in ((None, False), (True, True), (False, False)):
            path.write_text(json.dumps({} if said is None else {name: said}))
            assert getattr(encryption_keys_from(str(path)), name) is allowed
        path.write_text(json.dumps({name: "yes"}))
        with pytest.raises(UsageError, match=f"{name} is neither true nor false"):
            encryption_keys_from(str(path))
