"""Spark's parser reads the names and texts of printed statements as they are."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.reports.advising.writers import identifier, quoted_text

NAMES = ["db", "_a1", "1a", "über", "名", "a.b", "a b", "order", "back`tick", "new\nline", "quote'", "semi;colon", "--"]
TEXTS = ["k", "it's", "''", "back\\slash", "ends with \\", "\\n", "new\nline", 'double"', "`", "%_", "über"]


@pytest.mark.jvm
def test_names_and_texts_are_read_as_they_are(spark: Any) -> None:
    parser = spark._jsparkSession.sessionState().sqlParser()
    pairs = ", ".join(f"{quoted_text(text)}={quoted_text(text)}" for text in TEXTS)
    parsed = parser.parsePlan(f"ALTER TABLE {'.'.join(map(identifier, NAMES))} SET TBLPROPERTIES ({pairs})")
    name = parsed.table().multipartIdentifier()
    assert [name.apply(at) for at in range(name.size())] == NAMES
    properties = parsed.properties()
    assert properties.size() == len(TEXTS)
    assert {text: properties.apply(text) for text in TEXTS} == dict(zip(TEXTS, TEXTS, strict=True))
