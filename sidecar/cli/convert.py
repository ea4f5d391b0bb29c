"""``sidecar convert``: an index in another form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli import humane
from sidecar.cli.embed import Destination
from sidecar.cli.options import Json, rate
from sidecar.cli.output import Output, escaped, facts
from sidecar.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console


def convert(
    source: Annotated[str, typer.Argument(metavar="SRC", help="A file that is one historical filter.")],
    destination: Destination,
    values: Annotated[
        str | None,
        typer.Option(
            "--values", metavar="FILE:COLUMN", help="The Parquet column that the filter is of, to rebuild it."
        ),
    ] = None,
    fpp: Annotated[
        str, typer.Option("--fpp", metavar="RATE", help="False-positive rate of the new filter.")
    ] = "0.01",
    as_json: Json = False,
) -> None:
    """Convert an index to another form: a historical filter (MurmurHash3) to the present one (XXH64).

    Its bits say nothing about another hash, so this is a rebuild from the values of its column.

    Example: sidecar convert old.bin new.bin --values part-0.parquet:l_partkey
    """
    out = Output(as_json=as_json)
    target_rate = rate(fpp)
    if isinstance(target_rate, str):
        raise UsageError("--fpp is a rate between 0 and 1 here, not 'auto'")
    from sidecar import convert_filter

    out.result(convert_filter(source, destination, values=values, fpp=target_rate).to_dict(), draw)


def draw(to: Console, data: Any) -> None:
    """That it was a rebuild, from what, and the rates."""
    rates = [humane.percent(data[name]) for name in ("rate_before", "rate_after")]
    lines = [
        ("written", escaped(data["target"])),
        ("before", escaped(data["form_before"])),
        ("now", escaped(data["form_after"])),
        ("rebuilt from", f"{_WAYS[data['way']]} {escaped(data['column'])} in {escaped(data['values'])}"),
        ("false positives", f"{rates[0]} before, {rates[1]} now"),
        ("size", f"{humane.size(data['size_before'])} before, {humane.size(data['size'])} now"),
    ]
    if data["way"] == "domain":
        extras = f"about {round(data['expected_false_extras']):,} of them were never stored"
        lines.append(("integers", f"{data['admitted']:,} of {data['domain_size']:,} admitted; {extras}"))
    lines += [("not possible", escaped(f"{way}: {reason}")) for way, reason in data["closed"].items()]
    to.print(facts(lines))


_WAYS = {
    "dictionary": "the dictionary of",
    "domain": "the integers between the bounds of",
    "values": "the values of",
}
