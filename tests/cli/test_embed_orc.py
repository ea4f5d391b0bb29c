"""embed and strip of ORC files on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.running import run

DATA = Path(__file__).resolve().parents[1] / "data" / "orc"
BARE, PYARROW = DATA / "java_zlib_2stripes_nofilters.orc", DATA / "pyarrow_zlib_utf8.orc"


def test_embed_probe_verify_strip(tmp_path: Path) -> None:
    target, bare = tmp_path / "indexed.orc", tmp_path / "bare.orc"
    result = run("embed", BARE, "--into", target, "--bloom", "c_int,c_sdir", code=0)
    assert "c_sdir" in result.stdout
    assert "page indexes" not in result.stdout
    units = json.loads(run("probe", target, "c_sdir", "k79w", "--json").stdout)["files"][0]["units"]
    assert [unit["might_contain"] for unit in units] == [False, False, True]
    assert run("verify", target).exit_code == 0
    result = run("strip", target, "--into", bare, code=0)
    assert "removed  6 filters" in result.stdout


def test_json(tmp_path: Path) -> None:
    target = tmp_path / "indexed.orc"
    data = json.loads(run("embed", BARE, "--into", target, "--bloom", "c_int,c_bool", "--fpp", "0.1%", "--json").stdout)
    assert data["ways"] == {"bloom": {"values": 3, "none": 3}}
    assert data["files"][0]["placement"] == "stripe"
    assert data["size"] == target.stat().st_size > data["size_before"] == BARE.stat().st_size
    reasons = {unit["column"]: unit["reason"] for unit in data["files"][0]["units"]}
    assert reasons == {"c_int": "", "c_bool": "readers use no filters on BOOLEAN"}
    assert {unit["row_group"] for unit in data["files"][0]["units"]} == {0, 1, 2}


def test_corrupt_filters_are_replaced(tmp_path: Path) -> None:
    result = run("verify", PYARROW, code=1)
    assert "c_tiny" in result.stdout
    assert run("embed", PYARROW, "--into", tmp_path / "right.orc", "--bloom", "c_tiny").exit_code == 0
    assert run("verify", tmp_path / "right.orc").exit_code == 0


def test_refusals_are_one_sentence(tmp_path: Path) -> None:
    for arguments, code, what in (
        (["--bloom", "c_int", "--page-index"], 2, "an ORC file always has its row index"),
        (["--bloom", "c_int", "--placement", "row-group"], 2, "there is no placement"),
        (["--bloom", "nothing"], 2, "the file has no column 'nothing'"),
    ):
        result = run("embed", BARE, "--into", tmp_path / "x.orc", *arguments, code=code)
        assert what in result.stderr
        assert "Traceback" not in result.output
    bad = DATA / "apache_bad_bloom_filter_1.6.11.orc"
    result = run("embed", bad, "--into", tmp_path / "x.orc", "--bloom", "id", code=1)
    assert "ORC-1024" in result.stderr
    assert not list(tmp_path.iterdir())
