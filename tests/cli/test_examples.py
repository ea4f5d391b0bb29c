"""The examples of the help texts run, on a small table and small files with the names that they use."""

from __future__ import annotations

import datetime
import shlex
import shutil
from inspect import signature
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from typer.main import get_command

import sidecar
from sidecar.cli.app import app
from sidecar.serving.settings import ServeSettings
from tests.cli.running import run
from tests.filters.made_filters import historical_filter, historical_header
from tests.tables import configure, create_with_rows, new_catalog

PARSERS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
EXAMPLES = [
    line.strip() for parser in PARSERS.values() for line in str(parser.help).partition("Examples:\n")[2].splitlines()
]
"""The command lines under ``Examples:`` in the help texts."""


def lineitem(part: int) -> pa.Table:
    numbers = list(range(part, 400, 2))
    return pa.table(
        {
            "l_orderkey": numbers,
            "l_partkey": [number * 7 for number in numbers],
            "l_comment": [f"comment {number}" for number in numbers],
            "l_shipdate": [datetime.date(1995, 1, 1) + datetime.timedelta(number) for number in numbers],
            "l_tax": [number % 9 / 100 for number in numbers],
        }
    )


def make_files(folder: Path) -> None:
    (folder / "bare").mkdir()
    for part in (0, 1):
        bare, indexed = folder / "bare" / f"part-{part}.parquet", folder / f"part-{part}.parquet"
        pq.write_table(lineitem(part), bare, use_dictionary=False)
        sidecar.embed(str(bare), into=str(indexed), bloom=["l_partkey"], page_index=True)
        (folder / "data").mkdir(exist_ok=True)
        shutil.copy(indexed, folder / "data")
    parts = [str(folder / f"part-{part}.parquet") for part in (0, 1)]
    sidecar.extract(parts, str(folder / "indexes.puffin"))
    pyarrow.orc.write_table(lineitem(0), folder / "part-0.orc")
    events = pa.table({"id": list(range(100)), "name": [f"event {n}" for n in range(100)]})
    pyarrow.orc.write_table(events, folder / "events.orc", bloom_filter_columns=[0, 1])
    keys, int64 = lineitem(0)["l_partkey"].combine_chunks(), sidecar.results.Encoding.parse("int64")
    old = historical_filter(keys, int64)
    (folder / "old.bin").write_bytes(historical_header(old.num_bytes) + old.to_bytes())
    (folder / "parts.csv").write_text("key\n14\n21\n")
    (folder / "people.csv").write_text("mail,user_id\nann@example.com,99\n")
    (folder / "people.txt").write_text("ann@example.com\nbob@example.com\n")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with the files; the default catalog has the tables ``db.lineitem``, ``hr.users`` and ``crm.orders``."""
    folder = tmp_path_factory.mktemp("examples")
    make_files(folder)
    warehouse = tmp_path_factory.mktemp("warehouse")
    catalog = new_catalog(warehouse, "default")
    table = create_with_rows(catalog, "db.lineitem", map(lineitem, (0, 1)))
    sidecar.build(table, ["l_partkey"], engine="local")
    users = pa.table({"user_id": [1, 2], "mail": ["eve@example.com", "joe@example.com"]})
    catalog.create_namespace("hr")
    create_with_rows(catalog, "hr.users", [users])
    catalog.create_namespace("crm")
    sidecar.build(create_with_rows(catalog, "crm.orders", [users]), ["mail"], engine="local", save=True)
    with pytest.MonkeyPatch.context() as patch:
        configure(patch, catalog)
        yield folder


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_help_runs(example: str, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, name, *arguments = shlex.split(example)
    monkeypatch.chdir(shutil.copytree(lake, tmp_path / "copy"))
    given = PARSERS[name].make_context(name, list(arguments)).params
    if name == "serve":  # it would run until it is stopped: tests/serving/test_running.py starts servers
        ServeSettings(**{key: given[key] for key in signature(ServeSettings).parameters if given.get(key)}).checked()
        return
    into = given.get("into")
    for destination in (given.get("paths") or ())[-1:] if into is None else [into]:
        Path(destination).unlink(missing_ok=True)  # another example reads it
    result = run(name, *arguments, code=0)
    assert result.stdout
