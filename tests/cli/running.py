"""Runs commands in this process, for the tests of all rooms."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from sidecar.cli.app import app


def run(*args: object, code: int | None = None, **env: str | None) -> Any:
    """Run a command line, with some variables of the environment; it ends with the code, if one is given."""
    result = CliRunner(env=env).invoke(app, [str(arg) for arg in args], prog_name="sidecar")
    assert code is None or result.exit_code == code, result.output
    return result


def answer(*args: object) -> Any:
    """Run a command that succeeds, and return the JSON that it prints."""
    return json.loads(run(*args, "--json", code=0).stdout)
