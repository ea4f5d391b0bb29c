"""``sidecar config``: each setting, its value, and where it comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.output import escaped, output, table
from sidecar.cli.shell.forms import ResultRows, rows_of
from sidecar.config import OTHER_VARIABLES, SETTINGS, find_setting, read_file
from sidecar.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console


def _settings_that_start_with(incomplete: str) -> list[str]:
    return [name for name in SETTINGS if name.startswith(incomplete)]


def config(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            autocompletion=_settings_that_start_with,
            help="The setting to show; by default, show all.",
        ),
    ] = None,
) -> None:
    """Show each setting, its value, and where it comes from.

    A value comes from an option, else from a variable, else from the nearest sidecar.toml or [tool.sidecar] in
    pyproject.toml, in the working folder or above it, else it is built in.

    \b
    Examples:
      sidecar config
      sidecar config engine --json
    """
    if name is not None and name not in SETTINGS:
        raise UsageError(f"there is no setting '{name}'", hint=f"The settings are {', '.join(SETTINGS)}.")
    file, _ = read_file()
    data = {
        "file": None if file is None else str(file),
        "settings": [_described(key) for key in ([name] if name else SETTINGS)],
        "variables": [] if name else list(_other_variables()),
    }
    output().result(data, draw, rows)


def _described(key: str) -> dict[str, Any]:
    found = find_setting(key)
    return {
        "setting": key,
        "value": found.value,
        "from": found.origin,
        "variable": found.setting.variable,
        "meaning": found.setting.meaning,
    }


def _other_variables() -> Iterator[dict[str, Any]]:
    for name, meaning in OTHER_VARIABLES.items():
        yield {"variable": name, "value": os.environ.get(name), "meaning": meaning}


def draw(to: Console, data: Any) -> None:
    """Draw a line for each setting, then one for each other variable."""
    drawn = table("setting", "value", "from", "variable", "meaning")
    for setting in data["settings"]:
        drawn.add_row(*(_cell(setting[key]) for key in ("setting", "value", "from", "variable", "meaning")))
    to.print(drawn)
    if not data["variables"]:
        return
    others = table("other variable", "value", "meaning")
    for variable in data["variables"]:
        others.add_row(*(_cell(variable[key]) for key in ("variable", "value", "meaning")))
    to.print(others)


def rows(data: Any) -> ResultRows:
    """A row for each setting and for each other variable."""
    return rows_of("setting value from variable meaning", [*data["settings"], *data["variables"]])


def _cell(value: Any) -> str:
    return "–" if value is None else escaped(str(value))
