"""extract, embed --from and convert of files on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from tests.cli.running import answer, run
from tests.conversion.cases import as_remote
from tests.tables import configure, new_catalog


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = []
    for number in range(2):
        keys = np.random.default_rng(number).integers(0, 2**40, 3000) * 2
        plain, path = tmp_path / f"plain-{number}.parquet", tmp_path / f"part-{number}.parquet"
        pq.write_table(pa.table({"k": keys, "s": [f"x{k}" for k in keys]}), plain, row_group_size=1000)
        sidecar.embed(str(plain), into=str(path), bloom=["k", "s"], page_index=True)
        paths.append(path)
    return paths


def test_extract_inspect_verify_embed(files: list[Path], tmp_path: Path) -> None:
    puffin, back = tmp_path / "x.puffin", tmp_path / "back.parquet"
    result = run("extract", *files, puffin, code=0)
    assert "exact" in result.stdout
    assert run("verify", puffin).exit_code == 0
    (described,) = answer("inspect", puffin)["files"]
    assert described["segments"][0]["units"] == 6
    assert len(described["segments"][0]["page_indexes"]) == 2
    assert "sidecar-page-index-v1" in run("inspect", puffin).stdout
    plain = tmp_path / "plain-0.parquet"
    result = run("embed", plain, "--into", back, "--from", puffin, code=0)
    assert "as it was" in result.stdout
    assert back.read_bytes() == files[0].read_bytes()


def test_kinds_and_columns(files: list[Path], tmp_path: Path) -> None:
    data = answer("extract", files[0], tmp_path / "a.puffin", "--bloom", "--columns", "k")
    assert data["ways"] == {"bloom": {"exact": 3}}
    assert data["fields"] == {"k": 1}
    data = answer("extract", files[0], tmp_path / "b.puffin", "--page-index")
    assert data["ways"] == {"page-index": {"exact": 6}}
    sidecar.extract([str(files[0])], str(tmp_path / "c.puffin"))
    plain = tmp_path / "plain-0.parquet"
    source = ("embed", plain, "--from", tmp_path / "c.puffin")
    data = answer(*source[:2], "--into", tmp_path / "1.parquet", *source[2:], "--bloom", "k")
    assert data["ways"] == {"bloom": {"exact": 3}}
    data = answer(*source[:2], "--into", tmp_path / "2.parquet", *source[2:], "--page-index")
    assert data["ways"] == {"page-index": {"exact": 6}}
    assert data["files"][0]["sidecar"] == str(tmp_path / "c.puffin")


def test_all_to(files: list[Path], tmp_path: Path) -> None:
    puffin, folder = tmp_path / "x.puffin", tmp_path / "out"
    assert run("extract", *files, puffin).exit_code == 0
    result = run("embed", "--from", puffin, "--into", folder, code=0)
    assert "2 files" in result.stdout
    assert sorted(path.name for path in folder.iterdir()) == ["part-0.parquet", "part-1.parquet"]
    for path in files:
        assert (folder / path.name).read_bytes() == path.read_bytes()


def test_from_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = new_catalog(tmp_path, "cli")
    configure(monkeypatch, lake)
    table = lake.create_table("db.t", pa.schema([("k", pa.int64())]))
    table.append(pa.table({"k": range(1000)}))
    path = next(iter(table.scan().plan_files())).file.file_path
    refused = run("embed", path, "--into", tmp_path / "a.parquet", "--from", "db.t", "--catalog", "cli", code=2)
    assert "has no sidecar" in refused.stderr
    sidecar.build(table, ["k"], kinds=["bloom", "page-index"], engine="local")
    data = answer("embed", path, "--into", tmp_path / "a.parquet", "--from", "db.t", "--catalog", "cli")
    assert data["ways"] == {"bloom": {"exact": 1}, "page-index": {"exact": 1}}
    assert data["files"][0]["witness"]["proof"] == "the table's live entry"
    data = answer("embed", "--from", "db.t", "--into", tmp_path / "all", "--catalog", "cli")
    assert len(data["files"]) == 1
    assert data["files"][0]["witness"]["proof"] == "the table's live entry"


def test_the_report_says_what_was_looked_at(files: list[Path], tmp_path: Path) -> None:
    plain, known, unknown = tmp_path / "plain-0.parquet", tmp_path / "a.puffin", tmp_path / "b.puffin"
    assert run("extract", files[0], known).exit_code == 0
    with as_remote():
        assert run("extract", files[0], unknown).exit_code == 0
    look = ("embed", plain, "--into")
    data = answer(*look, tmp_path / "1.parquet", "--from", known)
    assert data["files"][0]["witness"]["proof"] == "the digest of the stored pages"
    assert data["files"][0]["witness"]["chunks"] == data["files"][0]["witness"]["pages"] == 6
    data = answer(*look, tmp_path / "3.parquet", "--from", unknown)
    assert data["files"][0]["witness"]["proof"] == ""
    text = run(*look, tmp_path / "4.parquet", "--from", unknown).stdout
    assert "none, so all values were looked up" in text
    assert "values asked for" in text


def test_convert(files: list[Path], tmp_path: Path) -> None:
    merged, back = tmp_path / "m.puffin", tmp_path / "back.parquet"
    result = run("convert", *files, merged, "--merge", "--fpp", "5%", code=0)
    assert "merged" in result.stdout
    data = answer("convert", *files, tmp_path / "x.puffin")
    assert data["conversion"] == "parquet to puffin"
    data = answer("convert", tmp_path / "x.puffin", back, "--onto", tmp_path / "plain-1.parquet")
    assert data["ways"] == {"bloom": {"exact": 6}, "page-index": {"exact": 6}}
    assert back.read_bytes() == files[1].read_bytes()
    data = answer("convert", files[0], tmp_path / "w.parquet", "--fpp", "0.3", "--columns", "k")
    assert {unit["column"] for unit in data["units"] if unit["way"] == "folded"} == {"k"}
    assert {"way", "rate_before", "rate_after", "reason"} <= set(data["units"][0])


def test_damage_is_exit_code_1(files: list[Path], tmp_path: Path) -> None:
    from sidecar.parquet.footer import read_footer
    from sidecar.storage.local import LocalSource

    data = bytearray(files[0].read_bytes())
    chunk = read_footer(LocalSource(str(files[0]))).row_groups[0].columns[0]
    at = chunk.bloom_filter_offset or 0
    data[at : at + 8] = b"\xff" * 8
    files[0].write_bytes(data)
    result = run("extract", files[0], tmp_path / "x.puffin", "--json", code=1)
    assert [u["damaged"] for u in json.loads(result.stdout)["units"]].count(True) == 1


@pytest.mark.parametrize(
    "args",
    [
        ["extract", "a.parquet"],
        ["embed", "--from", "./x.puffin"],
        ["embed", "./a.parquet", "--from", "./x.puffin"],
        ["embed", "./a.parquet", "./b.parquet", "--from", "./x.puffin"],
        ["embed", "./a.parquet", "--into", "./b.parquet", "--from", "./x.puffin", "--reuse", "never"],
        ["embed", "./a.parquet", "--into", "./b.parquet", "--from", "./x.puffin", "--catalog", "c"],
        ["convert", "./a.parquet"],
        ["convert", "./a.parquet", "./b.parquet", "--fpp", "auto"],
    ],
)
def test_wrong_usage(args: list[str]) -> None:
    result = run(*args, code=2)
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
