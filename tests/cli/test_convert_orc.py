"""extract, embed --from and convert of ORC files on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.running import run

DATA = Path(__file__).resolve().parents[1] / "data"
NATIVE, PARQUET = DATA / "orc" / "java_zlib_utf8.orc", DATA / "parquet" / "pa26_v1_none.parquet"


def test_extract_strip_embed_from(tmp_path: Path) -> None:
    puffin, bare, back = tmp_path / "x.puffin", tmp_path / "bare.orc", tmp_path / "back.orc"
    result = run("extract", NATIVE, PARQUET, puffin, code=0)
    assert "files    2" in result.stdout
    assert "filters of BOOLEAN hold no values" in " ".join(result.stdout.split())
    assert run("verify", puffin).exit_code == 0
    assert run("strip", NATIVE, "--into", bare).exit_code == 0
    data = json.loads(run("embed", bare, "--into", back, "--from", puffin, "--json").stdout)
    assert data["ways"] == {"bloom": {"exact": 54, "none": 3}}
    units = json.loads(run("probe", back, "c_sdir", "k79w", "--json").stdout)["files"][0]["units"]
    assert [unit["might_contain"] for unit in units] == [False, True, False]
    result = run("embed", "--from", puffin, "--into", tmp_path / "all", code=0)
    assert "2 files" in result.stdout


def test_convert_to_the_other_kind(tmp_path: Path) -> None:
    target = tmp_path / "x.puffin"
    result = run("convert", NATIVE, target, "--as", "parquet", "--columns", "c_tiny,c_sdir", code=0)
    assert "orc to puffin" in result.stdout
    assert "values" in result.stdout
    blobs = {blob["type"] for blob in json.loads(run("inspect", target, "--json").stdout)["files"][0]["blobs"]}
    assert "sidecar-orc-bloom-v1" not in blobs
    result = run("convert", PARQUET, tmp_path / "y.puffin", "--as", "orc", "--columns", "str", code=0)
    blobs = {
        blob["type"] for blob in json.loads(run("inspect", tmp_path / "y.puffin", "--json").stdout)["files"][0]["blobs"]
    }
    assert "sidecar-orc-bloom-v1" in blobs


def test_what_does_not_go_together(tmp_path: Path) -> None:
    result = run("convert", NATIVE, tmp_path / "x.orc", "--as", "parquet", code=2)
    assert "become another kind only on the way from data files to Puffin" in result.stderr
    result = run("convert", PARQUET, tmp_path / "x.orc", code=2)
    assert "--onto" in result.stderr
    result = run("convert", NATIVE, tmp_path / "x.orc", code=2)
    assert "BLOOM_FILTER stream" in result.stderr
