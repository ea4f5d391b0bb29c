"""Settings: option, variable, file, built-in value, in this order; wrong keys and types are refused by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sidecar
from sidecar.cli.app import app
from sidecar.config import BUILT_IN, SETTINGS, configured, find_setting, read_file
from sidecar.errors import UsageError
from sidecar.iceberg.catalog import open_table
from sidecar.iceberg.many_tables import find_tables
from sidecar.reading.scanning import threads_of

VALUES: dict[str, Any] = {
    "catalog": "prod", "engine": "local", "threads": 3, "format": "csv", "log_level": "info",
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder below another one, without settings."""
    for setting in SETTINGS.values():
        monkeypatch.delenv(setting.variable, raising=False)
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    return inner


def toml(values: dict[str, Any], head: str = "") -> str:
    return head + "\n".join(f"{key} = {json.dumps(value)}" for key, value in values.items()) + "\n"


def run(*args: str) -> Any:
    return CliRunner().invoke(app, list(args), prog_name="sidecar")


def test_the_file_in_the_guide_has_each_setting(folder: Path) -> None:
    guide = (Path(sidecar.__file__).parent / "guide" / "output.md").read_text("utf-8")
    (folder / "sidecar.toml").write_text(guide.partition("```toml\n")[2].partition("```")[0])
    assert set(read_file()[1]) == set(SETTINGS)
    for setting in SETTINGS.values():
        assert f"| `{setting.key}` | `{setting.variable}` |" in guide


def test_built_in_values() -> None:
    assert {key: configured(key) for key in SETTINGS} == {
        "catalog": None, "engine": "auto", "threads": None, "format": "table", "log_level": "warning",
    }  # fmt: skip
    assert find_setting("engine").origin == BUILT_IN


@pytest.mark.parametrize("name", ["sidecar.toml", "pyproject.toml"])
@pytest.mark.parametrize("up", [0, 1])
def test_a_file_in_the_folder_or_above(name: str, up: int, folder: Path) -> None:
    file = [folder, folder.parent][up] / name
    file.write_text(toml(VALUES, "" if name == "sidecar.toml" else "[tool.sidecar]\n"))
    assert {key: configured(key) for key in SETTINGS} == VALUES
    assert find_setting("threads").origin == str(file)


def test_the_nearest_file_holds_and_sidecar_toml_wins_in_one_folder(folder: Path) -> None:
    (folder.parent / "sidecar.toml").write_text(toml({"engine": "spark", "threads": 9}))
    (folder / "pyproject.toml").write_text(toml({"engine": "local"}, "[tool.sidecar]\n"))
    assert (configured("engine"), configured("threads")) == ("local", None)
    (folder / "sidecar.toml").write_text(toml({"threads": 2}))
    assert (configured("engine"), configured("threads")) == ("auto", 2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[project]\nname = 'sidecar'\n",
        "[tool.ruff]\nline-length = 9\n",
        "[tool]\n",
        "sidecar is not TOML",
    ],
)
def test_a_project_file_without_our_table_is_passed_over(text: str, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(text)
    (folder.parent / "sidecar.toml").write_text(toml({"threads": 9}))
    assert configured("threads") == 9


@pytest.mark.parametrize(
    "text",
    [
        "[tool.sidecar]\nthreads = 4\n",
        '[ tool . "sidecar" ]\nthreads = 4\n',
        "tool.sidecar.threads = 4\n",
        "[tool]\nsidecar.threads = 4\n",
        "tool = {sidecar = {threads = 4}}\n",
    ],
)
def test_each_way_to_write_our_table_is_found(text: str, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(text)
    assert configured("threads") == 4


def test_a_variable_beats_the_file_and_an_empty_one_does_not(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "sidecar.toml").write_text(toml(VALUES))
    for key, text in {"catalog": "dev", "engine": "spark", "threads": "7", "format": "json"}.items():
        monkeypatch.setenv(SETTINGS[key].variable, text)
    assert [configured(key) for key in SETTINGS] == ["dev", "spark", 7, "json", "info"]
    assert find_setting("catalog").origin == "SIDECAR_CATALOG"
    monkeypatch.setenv("SIDECAR_ENGINE", "")
    assert configured("engine") == "local"


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"egnine": "local"}, ["unknown key 'egnine'"]),
        ({"threads": "4"}, ["the key 'threads'", "a whole number above 0", "'4'"]),
        ({"threads": 0}, ["'threads'"]),
        ({"threads": True}, ["'threads'"]),
        ({"engine": "flink"}, ["'engine'", "one of auto, local, spark", "'flink'"]),
        ({"format": 1}, ["'format'", "one of table, json, jsonl, csv, markdown"]),
        ({"catalog": ""}, ["'catalog'", "a text"]),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_the_known_keys(
    values: dict[str, Any], parts: list[str], folder: Path
) -> None:
    (folder / "sidecar.toml").write_text(toml(values))
    with pytest.raises(UsageError) as caught:
        configured("catalog")
    keys = "The keys are catalog, engine, threads, format, log_level."
    for part in (*parts, str(folder / "sidecar.toml"), keys):
        assert part in str(caught.value)
    result = run("config")
    assert result.exit_code == 2
    assert str(folder / "sidecar.toml") in result.stderr


