"""The methods of the service, read from the proto, for gRPC, HTTP and `bkmeta ask`; and their refusals."""

import re
import threading
import time
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from google.protobuf import message_factory
from google.protobuf.message import Message

from reconcile.service._pb import service_pb2 as pb
from reconcile.service.config import TokenRole

SERVICE: Final = "bkmeta.service.v1.Bkmeta"
_OPEN: Final = frozenset(
    {
        "GetStatus", "ListFindings", "ListLedgers", "CheckImpact", "ExplainLedger", "GetDeletes", "ListDeletes",
        "GetMaintenance", "GetTask", "ListTasks",
    }
)  # fmt: skip
"""Methods that change nothing."""
_ROLES: Final = {
    "RequestDeletes": TokenRole.DELETE,
    "VerifyDeletes": TokenRole.DELETE,
    "PurgeDeletes": TokenRole.DELETE,
    "ReleaseMaintenance": TokenRole.APPROVE,
    # What is run as a task, or cancelled, has a role of its own.
    "StartTask": TokenRole.READ,
    "CancelTask": TokenRole.READ,
}
"""Methods that need another role than other changing methods."""


class Why(Enum):
    """Why a question is not answered: the status of gRPC, and of HTTP."""

    BAD_REQUEST = ("INVALID_ARGUMENT", 400)
    NO_TOKEN = ("UNAUTHENTICATED", 401)
    NOT_FOUND = ("NOT_FOUND", 404)
    OTHER_HOST = ("PERMISSION_DENIED", 421)
    NOT_ALLOWED = ("PERMISSION_DENIED", 403)
    NOT_LEADER = ("FAILED_PRECONDITION", 409)
    TOO_MANY = ("RESOURCE_EXHAUSTED", 429)
    UNAVAILABLE = ("UNAVAILABLE", 503)
    TOO_LATE = ("DEADLINE_EXCEEDED", 504)
    BROKEN = ("INTERNAL", 500)


class ApiError(Exception):
    """A question that is not answered.

    Attributes:
        why: the kind of reason.
        text: one line, with what to do.
    """

    def __init__(self, why: Why, text: str) -> None:
        super().__init__(text)
        self.why = why
        self.text = text


@dataclass(frozen=True, slots=True)
class Method:
    """A method of the service.

    Attributes:
        name: as the proto has it.
        request, response: types of the messages.
        streams: many responses.
        acts: changes something: needs a token.
        role: required of the token.
    """

    name: str
    request: type[Message]
    response: type[Message]
    streams: bool
    acts: bool
    role: TokenRole

    @property
    def path(self) -> str:
        """The name in lower case with hyphens, as URLs and `bkmeta ask` have it."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", self.name).lower()

    @property
    def attribute(self) -> str:
        """The name of the method of `Api`."""
        return self.path.replace("-", "_")


METHODS: Final = tuple(
    Method(
        entry.name,
        message_factory.GetMessageClass(entry.input_type),
        message_factory.GetMessageClass(entry.output_type),
        entry.server_streaming,
        entry.name not in _OPEN,
        TokenRole.READ if entry.name in _OPEN else _ROLES.get(entry.name, TokenRole.RUN),
    )
    for entry in pb.DESCRIPTOR.services_by_name["Bkmeta"].methods
)


@dataclass(frozen=True, slots=True)
class Call:
    """One question.

    Attributes:
        by: name of the token; empty: none.
        until: time.monotonic() after which no caller waits any longer.
        given_up: set as soon as no caller waits any longer.
        folders: of its command; none before that.
    """

    by: str
    until: float
    given_up: threading.Event = field(default_factory=threading.Event)
    folders: list[Path] = field(default_factory=list)

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return self.until - time.monotonic()
