"""Runs commands in this process, for the tests of all rooms."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from sidecar.cli.app import app


def run(*args: object, **env: str) -> Any:
    """Run a command line, with some variables of the environment."""
    return CliRunner(env=env).invoke(app, [str(arg) for arg in args], prog_name="sidecar")


def answer(*args: object) -> Any:
    """Run a command that succeeds, and return the JSON that it prints."""
    result = run(*args, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
