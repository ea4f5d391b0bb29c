"""inspect, probe and verify on files: their JSON, exit codes, damage in one sentence."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.running import answer, run

DATA = Path(__file__).resolve().parents[1] / "data" / "parquet"
FILE = str(DATA / "j118_v1_none.parquet")


def test_inspect_has_these_facts_of_a_data_file_and_no_others() -> None:
    expected = json.loads((DATA / "expected" / "j118_v1_none.json").read_text())
    assert expected, "the fixture says nothing"
    (data,) = answer("inspect", FILE)["files"]
    assert {"row_group", "rows", "columns"} <= set(data["units"][0])
    columns = data["units"][0]["columns"]
    assert set(columns["i32_opt"]) == {"bloom_filter", "column_index", "offset_index"}
    assert set(columns["i32_opt"]["bloom_filter"]) == {
        "offset", "length", "bytes", "hash", "fill", "estimated_fpp", "trusted", "reason", "sha256",
    }  # fmt: skip


def test_inspect_draws_every_filter_and_says_which_are_not_trusted() -> None:
    result = run("inspect", FILE, code=0)
    assert "i32_opt" in result.stdout
    assert "not trusted" in result.stdout  # the filter of its BOOLEAN column


def written_value(column: str) -> str:
    import pyarrow.parquet as pq

    return str(next(v for v in pq.read_table(FILE, columns=[column])[column].to_pylist() if v is not None))


@pytest.mark.parametrize("column", ["i32_opt", "i64_opt", "str"])
def test_probe_finds_a_value_that_is_there(column: str) -> None:
    (data,) = answer("probe", FILE, column, written_value(column))["files"]
    assert any(unit["might_contain"] for unit in data["units"])


def test_probe_takes_a_negative_number_as_a_value() -> None:
    units = answer("probe", FILE, "i32_opt", "-1999999999")["files"][0]["units"]
    assert [unit["might_contain"] for unit in units] == [False] * len(units)
    assert "cannot hold it" in run("probe", FILE, "i32_opt", "-1999999999").stdout


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        ("nosuch", "1", "the file has no column 'nosuch'"),
        ("i32_opt", "1.5", "does not fit a column of type int"),
        ("i32_opt", "many", "i"),
        ("i32_opt", str(2**40), "does not fit"),
    ],
)
def test_probe_refuses_what_does_not_fit(column: str, value: str, sentence: str) -> None:
    result = run("probe", FILE, column, value, code=2)
    assert sentence in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_verify_of_a_sound_file() -> None:
    sound = str(DATA / "apache_data_index_bloom_encoding_stats.parquet")
    assert (
        answer("verify", sound).items()
        >= {
            "checked": 1,
            "problems": [],
            "scope": "structure and page indexes; --data looks every value up",
        }.items()
    )
    assert "fine" in run("verify", sound).stdout


def test_verify_names_a_wrong_page_checksum_and_exits_with_1() -> None:
    result = run("verify", str(DATA / "apache_datapage_v1-corrupt-checksum.parquet"), "--json", code=1)
    problems = json.loads(result.stdout)["problems"]
    assert set(problems[0]) == {"file", "unit", "column", "problem"}
    assert problems[0]["column"] == "a"


def test_verify_against_the_data() -> None:
    path = str(DATA / "variants" / "m01_ok.parquet")
    whole = run("verify", path, "--data", code=0)
    assert re.fullmatch(
        r"fine: 1 checked, [\d,]+ values of 3 of 3 units looked up, 18 indexes compared", whole.stdout.strip()
    )
    some = answer("verify", path, "--sample", "0.3")
    assert (some["looked_up"]["units"], some["looked_up"]["units_total"]) == (1, 3)
    assert run("verify", path, "--sample", "7").exit_code == 2


def test_an_encrypted_file_without_keys() -> None:
    path = str(DATA / "j118_enc_gcm_encfooter.parquet")
    shown = run("inspect", path, code=0)
    assert "AES_GCM_V1" in shown.stdout
    assert "not verified" in shown.stdout
    for command in (["verify", path, "--json"], ["probe", path, "str", "a"], ["scan", path, "str = 'a'"]):
        refused = run(*command, code=1)
        assert "the footer is encrypted" in refused.stderr + refused.stdout


def test_keys_of_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {
        "footer_key": "hex:" + b"0123456789012345".hex(),
        "column_keys": {"str": "base64:MTIzNDU2Nzg5MDEyMzQ1MA=="},
        "keys": {"kc2": "env:KC2"},
    }
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    monkeypatch.setenv("KC2", "hex:" + b"1234567890123451".hex())
    monkeypatch.setenv("ALL", json.dumps(keys))
    path = str(DATA / "j118_enc_gcm_encfooter.parquet")
    for place in (str(tmp_path / "keys.json"), "env:ALL"):
        option = ["--encryption-keys", place]
        shown = answer("inspect", path, *option)["files"][0]["encryption"]
        assert (shown["columns"], shown["locked"]) == (["i64_desc", "f64_clean", "str"], [])
        assert answer("verify", path, "--data", *option)["problems"] == []
        units = answer("probe", path, "str", "nothing like it", *option)["files"][0]["units"]
        assert {unit["might_contain"] for unit in units} == {False}
        assert run("scan", path, "f64_clean > 0", "--json", *option).stdout.count("\n") > 10
    run("inspect", path, "--encryption-keys", "env:NONE", code=2)


@pytest.mark.parametrize("content", [b"", b"abc", b"not a table at all", b"ORC and more", b"PAR1", b"PFA1PFA1"])
def test_files_that_are_nothing_are_one_sentence(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    inspected, verified = run("inspect", str(path)), run("verify", str(path), "--json")
    assert (inspected.exit_code, verified.exit_code) == (1, 1)
    assert inspected.stderr.startswith("error: ")
    assert str(path) in inspected.stderr
    assert inspected.stderr.count("\n") == 1
    assert len(json.loads(verified.stdout)["problems"]) == 1


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_one_sentence(keep: float, tmp_path: Path) -> None:
    whole = Path(FILE).read_bytes()
    path = tmp_path / "cut.parquet"
    path.write_bytes(whole[: int(len(whole) * keep)])
    result = run("inspect", str(path), code=1)
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_inspect_names_a_command_that_makes_large_filters_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("fat").mkdir()
    pq.write_table(pa.table({"k": range(2000), "s": [f"s{n}" for n in range(2000)]}), "plain.parquet")
    assert run("embed", "plain.parquet", "--into", "fat/a.parquet", "--bloom", "k,s", "--fpp", "1e-9").exit_code == 0
    shutil.copy("fat/a.parquet", "fat/b.parquet")
    assert "warning" not in run("inspect", "plain.parquet").stderr
    for target, made in (("fat/a.parquet", "NEW.parquet"), ("fat", "NEW/a.parquet")):
        warning = run("inspect", target).stderr
        assert warning.startswith("warning: filters of k, s are ")
        assert run(*shlex.split(warning.rpartition(": ")[2])[1:]).exit_code == 0
        assert run("inspect", made).stderr == ""
        assert 2 * Path(made).stat().st_size < Path("fat/a.parquet").stat().st_size
