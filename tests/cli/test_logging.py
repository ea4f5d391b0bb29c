"""Logs: one line a run at INFO under ``sidecar``, no values and no secrets, each warning once, levels of the CLI."""

from __future__ import annotations

import ast
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

import sidecar
from sidecar.cli.output import Output
from sidecar.cli.shell.logs import printed_logs
from tests.cli.running import run
from tests.iceberg.cases import local
from tests.tables import configure, create_with_rows, new_catalog

PACKAGE = Path(sidecar.__file__).parent
SECRET = 424242


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    catalog = new_catalog(tmp_path, "logs")
    configure(monkeypatch, catalog)
    monkeypatch.setenv("SIDECAR_CATALOG", "logs")
    rows = pa.table({"k": [1, 2, SECRET], "s": ["x", "y", "z"]})
    more = pa.table({"k": [0, 5, SECRET + 9], "s": ["x", "y", "z"]})
    return create_with_rows(catalog, "db.t", [rows, more])


def infos(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of runs. Whether kernels are compiled depends on what is in the cache."""
    lines = (r for r in caplog.records if r.levelno == logging.INFO and r.name != "sidecar.kernels")
    return [line.getMessage() for line in lines]


def test_a_build_and_a_plan_are_a_line_each(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sidecar")
    sidecar.build(table, ["k"], engine="local")
    (built,) = infos(caplog)
    assert built.startswith("build of db.t: 2 of 2 files covered (2 new), 2 units, columns k; ")
    caplog.clear()
    table.refresh()
    sidecar.plan(table, f"k = {SECRET}")
    (planned,) = infos(caplog)
    assert planned.startswith("plan of db.t: 1 of 2 files kept (1 ")
    assert "1 by filters" in planned
    assert str(SECRET) not in planned
    assert planned.endswith(" s")
    assert {record.name.partition(".")[0] for record in caplog.records} == {"sidecar"}


def test_plans_that_keep_files_say_why(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sidecar")
    plan = sidecar.plan(table, "k = 2")
    (line,) = infos(caplog)
    for reason, count in plan.funnel.kept_because.items():
        assert f"{count} {reason}" in line


def test_files_that_are_written_are_a_line_each(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sidecar")
    plain, made, bare, puffin = (str(tmp_path / name) for name in ("a.parquet", "b.parquet", "c.parquet", "d.puffin"))
    pq.write_table(pa.table({"k": list(range(100))}), plain)
    sidecar.embed(plain, into=made, bloom=["k"])
    sidecar.strip(made, bare)
    sidecar.extract([made], puffin)
    sidecar.embed(bare, into=str(tmp_path / "e.parquet"), from_=puffin)
    sidecar.embed(into=str(tmp_path / "all"), from_=puffin)
    lines = infos(caplog)
    assert [line.split(":")[0].replace(str(tmp_path), "") for line in lines[:4]] == [
        "/a.parquet written to /b.parquet",
        "/b.parquet written to /c.parquet",
        "1 files extracted to /d.puffin",
        "/c.parquet written to /e.parquet",
    ]
    assert lines[-1].replace(str(tmp_path), "").startswith("/b.parquet written to /all/b.parquet: ")


def test_warnings_of_a_plan_are_logged_once(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    damaged_sidecar(table)
    plan = sidecar.plan(table, "k = 2")
    assert plan.warnings
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == list(plan.warnings)
    caplog.clear()
    sidecar.scan(table, "k = 2")
    logged = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert set(plan.warnings) <= set(logged)


def damaged_sidecar(table: Table) -> None:
    path = sidecar.build(table, ["k"], engine="local").statistics_path
    assert path is not None
    file = local(path)
    table.refresh()
    file.write_bytes(b"PFA1" + b"\0" * (file.stat().st_size - 4))


def test_the_command_prints_a_warning_once(table: Table) -> None:
    damaged_sidecar(table)
    for level in ([], ["-v"], ["--log-level", "info"]):
        result = run("plan", "db.t", "k = 2", *level, code=0)
        lines = [line for line in result.stderr.splitlines() if line.startswith("warning: ")]
        assert len(lines) == len(set(lines)) >= 1
    quiet = run("plan", "db.t", "k = 2", "-q")
    assert (quiet.exit_code, quiet.stderr) == (0, "")


def test_a_warning_of_one_of_many_tables_is_printed_once_with_its_name(table: Table) -> None:
    damaged_sidecar(table)
    table.catalog.create_table("db.u", table.schema()).append(pa.table({"k": [1], "s": ["x"]}))
    result = run("status", "db.t", "db.u", code=0)
    lines = result.stderr.splitlines()
    assert lines
    assert all(line.startswith("warning: db.t: ") for line in lines)
    assert len(lines) == len(set(lines))


def test_what_is_logged_while_a_table_is_worked_on_is_held_with_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, held = Output(), list[tuple[str, str]]()
    with printed_logs(out.warn):
        with out.holding_warnings("db.t", held):
            logging.getLogger("sidecar.some.module").warning("it is odd")
        assert held == [("db.t", "it is odd")]
        out.warn(["db.t: it is odd", "it is odd", "it is odd"])
    assert capsys.readouterr().err == "warning: db.t: it is odd\nwarning: it is odd\n"


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([], False),
        (["-v"], True),
        (["-vv"], True),
        (["--verbose"], True),
        (["--log-level", "info"], True),
        (["--log-level", "debug"], True),
        (["--log-level", "error"], False),
        (["-v", "--log-level", "warning"], False),
        (["-v", "-q"], False),
    ],
)
def test_the_level_of_a_command(options: list[str], shown: bool, table: Table) -> None:
    for line in (["plan", "db.t", f"k = {SECRET}", *options], [*options, "plan", "db.t", f"k = {SECRET}"]):
        result = run(*line, code=0)
        assert ("info: plan of db.t: 2 of 2 files kept" in result.stderr) is shown
        assert str(SECRET) not in result.stderr


def test_the_level_of_the_configuration(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIDECAR_LOG_LEVEL", "info")
    assert "info: plan of" in run("plan", "db.t", "k = 2").stderr
    assert run("plan", "db.t", "k = 2", "--log-level", "warning").stderr == ""


def test_a_command_leaves_logging_as_it_was(table: Table) -> None:
    package, last = logging.getLogger("sidecar"), logging.lastResort
    before = package.level, list(package.handlers)
    run("plan", "db.t", "k = 2", "-vv")
    assert (package.level, package.handlers) == before
    assert logging.lastResort is last


def test_the_package_has_a_null_handler(table: Table) -> None:
    assert any(isinstance(one, logging.NullHandler) for one in logging.getLogger("sidecar").handlers)


def test_a_line_is_not_made_if_its_level_is_off(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "sidecar")  # another test may have left it on

    def fail(*_: Any) -> str:
        raise AssertionError("the line was made")

    monkeypatch.setattr("sidecar.planning.planner.log_line", fail)
    sidecar.plan(table, "k = 2")


def test_loggers_are_under_the_package() -> None:
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if "getLogger" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger"):
                name = ast.unparse(node.args[0])
                assert name in ("__name__", "PACKAGE") or name.startswith("'sidecar."), path


def test_a_warning_of_a_library_shows_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[str] = []
    with printed_logs(shown.extend):
        logging.getLogger("pyiceberg").warning("no region for bucket k:hunter2@bucket")
        warnings.warn("no region for bucket k:hunter2@bucket", UserWarning, stacklevel=1)
    assert "".join(shown).count("***@bucket") >= 1
    assert "hunter2" not in "".join(shown) + capsys.readouterr().err
