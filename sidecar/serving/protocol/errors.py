"""Makes the error documents of the protocol: ``{"error": {"message", "type", "code"}}``.

The name in ``type`` is that of a class of Iceberg's Java library, which clients raise again. Clients repeat requests
that are answered with 429 or 503, and commits that are answered with 5xx, so these statuses are used for nothing that
a second attempt cannot help.
"""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass
from enum import Enum

from pyiceberg.exceptions import NoSuchIcebergTableError, NoSuchNamespaceError, NoSuchTableError

from sidecar.errors import SidecarError, UnsupportedFeatureError, UsageError

_FRAMES = 6
"""The most places in the code that a log line about an error names, the innermost first."""


class ErrorType(Enum):
    """The errors of the protocol, each with its HTTP status and the name that clients know it by."""

    BAD_REQUEST = 400, "BadRequestException"
    NOT_AUTHORIZED = 401, "NotAuthorizedException"
    FORBIDDEN = 403, "ForbiddenException"
    NOT_FOUND = 404, "NotFoundException"
    NO_SUCH_NAMESPACE = 404, "NoSuchNamespaceException"
    NO_SUCH_TABLE = 404, "NoSuchTableException"
    NO_SUCH_VIEW = 404, "NoSuchViewException"
    NO_SUCH_PLAN = 404, "NoSuchPlanIdException"
    NO_SUCH_PLAN_TASK = 404, "NoSuchPlanTaskException"
    UNSUPPORTED = 406, "UnsupportedOperationException"
    METHOD_NOT_ALLOWED = 405, "MethodNotAllowedException"
    REQUEST_TIMEOUT = 408, "RequestTimeoutException"
    TOO_LARGE = 413, "RequestTooLargeException"
    MISDIRECTED = 421, "MisdirectedRequestException"
    TOO_MANY_REQUESTS = 429, "TooManyRequestsException"
    INTERNAL = 500, "InternalServerError"
    BAD_GATEWAY = 502, "BadGatewayException"
    UNAVAILABLE = 503, "ServiceUnavailableException"
    GATEWAY_TIMEOUT = 504, "GatewayTimeoutException"

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.value[0]

    @property
    def java_name(self) -> str:
        """The ``type`` in the document."""
        return self.value[1]


class RefusedRequestError(UsageError):
    """A request that is refused with one of the protocol's errors. ``answer`` says which."""

    def __init__(self, what: str, answer: ErrorType = ErrorType.BAD_REQUEST) -> None:
        super().__init__(what)
        self.answer = answer


@dataclass(frozen=True)
class ErrorDocument:
    """An answer that reports an error."""

    status: int
    body: bytes


def error_document(answer: ErrorType, message: str) -> ErrorDocument:
    """Return the document of an error with a message for people."""
    document = {"error": {"message": message, "type": answer.java_name, "code": answer.status}}
    return ErrorDocument(answer.status, json.dumps(document).encode())


def place_of(error: BaseException) -> str:
    """Return the class of an unexpected error and where it was raised, for logs.

    Its text can have literals, addresses and secrets, so it is left out.
    """
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    places = (f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in reversed(frames))
    return f"{type(error).__name__} at {', '.join(places) or 'an unknown place'}"


def document_of(error: Exception) -> ErrorDocument:
    """Return the document for an error that was raised while a request was answered.

    Messages of foreign errors can hold addresses and secrets, so the document has only their class. The caller logs
    these errors.
    """
    if isinstance(answer := getattr(error, "answer", None), ErrorType):
        return error_document(answer, str(error))
    if isinstance(error, NoSuchTableError | NoSuchIcebergTableError):
        return error_document(ErrorType.NO_SUCH_TABLE, "the table does not exist")
    if isinstance(error, NoSuchNamespaceError):
        return error_document(ErrorType.NO_SUCH_NAMESPACE, "the namespace does not exist")
    if isinstance(error, UsageError):
        return error_document(ErrorType.BAD_REQUEST, str(error))
    if isinstance(error, UnsupportedFeatureError):
        return error_document(ErrorType.UNSUPPORTED, str(error))
    if isinstance(error, SidecarError):
        return error_document(ErrorType.INTERNAL, str(error))
    return error_document(ErrorType.INTERNAL, f"the request could not be answered: {type(error).__name__}")
