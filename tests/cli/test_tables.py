"""Every command on a real table in an SQLite catalog, found through pyiceberg's own configuration."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from tests.cli import running
from tests.tables import configure, create_with_rows, new_catalog

ROOT = str(Path(__file__).resolve().parents[2])
FILES, ROWS = 12, 50
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("small", pa.int32()),
        ("s", pa.string()),
        ("dec", pa.decimal128(9, 2)),
        ("ts", pa.timestamp("us")),
        ("nested", pa.struct([("x", pa.int64())])),
    ]
)


def rows(part: int) -> pa.Table:
    """Values that are spread over all files: bounds help nobody; ``k`` has negative numbers."""
    numbers = [part + FILES * row for row in range(ROWS)]
    start = datetime.datetime(2024, 1, 1)
    return pa.table(
        {
            "k": [7 * n - 1000 for n in numbers],
            "small": numbers,
            "s": [f"text {n}" for n in numbers],
            "dec": [Decimal(n) / 2 for n in numbers],
            "ts": [start + datetime.timedelta(days=n) for n in numbers],
            "nested": [{"x": n} for n in numbers],
        },
        schema=SCHEMA,
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("cli")
    catalog = new_catalog(folder, "cli")
    for name in ("t", "bare", "grown"):
        table = catalog.create_table(f"db.{name}", SCHEMA)
        with table.transaction() as transaction:
            for part in range(FILES):
                transaction.append(rows(part))
    return catalog


@pytest.fixture(scope="module")
def run(lake: Any) -> Any:
    def invoke(*args: str, **options: Any) -> Any:
        return running.run(*args, "--catalog", "cli", **options)

    with pytest.MonkeyPatch.context() as patch:
        configure(patch, lake)
        yield invoke


@pytest.fixture(scope="module")
def answer(run: Any) -> Any:
    def invoke(*args: str) -> Any:
        return json.loads(run(*args, "--json", code=0).stdout)

    return invoke


COLUMNS = "k,s,dec,ts,nested.x"


@pytest.fixture(scope="module")
def built(answer: Any) -> Any:
    return answer("build", "db.t", "--columns", COLUMNS, "--engine", "local")


def test_build_reports_what_it_built(built: Any, lake: Any) -> None:
    table = lake.load_table("db.t")
    assert built["snapshot_id"] == table.current_snapshot().snapshot_id
    assert built["statistics_path"] == table.metadata.statistics[0].statistics_path
    assert built["files"] == {"total": FILES, "indexed": FILES, "covered": FILES, "failed": 0}
    assert {"blobs", "expected_false_units", "seconds"} <= set(built)
    assert built["columns"]["s"]["ndv"]["estimate"] == FILES * ROWS


def test_build_prints_size_and_expected_false_positives(run: Any) -> None:
    result = run(
        "build", "db.grown", "--columns", "k", "--engine", "local", "--fpp", "0.001", "--kinds", "bloom", code=0
    )
    assert f"{FILES} of {FILES} indexed" in result.stdout
    assert "row groups per lookup of an absent value" in result.stdout
    assert result.stderr == ""  # no terminal: no progress


# Values of file 5, row 10: number 125.
@pytest.mark.parametrize(
    "predicate",
    [
        "k = -125",
        "s = 'text 125'",
        "dec = 62.5",
        "dec = 62.50",
        "ts = '2024-05-05'",
        "ts = '2024-05-05T00:00:00'",
        "nested.x = 125",
        "k = -125 and s = 'text 125'",
        "k in (-125, 1000000)",
        "not (s != 'text 125')",
    ],
)
def test_plan_keeps_one_file_and_scan_finds_its_row(predicate: str, built: Any, answer: Any, run: Any) -> None:
    plan = answer("plan", "db.t", predicate)
    assert plan["files"] == {"total": FILES, "covered": FILES, "kept": 1}
    assert len(plan["kept_files"]) == 1
    assert plan["index_bytes_read"] > 0
    assert plan["index_reads"] > 0
    assert plan["seconds"] > 0
    assert plan["manifests"]["listed"] == plan["manifests"]["total"] > plan["manifests"]["opened"] == 0
    (line,) = run("scan", "db.t", predicate, "--json").stdout.splitlines()
    assert json.loads(line) == {
        "k": -125, "small": 125, "s": "text 125", "dec": "62.50", "ts": "2024-05-05T00:00:00", "nested": {"x": 125},
    }  # fmt: skip


@pytest.mark.parametrize("extension", ["parquet", "arrow", "csv", "txt"])
def test_keys_of_a_file(extension: str, built: Any, answer: Any, run: Any, tmp_path: Path) -> None:
    path = tmp_path / f"keys.{extension}"
    stamp = rows(5).column("ts").slice(10, 1)
    if extension == "parquet":
        pq.write_table(pa.table({"any": stamp, "other": [1]}), path)
    elif extension == "arrow":
        with pa.ipc.new_file(path, pa.schema([("any", stamp.type)])) as file:
            file.write_table(pa.table({"any": stamp}))
    else:
        path.write_text({"csv": "any,other\n2024-05-05,1\n,2\n", "txt": "2024-05-05\n\n"}[extension])
    plan = answer("plan", "db.t", "k < 0", "--keys", f"ts={path}")
    assert plan["files"] == {"total": FILES, "covered": FILES, "kept": 1}
    (line,) = run("scan", "db.t", "k < 0", "--keys", f"ts={path}", "--columns", "k", "--json").stdout.splitlines()
    assert json.loads(line) == {"k": -125}
    data = tmp_path / "data.parquet"
    pq.write_table(rows(5), data)
    options = ["--keys", f"ts={path}", "--columns", "k", "--json"]
    again = running.run("scan", str(data), "k < 0", *options)
    assert json.loads(again.stdout) == {"k": -125}


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("k", "COLUMN=FILE"),
        ("k=nowhere.txt", "cannot be read"),
        ("nope={}", "nope"),
        ("k={}", "does not fit"),
    ],
)
def test_keys_that_cannot_be_had(option: str, problem: str, built: Any, run: Any, tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    path.write_text("12\nabc\n")
    result = run("plan", "db.t", "k < 0", "--keys", option.format(path), code=2)
    assert problem in result.stderr


def test_plan_in_text_names_the_funnel_and_the_file(built: Any, run: Any) -> None:
    result = run("plan", "db.t", "k = -125")
    assert "in the snapshot" in result.stdout
    assert "dropped by filter" in result.stdout
    assert result.stdout.rstrip().endswith(".parquet")


def test_a_plan_says_why_of_each_file(lake: Any, built: Any, run: Any, answer: Any) -> None:
    """Of kept and of other files, named as the text of a plan names them; a name that no file has is wrong usage."""
    (kept,) = answer("plan", "db.t", "k = -125")["kept_files"]
    paths = [task.file.file_path for task in lake.load_table("db.t").scan().plan_files()]
    for path in (kept, next(path for path in paths if path != kept)):
        name = path.rpartition("/")[2]
        told = answer("plan", "db.t", "k = -125", "--why", name)
        assert (told["file"], told["kept"]) == (path, path == kept)
        assert told["stages"][-1]["kept"] == told["kept"]
        (asked,) = (one for one in told["stages"] if one["segment"] is not None)
        assert asked["columns"] == ["k"]
        assert [one["dropped_by"] is None for one in told["row_groups"]] == [told["kept"]]
        shown = run("plan", "db.t", "k = -125", "--why", name).stdout
        assert path in shown
        assert f"of snapshot {asked['segment_snapshot_id']}" in shown
        assert ("ruled out by" in shown) == (path != kept)
    result = run("plan", "db.t", "k = -125", "--why", "absent.parquet", code=2)
    assert "no such data file" in result.stderr


@pytest.mark.parametrize(
    ("column", "value"),
    [("k", "-125"), ("dec", "62.5"), ("ts", "'2024-05-05'"), ("s", "'text 125'"), ("nested.x", "125")],
)
def test_a_plan_has_the_row_groups_of_a_value(column: str, value: str, built: Any, answer: Any) -> None:
    found = answer("plan", "db.t", f"{column} = {value}")
    assert found["files"]["kept"] == 1
    assert found["funnel"]["row_groups"]["kept"] == 1


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("plan", "db.t", "nosuch = 1"), "nosuch"),
        (("plan", "db.t", "k = 1.5"), "1.5"),
        (("plan", "db.t", "k = 'x'"), "k"),
        (("plan", "db.t", "small = 3000000000"), "3000000000"),
        (("plan", "db.t", "dec = 1.005"), "1.005"),
        (("plan", "db.t", "ts = 'yesterday'"), "yesterday"),
        (("plan", "db.t", "k ="), "predicate"),
        (("plan", "db.t", "k = 1", "--at", "5"), "5"),
        (("plan", "db.nosuch", "k = 1"), "no table 'db.nosuch'"),
        (("plan", "nosuch.t", "k = 1"), "no namespace 'nosuch'"),
        (("plan", "t", "k = 1"), "'t' is not a table name"),
        (("scan", "db.t", "k = 1", "--columns", "nosuch"), "nosuch"),
        (("build", "db.t", "--columns", "nosuch"), "nosuch"),
        (("build", "db.t", "--columns", "nested"), "nested"),
        (("build", "db.t", "--columns", "k", "--kinds", "bloom,btree"), "btree"),
        (("status", "db.nosuch"), "no table 'db.nosuch'"),
        (("verify", "db.nosuch"), "no table 'db.nosuch'"),
    ],
)
def test_wrong_calls_are_one_sentence_and_exit_code_2(args: tuple[str, ...], sentence: str, run: Any) -> None:
    result = run(*args, code=2)
    assert result.stderr.startswith("error: ")
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_spark_without_java_is_one_sentence(run: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the extra [spark] is not installed")
    result = run("build", "db.t", "--columns", "k", "--engine", "spark", PATH=str(tmp_path), JAVA_HOME=None, code=2)
    assert result.stderr.startswith("error: Spark cannot start")
    assert "Java" in result.stderr
    assert result.stderr.count("\n") == 1


def test_status_shows_coverage_by_column_and_kind(built: Any, answer: Any, run: Any) -> None:
    data = answer("status", "db.t")
    assert set(data["coverage"]) == set(COLUMNS.split(","))
    assert data["coverage"]["k"]["bloom"]["files"] == FILES
    assert data["coverage"]["k"]["theta"]["ndv"] == FILES * ROWS
    text = run("status", "db.t").stdout
    assert "nested.x" in text
    assert "bloom" in text


def test_inspect_and_verify_of_the_puffin_file_itself(built: Any) -> None:
    path = built["statistics_path"]
    (data,) = running.answer("inspect", path)["files"]
    assert [blob["type"] for blob in data["blobs"]].count("sidecar-sbbf-v1") == len(COLUMNS.split(","))
    assert data["segments"][0]["bundles"][0]["groups"][0]["units"] == FILES
    assert "sidecar-units-v1" in running.run("inspect", path).stdout
    assert (
        running.answer("verify", path).items()
        >= {
            "checked": 1,
            "problems": [],
            "scope": "structure only; --against FILES, or --data by the name of its table, looks every value up",
        }.items()
    )


def test_a_table_without_a_sidecar(run: Any, answer: Any) -> None:
    plan = answer("plan", "db.bare", "k = -125")
    assert plan["files"] == {"total": FILES, "covered": 0, "kept": FILES}
    assert plan["index_bytes_read"] == 0
    assert len(run("scan", "db.bare", "k = -125", "--json").stdout.splitlines()) == 1
    assert "no sidecar" in run("status", "db.bare").stdout
    result = run("verify", "db.bare", "--json", code=1)
    assert "sidecar" in json.loads(result.stdout)["problems"][0]["problem"]


def test_verify_of_a_sound_table(built: Any, answer: Any) -> None:
    found = answer("verify", "db.t")
    assert found["problems"] == []
    assert found["checked"] >= 1


def test_after_an_append_the_new_file_is_kept_and_the_plan_says_why(lake: Any, run: Any, answer: Any) -> None:
    lake.load_table("db.grown").append(rows(FILES))
    run("build", "db.grown", "--columns", "k", "--engine", "local", "--at", first_snapshot(lake))
    plan = answer("plan", "db.grown", "k = -125")
    assert plan["files"] == {"total": FILES + 1, "covered": FILES, "kept": 2}
    assert "not listed" in run("plan", "db.grown", "k = -125").stdout


def first_snapshot(lake: Any) -> str:
    """The snapshot before the last one."""
    return str(lake.load_table("db.grown").current_snapshot().parent_snapshot_id)


@pytest.mark.parametrize("extension", ["arrow", "csv", "jsonl", "parquet"])
def test_scan_writes_by_extension(extension: str, built: Any, run: Any, tmp_path: Path) -> None:
    path = tmp_path / f"rows.{extension}"
    result = run(
        "scan", "db.t", "small < 100", "--columns", "small,s", "--limit", "7", "--output", str(path), "--json", code=0
    )
    done = json.loads(result.stdout)
    assert (done["rows"], done["output"]) == (7, str(path))
    if extension == "arrow":
        found = pa.ipc.open_file(path).read_all()
    elif extension == "csv":
        found = pyarrow.csv.read_csv(path)
    elif extension == "parquet":
        found = pq.read_table(path)
    else:
        found = pa.Table.from_pylist([json.loads(line) for line in path.read_text().splitlines()])
    assert found.column_names == ["small", "s"]
    assert found.num_rows == 7
    assert all(s == f"text {n}" for n, s in zip(*(found[name].to_pylist() for name in found.column_names), strict=True))


def test_csv_cannot_hold_nested_columns(built: Any, run: Any, tmp_path: Path) -> None:
    result = run("scan", "db.t", "k = -125", "--output", str(tmp_path / "rows.csv"), code=2)
    assert "CSV cannot hold" in result.stderr


def test_scan_draws_rows_and_says_how_many(built: Any, run: Any) -> None:
    assert "\n1 row\n" in run("scan", "db.t", "k = -125").stdout
    assert "the first 20 shown" in run("scan", "db.t", "small < 300").stdout
    assert run("scan", "db.t", "k = 5").stdout == "0 rows\n"


def test_a_damaged_sidecar_is_a_warning_and_the_right_rows(lake: Any, run: Any) -> None:
    create_with_rows(lake, "db.damaged", [rows(3)], SCHEMA)
    assert run("build", "db.damaged", "--columns", "k", "--engine", "local").exit_code == 0
    (entry,) = lake.load_table("db.damaged").metadata.statistics
    path = Path(entry.statistics_path.removeprefix("file:"))
    data = bytearray(path.read_bytes())
    data[4:-200] = bytes(byte ^ 0x55 for byte in data[4:-200])
    path.write_bytes(bytes(data))
    key = str(rows(3)["k"][0].as_py())
    result = run("scan", "db.damaged", f"k = {key}", "--json", code=0)
    assert json.loads(result.stdout)["k"] == int(key)
    assert result.stderr.startswith("warning: ")
    verified = run("verify", "db.damaged", "--json", code=1)
    assert json.loads(verified.stdout)["problems"]
    assert "Traceback" not in result.output + verified.output


def test_the_first_plan_of_a_process_loads_few_modules(built: Any, lake: Any) -> None:
    """The console script, with the catalog of its environment. Python says what it imports on stderr."""
    command = [sys.executable, "-X", "importtime", "-m", "sidecar.cli", "plan", "db.t", "k = -125", "--json"]
    env = {**os.environ, "PYTHONPATH": ROOT, "PYICEBERG_CATALOG__CLI__URI": lake.properties["uri"]}
    done = subprocess.run([*command, "--catalog", "cli"], capture_output=True, text=True, check=True, env=env)
    assert json.loads(done.stdout)["files"]["kept"] == 1
    imported = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert len(imported) == len(done.stderr.splitlines())  # and nothing else is said there
    assert len([name for name in imported if name.startswith("sidecar")]) <= 170
    assert not {"numba", "configparser", "sidecar.storage.target", "sidecar.parquet", "sidecar.orc"} & {*imported}


def test_missing_parts_of_an_encrypted_table_are_found(lake: Any, run: Any, answer: Any, tmp_path: Path) -> None:
    """pyiceberg cannot write such tables, so the files are encrypted where they are."""
    table = create_with_rows(lake, "db.sealed", map(rows, range(3)), SCHEMA)
    paths = sorted(task.file.file_path.removeprefix("file:") for task in table.scan().plan_files())
    for part, path in enumerate(paths):
        prefix = f"part-{min(part, 1)}".encode()  # the third file stands in for a copy of the second
        properties = pe.create_encryption_properties(b"k" * 16, aad_prefix=prefix)
        pq.write_table(rows(part), path, encryption_properties=properties)
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"footer_key": "hex:" + (b"k" * 16).hex()}))
    prefixes = tmp_path / "prefixes.txt"
    prefixes.write_text("part-0\npart-1\npart-2\n")
    options = ["--aad-prefixes", str(prefixes), "--encryption-keys", str(keys), "--json"]
    found = run("verify", "db.sealed", *options, code=1)
    told = json.loads(found.stdout)
    assert told["checked"] == 3
    assert [problem["file"] and problem["file"].removeprefix("file:") for problem in told["problems"]] == [
        paths[2],
        None,
    ]
    folder = running.run("verify", str(Path(paths[0]).parent), *options)
    assert len(json.loads(folder.stdout)["problems"]) == 2
    prefixes.write_text("part-0\n")
    assert running.run("verify", paths[0], *options).exit_code == 0
    refused = run("verify", "db.sealed", "--aad-prefixes", str(prefixes), code=2)
    assert "--encryption-keys" in refused.stderr


def test_distinct_counts_that_are_upper_bounds_are_shown_as_such(lake: Any, run: Any) -> None:
    table = lake.create_table("db.counted", SCHEMA)
    # The files of one build are counted in groups, and the file that goes is in one with others.
    table.append(rows(0).slice(0, 2).set_column(1, "small", pa.array([1000, 1001], pa.int32())))
    for part in range(3):
        table.append(rows(part))
    assert "≤" not in run("build", "db.counted", "--columns", "small").output
    table.refresh()
    table.delete("small >= 1000")
    assert "≤ 152" in run("build", "db.counted", "--columns", "small").output
    path = table.catalog.load_table("db.counted").metadata.statistics[-1].statistics_path.removeprefix("file:")
    for shown in (
        run("status", "db.counted"),
        running.run("inspect", path),
    ):
        assert "≤ 152" in shown.output
