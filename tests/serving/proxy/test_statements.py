"""Statements that write files anew do through the proxy what they do without it: no row group is lost.

Files have many row groups. In files of one row group nothing can be lost, because a reader skips it only if no row
matches. Two kinds of tables run, and their rows are those that the statements say. With ``SIDECAR_THOROUGH=2`` sixteen
kinds run, and each statement runs without the proxy as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.rest import RestCatalog

import sidecar
from sidecar.serving.planning.served_tables import ServedTables
from tests.case_counts import TIMES
from tests.iceberg.cases import local
from tests.serving.serving_logs import plan_lines

pytestmark = pytest.mark.jvm
ROWS, GROUPS = 600, 5
LATER = range(ROWS // 2, ROWS)


class Statement(NamedTuple):
    """A statement, the ids of rows that it removes, and the values of ``n`` that it sets."""

    text: str
    removes: Iterable[int] = ()
    sets: Mapping[int, int | None] = {}


STATEMENTS = (
    Statement("DELETE FROM {t} WHERE s = 'value-0042'", [42]),
    Statement("DELETE FROM {t} WHERE s = 'value-0043, absent'"),
    Statement("DELETE FROM {t} WHERE id BETWEEN 50 AND 55 AND n IS NOT NULL", [50, 51, 52, 53, 54, 55]),
    Statement("UPDATE {t} SET n = -1 WHERE s IN ('value-0100', 'value-0101')", sets={100: -1, 101: -1}),
    Statement(
        "MERGE INTO {t} t USING (SELECT 150 AS id UNION ALL SELECT 999) u ON t.id = u.id AND t.s = 'value-0150' "
        "WHEN MATCHED THEN UPDATE SET n = -2 WHEN NOT MATCHED THEN INSERT (id, s, p) VALUES (u.id, 'value-0999', 1)",
        sets={150: -2, 999: None},
    ),
    Statement("MERGE INTO {t} t USING (SELECT 250 AS id) u ON t.id = u.id WHEN MATCHED THEN DELETE", [250]),
    Statement("CALL {c}.system.rewrite_data_files(table => '{n}', where => \"s = 'value-0310'\", options => {o})"),
    Statement(
        "CALL {c}.system.rewrite_data_files(table => '{n}', strategy => 'sort', sort_order => 'n, id', "
        "where => 'id = 320', options => {o})"
    ),
    Statement(
        "CALL {c}.system.rewrite_data_files(table => '{n}', strategy => 'sort', sort_order => 'zorder(id, n)', "
        "where => 'id = 330', options => {o})"
    ),
    Statement("CALL {c}.system.rewrite_position_delete_files(table => '{n}', options => {o})"),
    Statement(
        "INSERT OVERWRITE {t} SELECT * FROM {t} WHERE s IN ('value-0400', 'value-0401') OR p = 0",
        [999, *({*LATER} - {400, 401})],
    ),
)
KINDS = [
    (mode, version, is_partitioned, has_filters)
    for mode, version, is_partitioned, has_filters in product(
        ("copy-on-write", "merge-on-read"), (2, 3), (False, True), (True, False)
    )
]
IN_CI = [("copy-on-write", 2, False, True), ("merge-on-read", 2, True, False)]


def create(spark: Any, table: str, kind: tuple[str, int, bool, bool]) -> None:
    """Three files, or three a partition, each with values between those of the others, and sorted."""
    mode, version, is_partitioned, has_filters = kind
    properties = {
        "format-version": version,
        "write.distribution-mode": "none",
        "write.spark.fanout.enabled": "true",
        "write.parquet.row-group-size-bytes": 512,
        "write.parquet.row-group-check-min-record-count": 20,
        "write.parquet.row-group-check-max-record-count": 20,
        **{f"write.{statement}.mode": mode for statement in ("delete", "update", "merge")},
    }
    if has_filters:
        properties |= {f"write.parquet.bloom-filter-enabled.column.{one}": "true" for one in ("s", "id")}
        properties["write.parquet.bloom-filter-max-bytes"] = 4096
    said = ", ".join(f"'{name}'='{value}'" for name, value in properties.items())
    divided = "PARTITIONED BY (p)" if is_partitioned else ""
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, s STRING, n INT, p INT) USING iceberg {divided} TBLPROPERTIES ({said})"
    )
    numbers = f"SELECT (id % {ROWS // 3}) * 3 + id DIV {ROWS // 3} AS i FROM range(0, {ROWS}, 1, 3)"
    spark.sql(
        f"INSERT INTO {table} SELECT i, 'value-' || lpad(i, 4, '0'), IF(i % 7 = 0, NULL, i % 5), i DIV {len(LATER)} "
        f"FROM ({numbers})"
    )


def rows_after(statements: Iterable[Statement]) -> list[tuple[int, str, int | None, int]]:
    """The rows of the table after statements."""
    numbers = {number: None if number % 7 == 0 else number % 5 for number in range(ROWS)}
    for statement in statements:
        numbers |= statement.sets
        for number in statement.removes:
            numbers.pop(number, None)
    return [(number, f"value-{number:04}", n, int(number >= LATER.start)) for number, n in sorted(numbers.items())]


def run(spark: Any, statement: Statement, catalog: str, name: str) -> None:
    options = "map('min-input-files', '1', 'rewrite-all', 'true')"
    spark.sql(statement.text.format(t=f"{catalog}.{name}", c=catalog, n=name, o=options)).collect()


@pytest.mark.usefixtures("catalogs")
@pytest.mark.parametrize("kind", KINDS if TIMES > 1 else IN_CI, ids=str)
def test_no_statement_loses_rows(
    spark: Any, addresses: tuple[str, str], monkeypatch: pytest.MonkeyPatch, kind: tuple[str, int, bool, bool]
) -> None:
    # Clients plan tables of version 3 by themselves. If one asks, its rows must be right as well.
    monkeypatch.setattr(ServedTables, "has", lambda *_: True)
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    stem = "_".join(map(str, kind)).replace("-", "_").lower()
    names = [f"db.through_{stem}", f"db.without_{stem}"][: 2 if TIMES > 1 else 1]
    client = RestCatalog("any", uri=addresses[1])
    for name in names:
        create(spark, f"upstream.{name}", kind)
    files = [task.file.file_path for task in client.load_table(names[0]).scan().plan_files()]
    assert min(pq.read_metadata(local(file)).num_row_groups for file in files) >= GROUPS
    with plan_lines() as lines:
        for done, statement in enumerate(STATEMENTS, 1):
            sidecar.build(client.load_table(names[0]), ["id", "s"], engine="local")
            for catalog, name in zip(("proxied", "upstream"), names, strict=False):
                run(spark, statement, catalog, name)
                if TIMES > 1 or done >= len(STATEMENTS) - 1:
                    rows = spark.sql(f"SELECT * FROM upstream.{name} ORDER BY id").collect()
                    assert [tuple(row) for row in rows] == rows_after(STATEMENTS[:done]), (catalog, statement)
    assert sum(one["files_kept"] < one["files_total"] for one in lines) > len(STATEMENTS) // 2
