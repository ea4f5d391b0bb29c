"""The application: its commands, and how it reports errors.

Exit code 0: fine; 1: a problem was found or something failed; 2: wrong usage; 3: ``find`` could not ask everything; 4:
``care`` left a table alone, because a sidecar of it can be registered nowhere. An error of sidecar is one sentence on
stderr, never a traceback. ``SIDECAR_DEBUG=1`` shows the traceback of any error.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from itertools import chain
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from sidecar.cli.options import is_path
from sidecar.cli.output import Output, output, start_output
from sidecar.cli.shell.choices import (
    FORMAT_VARIABLE,
    ROWS_ALONE,
    OutputFormat,
    SharedChoices,
    form_in,
    from_variable,
    with_shared_options,
)
from sidecar.cli.shell.logs import printed_logs, set_levels
from sidecar.errors import SidecarError, StorageError, UsageError, enough_memory, foreign_reason, without_credentials
from sidecar.run import package_version, progress

NEGATIVE_NUMBER = re.compile(r"-(\.?\d|inf)")

COMMANDS: dict[str, tuple[str, ...]] = {
    "Build and care": (
        "build",
        "care.refresh",
        "status",
        "verify",
        "care.care",
        "warm_up",
    ),
    "Ask": ("plan", "scan", "probe", "facts.find", "inspect", "facts.advise", "facts.report"),
    "Serve": ("serve",),
    "Data files": ("embed", "strip", "extract"),
    "Convert": ("convert",),
    "Learn": ("guide",),
}
"""The modules of the commands by task, in the order in which the help and the command reference list them. Each has a
function of its own name, which the command runs."""

GONE = {
    "compact": "sidecar refresh TABLE",
    "expire": "sidecar care TABLE --only expire",
    "gc": "sidecar care TABLE --only gc",
    "repair": "sidecar care TABLE --only repair",
    "config": "sidecar guide catalogs",
}
"""The command to type instead of one that was removed."""

WITH_ROWS = ("scan", "find")
"""The commands whose results are rows."""

ABOUT = "Bloom filters, page indexes and distinct counts for Iceberg tables and their data files."

NOTES = """\
TABLE is namespace.table; where several are taken also a glob: db.* are the tables of a namespace, db.** also those of
the namespaces in it. PATH is a Parquet, ORC or Puffin file, local or by URL; where several are taken also a folder or a
glob such as 'data/**/*.parquet'. An argument is a path if it has a slash or '://', if a file or folder of that name
exists, or, without --catalog, if it ends with .parquet, .orc, .puffin or .stats. Catalogs are those of pyiceberg's
configuration: ~/.pyiceberg.yaml, or variables such as PYICEBERG_CATALOG__DEMO__URI; with --spark-catalog they are those
of Spark's configuration.

A predicate is written like SQL: "a = 1 and (b in ('x', 'y') or c is null)". A literal that does not fit its column is
refused, never rounded.

Results go to stdout, progress and warnings to stderr. The exit code is 0 for success, 1 for a problem or an error, and
2 for wrong usage; find and care have one more. SIDECAR_DEBUG=1 shows the traceback of an error.

The variables SIDECAR_CATALOG, SIDECAR_ENGINE, SIDECAR_FORMAT and SIDECAR_LOG_LEVEL have the values of options that are
not given. Options that all commands have may be before the command, too.

Shell completion (bash, zsh, fish, PowerShell): sidecar --install-completion sets it up for your shell, and
sidecar --show-completion prints the script.

