"""The application: its commands, and what an error becomes.

Exit code 0: fine; 1: a problem was found or something failed; 2: wrong usage. An error of sidecar is one
sentence on stderr, never a traceback. ``SIDECAR_DEBUG=1`` shows the traceback of any error.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from sidecar.cli import (
    build,
    convert,
    embed,
    extract,
    inspect,
    plan,
    probe,
    repair,
    scan,
    status,
    strip,
    verify,
)
from sidecar.errors import SidecarError, UsageError, enough_memory, visible

NEGATIVE_NUMBER = re.compile(r"-(\.?\d|inf)")


class CommandGroup(TyperGroup):
    """Turns errors into a sentence and an exit code, for the console script and for tests alike."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; see the module for the exit codes."""
        try:
            with enough_memory():
                return super().invoke(ctx)
        except SidecarError as error:
            _complain(error, str(error))
            raise typer.Exit(2 if isinstance(error, UsageError) else 1) from error
        except BrokenPipeError as error:
            # The reader of a pipe went away (`sidecar scan ... | head`): nobody is left to write to.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from error
        except OSError as error:
            _complain(error, f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
            raise typer.Exit(1) from error


class Command(TyperCommand):
    """Takes ``-5`` as a value, not as an option; any other unknown option is still a wrong usage."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse unknown options here, because the parser below passes them on as values."""
        known = {name for param in self.get_params(ctx) for name in (*param.opts, *param.secondary_opts)}
        for token in args:
            if token == "--":
                break
            if token.startswith("-") and token != "-" and not NEGATIVE_NUMBER.match(token):
                name = token.split("=", 1)[0]
                if name not in known:
                    ctx.fail(f"No such option: {name}")
        return super().parse_args(ctx, args)


def _complain(error: BaseException, sentence: str) -> None:
    if os.environ.get("SIDECAR_DEBUG"):
        raise error
    typer.echo(f"error: {visible(sentence)}", err=True)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"sidecar {version('lakehouse-sidecar')}")
        raise typer.Exit


app = typer.Typer(
    name="sidecar",
    cls=CommandGroup,
    help="The indexes that lakehouse tables lack, kept beside them.",
    epilog="TABLE is namespace.table. PATH is a Parquet or Puffin file, local or by URL. "
    "Exit code 0: fine; 1: a problem was found or something failed; 2: wrong usage.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # boxes cost 0.1 s: rich is loaded where a result is drawn, not for help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _main(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """The indexes that lakehouse tables lack, kept beside them."""


for command in (
    build.build,
    inspect.inspect,
    probe.probe,
    plan.plan,
    scan.scan,
    embed.embed,
    extract.extract,
    strip.strip,
    convert.convert,
    verify.verify,
    status.status,
    repair.repair,
):
    app.command(cls=Command, context_settings={"ignore_unknown_options": True})(command)
