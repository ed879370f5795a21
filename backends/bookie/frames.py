"""One connection to a bookie without its sockets: requests to bytes, bytes to answers.

Big-endian. A conversation is a series of frames in both directions; answers come in any order.

    at  size  field
    0   4     n, int32: above 0, and n + 4 at most the largest frame
    4   n     Request or Response (proto/backends/bookie/_pb/bookie.proto), version 3

    request        n   asks for                                          ledger   scope in field
    READ_ENTRY     1   one stored record, or the last one (entry -1)     yes      none: 100 is the flag that fences
    AUTH           5   one round of an authentication                    no
    READ_LAC       7   explicit LAC record, and the last stored record   yes      100
    BOOKIE_INFO    8   bytes of the bookie's disks, all and free         no
    START_TLS      9   the same connection, encrypted                    no
    LIST_ENTRIES   11  availability bytes of a ledger                    yes      100

    outcome          is                                                  the answer's status
    answer           what was asked for                                  EOK
    negative         the bookie knows no such ledger, or no such entry   ENOLEDGER, ENOENTRY, but for READ_LAC
    refused          an answer that does not say it: it must not, could  EUA, EIO, ETOOMANYREQUESTS, and all others;
                     not, or would not                                   READ_LAC: ENOENTRY and ENOLEDGER too
    not_understood   an answer to something else, or no answer to this   EBADREQ, EBADVERSION, numbers without a name
    no_answer        nothing                                             none

A negative answer to READ_LAC proves nothing: a missing ledger, a ledger without entries and an I/O error have the same
code. For another scope than 0 only an answer that repeats the scope is believed: a bookie that does not know the field
answers for scope 0.

Source: docs/formats/wire.md; apache/bookkeeper 9590a97, proto/BookieProtoEncoding.
"""

import struct
from enum import IntEnum, StrEnum
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from google.protobuf.message import DecodeError

from backends.bookie._pb import bookie_pb2 as pb
from backends.errors import ProtocolError

T = TypeVar("T")

LAST: Final = -1
"""Entry id of a read: the last one that the bookie has."""
LARGEST_FRAME: Final = 64 << 20
"""Far above a bookie's own limit for requests (5 MiB): answers may be larger than requests."""
AUTH_DISABLED: Final = "AuthDisabledPlugin"
"""Plugin named in the answer of a bookie that asks for no authentication, or has had it."""

_VERSION: Final = 3
_SIZE: Final = struct.Struct(">i")
_TOTAL_AND_FREE: Final = 3
_I64: Final = 1 << 63


class Operation(IntEnum):
    """The kinds of requests."""

    READ_ENTRY = 1
    AUTH = 5
    READ_LAC = 7
    BOOKIE_INFO = 8
    START_TLS = 9
    LIST_ENTRIES = 11


class Status(IntEnum):
    """A bookie's codes."""

    EOK = 0
    ENOLEDGER = 402
    ENOENTRY = 403
    EBADREQ = 404
    EIO = 501
    EUA = 502
    EBADVERSION = 503
    EFENCED = 504
    EREADONLY = 505
    ETOOMANYREQUESTS = 506
    EUNKNOWNLEDGERSTATE = 507


class RequestOutcome(StrEnum):
    """The outcome of a request; see the module's table. Values are stored, so never renamed."""

    ANSWER = "answer"
    NEGATIVE = "negative"
    NO_ANSWER = "no_answer"
    REFUSED = "refused"
    NOT_UNDERSTOOD = "not_understood"


_CODES: Final = frozenset(Status)
_OUTCOMES: Final[dict[int, RequestOutcome]] = {
    Status.EOK: RequestOutcome.ANSWER,
    Status.ENOLEDGER: RequestOutcome.NEGATIVE,
    Status.ENOENTRY: RequestOutcome.NEGATIVE,
    Status.EBADREQ: RequestOutcome.NOT_UNDERSTOOD,
    Status.EBADVERSION: RequestOutcome.NOT_UNDERSTOOD,
}


class BookieQuestion(NamedTuple):
    """One question; made by the functions below."""

    operation: Operation
    ledger: int = 0
    scope: int = 0
    entry: int = 0
    plugin: str = ""
    payload: bytes = b""

    def __repr__(self) -> str:
        """Without the payload of an authentication: a value may land in a log."""
        return f"Request({self.operation.name}, ledger={self.ledger}, scope={self.scope}, entry={self.entry})"


def list_entries(ledger: int, scope: int = 0) -> BookieQuestion:
    """Ask for the entries that a bookie has of a ledger."""
    return BookieQuestion(Operation.LIST_ENTRIES, _id(ledger), _id(scope))


