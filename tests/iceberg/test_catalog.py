"""Opening tables: through pyiceberg's configuration, and one clear sentence for all that goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import UnauthorizedError

from sidecar.errors import DamagedFileError, StorageError, UnsupportedFeatureError, UsageError, redact
from sidecar.iceberg.catalog import open_catalog, open_table, reload_table
from sidecar.iceberg.partial_loading import left_out

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture(scope="module", autouse=True)
def properties(catalog: Any, catalog_dir: Path) -> dict[str, str]:
    """The properties that open the same catalog again, and a table in it."""
    table = catalog.create_table("db.catalog_orders", ROWS.schema)
    table.append(ROWS)
    return {"uri": f"sqlite:///{catalog_dir}/cat.db", "warehouse": f"file:{catalog_dir}/wh"}


def test_a_table_opens_with_properties(properties: dict[str, str]) -> None:
    assert open_table("db.catalog_orders", "cat", **properties).scan().to_arrow() == ROWS


def run_python(code: str, env: dict[str, str]) -> str:
    """What a fresh process prints: pyiceberg reads its configuration once, at import."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYICEBERG_")}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**clean, **env}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


OPEN = "from sidecar.iceberg.catalog import open_table; print(open_table({!r}, {!r}).name())"
AGAIN = "; print(open_table({!r}, {!r}).name())"


def test_a_table_opens_by_environment_variables(properties: dict[str, str], tmp_path: Path) -> None:
    env = {f"PYICEBERG_CATALOG__CAT__{key.upper()}": value for key, value in properties.items()}
    env |= {"HOME": str(tmp_path), "PYICEBERG_DEFAULT_CATALOG": "cat"}
    code = OPEN.format("db.catalog_orders", "cat") + AGAIN.format("db.catalog_orders", None)
    assert run_python(code, env).splitlines() == ["('db', 'catalog_orders')"] * 2


