"""Errors as objects where JSON is read, exit codes, and what quiet means."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sidecar import errors
from sidecar.results import CaredTable, CareReport, RepairReport
from tests.cli.running import run

DATA = Path(__file__).resolve().parents[1] / "data" / "parquet"
SOUND = str(DATA / "j118_v1_none.parquet")
KINDS = {
    errors.DamagedFileError: "damaged-file",
    errors.WrongChecksumError: "damaged-file",
    errors.UnsupportedFeatureError: "unsupported",
    errors.UsageError: "usage",
    errors.StorageError: "storage",
    errors.CommitConflictError: "conflict",
}
PARTS = {
    "file": "a\x1b.parquet",
    "column": "k",
    "offset": 7,
    "expected": "PAR1",
    "found": b"\x00",
    "hint": "Go.",
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_each_error_is_an_object_with_its_parts(
    kind: type[errors.SidecarError], form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise kind("it broke", **PARTS)  # type: ignore[arg-type]

    monkeypatch.setattr("sidecar.many_files.inspect.inspect_file", fail)
    result = run("inspect", SOUND, "--format", form)
    code = 2 if kind is errors.UsageError else 1
    assert result.exit_code == code
    (line,) = result.stdout.splitlines()
    assert "\x1b" not in result.output
    found = json.loads(line)
    assert found["error"] == {"kind": KINDS[kind], "message": "it broke", **PARTS, "found": "00"}
    assert (found["command"], found["path"], found["exit"]) == ("inspect", SOUND, code)
    assert result.stderr == f"error: {kind('it broke', **PARTS)}\n"  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["table", "csv", "markdown"])
def test_other_forms_have_the_sentence_on_stderr_alone(form: str) -> None:
    result = run("scan", "./no/such.parquet", "k = 1", "--format", form)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: cannot open the file")


@pytest.mark.parametrize(
    "args",
    [
        ["plan", "db.t", "--json"],
        ["--json", "plan", "db.t"],
        ["plan", "--format", "jsonl"],
        ["plan", "--format=json"],
        ["nosuch", "--json"],
        ["guide", "nosuch", "--json"],
        ["inspect", SOUND, "--jsn", "--json"],
        ["--nosuch", "guide", "--json"],
        ["inspect", SOUND, "--at", "main", "--json"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_an_object_too(args: list[str]) -> None:
    result = run(*args, code=2)
    found = json.loads(result.stdout)
    assert (found["exit"], found["error"]["kind"]) == (2, "usage")
    assert found["error"]["message"]
    assert "rror: " in result.stderr


def test_the_form_of_the_environment_holds_for_errors() -> None:
    result = run("inspect", "./no/such.parquet", SIDECAR_FORMAT="json")
    assert json.loads(result.stdout)["error"]["kind"] == "storage"
    assert json.loads(run("plan", SIDECAR_FORMAT="json").stdout)["error"]["kind"] == "usage"


def test_a_problem_that_is_found_is_no_error_object() -> None:
    result = run("verify", str(DATA / "apache_datapage_v1-corrupt-checksum.parquet"), "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == found["exit"] == 1
    assert found["problems"]
    assert "error" not in found


def test_an_error_keeps_its_parts_across_processes() -> None:
    error = errors.DamagedFileError("it broke", **PARTS)  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(error)).to_dict() == error.to_dict()
    assert errors.UsageError("no").to_dict() == {"kind": "usage", "message": "no"}


def test_quiet_prints_no_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def care(*_: Any, **__: Any) -> CareReport:
        repaired = RepairReport("db.t", True, 0, [], ["one is left alone"])
        return CareReport(False, [CaredTable(table="db.t", repair=repaired)], None, None, 0.0)

    monkeypatch.setattr("sidecar.reports.caring.care", care)
    assert "warning: db.t: one is left alone" in run("care", "db.t").stderr
    for quiet in (["-q"], ["--quiet"]):
        result = run("care", "db.t", *quiet)
        assert (result.exit_code, result.stderr) == (1, "")
    assert run("-q", "inspect", "./no/such.parquet").stderr.startswith("error: ")


def test_the_parts_of_an_error_are_plain_data() -> None:
    error = errors.DamagedFileError("wrong magic", expected=b"PAR1", found=b"\xff", offset=4)
    assert json.dumps(error.to_dict()) == (
        '{"kind": "damaged-file", "message": "wrong magic", "offset": 4, "expected": "50415231", "found": "ff"}'
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk_below_stdout_is_one_line(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "sidecar.cli", "config", "--json"],
            stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        )  # fmt: skip
    assert ran.returncode != 0
    assert "Traceback" not in ran.stderr
    assert "No space left on device" in ran.stderr


def test_a_bug_is_an_error_object_beside_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise LookupError("a bug")

    monkeypatch.setattr("sidecar.inspect", fail)
    done = run("inspect", SOUND, "--json")
    assert isinstance(done.exception, LookupError)
    assert json.loads(done.stdout)["error"] == {"kind": "error", "message": "unexpected: LookupError: a bug"}
