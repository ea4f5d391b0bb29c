"""Runs over foreign files and tables: what they find, and that they find nothing in a share of such files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from scripts.torturing.corpus import asker, files_of, share_of
from scripts.torturing.foreign.differences import AS_SIDECAR, Answers, Difference
from scripts.torturing.foreign.file_questions import FileQuestions
from scripts.torturing.foreign.known_faults import explain_file
from scripts.torturing.foreign.moved_tables import tables_of
from scripts.torturing.foreign.pool import Item, Pool
from scripts.torturing.foreign.readers import readers_of
from scripts.torturing.tables import asker as table_asker
from tests.conftest import SHARED_DATA
from tests.ending_asker import ask_badly
from tests.lost_values import change_filters
from tests.tables import create_with_rows, new_catalog

CORPUS = SHARED_DATA / "corpus"
SHARE = 80
"""One of so many files of the corpus is asked about."""

ROWS = pa.table(
    {
        "k": pa.array([*range(99), None], pa.int64()),
        "s": [f"text {n % 7}" for n in range(100)],
        "t": pa.array([n * 1_000_001 for n in range(100)], pa.timestamp("us")),
        "l": [[n, None] * (n % 3) for n in range(100)],
        "st": [{"x": n / 3, "y": f"{n}"} if n % 5 else None for n in range(100)],
    }
)


def asked(path: Path, folder: Path) -> list[Difference]:
    folder.mkdir()
    questions = FileQuestions(str(path), folder, 1, lambda step: None)
    questions.readers = readers_of(questions.kind, None)
    questions.ask_all()
    assert questions.asked > 20
    return questions.differences


def test_sound_files_differ_in_nothing(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "a.parquet", row_group_size=40)
    orc.write_table(ROWS, tmp_path / "a.orc")
    assert asked(tmp_path / "a.parquet", tmp_path / "parquet") == []
    assert asked(tmp_path / "a.orc", tmp_path / "orc") == []


def test_a_filter_that_denies_values_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(ROWS, path, bloom_filter_options={"k": {"ndv": 100}}, use_dictionary=False)
    change_filters(path, "k", lambda bits: bits[::-1])
    found = {difference.question.split(" ")[0] for difference in asked(path, tmp_path / "copies")}
    assert {"verify", "probe"} <= found


def test_a_difference_is_outvoted_by_readers_with_decoders_of_their_own() -> None:
    for theirs, outvoted in (
        ({"DuckDB": "7"}, True),
        ({"pyarrow": AS_SIDECAR, "DuckDB": "7"}, True),
        ({"polars": AS_SIDECAR, "DuckDB": "7"}, True),
        ({"polars": AS_SIDECAR, "parquet-java": AS_SIDECAR, "DuckDB": "7"}, False),
    ):
        assert Difference("rows k", "row 1: 6", theirs).is_outvoted == outvoted


def test_a_process_that_ends_or_hangs_is_a_difference_unless_a_reader_ends_it() -> None:
    items = [Item(name, "", 0) for name in ("reader ends, scan", "scan ends", "scan", "probe hangs")]
    answers = [said for _, said in Pool(partial(partial, ask_badly), 0.5, starting=30).ask(items)]
    found = [[difference.question for difference in said.differences] for said in answers]
    assert found == [[], ["scan ends"], [], ["probe hangs"]]


def test_tables_of_another_machine_differ_in_nothing(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    catalog = new_catalog(made, "made")
    create_with_rows(catalog, "db.t", [ROWS.select(["k", "s", "t"]), ROWS.select(["k", "s", "t"]).slice(50)])
    made.rename(tmp_path / "moved")
    ((name, _),) = tables_of(tmp_path / "moved")
    answers = table_answers(tmp_path / "moved")
    assert answers.differences == []
    assert answers.asked > 30
    assert name == "db/t" or name.endswith("/t")


def table_answers(folder: Path) -> Answers:
    ((name, table),) = tables_of(folder)
    pool = Pool(partial(table_asker, folder, False), 60)
    ((_, answers),) = pool.ask([Item(name, str(table.metadata), 1)])
    return answers


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus of foreign files is not beside this checkout")
def test_a_share_of_the_corpus_differs_in_nothing_unexplained() -> None:
    files = share_of([*files_of(CORPUS)], SHARE)
    items = [Item(name, str(path), 1) for name, path in files]
    unexplained: list[Any] = []
    for item, answers in Pool(partial(asker, False), 60).ask(items):
        unexplained += [
            f"{item.name}: {difference}"
            for difference in answers.differences
            if difference.is_outvoted and explain_file(item.name, answers.writer, difference) is None
        ]
    assert unexplained == []
    assert len(items) > 12
