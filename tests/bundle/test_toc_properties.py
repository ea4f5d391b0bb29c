"""Properties of a sidecar file that sidecar wrote are as they were written, or they are damage."""

from __future__ import annotations

import io
from typing import Any

import pytest

from sidecar.bundle.toc import TOC_PROPERTY, check_properties, parse_place, write_toc
from sidecar.errors import DamagedFileError
from sidecar.puffin.writer import PuffinWriter


def written(**properties: str) -> dict[str, str]:
    writer = PuffinWriter(io.BytesIO(), properties={"theirs": "1"})
    writer.properties |= {f"sidecar.{name}": text for name, text in properties.items()}
    write_toc(writer, [], snapshot_id=1, sequence_number=1)
    return dict(writer.properties)


def test_what_was_written_is_intact_whatever_others_add() -> None:
    check_properties(written(state="{}", history="[]") | {"theirs": "2", "more": "3"})
    plain = written()
    check_properties(plain)
    assert parse_place(plain[TOC_PROPERTY]).properties is None


@pytest.mark.parametrize(
    "change",
    [
        {"sidecar.state": "{} "},
        {"sidecar.state": None},
        {"sidecar.state": None, "sidecar.stave": "{}"},
        {"sidecar.more": ""},
        {TOC_PROPERTY: None},
        {TOC_PROPERTY: '{"digest":"","length":99,"offset":4}'},
        {TOC_PROPERTY: '{"digest":"","length":99,"offset":4,"qroperties":""}'},
    ],
)
def test_a_change_is_damage(change: dict[str, Any]) -> None:
    properties = {n: t for n, t in (written(state="{}", history="[]") | change).items() if t is not None}
    with pytest.raises(DamagedFileError):
        check_properties(properties)