def test_a_table_opens_by_the_configuration_file(properties: dict[str, str], tmp_path: Path) -> None:
    lines = "".join(f"    {key}: {value}\n" for key, value in properties.items())
    (tmp_path / ".pyiceberg.yaml").write_text(f"catalog:\n  cat:\n{lines}")
    env = {"PYICEBERG_HOME": str(tmp_path)}
    assert run_python(OPEN.format("db.catalog_orders", "cat"), env) == "('db', 'catalog_orders')"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("db.catalog_orderz", "has no table 'db.catalog_orderz'. Did you mean db.catalog_orders?"),
        ("nowhere.orders", "has no namespace 'nowhere'"),
        (
            "orders",
            "'orders' is not a table name. Write it as namespace.table, "
            "all tables of a namespace as 'orders.*', and a file as ./name.",
        ),
        ("/nowhere/v1.metadata.json", "the metadata file does not exist; file /nowhere/v1.metadata.json"),
    ],
)
def test_what_is_missing_is_named(properties: dict[str, str], name: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_table(name, "cat", **properties)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_catalog_that_is_not_configured_is_named() -> None:
    with pytest.raises(UsageError, match="the catalog 'no-such-catalog' is not configured"):
        open_table("db.t", "no-such-catalog")


def test_an_unreachable_catalog_is_a_storage_error() -> None:
    with pytest.raises(StorageError, match="OperationalError"):
        open_table("db.t", "cat", uri="sqlite:////nowhere/at/all/cat.db")
    with pytest.raises(StorageError, match="cannot open the catalog 'cat'"):
        open_catalog("cat", uri="http://127.0.0.1:9")


@pytest.mark.parametrize("properties", [{"type": "nonsense"}, {"uri": "mysterious://x"}])
def test_no_message_holds_a_secret(properties: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        open_catalog("cat", token="hunter2-token", **properties)
    assert "hunter2" not in str(caught.value)


def test_foreign_texts_are_redacted() -> None:
    text = "cannot connect to postgres://scott:tiger@db/x with s3cr3t-key"
    shown = redact(text, {"s3.secret-access-key": "s3cr3t-key", "warehouse": "cannot"})
    assert shown == "cannot connect to postgres://***@db/x with ***"


def test_denied_access_is_a_storage_error(catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = catalog.load_table("db.catalog_orders")

    def deny(_: object) -> None:
        raise UnauthorizedError("token abc is wrong")

    monkeypatch.setattr(table.catalog, "load_table", deny)
    with pytest.raises(StorageError, match="access was denied") as caught:
        reload_table(table)
    assert "abc" not in str(caught.value)


@pytest.mark.parametrize("length", [1, 2])
def test_an_error_whose_causes_are_a_circle_ends(catalog: Any, monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    """pyiceberg raises the error for a missing file behind fsspec from itself; looking for its root took for ever."""

    table = catalog.load_table("db.catalog_orders")

    def lose(_: object) -> None:
        error, other = FileNotFoundError("metadata is missing"), OSError("another one")
        error.__cause__ = error if length == 1 else other
        other.__cause__ = error
        raise error

    monkeypatch.setattr(table.catalog, "load_table", lose)
    with pytest.raises(StorageError, match="metadata is missing"):
        reload_table(table)


def test_one_version_of_a_table_opens_by_its_metadata_file(catalog: Any, properties: dict[str, str]) -> None:
    location = catalog.load_table("db.catalog_orders").metadata_location
    table = open_table(location)
    assert table.scan().to_arrow() == ROWS
    with pytest.raises(UsageError, match="cannot be changed"):
        reload_table(table)


def test_an_unknown_registered_blob_type_is_left_out(catalog: Any, tmp_path: Path) -> None:
    metadata = read_metadata(catalog)
    blob = {"type": "other-v1", "snapshot-id": 1, "sequence-number": 1, "fields": [1]}
    metadata["statistics"] = [
        {
            "snapshot-id": metadata["current-snapshot-id"],
            "statistics-path": "x.stats",
            "file-size-in-bytes": 1,
            "file-footer-size-in-bytes": 1,
            "blob-metadata": [blob],
        }
    ]
    path = tmp_path / "v1.metadata.json"
    path.write_text(json.dumps(metadata))
    table = open_table(str(path))
    assert table.scan().to_arrow() == ROWS
    assert [entry.blob_metadata for entry in table.metadata.statistics] == [[]]
    assert left_out(table) == {metadata["statistics"][0]["statistics-path"]: ["a other-v1 blob of fields [1]"]}


def test_broken_metadata_is_damage(catalog: Any, tmp_path: Path) -> None:
    path = tmp_path / "v1.metadata.json"
    path.write_text(json.dumps({**read_metadata(catalog), "schemas": "?"}))
    with pytest.raises(DamagedFileError, match=r"pyiceberg refuses its metadata: 2.schemas: .*; file"):
        open_table(str(path))


def with_a_type(name: str) -> Callable[[dict[str, Any]], None]:
    def change(metadata: dict[str, Any]) -> None:
        metadata |= {"format-version": 3, "next-row-id": 0}
        metadata["schemas"][0]["fields"].append({"id": 99, "name": "new", "required": False, "type": name})

    return change


def without_a_manifest_list(metadata: dict[str, Any]) -> None:
    metadata |= {"format-version": 1, "schema": metadata["schemas"][0], "partition-spec": []}
    for snapshot in metadata["snapshots"]:
        del snapshot["manifest-list"]
        snapshot["manifests"] = ["m.avro"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (with_a_type("variant"), r"schemas\.0\.fields\.\d\.type: .*'variant'"),
        (with_a_type("geometry(srid:1)"), r"Could not parse geometry\(srid:1\)"),
        (without_a_manifest_list, r"snapshots\.0\.manifest-list"),
    ],
    ids=["variant", "geometry", "manifests"],
)
def test_metadata_that_pyiceberg_does_not_know_is_no_damage(
    catalog: Any, tmp_path: Path, change: Callable[[dict[str, Any]], None], sentence: str
) -> None:
    metadata, path = read_metadata(catalog), tmp_path / "v1.metadata.json"
    change(metadata)
    path.write_text(json.dumps(metadata))
    with pytest.raises(UnsupportedFeatureError, match=sentence):
        open_table(str(path))


def read_metadata(catalog: Any) -> dict[str, Any]:
    location = catalog.load_table("db.catalog_orders").metadata_location
    metadata: dict[str, Any] = json.loads(Path(location.removeprefix("file:")).read_text())
    return metadata
