"""Tokens of pages: sealed, bound to their table, without literals in the clear."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from sidecar.serving.protocol.errors import ErrorType, RefusedRequestError
from sidecar.serving.protocol.page_tokens import Page, seal, unseal

KEY = bytes(range(32))
PAGE = Page(b'{"filter":{"type":"eq","term":"name","value":"secret"}}', 5, 20, 40, (3,))


@pytest.mark.parametrize("request_body", [PAGE.request, b'{"filter":\n  {"type": "true"}\n}\n', b""])
def test_a_token_holds_the_page(request_body: bytes) -> None:
    page = replace(PAGE, request=request_body)
    assert unseal(seal(page, KEY, b"table"), KEY, b"table") == page


def test_a_token_hides_the_literals() -> None:
    assert b"secret" not in base64.urlsafe_b64decode(seal(PAGE, KEY, b"table"))


@pytest.mark.parametrize(
    ("token", "key", "table"),
    [
        (seal(PAGE, KEY, b"table"), KEY, b"other"),
        (seal(PAGE, KEY, b"table"), bytes(32), b"table"),
        (seal(PAGE, KEY, b"table")[:-8], KEY, b"table"),
        ("é", KEY, b"table"),
        ("", KEY, b"table"),
        ("a", KEY, b"table"),
    ],
)
def test_other_tokens_are_refused(token: str, key: bytes, table: bytes) -> None:
    with pytest.raises(RefusedRequestError) as caught:
        unseal(token, key, table)
    assert caught.value.answer is ErrorType.NO_SUCH_PLAN_TASK


def test_every_changed_bit_is_refused() -> None:
    sealed = bytearray(base64.urlsafe_b64decode(seal(PAGE, KEY, b"table")))
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 1 << at % 8
        with pytest.raises(RefusedRequestError):
            unseal(base64.urlsafe_b64encode(changed).decode(), KEY, b"table")
