"""parquet-java reads filters that went through a sidecar."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import sidecar
from tests.conversion.cases import indexed, plain_of


@pytest.mark.jvm
def test_parquet_java_reads_filters_out_of_a_sidecar(spark: Any, tmp_path: Path) -> None:
    path = indexed(tmp_path, 1)
    puffin, back = str(tmp_path / "x.puffin"), tmp_path / "back.parquet"
    sidecar.extract([str(path)], puffin)
    sidecar.embed(str(plain_of(path)), into=str(back), from_=puffin)
    jvm = spark._jvm
    configuration = jvm.org.apache.hadoop.conf.Configuration()
    hadoop = jvm.org.apache.hadoop.fs.Path(str(back))
    opened = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(
        jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(hadoop, configuration)
    )
    keys = pq.read_table(path)["k"].to_pylist()
    try:
        blocks = opened.getFooter().getBlocks()
        for number in range(3):
            chunk = next(c for c in blocks.get(number).getColumns() if c.getPath().toDotString() == "k")
            found = opened.getBloomFilterDataReader(blocks.get(number)).readBloomFilter(chunk)
            mine = keys[1000 * number : 1000 * (number + 1) : 37]
            assert all(found.findHash(found.hash(jvm.java.lang.Long(key))) for key in mine)
            assert not all(found.findHash(found.hash(jvm.java.lang.Long(-key))) for key in mine)
            assert opened.readColumnIndex(chunk) is not None
            assert opened.readOffsetIndex(chunk).getPageCount() >= 1
    finally:
        opened.close()
    assert spark.read.parquet(str(back)).where(f"k = {keys[1700]}").count() == 1