@pytest.mark.parametrize(
    ("name", "text"), [("SIDECAR_THREADS", "-1"), ("SIDECAR_THREADS", "x"), ("SIDECAR_ENGINE", "x")]
)
def test_a_wrong_variable_is_refused_by_its_name(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(UsageError, match=name):
        configured(name.removeprefix("SIDECAR_").lower())


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("sidecar.toml", b"not = [toml"),
        ("sidecar.toml", b"\xff\xfe"),
        ("pyproject.toml", b"[tool.sidecar\n"),
        ("pyproject.toml", b"tool = 5\n"),
        ("pyproject.toml", b"[tool]\nsidecar = 5\n"),
    ],
)
def test_a_file_that_is_not_ours_or_not_toml(name: str, data: bytes, folder: Path) -> None:
    (folder / name).write_bytes(data)
    if data == b"tool = 5\n":
        assert read_file() == (None, {})
        return
    with pytest.raises(UsageError, match=name):
        read_file()


def test_an_option_beats_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIDECAR_FORMAT", "csv")
    assert run("guide").stdout.startswith("name,title")
    assert json.loads(run("guide", "--json").stdout)["guides"]
    assert run("--format", "markdown", "guide").stdout.startswith("| name | title |")


def test_calls_in_python_use_the_settings(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    (folder / "sidecar.toml").write_text(toml({"catalog": "no-such-catalog", "threads": 3}))
    with pytest.raises(UsageError, match="no-such-catalog"):
        open_table("db.t")
    with pytest.raises(UsageError, match="no-such-catalog"):
        find_tables("db.*")
    with pytest.raises(UsageError, match="other"):
        open_table("db.t", "other")
    assert (threads_of(None), threads_of(2)) == (3, 2)


def test_config_prints_each_setting_its_value_and_its_origin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "sidecar.toml").write_text(toml({"catalog": "prod", "threads": 3}))
    monkeypatch.setenv("SIDECAR_THREADS", "5")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TOKEN", "s3cret")
    result = run("config", "--json")
    found = json.loads(result.stdout)
    assert found["file"] == str(folder / "sidecar.toml")
    assert [(one["setting"], one["value"], one["from"]) for one in found["settings"]] == [
        ("catalog", "prod", str(folder / "sidecar.toml")),
        ("engine", "auto", "built-in"),
        ("threads", 5, "SIDECAR_THREADS"),
        ("format", "table", "built-in"),
        ("log_level", "warning", "built-in"),
    ]
    assert "SIDECAR_DEBUG" in {one["variable"] for one in found["variables"]}
    one = json.loads(run("config", "threads", "--json").stdout)
    assert [setting["value"] for setting in one["settings"]] == [5]
    wrong = run("config", "thread")
    assert wrong.exit_code == 2
    assert "The settings are catalog, engine" in wrong.stderr
    text = run("config").stdout
    assert "SIDECAR_THREADS" in text
    assert "SIDECAR_DEBUG" in text
    assert "s3cret" not in text + result.stdout


def test_a_folder_that_is_gone_has_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert read_file() == (None, {})


def test_no_parser_is_loaded_where_nothing_is_configured(folder: Path) -> None:
    code = "import sys; from sidecar.config import configured; configured('engine'); print('tomllib' in sys.modules)"
    root = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert done.stdout == "False\n"


def test_a_byte_order_mark_is_not_part_of_a_file(folder: Path) -> None:
    (folder / "sidecar.toml").write_text(toml({"threads": 9}), encoding="utf-8-sig")
    assert configured("threads") == 9
