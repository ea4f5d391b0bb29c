"""The command reference ``guide/commands.md``, generated from the help texts. ``scripts/commands`` writes the file.

It is made from the declarations of commands and parameters, not from the formatted help, so it does not depend on the
terminal or on the versions of typer and rich.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

from typer.core import TyperCommand
from typer.main import get_command

from sidecar.cli.app import COMMANDS, NOTES, app, name_of

REFERENCE = Path(__file__).parents[1] / "guide" / "commands.md"

HEAD = f"""\
# Look up a command and its options

**The task:** you know what you want to do, and need the command, its arguments and its options.

`sidecar COMMAND --help` prints the same for one command. This page is generated from these help texts.

{NOTES}
"""


def reference() -> str:
    """The whole page as Markdown."""
    commands = get_command(app).commands  # type: ignore[attr-defined]
    parts = [HEAD]
    for task, modules in COMMANDS.items():
        parts.append(f"## {task}\n")
        parts += ["\n".join(_section(name, commands[name])) for name in map(name_of, modules)]
    return "\n".join(parts)


def _section(name: str, command: TyperCommand) -> Iterator[str]:
    yield f"### sidecar {name}\n"
    yield f"```\n{_usage(name, command)}\n```\n"
    for paragraph in str(command.help).split("\n\n"):
        # A paragraph that starts with a backspace keeps its lines: a table or the examples.
        yield f"```\n{_verbatim(paragraph)}\n```\n" if paragraph.startswith("\b") else f"{paragraph}\n"
    yield "| argument or option | meaning |\n| --- | --- |"
    for parameter in command.params:
        yield f"| {_cell(_names(parameter))} | {_cell(_meaning(parameter))} |"
    yield ""


def _usage(name: str, command: TyperCommand) -> str:
    arguments = (param for param in command.params if param.param_type_name == "argument")
    return " ".join(
        [
            f"sidecar {name} [OPTIONS]",
            *(str(arg.metavar) if arg.required else f"[{arg.metavar}]" for arg in arguments),
        ]
    )


def _verbatim(paragraph: str) -> str:
    return dedent(paragraph.removeprefix("\b\n").removeprefix("Examples:\n"))


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`"
    value = f" {parameter.metavar}" if parameter.metavar else ""
    names = sorted([*parameter.opts, *parameter.secondary_opts], key=lambda name: not name.startswith("--"))
    return ", ".join(f"`{name}{value if name.startswith('--') else ''}`" for name in names)


def _meaning(parameter: Any) -> str:
    default = getattr(parameter.default, "value", parameter.default)
    if parameter.required:
        return f"{parameter.help} Required."
    return f"{parameter.help} Default: `{default}`." if isinstance(default, str) else str(parameter.help)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    REFERENCE.write_text(reference(), encoding="utf-8")
