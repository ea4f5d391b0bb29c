"""Encrypted columns: recognised, named, and what stands in clear for them is never asked."""

from __future__ import annotations

from sidecar.filters.orc.key_hash import hash_long
from sidecar.orc.inspect import inspect_file, probe_file
from sidecar.orc.verify.verify import verify_file
from tests.orc.files import read_all, source

NAME = "java_encrypted.orc"


def test_the_encrypted_column_is_named() -> None:
    tail, _ = read_all(source(NAME))
    assert tail.encrypted
    assert tail.encrypted_columns == {2}
    assert [column.encrypted for column in tail.columns] == [False, False, True, False]
    assert inspect_file(source(NAME)).encrypted_columns == ["secret"]
    assert not read_all(source("java_none_utf8.orc"))[0].encrypted


def test_encrypted_streams_lie_in_their_place() -> None:
    """Plain index, encrypted index, plain data, encrypted data: the placeholders have just their length."""
    _, (stripe,) = read_all(source(NAME))
    footer = stripe.footer
    (hidden,) = footer.encrypted_streams
    for area, kinds in (("ENCRYPTED_INDEX", {"ROW_INDEX"}), ("ENCRYPTED_DATA", {"DATA"})):
        (place,) = [s for s in footer.streams if s.kind == area]
        inside = [s for s in hidden if s.kind in kinds]
        assert inside[0].offset == place.offset
        assert sum(s.length for s in inside) == place.length
    assert not footer.doubt
    assert footer.streams[-1].offset + footer.streams[-1].length == footer.stripe.footer_offset


def test_the_filter_that_java_leaves_in_clear_is_not_asked() -> None:
    """One stream of twice the filters: the secret values', then those of the mask."""
    _, (stripe,) = read_all(source(NAME))
    found = stripe.indexes[2].filters
    assert found is not None
    assert [f.trusted for f in found] == [False] * 3
    assert found[0].filter is not None
    assert found[0].filter.might_contain_hash(hash_long(1_000_003))
    for value in ("1000003", "5"):
        assert {u.might_contain for u in probe_file(source(NAME), "secret", value)} == {None}
    named = [p for p in verify_file(source(NAME)) if p.column == "secret"]
    assert len(named) == 1
    assert "encrypted" in named[0].problem


def test_other_columns_are_asked_as_ever() -> None:
    for column, value in (("id", "1500"), ("name", "name1500")):
        answers = [u.might_contain for u in probe_file(source(NAME), column, value)]
        assert answers[1] is True
        assert answers.count(False) >= 1
