"""Problems of verify name the file, also of a sidecar that is broken or gone, and the column."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

import sidecar
from sidecar.puffin.reader import PuffinReader
from sidecar.storage.local import LocalSource
from tests.cli.running import run
from tests.iceberg.cases import create, local, replaced
from tests.iceberg.encrypted_tables import add_encrypted, bundle_keys, encrypted_table, file_keys, trusting

NESTED = "st.x"
COLUMNS = ["i", "s", NESTED]


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    made = create(catalog, "db.verify_names", files=3, partitioned=False)
    sidecar.build(made, COLUMNS, kinds=["bloom", "theta", "page-index"], engine="local")
    made.refresh()
    return made


def statistics(table: Table) -> Path:
    return local(table.metadata.statistics[0].statistics_path)


def damaged(path: Path, kind: str, field_id: int) -> bytes:
    """The sidecar with one byte changed in the first piece of a blob of one field."""
    blobs = PuffinReader(LocalSource(str(path))).metadata.blobs
    (blob,) = [b for b in blobs if b.type == kind and b.fields == (field_id,)]
    data = bytearray(path.read_bytes())
    data[blob.offset + 40] ^= 1
    return bytes(data)


@pytest.mark.parametrize("kind", ["sidecar-sbbf-v1", "sidecar-page-index-v1"])
@pytest.mark.parametrize("column", COLUMNS)
def test_damage_of_a_column_has_its_name(kind: str, column: str, table: Table) -> None:
    path = statistics(table)
    field_id = table.schema().find_field(column).field_id
    with replaced(path, damaged(path, kind, field_id)):
        for data in (False, True):
            problems = sidecar.verify(table, data=data).problems
            assert problems
            assert {(local(p.file), p.column) for p in problems} == {(path, column)}
            assert not [p for p in problems if re.search(r"field \d", p.problem)]
        value = {"i": "5", "s": "'x'", NESTED: "15"}[column]
        for predicate in (f"{column} = {value}", f"{column} > {value}"):
            for warning in sidecar.plan(table, predicate).warnings:
                assert f"column {column}" in warning
                assert not re.search(r"field \d", warning)
        if kind == "sidecar-sbbf-v1":
            assert sidecar.plan(table, f"{column} = {value}").warnings


def test_a_file_by_its_path_has_the_names_of_its_columns(table: Table, tmp_path: Path) -> None:
    path = statistics(table)
    with replaced(path, damaged(path, "sidecar-sbbf-v1", 3)):
        assert {p.column for p in sidecar.verify(str(path)).problems} == {"i"}
    data_file, plain = tmp_path / "x.parquet", tmp_path / "x.puffin"
    pq.write_table(pa.table({"a": [1], "b": [{"c": 2}]}), data_file, write_page_index=True)
    number = sidecar.extract([str(data_file)], str(plain)).fields["b.c"]
    with replaced(plain, damaged(plain, "sidecar-page-index-v1", number)):
        assert {p.column for p in sidecar.verify(str(plain)).problems} == {"b.c"}


@pytest.mark.parametrize("content", [None, b"", b"PFA1", "half", "other"], ids=str)
def test_a_sidecar_that_is_broken_or_gone_is_named(content: bytes | str | None, table: Table) -> None:
    path = statistics(table)
    whole = path.read_bytes()
    data = {"half": whole[: len(whole) // 2], "other": whole + b"x"}.get(content, content)  # type: ignore[arg-type]
    with replaced(path, data):  # type: ignore[arg-type]
        for looked in (False, True):
            found = sidecar.verify(table, data=looked)
            assert found.problems
            assert {p.file for p in found.problems} == {table.metadata.statistics[0].statistics_path}


def test_what_is_registered_wrongly_names_the_column(table: Table) -> None:
    """A sketch's number of distinct values in the metadata is not the file's."""
    entry = table.metadata.statistics[0]
    blob = next(b for b in entry.blob_metadata if b.fields == [3])
    changed = blob.model_copy(update={"properties": {"ndv": "1"}})
    others = [b for b in entry.blob_metadata if b is not blob]
    wrong = entry.model_copy(update={"blob_metadata": [changed, *others]})
    metadata = table.metadata.model_copy(update={"statistics": [wrong]})
    forged = Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)
    problems = sidecar.verify(forged).problems
    assert [(p.column, local(p.file)) for p in problems] == [("i", statistics(table))]


@pytest.mark.parametrize("later", [False, True], ids=["unread", "indexed later"])
def test_encrypted_files_that_were_listed_without_keys_were_not_written_anew(later: bool, catalog: Any) -> None:
    """They were listed without row groups. A later build with keys indexes them, and then they are checked."""
    name = f"db.verify_unread_{later}"
    table = encrypted_table(catalog, name, files=2, plaintext_footer=False)
    add_encrypted(table, [2], encrypted=False)  # a build that can index no file registers nothing
    table.refresh()
    sidecar.build(table, ["id"], kinds=["bloom"], engine="local")
    table.refresh()
    if later:
        sidecar.build(table, ["id"], kinds=["bloom"], engine="local", encryption_keys=file_keys())
        table.refresh()
    found = sidecar.verify(table, data=True, encryption_keys=bundle_keys())
    texts = [p.problem for p in found.problems]
    assert not [text for text in texts if "anew" in text or "not the one" in text]
    if later:
        assert (texts, found.looked_up.values) == ([], 300)
    else:
        assert (texts, found.looked_up.values) == ([], 100)
        path = next(
            p for task in table.scan().plan_files() if (p := local(task.file.file_path)).name != "part-0002.parquet"
        )
        puffin = table.metadata.statistics[0].statistics_path
        with pytest.raises(sidecar.errors.SidecarError, match="could not be read when it was indexed"):
            sidecar.embed(str(path), into=f"{path}.new", from_=puffin, encryption_keys=file_keys())


def test_a_segment_that_could_not_read_a_file_leaves_it_to_a_later_one(catalog: Any) -> None:
    """The first segment stays for its plain files. It lists the encrypted ones too, without row groups."""
    table = encrypted_table(catalog, "db.verify_two_segments", files=2, encrypted=False)
    add_encrypted(table, range(2, 4), plaintext_footer=False)
    table.refresh()
    sidecar.build(table, ["id"], kinds=["bloom", "page-index"], engine="local")
    table.refresh()
    sidecar.build(table, ["id"], kinds=["bloom", "page-index"], engine="local", encryption_keys=file_keys())
    table.refresh()
    assert len(sidecar.open_sidecar(table).segments) == 2
    found = sidecar.verify(table, data=True, encryption_keys=trusting(file_keys()))
    assert found.problems == []
    assert (found.looked_up.units, found.looked_up.values) == (4, 400)


def test_the_command_says_how_far_it_looked(table: Table, tmp_path: Path) -> None:
    def said(*args: str) -> str:
        result = run("verify", *args, code=0)
        return result.stdout.strip()

    path = str(statistics(table))
    assert said(path) == (
        "fine: 1 checked (structure only; --against FILES, or --data by the name of its table, looks every value up)"
    )
    scope = json.loads(said(path, "--json"))["scope"]
    assert scope in said(path)
    data_file = str(local(next(iter(table.scan().plan_files())).file.file_path))
    assert said(data_file) == "fine: 1 checked (structure and page indexes; --data looks every value up)"
    assert "fine: 1 checked; nothing was there to look up" in said(data_file, "--data")
    assert sidecar.verify(table).scope == "structure only; --data looks every value up"
