"""embed and strip on the command line: files, JSON, exit codes and one sentence for each refusal."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from tests.cli.running import run

DATA = Path(__file__).resolve().parents[1] / "data" / "parquet"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    keys = np.random.default_rng(2).integers(0, 2**40, 3000) * 2
    table = pa.table({"k": keys, "kind": [f"x{k % 3}" for k in keys], "tags": [[f"t{k}"] for k in keys]})
    path = tmp_path / "plain.parquet"
    pq.write_table(table, path, row_group_size=1000, use_dictionary=["kind"])
    return path


def test_embed_probe_verify_strip(plain: Path) -> None:
    target, bare = plain.with_name("indexed.parquet"), plain.with_name("bare.parquet")
    result = run("embed", plain, "--into", target, "--bloom", "k,tags.list.element", "--page-index", code=0)
    assert "indexed.parquet" in result.stdout
    assert "tags.list.element" in result.stdout
    key = int(pq.read_table(plain)["k"][1500].as_py())
    units = json.loads(run("probe", target, "k", key, "--json").stdout)["files"][0]["units"]
    assert units[1]["might_contain"]
    assert not units[0]["might_contain"]
    assert run("verify", target).exit_code == 0
    result = run("strip", target, "--into", bare, code=0)
    assert "6 filters, 9 page indexes" in result.stdout
    assert bare.read_bytes() == plain.read_bytes()


def test_json_has_the_way_of_every_unit_and_the_rates(plain: Path) -> None:
    target = plain.with_name("indexed.parquet")
    result = run(
        "embed", plain, "--into", target, "--bloom", "k,kind", "--fpp", "0.1%", "--placement", "row-group", "--json"
    )
    data = json.loads(result.stdout)
    assert data["ways"] == {"bloom": {"values": 3, "dictionary": 3}}
    assert data["size"] == target.stat().st_size > data["size_before"] == plain.stat().st_size
    for unit in data["files"][0]["units"]:
        assert {"row_group", "column", "kind", "way", "bytes", "rate_before", "rate_after", "reason"} <= set(unit)
        assert 0 < unit["rate_after"] <= 0.001


def test_damage_is_reported_and_costs_its_chunk_alone(plain: Path) -> None:
    from sidecar.parquet.footer import read_footer
    from sidecar.storage.local import LocalSource

    chunk = read_footer(LocalSource(str(plain))).row_groups[1].columns[0]
    data = bytearray(plain.read_bytes())
    data[chunk.start : chunk.start + 10] = b"\xff" * 10
    broken, target = plain.with_name("broken.parquet"), plain.with_name("x.parquet")
    broken.write_bytes(bytes(data))
    result = run("embed", broken, "--into", target, "--bloom", "k", "--page-index", "--json", code=1)
    units = json.loads(result.stdout)["files"][0]["units"]
    filters = {u["row_group"]: u for u in units if u["kind"] == "bloom"}
    assert [filters[g]["way"] for g in range(3)] == ["values", "none", "values"]
    assert filters[1]["damaged"]
    assert filters[1]["reason"]
    assert {u["way"] for u in units if u["kind"] == "page-index" and u["row_group"] == 1} == {"none"}
    assert {u["way"] for u in units if u["kind"] == "page-index" and u["row_group"] != 1} == {"values"}
    assert target.exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "nothing to embed. Name columns for filters (--bloom A,B), or ask for page indexes (--page-index)"),
        (["--bloom", "nosuch"], "no column 'nosuch'"),
        (["--bloom", "tags"], "Did you mean tags.list.element?"),
        (["--bloom", "k", "--fpp", "auto"], "not 'auto'"),
        (["--bloom", "k", "--fpp", "2"], "between 0 and 1"),
        (["--bloom", "k", "--placement", "front"], "front"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_writes_nothing(plain: Path, options: list[str], sentence: str) -> None:
    result = run("embed", plain, "--into", plain.with_name("x.parquet"), *options, code=2)
    assert sentence in result.stderr
    assert [path.name for path in plain.parent.iterdir()] == ["plain.parquet"]


def test_existing_files_and_other_formats_are_refused(plain: Path) -> None:
    assert run("embed", plain, "--into", plain, "--page-index").exit_code == 2
    taken = plain.with_name("taken")
    taken.write_bytes(b"mine")
    result = run("embed", plain, "--into", taken, "--page-index", code=2)
    assert "exists already" in result.stderr
    assert taken.read_bytes() == b"mine"
    for command in (["embed", "--page-index"], ["strip"]):
        result = run(
            command[0], DATA / "j118_enc_gcm_encfooter.parquet", "--into", plain.with_name("x"), *command[1:], code=1
        )
        assert "encrypted" in result.stderr
        assert run(command[0], taken, "--into", plain.with_name("x"), *command[1:]).exit_code == 1
        assert run(command[0], plain.with_name("nosuch"), "--into", plain.with_name("x"), *command[1:]).exit_code == 1
    assert {path.name for path in plain.parent.iterdir()} == {"plain.parquet", "taken"}


def test_strip_tells_its_progress_to_whoever_watches(plain: Path) -> None:
    told: list[tuple[object, ...]] = []
    count = pq.read_metadata(plain).num_row_groups
    with sidecar.progress(lambda *step: told.append(step)):
        sidecar.strip(str(plain), str(plain.with_name("told.parquet")))
    assert told == [("row groups", number, count) for number in range(count + 1)]
    assert run("strip", str(plain), "--into", str(plain.with_name("quiet.parquet")), "--quiet").exit_code == 0


def test_strip_says_what_stays_as_dead_bytes(plain: Path) -> None:
    target = plain.with_name("indexed.parquet")
    assert run("embed", plain, "--into", target, "--bloom", "k", "--placement", "row-group").exit_code == 0
    result = run("strip", target, "--into", plain.with_name("bare.parquet"), "--json", code=0)
    dead = json.loads(result.stdout)["files"][0]["dead_bytes"]
    assert dead > 0
    assert f"{target}: {dead:,} bytes of filters stay as dead space" in result.stderr


def test_encrypted_files(tmp_path: Path) -> None:
    source, keys = DATA / "j118_enc_gcm_encfooter.parquet", tmp_path / "keys.json"
    named = {"str": b"1234567890123450", "f64_clean": b"1234567890123451"}
    texts = {column: f"hex:{key.hex()}" for column, key in named.items()}
    keys.write_text(json.dumps({"footer_key": f"hex:{b'0123456789012345'.hex()}", "column_keys": texts}))
    target, bare = tmp_path / "indexed.parquet", tmp_path / "bare.parquet"
    options = ("--bloom", "str,i64_desc", "--reuse", "never")
    result = run("embed", source, "--into", target, *options, "--encryption-keys", keys, code=0)
    assert "DuckDB does not read encrypted files with filters" in result.stderr
    assert run("verify", target, "--data", "--encryption-keys", keys).exit_code == 0
    result = run("strip", target, "--into", bare, "--encryption-keys", keys, "--json", code=0)
    assert json.loads(result.stdout)["ways"]["bloom"]["none"] > 0
    result = run("embed", source, "--into", tmp_path / "none.parquet", "--bloom", "str", code=1)
    assert "--encryption-keys" in result.stderr
    result = run("convert", source, tmp_path / "none.puffin", code=1)
    assert "conversions do not open encrypted files" in result.stderr