def read_entry(ledger: int, entry: int, scope: int = 0) -> BookieQuestion:
    """Ask for one stored record, without fencing and without recovery.

    Args:
        ledger: its id.
        entry: its id, or `LAST`.
        scope: must be 0.

    Raises:
        ValueError: another scope (the field that would carry it is the flag that fences), or an entry id below -1
            (some bookies never answer that, and lose a read permit each time).
    """
    if scope:
        raise ValueError("a read of another scope than 0 would be taken for a fencing read")
    if entry < LAST:
        raise ValueError(f"entry id {entry}")
    return BookieQuestion(Operation.READ_ENTRY, _id(ledger), 0, _id(entry))


def read_lac(ledger: int, scope: int = 0) -> BookieQuestion:
    """Ask for the explicit LAC record and the last stored record of a ledger."""
    return BookieQuestion(Operation.READ_LAC, _id(ledger), _id(scope))


def bookie_info() -> BookieQuestion:
    """Ask for the bytes of a bookie's disks."""
    return BookieQuestion(Operation.BOOKIE_INFO)


def authenticate(plugin: str, payload: bytes) -> BookieQuestion:
    """Return one round of an authentication."""
    return BookieQuestion(Operation.AUTH, plugin=plugin, payload=payload)


def start_tls() -> BookieQuestion:
    """Ask that the connection goes on encrypted."""
    return BookieQuestion(Operation.START_TLS)


def _id(value: int) -> int:
    if not -_I64 <= value < _I64:
        raise ValueError(f"not a signed 64-bit id: {value}")
    return value


class BookieAnswer(NamedTuple):
    """A bookie's answer to one request, or its silence.

    Attributes:
        outcome: its meaning.
        status: the bookie's code, perhaps one without a name; None: there was no answer.
        body: the availability bytes, the stored record, or the payload of an authentication; of READ_LAC the last
            stored record, which may be there though the outcome is `refused`.
        lac_record: of READ_LAC, the explicit LAC as it is stored.
        total, free: of BOOKIE_INFO, bytes.
        max_lac: of READ_ENTRY, the largest LAC that the bookie remembers: a hint, often -1.
        plugin: of AUTH.
        detail: for people.
    """

    outcome: RequestOutcome
    status: int | None = None
    body: bytes = b""
    lac_record: bytes = b""
    total: int = 0
    free: int = 0
    max_lac: int = -1
    plugin: str = ""
    detail: str = ""

    @property
    def said(self) -> str:
        """The status and its details, in words."""
        name = "" if self.status is None else _name(self.status)
        return ": ".join(filter(None, (name, self.detail))) or self.outcome.value


def _name(status: int) -> str:
    try:
        return Status(status).name
    except ValueError:
        return f"status {status}"


def encode(request: BookieQuestion, txn: int) -> bytes:
    """Return the frame of a request."""
    operation, ledger, scope, entry, plugin, payload = request
    message = pb.Request()
    header = message.header
    header.version, header.operation, header.txnId = _VERSION, operation, txn
    if operation == Operation.LIST_ENTRIES:
        message.list.ledgerId = ledger
        if scope:
            message.list.ledgerScopeId = scope
    elif operation == Operation.READ_ENTRY:
        message.read.ledgerId, message.read.entryId = ledger, entry
    elif operation == Operation.READ_LAC:
        message.readLac.ledgerId = ledger
        if scope:
            message.readLac.ledgerScopeId = scope
    elif operation == Operation.BOOKIE_INFO:
        message.info.requested = _TOTAL_AND_FREE
    elif operation == Operation.AUTH:
        message.auth.authPluginName, message.auth.payload = plugin, payload
    else:
        message.startTls.SetInParent()
    return _frame(message)


def _frame(message: pb.Request) -> bytes:
    raw = message.SerializeToString()
    return _SIZE.pack(len(raw)) + raw


_INNER: Final[dict[int, Literal["read", "auth", "readLac", "info", "startTls", "list"]]] = {
    Operation.READ_ENTRY: "read",
    Operation.AUTH: "auth",
    Operation.READ_LAC: "readLac",
    Operation.BOOKIE_INFO: "info",
    Operation.START_TLS: "startTls",
    Operation.LIST_ENTRIES: "list",
}


