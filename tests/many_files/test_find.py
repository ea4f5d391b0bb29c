"""Paths, folders and globs of local files: odd names, hidden names, links, and what must not be left out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import sidecar
from sidecar.access import Access
from sidecar.errors import StorageError, UsageError
from sidecar.many_files.find import DATA_ENDINGS, find_files, is_hidden_name

NAMES = [
    "a.parquet",
    "B.PARQUET",
    "c.orc",
    "d.puffin",
    "e.stats",
    "f.parq",
    "z with space.parquet",
    "z#hash.parquet",
    "z%20percent.parquet",
    "z?mark.parquet",
    "zé中.parquet",
    "day=1/p.parquet",
    "day=1/hour=2/q.parquet",
    "_k=1/partition.parquet",
    "spark.parquet/part-0.parquet",
]
LEFT_OUT = [
    "_SUCCESS",
    ".a.parquet.crc",
    "_temporary/0/x.parquet",
    "day=1/.hidden/x.parquet",
    "_delta_log/1.parquet",
    ".x.parquet",
]
OTHERS = ["README.md", "day=1/notes.txt"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    for name in NAMES + LEFT_OUT + OTHERS:
        path = folder / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return folder


@pytest.fixture(autouse=True)
def inside(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)


def names(paths: Any, **options: Any) -> list[str]:
    return list(find_files(paths, Access(), **options).files)


@pytest.mark.parametrize("prefix", ["data", "data/", "./data", "file:{}/data", "file://{}/data", "{}/data"])
def test_a_folder_gives_its_data_and_puffin_files_sorted(tree: Path, prefix: str) -> None:
    prefix = prefix.format(tree)
    found = find_files(prefix, Access())
    assert list(found.files) == sorted(prefix.rstrip("/") + "/" + name for name in NAMES)
    assert found.others == len(OTHERS)
    assert set(found.roots) == {prefix}


def test_a_folder_gives_only_the_asked_endings() -> None:
    found = find_files("data", Access(), endings=DATA_ENDINGS)
    assert len(found.files) == len(NAMES) - 2
    assert found.others == len(OTHERS) + 2


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("data/*.parquet", ["a.parquet", "spark.parquet/part-0.parquet", *NAMES[6:11]]),
        ("data/?.parquet", ["a.parquet"]),
        ("data/[!a].*", ["B.PARQUET", "c.orc", "d.puffin", "e.stats", "f.parq"]),
        ("data/**/*.parquet", [n for n in NAMES if n.endswith(".parquet")]),
        ("data/**", NAMES + OTHERS),
        ("**/q.*", ["day=1/hour=2/q.parquet"]),
        ("data/**/hour=*/*", ["day=1/hour=2/q.parquet"]),
        ("data/**/day=1", ["day=1/hour=2/q.parquet", "day=1/p.parquet"]),
        ("data/*/*.parquet", ["_k=1/partition.parquet", "day=1/p.parquet", "spark.parquet/part-0.parquet"]),
        ("data/day=1/*", ["day=1/hour=2/q.parquet", "day=1/notes.txt", "day=1/p.parquet"]),
        ("data/.*.parquet", [".x.parquet"]),
        ("data/_d*/*", ["_delta_log/1.parquet"]),
        ("data/*.md", ["README.md"]),
    ],
)
def test_a_glob_gives_what_it_matches(tree: Path, glob: str, expected: list[str]) -> None:
    assert names(glob) == sorted(f"data/{name}" for name in expected)
    assert names(f"{tree}/{glob}") == sorted(f"{tree}/data/{name}" for name in expected)


@pytest.mark.parametrize("path", ["data/*.nix", "nosuch/*.parquet", "data/**/nosuch/*", "data/a.parquet/*", "data/?"])
def test_a_glob_without_a_match_is_wrong_usage(path: str) -> None:
    with pytest.raises(UsageError, match="no file matches"):
        find_files([path, "data/a.parquet"], Access())


def test_a_folder_without_data_files_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "x.txt").touch()
    with pytest.raises(UsageError, match=r"the folder has no file whose name ends with \.parquet"):
        find_files(str(tmp_path), Access())


def test_a_plain_name_is_returned_even_if_nothing_is_there() -> None:
    assert names(["data/nosuch.parquet", "data/README.md", Path("data/a.parquet")]) == [
        "data/nosuch.parquet",
        "data/README.md",
        "data/a.parquet",
    ]
    with pytest.raises(UsageError, match="no file was named"):
        find_files([], Access())


def test_a_name_with_glob_characters_that_exists_is_that_file(tmp_path: Path) -> None:
    for name in ("o[1].parquet", "o1.parquet", "*.parquet", "d[1]/x.parquet", "d1/x.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert names(f"{tmp_path}/o[1].parquet") == [f"{tmp_path}/o[1].parquet"]
    assert names(f"{tmp_path}/*.parquet") == [f"{tmp_path}/*.parquet"]
    assert names(f"{tmp_path}/d[1]") == [f"{tmp_path}/d[1]/x.parquet"]
    assert names(f"{tmp_path}/d[1]/*.parquet") == [f"{tmp_path}/d1/x.parquet", f"{tmp_path}/d[1]/x.parquet"]
    assert names(f"{tmp_path}/o[1]*") == [f"{tmp_path}/o1.parquet"]


def test_a_file_named_twice_comes_once(tree: Path) -> None:
    same = ["data/a.parquet", "./data/a.parquet", f"{tree}/data/a.parquet", f"file:{tree}/data/a.parquet"]
    assert names(same) == ["data/a.parquet"]
    assert names(["data/a.parquet", "data/*.parquet"]).count("data/a.parquet") == 1
    assert names(["data/c.orc", "data"]) == ["data/c.orc", *(n for n in names("data") if n != "data/c.orc")]


def test_loops_of_links_end_and_no_file_is_lost(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    for name in ("real/a.parquet", "real/deep/b.parquet", "outside/c.parquet"):
        (tmp_path / name).touch()
    os.symlink("..", tmp_path / "real" / "deep" / "up")
    os.symlink("self", tmp_path / "real" / "self")
    os.symlink("../outside", tmp_path / "real" / "aside")
    os.symlink("a.parquet", tmp_path / "real" / "0.parquet")
    found = names(f"{tmp_path}/real")
    expected = {"a.parquet", "deep/b.parquet", "aside/c.parquet"}
    assert {os.path.realpath(name) for name in found} == {os.path.realpath(tmp_path / "real" / n) for n in expected}
    assert len(found) == 3
    assert {os.path.realpath(name) for name in names(f"{tmp_path}/real/**/*.parquet")} == set(
        map(os.path.realpath, found)
    )


def test_broken_links_are_not_left_out_and_pipes_are(tmp_path: Path) -> None:
    os.symlink("nowhere.parquet", tmp_path / "broken.parquet")
    os.symlink("loop.parquet", tmp_path / "loop.parquet")
    os.mkfifo(tmp_path / "pipe.parquet")
    expected = [f"{tmp_path}/broken.parquet", f"{tmp_path}/loop.parquet"]
    assert names(str(tmp_path)) == expected
    assert names(f"{tmp_path}/*.parquet") == expected


def test_a_folder_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/x.parquet", "locked/y.parquet", "z/z.parquet"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    listed = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    for path in (str(tmp_path), f"{tmp_path}/**/*.parquet", f"{tmp_path}/*/*.parquet", f"{tmp_path}/locked"):
        if path.endswith("locked"):
            with pytest.raises(StorageError, match=r"cannot list the folder: Permission denied; file .*locked"):
                find_files(path, Access())
            continue
        found = find_files(path, Access())
        assert [os.path.basename(folder) for folder in found.failed] == ["locked"]
        assert "cannot list the folder: Permission denied; file" in str(*found.failed.values())
        assert len(found.files) == 2


@pytest.mark.parametrize(
    ("name", "hidden"),
    [("_x", True), (".x", True), ("_x=1", False), (".x=1", True), ("x_", False), ("_metadata", True)],
)
def test_hidden_names_are_those_of_spark(name: str, hidden: bool) -> None:
    assert is_hidden_name(name) is hidden


@pytest.mark.parametrize("url", ["https://u:pw@host/x.parquet?sig=abc", "HTTP://host/*.parquet", "ftp://host/data/"])
def test_a_url_of_the_web_says_what_to_do(url: str) -> None:
    for call in (lambda one: find_files(one, Access()), sidecar.inspect):
        with pytest.raises(UsageError, match=r"read or written over \w+://.*Use a local copy") as caught:
            call(url)
        assert "pw" not in str(caught.value)
        assert "sig" not in str(caught.value)
