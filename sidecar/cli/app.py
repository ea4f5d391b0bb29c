"""The application: its commands, and how it reports errors.

Exit code 0: fine; 1: a problem was found or something failed; 2: wrong usage. An error of sidecar is one
sentence on stderr, never a traceback. ``SIDECAR_DEBUG=1`` shows the traceback of any error.
"""

from __future__ import annotations

import os
import re
import sys
from itertools import chain
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from sidecar.cli import (
    build,
    convert,
    embed,
    extract,
    guide,
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

COMMANDS: dict[str, tuple[Any, ...]] = {
    "Build and care": (build.build, status.status, verify.verify, repair.repair),
    "Ask": (plan.plan, scan.scan, probe.probe, inspect.inspect),
    "Data files": (embed.embed, strip.strip, extract.extract),
    "Convert": (convert.convert,),
    "Learn": (guide.guide,),
}
"""The commands by task, in the order in which the help and the command reference list them."""

ABOUT = "Bloom filters, page indexes and distinct counts for Iceberg tables and their data files."

NOTES = """\
TABLE is namespace.table. PATH is a Parquet, ORC or Puffin file, local or by URL. An argument is a path if it has a
slash or '://', or if a file of that name exists. Catalogs are those of pyiceberg's configuration: ~/.pyiceberg.yaml, or
variables such as PYICEBERG_CATALOG__DEMO__URI.

A predicate is written like SQL: "a = 1 and (b in ('x', 'y') or c is null)". A literal that does not fit its column is
refused, never rounded.

Results go to stdout, progress and warnings to stderr. The exit code is 0 for success, 1 for a problem or an error, and
2 for wrong usage. SIDECAR_DEBUG=1 shows the traceback of an error.

Shell completion (bash, zsh, fish, PowerShell): sidecar --install-completion sets it up for your shell, and
sidecar --show-completion prints the script.

sidecar COMMAND --help shows the options of a command, with examples. sidecar guide lists the guides."""


class CommandGroup(TyperGroup):
    """Turns errors into a sentence and an exit code, for the console script and for tests alike."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; see the module for the exit codes."""
        try:
            with enough_memory():
                return super().invoke(ctx)
        except SidecarError as error:
            _print_error(error, str(error))
            raise typer.Exit(2 if isinstance(error, UsageError) else 1) from error
        except BrokenPipeError as error:
            # The reader of the pipe has closed it (`sidecar scan ... | head`), so nothing can be written any more.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from error
        except OSError as error:
            file = f": {error.filename}" if error.filename else ""
            _print_error(error, f"{error.strerror or error}{file}")
            raise typer.Exit(1) from error

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands by task. A summary that is too long for the terminal is wrapped, not cut."""
        width = max(map(len, self.commands))
        for task, commands in COMMANDS.items():
            names = [command.__name__ for command in commands]
            with formatter.section(task):
                formatter.write_dl([(name.ljust(width), summary(self.commands[name])) for name in names])


class Command(TyperCommand):
    """Takes ``-5`` as a value, not as an option; any other unknown option is still a wrong usage."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse unknown options here, because the parser below passes them on as values."""
        known = {name for param in self.get_params(ctx) for name in (*param.opts, *param.secondary_opts)}
        for token in () if ctx.resilient_parsing else args:  # completion parses a line that is not finished
            if token == "--":
                break
            if token.startswith("-") and token != "-" and not NEGATIVE_NUMBER.match(token):
                name = token.split("=", 1)[0]
                if name not in known:
                    ctx.fail(f"No such option: {name}")
        return super().parse_args(ctx, args)


def summary(command: Any) -> str:
    """The first sentence of a command's help."""
    return str(command.help).split("\n\n")[0].replace("\n", " ")


def _print_error(error: BaseException, sentence: str) -> None:
    if os.environ.get("SIDECAR_DEBUG"):
        raise error
    typer.echo(f"error: {visible(sentence)}", err=True)


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"sidecar {version('lakehouse-sidecar')}")
        raise typer.Exit


app = typer.Typer(
    name="sidecar",
    cls=CommandGroup,
    help=ABOUT,
    epilog=NOTES,
    no_args_is_help=True,
    rich_markup_mode=None,  # boxes cost 0.1 s: rich is loaded where a result is drawn, not for help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(help=ABOUT)
def _main(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


for command in chain(*COMMANDS.values()):
    app.command(cls=Command, context_settings={"ignore_unknown_options": True})(command)
