"""Makes the opaque texts that stand for further pages of a plan.

A token holds all that a page needs: the request, the snapshot and the range of files. So no worker keeps plans, and
none expires. It is encrypted and authenticated under a key that the workers share, because a request has literals and
tokens go into logs. It is bound to the table: a token of another table is refused.

    base64url(nonce (12 bytes) | AES-GCM(zlib(JSON)) | tag (16 bytes)), with the table as additional data

A range is one of the snapshot's live files in the order of its manifests, not of the files that a plan keeps: a later
plan can keep others, if a sidecar was built in between.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from dataclasses import dataclass

from sidecar.crypto.aes import decrypt_gcm, encrypt_gcm
from sidecar.errors import DamagedFileError
from sidecar.serving.protocol.errors import ErrorType, RefusedRequestError

LONGEST_REQUEST = 64 << 10
"""Longer requests are answered in one piece, because each token has the whole request."""


@dataclass(frozen=True)
class Page:
    """A page of a plan: the kept files among the live files ``start`` to ``end`` of a snapshot."""

    request: bytes
    """The body of the plan request."""
    snapshot_id: int
    start: int
    end: int
    left_out: tuple[int, ...] = ()
    """Files that the first answer had although they are not in its range."""
    may_replace: bool = True
    """Whether the client may replace the files of the plan by what it reads. The table may have changed since."""


def seal(page: Page, key: bytes, table: bytes) -> str:
    """Return the token of a page. ``key`` has 16, 24 or 32 bytes, ``table`` identifies the table."""
    rest = [page.snapshot_id, page.start, page.end, list(page.left_out), page.may_replace]
    plain = zlib.compress(json.dumps(rest).encode() + b"\n" + page.request)
    return base64.urlsafe_b64encode(encrypt_gcm(key, plain, table)).decode()


def unseal(token: str, key: bytes, table: bytes) -> Page:
    """Return the page that a token stands for. Raises :class:`RefusedRequestError` if it is not a token of ours."""
    try:
        plain = zlib.decompress(decrypt_gcm(key, base64.urlsafe_b64decode(token), table))
    except (DamagedFileError, binascii.Error, ValueError) as error:
        raise RefusedRequestError(
            "the plan task is not one of this server and table", ErrorType.NO_SUCH_PLAN_TASK
        ) from error
    rest, _, request = plain.partition(b"\n")
    snapshot_id, start, end, left_out, may_replace = json.loads(rest)
    return Page(request, snapshot_id, start, end, tuple(left_out), may_replace)
