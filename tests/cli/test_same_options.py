"""A command and the function of its name take the same options: names, defaults and choices are equal."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, get_args

import pytest

import sidecar
from sidecar.cli.app import Parsers

SHARED = {
    "format",
    "json",
    "quiet",
    "verbose",
    "log_level",
    "catalog",
    "storage_option",
    "spark_catalog",
    "conf",
    "help",
}
"""Options that all commands have, or all that take tables: where results go, and the name of the catalog."""
ONLY_PYTHON = {
    "allow_equality_deletes": "for engines that apply these deletes when they read the files",
    "case_sensitive": "for engines whose names are not",
    "catalog": "an option that all commands share",
    "io": "an object",
    "on_start": "an object",
    "spark": "an object",
    "threads": "a process of its own takes all cores",
}
ONLY_COMMAND = {
    ("find", "strict"): "what the exit code is",
    ("gc", "yes"): "the command asks a person",
    ("inspect", "statistics"): "what is drawn; a result has all",
    ("plan", "why"): "Plan.why",
    ("scan", "explain"): "Plan.to_arrow fills in a report",
    ("scan", "output"): "a program writes the rows itself",
}
OTHER_DEFAULTS = {
    ("extract", "bloom"): "a flag names the one kind that is taken; in Python both are, unless one is refused",
    ("extract", "page_index"): "the same",
}
WITHOUT_A_FUNCTION = {"guide"}
WITHOUT_A_COMMAND = {
    "encryption_keys_from": "--encryption-keys",
    "expire": "a step of care",
    "gc": "a step of care",
    "repair": "a step of care",
    "find_tables": "globs",
    "open_sidecar": "the name of a table",
    "open_table": "the name of a table",
    "progress": "a bar on a terminal",
    "scan_batches": "scan streams",
    "spark_read": "Spark SQL reads what serve plans",
}
COMMANDS = Parsers()


def options_of(command: str) -> dict[str, Any]:
    """The options of a command by the name of the parameter in Python: ``as`` is a word of Python, so it is ``as_``."""
    found = {}
    for one in COMMANDS[command].params:
        name = max(one.opts, key=len).removeprefix("--").replace("-", "_")
        if one.param_type_name == "option" and name not in SHARED:
            found[f"{name}_" if name in ("as", "from") else name] = one
    return found


def function_of(command: str) -> Any:
    return getattr(sidecar, command.replace("-", "_"))


def parameters_of(command: str) -> dict[str, inspect.Parameter]:
    """The parameters of a function that are options: a command has arguments for those that need no name."""
    every, options = inspect.signature(function_of(command)).parameters, options_of(command)
    return {name: one for name, one in every.items() if one.kind is one.KEYWORD_ONLY or name in options}


def value_of(default: Any) -> Any:
    """A default as Python has it: an option's is a text, a choice, or false and empty for what is not given."""
    if isinstance(default, str) and default[-1:] in "hd" and default[:-1].isdigit():
        return timedelta(**{{"h": "hours", "d": "days"}[default[-1]]: int(default[:-1])})
    if isinstance(default, str) and default.replace(".", "", 1).isdigit():
        return float(default)
    return getattr(default, "value", default) or None


def choices_in(annotation: str, names: dict[str, Any]) -> Iterator[str]:
    """The texts of the literals in an annotation."""
    for part in (one.strip() for one in annotation.split("|")):
        yield from get_args(names.get(part, getattr(sidecar, part, None)))


@pytest.mark.parametrize("command", sorted({*COMMANDS} - WITHOUT_A_FUNCTION))
def test_a_command_and_its_function_take_the_same(command: str) -> None:
    options, parameters = options_of(command), parameters_of(command)
    arguments = {one.name for one in COMMANDS[command].params if one.param_type_name == "argument"}
    every = inspect.signature(function_of(command)).parameters
    assert options.keys() - every.keys() - {name for of, name in ONLY_COMMAND if of == command} == set()
    assert parameters.keys() - options.keys() - arguments - ONLY_PYTHON.keys() == set()
    for name in options.keys() & parameters.keys():
        if (command, name) not in OTHER_DEFAULTS and parameters[name].default is not inspect.Parameter.empty:
            assert value_of(options[name].default) == (parameters[name].default or None), name
        words = (options[name].metavar or "").split("|")
        if len(words) > 1 and all(word.islower() for word in words):
            known = {*choices_in(str(parameters[name].annotation), function_of(command).__globals__)}
            assert {*words} == known, name


def test_a_function_has_a_command_or_a_reason() -> None:
    functions = {name for name in sidecar.__all__ if inspect.isfunction(getattr(sidecar, name))}
    commands = {name.replace("-", "_") for name in COMMANDS}
    assert functions - commands <= WITHOUT_A_COMMAND.keys()
    assert commands - functions <= WITHOUT_A_FUNCTION


def test_spans_are_compared_by_their_length() -> None:
    assert (value_of("5d"), value_of("auto"), value_of(False)) == (timedelta(days=5), "auto", None)
