"""Spark commits and reads through a proxy before Iceberg's reference REST server, unmodified."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog

import sidecar
from tests.serving.serving_logs import plan_lines

pytestmark = pytest.mark.jvm


@pytest.mark.usefixtures("catalogs")
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_statements_through_the_proxy_do_what_they_do_without(
    spark: Any, addresses: tuple[str, str], mode: str
) -> None:
    name = f"db.t_{mode.partition('-')[0]}"
    modes = ", ".join(f"'write.{one}.mode'='{mode}'" for one in ("delete", "update", "merge"))
    spark.sql(f"CREATE TABLE proxied.{name} (id BIGINT, s STRING) USING iceberg TBLPROPERTIES ({modes})")
    for start in (0, 1, 2):
        rows = f"SELECT /*+ COALESCE(1) */ id * 3 + {start} AS id FROM range(40)"
        spark.sql(f"INSERT INTO proxied.{name} SELECT id, 's' || id FROM ({rows})")
    client = RestCatalog("any", uri=addresses[1])
    sidecar.build(client.load_table(name), ["id", "s"], engine="local")

    def both(query: str) -> list[Any]:
        """The rows of a query, which are the same with and without the proxy."""
        rows = [spark.sql(query.format(f"{catalog}.{name}")).collect() for catalog in ("proxied", "upstream")]
        assert rows[0] == rows[1]
        return rows[0]  # type: ignore[no-any-return]

    with plan_lines() as lines:
        assert both("SELECT id FROM {} WHERE s = 's31'") == [(31,)]
    assert [(one["files_total"], one["files_kept"]) for one in lines] == [(3, 1)]
    assert not any("s31" in str(one) for one in lines)
    spark.sql(f"UPDATE proxied.{name} SET s = 'new' WHERE s = 's31'")
    spark.sql(f"DELETE FROM proxied.{name} WHERE s = 's5'")
    spark.sql(f"DELETE FROM proxied.{name} WHERE s = 's5, absent'")
    spark.sql(
        f"MERGE INTO proxied.{name} t USING (SELECT 7 AS id UNION ALL SELECT 999) u ON t.id = u.id "
        "WHEN MATCHED THEN UPDATE SET s = 'merged' WHEN NOT MATCHED THEN INSERT (id, s) VALUES (u.id, 'merged')"
    )
    assert both("SELECT id FROM {} WHERE s = 'merged' ORDER BY id") == [(7,), (999,)]
    assert both("SELECT id FROM {} WHERE s IN ('new', 's5', 's31', 's6') ORDER BY id") == [(6,), (31,)]
    assert both("SELECT count(*), min(id), max(id) FROM {}") == [(120, 0, 999)]
    scanned = client.load_table(name).scan("s = 'new'").to_arrow()
    assert scanned["id"].to_pylist() == [31]


@pytest.mark.usefixtures("catalogs")
def test_a_table_is_made_changed_and_dropped_through_the_proxy(spark: Any) -> None:
    spark.sql("CREATE TABLE proxied.db.made USING iceberg AS SELECT id AS k FROM range(10)")
    spark.sql("ALTER TABLE proxied.db.made RENAME COLUMN k TO key")
    spark.sql("INSERT INTO proxied.db.made VALUES (100)")
    assert spark.sql("SELECT sum(key) FROM upstream.db.made").collect() == [(145,)]
    assert spark.sql("SELECT count(*) FROM proxied.db.made.files").collect()[0][0] >= 2
    spark.sql("DROP TABLE proxied.db.made PURGE")
    assert spark.sql("SHOW TABLES IN upstream.db LIKE 'made'").collect() == []
