"""convert: each pair of formats writes the file that its report names, and leaves no temporary file."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import sidecar
from tests.conversion.cases import indexed

DATA = Path(__file__).resolve().parents[1] / "data" / "orc"
ORC, OLDER_ORC = "java_zlib_2stripes_utf8", "apache_over1k_bloom"


def convert(sources: list[str], target: str, **options: Any) -> Callable[[], Any]:
    return lambda: sidecar.convert(sources, target, **options)


CONVERT: dict[str, Callable[[], Any]] = {
    "parquet to puffin": convert(["part-1.parquet", "part-2.parquet"], "new.puffin"),
    "merged": convert(["part-1.parquet", "part-2.parquet"], "new.puffin", merge=True),
    "orc to puffin": convert([f"{ORC}.orc"], "new.puffin"),
    "orc to puffin, rebuilt": convert([f"{ORC}.orc"], "new.puffin", as_="parquet"),
    "parquet to puffin, rebuilt": convert(["part-1.parquet"], "new.puffin", as_="orc"),
    "puffin to puffin": convert(["one.puffin"], "new.puffin", fpp=0.05),
    "puffin to parquet": convert(["one.puffin"], "new.parquet", onto="plain-1.parquet"),
    "puffin to orc": convert(["orc.puffin"], "new.orc", onto=f"{ORC}.orc"),
    "parquet to parquet": convert(["part-1.parquet"], "new.parquet", fpp=0.2),
    "orc to orc": convert([f"{OLDER_ORC}.orc"], "new.orc"),
    "orc to parquet": convert(["twin.orc"], "new.parquet", onto="bare.parquet"),
    "parquet to orc": convert(["same.parquet"], "new.orc", onto="twin.orc"),
}


def write_twins() -> None:
    """A Parquet and an ORC file with the same rows, and filters on two columns."""
    table = pa.table({"k": range(3000), "s": [f"text {n % 70}" for n in range(3000)]})
    orc.write_table(table, "twin.orc", bloom_filter_columns=[0, 1])
    pq.write_table(table, "bare.parquet", row_group_size=1000)
    sidecar.embed("bare.parquet", into="same.parquet", bloom=["k", "s"])


@pytest.mark.parametrize("name", CONVERT)
def test_the_report_of_convert_has_the_size_of_its_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, rows in ((1, 1500), (2, 300)):
        indexed(tmp_path, number, rows)
    for file in (ORC, OLDER_ORC):
        shutil.copy(DATA / f"{file}.orc", f"{file}.orc")
    sidecar.extract(["part-1.parquet"], "one.puffin")
    sidecar.extract([f"{ORC}.orc"], "orc.puffin")
    write_twins()
    Path("temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    report = CONVERT[name]()
    (new,) = Path().glob("new.*")
    assert report.size == new.stat().st_size
    assert list(Path("temporary").iterdir()) == []
