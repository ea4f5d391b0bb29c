"""Settings that calls and commands fall back to: environment variables, and one file for a project.

A setting that is not given in a call comes from its variable (``SIDECAR_CATALOG``), else from the nearest file in the
working folder or above it: ``sidecar.toml``, or the table ``[tool.sidecar]`` in ``pyproject.toml``, else it has its
built-in value. In one folder ``sidecar.toml`` wins. Nothing is cached: a lookup costs two stat calls for each folder.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sidecar.errors import UsageError


@dataclass(frozen=True)
class Setting:
    """One setting: its key in a file, its type, the values that it may have (empty: any), and its built-in value."""

    key: str
    type: type[str] | type[int]
    meaning: str
    choices: tuple[str, ...] = ()
    default: str | int | None = None

    @property
    def variable(self) -> str:
        """The environment variable of the setting."""
        return f"SIDECAR_{self.key.upper()}"


@dataclass(frozen=True)
class FoundSetting:
    """The value of a setting and its origin: the name of a variable, the path of a file, or ``built-in``."""

    setting: Setting
    value: str | int | None
    origin: str


BUILT_IN = "built-in"
SETTINGS = {
    setting.key: setting
    for setting in (
        Setting("catalog", str, "the catalog of tables; without it, pyiceberg's default"),
        Setting("engine", str, "where data files are read", ("auto", "local", "spark"), "auto"),
        Setting("threads", int, "threads of a build in this process, and files that a scan reads at once"),
        Setting(
            "format",
            str,
            "how commands print results",
            ("table", "json", "jsonl", "csv", "markdown"),
            "table",
        ),
        Setting(
            "log_level",
            str,
            "the least level of log lines that commands print",
            ("debug", "info", "warning", "error"),
            "warning",
        ),
    )
}
OTHER_VARIABLES = {
    "SIDECAR_DEBUG": "1: commands show the traceback of an error",
    "NO_COLOR": "if set, output has no colours",
    "JAVA_HOME": "the Java runtime of Spark",
    "PYICEBERG_HOME": "the folder of .pyiceberg.yaml, which describes catalogs",
}
"""Variables that are no settings, with their meaning. Variables of catalogs are not here: they may hold secrets."""
FILE, PROJECT_FILE = "sidecar.toml", "pyproject.toml"


def configured(key: str) -> Any:
    """The value of a setting.

    Raises:
        UsageError: a variable or the file has a value of the wrong type, or the file has an unknown key.
    """
    return find_setting(key).value


def find_setting(key: str) -> FoundSetting:
    """The value of a setting and its origin; raises as :func:`configured` does."""
    setting = SETTINGS[key]
    if text := os.environ.get(setting.variable):
        return FoundSetting(setting, _value_of_text(setting, text), setting.variable)
    file, values = read_file()
    if key in values:
        return FoundSetting(setting, values[key], str(file))
    return FoundSetting(setting, setting.default, BUILT_IN)


def _value_of_text(setting: Setting, text: str) -> str | int:
    value: str | int = int(text) if setting.type is int and text.isdecimal() else text
    return _checked(setting, value, setting.variable, None)


def read_file() -> tuple[Path | None, Mapping[str, str | int]]:
    """The nearest file with settings and what it says; ``None`` and nothing if there is none."""
    for path in _candidates():
        if (values := _values_in(path)) is not None:
            return path, _checked_file(path, values)
    return None, {}


def _candidates() -> Iterator[Path]:
    try:
        here = os.getcwd()
    except OSError:  # the working folder was removed
        return
    while True:
        for name in (FILE, PROJECT_FILE):
            path = os.path.join(here, name)
            if os.path.isfile(path):
                yield Path(path)
        parent = os.path.dirname(here)
        if parent == here:
            return
        here = parent


def _values_in(path: Path) -> Any:
    """The settings in a file; ``None`` for a project file that has none of ours."""
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("cannot read the configuration", file=str(path)) from error
    ours = path.name == FILE
    if not ours and not _OURS.search(text):
        return None
    found = _parse(path, text)
    if ours:
        return found
    tools = found.get("tool")
    return tools.get("sidecar") if isinstance(tools, dict) else None


_OURS = re.compile(r"""^\s*\[?\s*["']?tool["']?\s*(\.\s*["']?sidecar|\]|=)""", re.MULTILINE)
"""Lines without which a project file has no table of ours, so that most files are not parsed."""


def _parse(path: Path, text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        found: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the configuration is not TOML: {error}", file=str(path)) from error
    return found


def _checked_file(path: Path, values: Any) -> Mapping[str, str | int]:
    if not isinstance(values, dict):
        raise UsageError("[tool.sidecar] is not a table", file=str(path))
    for key, value in values.items():
        if key not in SETTINGS:
            raise UsageError(
                f"the configuration has an unknown key '{key}'",
                file=str(path),
                hint=f"The keys are {', '.join(SETTINGS)}.",
            )
        _checked(SETTINGS[key], value, f"the key '{key}'", str(path))
    return values


def _checked(setting: Setting, value: object, name: str, file: str | None) -> str | int:
    """``value`` if it fits the setting."""
    if setting.type is int:
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        expected = "a whole number above 0"
    else:
        if isinstance(value, str) and value and (not setting.choices or value in setting.choices):
            return value
        expected = f"one of {', '.join(setting.choices)}" if setting.choices else "a text"
    raise UsageError(
        f"{name} has a wrong value",
        file=file,
        expected=expected,
        found=repr(value),
        hint=f"The keys are {', '.join(SETTINGS)}.",
    )