sidecar COMMAND --help shows the options of a command, with examples. sidecar guide lists the guides."""


class Parsers(Mapping[str, Any]):
    """The parsers of all commands, by name. Each is made when it is looked up."""

    def __init__(self) -> None:
        self._modules = {name_of(module): module for module in chain(*COMMANDS.values())}
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _parser_of(self._modules[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


def _parser_of(module: str) -> Any:
    """Load the module of a command, and make its parser."""
    function = getattr(import_module(f"sidecar.cli.{module}"), module.rpartition(".")[2])
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name_of(module), cls=Command, context_settings={"ignore_unknown_options": True})(
        with_shared_options(function, start, catalog=module == "serve")
    )
    return get_command(alone)


class CommandGroup(TyperGroup):
    """Turns errors into a sentence and an exit code, for the console script and for tests alike."""

    def __init__(self, **settings: Any) -> None:
        """``settings`` are those of typer."""
        super().__init__(**settings)
        parsers: Any = Parsers()
        self.commands = parsers

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, of which none is loaded for that."""
        return list(self.commands)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before the command."""
        form = form_in(args) or form_in(["--format", os.environ.get(FORMAT_VARIABLE, "")])
        start_output(Output(form or OutputFormat.table))
        with _wrong_usage_as_object(bool(args)):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Name what to type instead of a command that there is no more."""
        if args[0] in GONE:
            ctx.fail(f"There is no command '{args[0]}'. Type: {GONE[args[0]]}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; see the module for the exit codes."""
        try:
            with enough_memory(), printed_logs(_warn), _wrong_usage_as_object(True), progress(_show_progress):
                try:
                    return super().invoke(ctx)
                finally:
                    output().clear_progress()
        except SidecarError as error:
            _print_error(error, error)
            raise typer.Exit(2 if isinstance(error, UsageError) else 1) from error
        except BrokenPipeError as error:
            # The reader of the pipe has closed it (`sidecar scan ... | head`), so nothing can be written any more.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from error
        except OSError as error:
            _print_error(error, StorageError(error.strerror or str(error), file=error.filename))
            raise typer.Exit(1) from error
        except Exception as error:
            if not isinstance(error, (typer.Exit, typer.Abort, _ParserError)):  # a bug: JSON, and its traceback
                _print_error_object(SidecarError(f"unexpected: {foreign_reason(error)}"))
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands by task. A summary that is too long for the terminal is wrapped, not cut."""
        width = max(map(len, self.commands))
        for task, commands in COMMANDS.items():
            names = [name_of(module) for module in commands]
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
                if name not in known and not _are_short(name, known):
                    near = get_close_matches(name, sorted(known), n=1)
                    ctx.fail(f"No such option: {name}.{f' Did you mean {near[0]}?' if near else ''}")
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words after the command's name in its usage: ``TABLE...``, where the parser says ``{TABLE...}...``."""
        arguments = (one for one in self.get_params(ctx) if one.param_type_name == "argument")
        return ["[OPTIONS]", *(f"{one.metavar}" if _is_needed(one) else f"[{one.metavar}]" for one in arguments)]


def _is_needed(argument: Any) -> bool:
    """Whether an argument must be given: the parser says so, or the command, which has a better sentence for it."""
    return bool(argument.required) or (argument.help or "").endswith("Required.")


def _are_short(token: str, known: set[str]) -> bool:
    """Whether a token is short options in one word, such as ``-vq``."""
    return not token.startswith("--") and all(f"-{letter}" in known for letter in token[1:])


def name_of(module: str) -> str:
    """The name of the command that is in a module."""
    return module.rpartition(".")[2].replace("_", "-")


def summary(command: Any) -> str:
    """The first sentence of a command's help."""
    return str(command.help).split("\n\n")[0].replace("\n", " ")


def _warn(texts: Iterable[str]) -> None:
    output().warn(texts)


def _show_progress(what: str, done: int | None, total: int | None) -> None:
    output().show_progress(what, done, total)


def _print_error(error: BaseException, described: SidecarError) -> None:
    if os.environ.get("SIDECAR_DEBUG"):
        raise error
    with suppress(OSError):  # stdout may be what cannot be written
        _print_error_object(described)
    typer.echo(f"error: {described}", err=True)


def _print_error_object(error: SidecarError) -> None:
    """Print an error on stdout, if JSON is read there."""
    if output().is_json:
        output().document({"error": error.to_dict()}, 2 if isinstance(error, UsageError) else 1)


_ParserError: Any = typer.BadParameter.__mro__[1]
"""The class of all errors of the parser; it prints them itself, with the usage of the command."""


@contextmanager
def _wrong_usage_as_object(given: bool) -> Iterator[None]:
    """Print an error of the parser as JSON too. Without arguments (``given``) the error is the help."""
    try:
        yield
    except _ParserError as error:
        error.message = error.message.replace("Value error, ", "")  # which pydantic puts before its reasons
        if given:
            _print_error_object(UsageError(error.format_message()))
        raise


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"sidecar {package_version()}".rstrip())
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


def main_options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """The options before the name of a command."""


def _before_command(context: typer.Context, chosen: SharedChoices, targets: list[str]) -> None:
    context.obj = chosen


def start(context: typer.Context, chosen: SharedChoices, targets: list[str]) -> None:
    """Make the output of a command that starts."""
    choices = chosen.over(context.obj or SharedChoices())
    form = choices.form or from_variable(FORMAT_VARIABLE, OutputFormat) or OutputFormat.table
    if form in ROWS_ALONE and context.info_name not in WITH_ROWS:
        raise UsageError(
            f"--format {form.value} is for {' and '.join(WITH_ROWS)}", hint="Choose --format json or --format jsonl."
        )
    start_output(Output(form, choices, context.info_name, subject(targets)))
    set_levels(choices)


def subject(targets: list[str]) -> dict[str, Any]:
    """What a command is about, as its JSON names it."""
    kind = "path" if targets and is_path(targets[0]) else "table"
    shown = [without_credentials(target) for target in targets]
    if len(shown) > 1:
        return {f"{kind}s": shown}
    return {kind: shown[0]} if shown else {}


app.callback(help=ABOUT)(with_shared_options(main_options, _before_command, catalog=True))