def interpret(request: BookieQuestion, response: pb.Response) -> BookieAnswer:
    """Return the answer that a response means for a request."""
    operation, status = request.operation, response.status
    if response.header.operation != operation:
        return _not_understood(status, f"an answer to operation {response.header.operation}")
    outcome = _OUTCOMES.get(status) or (RequestOutcome.REFUSED if status in _CODES else RequestOutcome.NOT_UNDERSTOOD)
    name = _INNER[operation]
    if not response.HasField(name):
        # So are those answered who may not ask yet, and what the bookie does not serve.
        if outcome in (RequestOutcome.ANSWER, RequestOutcome.NEGATIVE):
            return _not_understood(status, "without the requested value")
        return BookieAnswer(outcome, status)
    if name == "auth":
        return BookieAnswer(outcome, status, body=response.auth.payload, plugin=response.auth.authPluginName)
    if name == "startTls":
        return BookieAnswer(outcome, status)
    if name == "info":
        info = response.info
        if info.status != status:
            return _two(status, info.status)
        return BookieAnswer(outcome, status, total=info.total, free=info.free)
    inner = response.list if name == "list" else response.read if name == "read" else response.readLac
    if inner.status != status:
        return _two(status, inner.status)
    if inner.ledgerId != request.ledger:
        return _not_understood(status, f"an answer for ledger {inner.ledgerId}")
    if inner.ledgerScopeId != request.scope:
        return _not_understood(status, "the bookie does not know scopes" if request.scope else "an answer for a scope")
    if name == "list":
        return BookieAnswer(outcome, status, response.list.availability)
    if name == "read":
        read = response.read
        if read.entryId != request.entry:
            return _not_understood(status, f"an answer for entry {read.entryId}")
        return BookieAnswer(outcome, status, read.body, max_lac=read.maxLac if read.HasField("maxLac") else -1)
    lac = response.readLac
    if outcome is RequestOutcome.NEGATIVE:
        outcome = RequestOutcome.REFUSED
    return BookieAnswer(outcome, status, lac.lastEntryBody, lac.lacBody)


def _not_understood(status: int, detail: str) -> BookieAnswer:
    return BookieAnswer(RequestOutcome.NOT_UNDERSTOOD, status, detail=detail)


def _two(outer: int, inner: int) -> BookieAnswer:
    return _not_understood(outer, f"with {_name(inner)} inside")


class Conversation(Generic[T]):
    """The frames of one connection in both directions; no sockets, no clock.

    Every request carries what the caller wants back with its answer.

    Args:
        largest: frame that is taken, in bytes with its length; one more ends the conversation.

    Attributes:
        dropped: answers to nothing that is outstanding.
    """

    def __init__(self, largest: int = LARGEST_FRAME) -> None:
        self._largest = largest - _SIZE.size
        self._outstanding: dict[int, tuple[BookieQuestion, T, float]] = {}
        self._data = bytearray()
        self._next = 1
        self._listing = pb.Request()
        self._listing_header, self._listed = self._listing.header, self._listing.list
        self._listing_header.version, self._listing_header.operation = _VERSION, Operation.LIST_ENTRIES
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._outstanding)

    def send(self, request: BookieQuestion, context: T, due: float = 0.0) -> bytes:
        """Return the bytes of a request, which is outstanding from now on.

        Args:
            request: the request to send.
            context: given back with the answer.
            due: see `overdue`; not before that of any earlier request.
        """
        txn = self._next
        self._next = txn + 1
        self._outstanding[txn] = request, context, due
        if request.operation is not Operation.LIST_ENTRIES or request.scope:
            return encode(request, txn)
        # Nearly all requests are these. A message that is kept says the same in a fifth of the time.
        self._listing_header.txnId, self._listed.ledgerId = txn, request.ledger
        return _frame(self._listing)

    def receive(self, data: bytes | bytearray | memoryview) -> list[tuple[BookieQuestion, T, BookieAnswer]]:
        """Add received bytes, cut anywhere, and return the answers that they complete, in order.

        Raises:
            ProtocolError: not frames of this protocol; nothing that follows on this connection can be taken. Answers
                before that are lost, too: their requests are outstanding still.
        """
        received = self._data
        received += data
        answers: list[tuple[BookieQuestion, T, BookieAnswer]] = []
        position, end = 0, len(received)
        with memoryview(received) as view:
            while end - position >= _SIZE.size:
                size = _SIZE.unpack_from(view, position)[0]
                if not 0 < size <= self._largest:
                    raise ProtocolError(f"a frame of {size} bytes; at most {self._largest} are taken")
                start = position + _SIZE.size
                if end - start < size:
                    break
                position = start + size
                try:
                    response = pb.Response.FromString(bytes(view[start:position]))
                except DecodeError as error:
                    raise ProtocolError("a frame that is not an answer of protocol 3") from error
                asked = self._outstanding.pop(response.header.txnId, None)
                if asked is None:
                    self.dropped += 1
                else:
                    answers.append((asked[0], asked[1], interpret(asked[0], response)))
        del received[:position]
        return answers

    def overdue(self, moment: float) -> list[tuple[BookieQuestion, T]]:
        """Give up, and return, the requests that were due before `moment`; late answers to them are dropped."""
        late: list[int] = []
        for txn, (_, _, due) in self._outstanding.items():
            if due > moment:
                break
            late.append(txn)
        return [self._outstanding.pop(txn)[:2] for txn in late]

    def end(self) -> list[tuple[BookieQuestion, T]]:
        """Give up, and return, all outstanding requests."""
        left = [(request, context) for request, context, _ in self._outstanding.values()]
        self._outstanding.clear()
        return left
