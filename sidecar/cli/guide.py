"""``sidecar guide``: the guides that the package ships, as a list or one in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sidecar.cli.output import facts, output
from sidecar.errors import UsageError

if TYPE_CHECKING:
    from importlib.abc import Traversable

    from rich.console import Console

LINE_WIDTH = 100
"""Columns of a guide on a wider terminal; longer lines are hard to read."""


def guide_names() -> list[str]:
    """The names of all guides, sorted."""
    files = (file.name for file in _folder().iterdir())
    return sorted(name.removesuffix(".md") for name in files if name.endswith(".md"))


def _folder() -> Traversable:
    from importlib.resources import files  # costs milliseconds that other commands need not pay

    return files("sidecar") / "guide"


def _guides_that_start_with(incomplete: str) -> list[str]:
    return [name for name in guide_names() if name.startswith(incomplete)]


def guide(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            autocompletion=_guides_that_start_with,
            help="The guide to show; by default, list all.",
        ),
    ] = None,
) -> None:
    """List the guides, or show one in the terminal.

    A pipe or a file gets the guide as plain Markdown.

    \b
    Examples:
      sidecar guide
      sidecar guide orc
      sidecar guide commands
    """
    out = output()
    if name is None:
        titles = {found: title(read_guide(found)) for found in guide_names()}
        guides = [{"name": found, "title": text} for found, text in titles.items()]
        out.result({"guides": guides}, lambda to, _: to.print(facts(titles.items())))
        return
    text = read_guide(name)
    out.result({"name": name, "title": title(text), "text": text}, lambda to, _: draw_guide(to, text))


def read_guide(name: str) -> str:
    """The Markdown text of a guide.

    Raises:
        UsageError: no guide has this name; the message has the nearest name, or all names.
    """
    if name not in guide_names():
        import difflib

        near = difflib.get_close_matches(name, guide_names(), n=1)
        hint = f"Is it '{near[0]}'?" if near else f"The guides are {', '.join(guide_names())}."
        raise UsageError(f"there is no guide '{name}'", hint=hint)
    return (_folder() / f"{name}.md").read_text(encoding="utf-8")


def title(text: str) -> str:
    """The first line of a guide, without the sign of a heading."""
    return text.split("\n", 1)[0].lstrip("# ")


def draw_guide(to: Console, text: str) -> None:
    """The guide with headings, tables and colours on a terminal; elsewhere its Markdown as it is."""
    if to.file.isatty():
        from rich.markdown import Markdown

        to.print(Markdown(text, hyperlinks=False), width=min(to.width, LINE_WIDTH))
    else:
        to.file.write(text)
