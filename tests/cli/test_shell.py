"""What holds for every command: help, cheap imports, exit codes, one-sentence errors, docs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

from sidecar.cli import app as application
from sidecar.cli import humanize
from sidecar.cli.app import app
from sidecar.cli.options import is_path, names, rate
from sidecar.cli.output import to_json
from sidecar.cli.reference import REFERENCE
from sidecar.errors import UsageError
from tests.cli.running import run

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "sidecar" / "guide"
COMMANDS = list(get_command(app).commands)  # type: ignore[attr-defined]
HEAVY = ("numba", "numpy", "pyarrow", "pyiceberg", "pyspark", "xxhash", "zstandard")


def loaded_by(code: str) -> set[str]:
    """Top-level modules in ``sys.modules`` after ``code`` ran in a fresh interpreter."""
    script = f"{code}\nimport sys; print('\\n'.join(sorted({{m.split('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_there_are_these_commands_and_no_others() -> None:
    assert COMMANDS == [
        "build",
        "refresh",
        "status",
        "verify",
        "care",
        "warm-up",
        "plan",
        "scan",
        "probe",
        "find",
        "inspect",
        "advise",
        "report",
        "serve",
        "embed",
        "strip",
        "extract",
        "convert",
        "guide",
    ]


@pytest.mark.parametrize(
    "code",
    [
        "import sidecar",
        "from typer.testing import CliRunner as C; from sidecar.cli.app import app; C().invoke(app, ['-h'])",
    ],
    ids=["import", "help"],
)
def test_nothing_heavy_is_imported(code: str) -> None:
    assert not loaded_by(code).intersection((*HEAVY, "rich"))


@pytest.mark.parametrize("arguments", [["plan", "--help"], ["--quiet", "plan", "db.t", "k = 1", "--nix"]])
def test_only_the_command_that_runs_is_loaded(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    made, known = [], application._parser_of
    monkeypatch.setattr(application, "_parser_of", lambda module: made.append(module) or known(module))
    with pytest.raises(SystemExit):
        get_command(app)(arguments)
    assert made == ["plan"]


def test_help_names_every_command() -> None:
    result = run("--help", code=0)
    for name in COMMANDS:
        assert f"\n  {name} " in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_has_help_and_is_in_the_reference(name: str) -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    result = run(name, "--help", code=0)
    assert f"Examples:\n    sidecar {name}" in result.stdout
    assert f"sidecar {name} " in text
    for parameter in get_command(app).commands[name].params:  # type: ignore[attr-defined]
        if parameter.param_type_name == "option":
            assert parameter.help, f"{name} {parameter.name} has no help"
            assert f"`{max(parameter.opts, key=len)}" in text, f"the reference lacks {name} {parameter.opts}"


class Documented(NamedTuple):
    """What the reference says: the arguments of each command, and the commands of each option."""

    usages: dict[str, str]
    options: dict[str, set[str]]


def documented() -> Documented:
    found = Documented({}, {})
    for section in REFERENCE.read_text(encoding="utf-8").split("\n### sidecar ")[1:]:
        name = section.split("\n", 1)[0]
        usage = re.search(r"```\nsidecar [\w-]+ \[OPTIONS\] ?(.*)\n```", section)
        assert usage, f"the reference has no usage of {name}"
        found.usages[name] = usage[1]
        for cell in re.findall(r"^\| (`-.*?) (?<!\\)\|", section, re.MULTILINE):
            for option in re.findall(r"`(--[a-z-]+)", cell):
                found.options.setdefault(option, set()).add(name)
    return found


def test_the_reference_has_each_option_at_just_the_commands_that_take_it() -> None:
    taken: dict[str, set[str]] = {}
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        for parameter in command.params:
            options = [*parameter.opts, *parameter.secondary_opts]
            for option in options if parameter.param_type_name == "option" else ():
                if option.startswith("--"):
                    taken.setdefault(option, set()).add(name)
    assert documented().options == taken


@pytest.mark.parametrize("name", COMMANDS)
def test_the_reference_has_the_arguments_of_each_command(name: str) -> None:
    usage = re.search(r"Usage: sidecar [\w-]+ \[OPTIONS\] ?(.*)", run(name, "--help").stdout)
    assert usage is not None
    bare = re.compile(r"[{}\[\]]|(?<=[}\]])\.\.\.")  # versions of typer write these in different ways
    assert bare.sub("", documented().usages[name]) == bare.sub("", usage[1])


def test_the_usage_has_each_argument_once_and_a_wrong_choice_names_the_choices() -> None:
    wrong = run("build", "db.t", "--columns", "k", "--engine", "nix")
    assert "Usage: sidecar build [OPTIONS] TABLE...\n" in wrong.stderr
    assert "Invalid value for '--engine': 'nix' is not one of 'auto', 'spark', 'local'." in wrong.stderr
    assert wrong.exit_code == 2


def test_every_python_name_is_in_the_guide_and_loads() -> None:
    import sidecar

    guide = (GUIDE / "python.md").read_text("utf-8")
    for module in (sidecar, sidecar.results):
        for name in module.__all__:
            assert getattr(module, name) is not None
            assert f"sidecar.{name}" in guide or f"`{name}`" in guide or f"results.{name}" in guide, f"no {name} in it"
        assert set(module.__all__) <= set(dir(module))
        with pytest.raises(AttributeError, match="no attribute 'nosuch'"):
            module.nosuch  # noqa: B018


@pytest.mark.parametrize(
    "args",
    [
        ["nosuch"],
        ["plan", "db.t"],
        ["plan", "db.t", "k = 1", "--jsn"],
        ["probe", "db.t", "k", "--jsn"],
        ["build", "db.t"],
        ["build", "db.t", "--columns", ","],
        ["build", "db.t", "--columns", "k", "--engine", "flink"],
        ["build", "db.t", "--columns", "k", "--reuse", "some"],
        ["build", "db.t", "--columns", "k", "--fpp", "2"],
        ["scan", "db.t", "k = 1", "--limit", "-1"],
        ["scan", "db.t", "k = 1", "--output", "rows.xlsx"],
        ["scan", "db.t", "k = 1", "--output", "/no/such/folder/rows.csv"],
        ["inspect", "./a.parquet", "--catalog", "cat"],
        ["verify", "s3://bucket/a.parquet", "--at", "5"],
        ["scan", "./a.parquet", "k = 1", "--at", "main"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_2_and_no_traceback(args: list[str]) -> None:
    result = run(*args, code=2)
    assert isinstance(result.exception, SystemExit)
    assert "rror: " in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""


def test_a_catalog_that_is_not_configured_is_one_sentence(tmp_path: Path) -> None:
    result = run("plan", "db.t", "k = 1", "--catalog", "nowhere", PYICEBERG_HOME=str(tmp_path), code=2)
    assert result.stderr.startswith("error: the catalog 'nowhere' is not configured")
    assert result.stderr.count("\n") == 1


def test_a_missing_file_is_one_sentence() -> None:
    result = run("inspect", "./no/such/file.parquet", code=1)
    assert result.stderr.startswith("error: cannot open the file")
    assert "no/such/file.parquet" in result.stderr
    assert result.stderr.count("\n") == 1


def test_version() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"sidecar {version('lakehouse-sidecar')}\n")


def test_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    command = f"'{sys.executable}' -m sidecar.cli --help | head -c 1"
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("db.lineitem", False),
        ("ns.nested.table", False),
        ("part.parquet", True),
        ("Part.ORC", True),
        ("x.puffin", True),
        ("db.stats", True),  # with --catalog it is a table
        ("./part.parquet", True),
        ("dir/part", True),
        ("s3://bucket/key", True),
        ("file:/data/x", True),
        ("db.folder", True),  # there is such a folder
        ("db.other", False),
    ],
)
def test_a_path_has_a_slash_or_exists(target: str, expected: bool, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "db.folder").mkdir()
    assert is_path(target) is expected


def test_an_existing_file_is_a_path(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "part.parquet").touch()
    assert is_path("part.parquet")


def test_names() -> None:
    assert names("a, b.c,a") == ["a", "b.c"]
    with pytest.raises(UsageError, match="empty"):
        names(" , ")


def test_rate() -> None:
    assert rate("auto") == "auto"
    assert rate("0.01") == 0.01
    assert rate("1e-6") == 1e-6
    assert rate("1%") == 0.01
    for wrong in ("0", "1", "-0.1", "nan", "inf", "many", "100%", ""):
        with pytest.raises(UsageError, match="--fpp"):
            rate(wrong)


def test_json_has_a_word_for_everything() -> None:
    import datetime
    import decimal

    import numpy as np

    data = {
        "bytes": b"\x00\xff",
        "day": datetime.date(2024, 1, 2),
        "decimal": decimal.Decimal("1.50"),
        "nan": float("nan"),
        "numpy": np.int64(2**62),
        "flag": np.bool_(True),
        "nested": [{"t": (1, None)}],
    }
    assert json.loads(to_json(data)) == {
        "bytes": "00ff",
        "day": "2024-01-02",
        "decimal": "1.50",
        "nan": "nan",
        "numpy": 2**62,
        "flag": True,
        "nested": [{"t": [1, None]}],
    }


def test_numbers_for_people() -> None:
    assert [humanize.size(n) for n in (0, 999, 1_000, 16_842_752, 2_500_000_000)] == [
        "0 B", "999 B", "1 kB", "16.8 MB", "2.5 GB",
    ]  # fmt: skip
    assert [humanize.duration(s) for s in (2e-6, 0.0123, 1.25, 59.94, 200)] == [
        "2 µs", "12.3 ms", "1.2 s", "59.9 s", "3 min 20 s",
    ]  # fmt: skip
    assert [humanize.percent(p) for p in (0, 0.01, 0.000042, 1, 2.19)] == ["0 %", "1 %", "0.0042 %", "100 %", "219 %"]
    assert humanize.count(1_234_567) == "1,234,567"
