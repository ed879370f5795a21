"""What the lines of a journal say, as records: the one place that knows the fields of each event.

event     fields, besides those of every line (`audit_journal`)
intent    batch, kind (lock: of the locks that guard actions), writes: [seq, op, action id, key, expected version,
          SHA-256 of the value, the value that is replaced or removed (base64)]
done      batch, versions: one a write, null where the bytes were there before; conflicts: [place, reason]
          presumed: places that an earlier run announced: with a version they have the bytes that were announced,
          and only that says that the earlier run wrote them
verified  checked, changed: keys read back before cookies, and how many of them were not as written
scrutiny  wave (null: the whole plan), ledgers, unexpected: findings that the plan does not have; undecided: ledgers;
          absent: inventories of the plan that could not be used
stopped   reason: more conflicts than the run was to bear
end       counts, exit_code
undo      hash: what was confirmed; removes: whether what was created goes, too
undoing   batch (of the apply), writes: [place in it, key, version that is replaced or removed, op]
undid     batch, left: [place, reason]
undone    counts; nothing is written to a store by this journal afterwards
freeze    hash, changes: [key, rights before (null: absent), rights after], root_txn, disable, identity, former:
          the rights that nodes which freeze makes get at the thaw
thaw      hash, changes: [key, rights before, rights after (null: removed)], root_txn
intent    (of a freeze or thaw) of: which of the two; op: disable, create, rights, remove, touch; key, before, after
done      (of a freeze or thaw) key
frozen, thawed   the end of either; root_txn
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, NamedTuple, Protocol, cast

from reconcile.write.audit_journal import AuditJournal, JournalLine

FREEZE: Final = "freeze"
THAW: Final = "thaw"
_WITHOUT_ACL: Final = ("disable", "touch")
LOCK: Final = "lock"
"""Kind of the batches that make and remove locks, and op of those that make them."""
_ENDS: Final = {FREEZE: "frozen", THAW: "thawed"}


class Event(Protocol):
    """One event of a journal: what its line says."""

    @property
    def event(self) -> str:
        """The name of the event."""
        ...

    def encode(self) -> dict[str, Any]:
        """Return the fields of the line, in their order."""
        ...


def append_event(journal: AuditJournal, event: Event) -> None:
    """Add a line to a journal; it is safe only after `AuditJournal.sync`."""
    journal.append(event.event, event.encode())


class _Line:
    """An event whose fields are those of its line, in their order."""

    __slots__ = ()

    def encode(self) -> dict[str, Any]:
        """Return the fields of the line."""
        return {column.name: getattr(self, column.name) for column in fields(cast("Any", self))}


class AnnouncedWrite(NamedTuple):
    """A write of an apply: one array in a line.

    Attributes:
        digest: SHA-256 of the value; None: it removes the key.
        replaced: the value that was there (base64), of a write that replaces or removes.
    """

    seq: int
    op: str
    id: str
    key: str
    expects: int | None
    digest: str | None
    replaced: str | None


class RefusedWrite(NamedTuple):
    """A write of a batch that was not made: one array in a line."""

    place: int
    reason: str


class UndoneWrite(NamedTuple):
    """A write that an undo takes back: one array in a line."""

    place: int
    key: str
    version: int | None
    op: str


@dataclass(frozen=True, slots=True)
class Intent(_Line):
    """An apply announces a batch."""

    batch: int
    kind: str
    writes: Sequence[AnnouncedWrite]
    event: ClassVar[str] = "intent"


@dataclass(frozen=True, slots=True)
class Done(_Line):
    """What became of a batch."""

    batch: int
    versions: Sequence[int | None]
    presumed: Sequence[int]
    conflicts: Sequence[RefusedWrite]
    event: ClassVar[str] = "done"


@dataclass(frozen=True, slots=True)
class ReadBackEnd(_Line):
    """All keys but cookies were read back."""

    checked: int
    changed: int
    event: ClassVar[str] = "verified"


@dataclass(frozen=True, slots=True)
class JudgedWave(_Line):
    """What an apply wrote was judged by what bookies hold."""

    wave: int | None
    ledgers: int
    unexpected: int
    undecided: int
    absent: Sequence[str]
    event: ClassVar[str] = "scrutiny"


@dataclass(frozen=True, slots=True)
class Stopped(_Line):
    """A run met more conflicts than it was to bear."""

    reason: str
    event: ClassVar[str] = "stopped"


@dataclass(frozen=True, slots=True)
class ApplyEnd(_Line):
    """A run of an apply came to its end."""

    counts: Mapping[str, Sequence[int]]
    exit_code: int
    event: ClassVar[str] = "end"


@dataclass(frozen=True, slots=True)
class UndoBegun(_Line):
    """An undo was confirmed and begun."""

    hash: str
    removes: bool
    event: ClassVar[str] = "undo"


@dataclass(frozen=True, slots=True)
class Undoing(_Line):
    """An undo announces what it takes back of one batch."""

    batch: int
    writes: Sequence[UndoneWrite]
    event: ClassVar[str] = "undoing"


@dataclass(frozen=True, slots=True)
class Undid(_Line):
    """What was not taken back of one batch."""

    batch: int
    left: Sequence[RefusedWrite]
    event: ClassVar[str] = "undid"


@dataclass(frozen=True, slots=True)
class UndoEnded(_Line):
    """An undo came to its end."""

    counts: Mapping[str, Mapping[str, int]]
    event: ClassVar[str] = "undone"


class AclRow(NamedTuple):
    """The change of one node's rights: one array in a line."""

    key: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class AclChangesBegun:
    """A freeze or a thaw was confirmed and begun.

    Attributes:
        event: freeze or thaw.
        disable, identity, former: only of a freeze.
    """

    event: str
    hash: str
    changes: Sequence[AclRow]
    root_txn: int | None
    disable: str | None = None
    identity: str | None = None
    former: str | None = None

    def encode(self) -> dict[str, Any]:
        """Return the fields of the line."""
        line: dict[str, Any] = {"hash": self.hash, "changes": self.changes, "root_txn": self.root_txn}
        if self.event == FREEZE:
            line |= {"disable": self.disable, "identity": self.identity, "former": self.former}
        return line


@dataclass(frozen=True, slots=True)
class AclIntent:
    """A freeze or a thaw announces what it does to one node.

    Attributes:
        command: freeze or thaw.
        change: None where no rights are changed: disable, touch.
    """

    command: str
    op: str
    key: str
    change: AclRow | None = None
    event: ClassVar[str] = "intent"

    def encode(self) -> dict[str, Any]:
        """Return the fields of the line."""
        line: dict[str, Any] = {"of": self.command, "op": self.op, "key": self.key}
        return line if self.change is None else {**line, "before": self.change.before, "after": self.change.after}


@dataclass(frozen=True, slots=True)
class AclDone(_Line):
    """One node is as a freeze or a thaw announced it."""

    key: str
    event: ClassVar[str] = "done"


@dataclass(frozen=True, slots=True)
class AclChangesEnded:
    """A freeze or a thaw came to its end."""

    command: str
    root_txn: int | None

    @property
    def event(self) -> str:
        """The name of the event."""
        return _ENDS[self.command]

    def encode(self) -> dict[str, Any]:
        """Return the fields of the line."""
        return {"root_txn": self.root_txn}


def read_event(record: JournalLine) -> Event | None:
    """Return what a line says, if it is of an event that somebody goes on with; else None.

    Raises:
        KeyError, TypeError, ValueError: a field is not there or is of another kind (`audit_journal.report_foreign`).
    """
    line = record.fields
    match record.event:
        case "intent" if "writes" in line:
            writes = [AnnouncedWrite(int(row[0]), str(row[1]), *row[2:]) for row in line["writes"]]
            return Intent(line["batch"], line["kind"], writes)
        case "intent" if line["op"] in _WITHOUT_ACL:
            return AclIntent(line["of"], line["op"], line["key"])
        case "intent":
            return AclIntent(line["of"], line["op"], line["key"], AclRow(line["key"], line["before"], line["after"]))
        case "done" if "versions" in line:
            conflicts = [RefusedWrite(*row) for row in line["conflicts"]]
            return Done(line["batch"], line["versions"], line.get("presumed", ()), conflicts)
        case "done":
            return AclDone(line["key"])
        case "scrutiny":
            names = ("wave", "ledgers", "unexpected", "undecided", "absent")
            return JudgedWave(*(line[name] for name in names))
        case "undo":
            return UndoBegun(line.get("hash", ""), bool(line.get("removes")))
        case "undone":
            return UndoEnded(line.get("counts", {}))
        case "freeze" | "thaw":
            changes = [AclRow(*row) for row in line["changes"]]
            extras = (line.get(name) for name in ("disable", "identity", "former"))
            return AclChangesBegun(record.event, line["hash"], changes, line["root_txn"], *extras)
        case "frozen" | "thawed":
            return AclChangesEnded(FREEZE if record.event == "frozen" else THAW, line.get("root_txn"))
        case _:
            return None


@dataclass(slots=True)
class OpenBatches:
    """Batches of an apply that were announced, and of which no line says yet what became of them."""

    intents: dict[int, Intent] = field(default_factory=dict)

    def open(self, intent: Intent) -> None:
        """Take up a batch that is announced."""
        self.intents[intent.batch] = intent

    def close(self, done: Done) -> Intent:
        """Return the announcement that a line answers.

        Raises:
            KeyError: no line announced the batch.
            ValueError: another number of writes was announced.
        """
        intent = self.intents.pop(done.batch)
        if len(intent.writes) != len(done.versions):
            raise ValueError(f"batch {done.batch} has {len(intent.writes)} writes and {len(done.versions)} results")
        return intent


@dataclass(slots=True)
class WriteCount:
    """What became of the actions of one kind and op."""

    written: int = 0
    there: int = 0
    conflicts: int = 0
    withheld: int = 0


@dataclass(slots=True)
class EarlierRuns:
    """What the journal says that earlier runs did.

    Attributes:
        before: seq of the last action of the waves before.
        last: seq of the last action of the wave.
        counts: of the wave's actions that came to their end, by kind and op.
        next_batch: batches are numbered from here on.
        finished: seq up to which all is done, but for `in_conflict`.
        in_conflict: actions that were left in conflict.
        presumed: actions that were announced, and of which no line says what became of them.
        replaced: what was at their keys before they were announced first: by now this tool's own bytes may.
        locked: actions whose lock stood when they were written.
        released: actions whose lock was removed after they were written.
        presumed_locks: actions whose lock was announced, to be made or removed, without a line of what became of it,
            each with the lock's value (base64) if it was to be removed.
        undo: the last event of an undo.
        scrutinies: the last scrutiny of each wave.
        has_announced: whether anything may have been written.
    """

    before: int
    last: int
    counts: dict[tuple[str, str], WriteCount]
    next_batch: int = 0
    finished: int = -1
    in_conflict: set[int] = field(default_factory=set)
    presumed: set[int] = field(default_factory=set)
    replaced: dict[int, str | None] = field(default_factory=dict)
    locked: set[int] = field(default_factory=set)
    released: set[int] = field(default_factory=set)
    presumed_locks: dict[int, str | None] = field(default_factory=dict)
    undo: UndoBegun | UndoEnded | None = None
    scrutinies: dict[int | None, JudgedWave] = field(default_factory=dict)
    has_announced: bool = False
    _open: OpenBatches = field(default_factory=OpenBatches)

    def replay(self, record: JournalLine) -> None:
        """Take one line of the journal, in order."""
        match read_event(record):
            case Intent() as intent:
                self.has_announced = True
                self._open.open(intent)
                self.next_batch = intent.batch + 1
                if intent.kind == LOCK:
                    for write in intent.writes:
                        self.presumed_locks.setdefault(write.seq, write.replaced)
                    return
                for write in intent.writes:
                    self.presumed.add(write.seq)
                    self.replaced.setdefault(write.seq, write.replaced)
            case Done() as done:
                self._close(self._open.close(done), done)
            case UndoBegun() | UndoEnded() as undo:
                self.undo = undo
            case JudgedWave() as scrutiny:
                self.scrutinies[scrutiny.wave] = scrutiny
            case _:
                pass

    def _close(self, intent: Intent, done: Done) -> None:
        refused = {refusal.place for refusal in done.conflicts}
        if intent.kind == LOCK:
            self._close_locks(intent, done, refused)
            return
        for place, (write, version) in enumerate(zip(intent.writes, done.versions, strict=True)):
            self.presumed.discard(write.seq)
            self.replaced.pop(write.seq, None)
            self.in_conflict.discard(write.seq)
            if place in refused:
                self.in_conflict.add(write.seq)
            elif self.before < write.seq <= self.last:
                count = self.counts[intent.kind, write.op]
                if version is not None:
                    count.written += 1
                else:
                    count.there += 1
        self.finished = max(self.finished, *(write.seq for write in intent.writes))

    def _close_locks(self, intent: Intent, done: Done, refused: set[int]) -> None:
        for place, (write, version) in enumerate(zip(intent.writes, done.versions, strict=True)):
            self.presumed_locks.pop(write.seq, None)
            settled = self.locked if write.op == LOCK else self.released
            if place in refused or write.seq in settled:
                continue
            settled.add(write.seq)
            if self.before < write.seq <= self.last:
                count = self.counts[intent.kind, write.op]
                if version is not None:
                    count.written += 1
                else:
                    count.there += 1

    @property
    def conflicts_before(self) -> set[int]:
        """The actions of earlier waves that were left in conflict."""
        return {seq for seq in self.in_conflict if seq <= self.before}

    def is_open(self, seq: int) -> bool:
        """Whether an action is still to be brought to its end."""
        return seq > self.finished or seq in self.in_conflict or seq in self.presumed


@dataclass(slots=True)
class FreezeHistory:
    """What a journal says about the freeze that is in force or under way, if any.

    Attributes:
        originals: node → rights before the first freeze since the last thaw; None: it was absent.
        frozen_as: node → all rights that freezes gave it since.
        kind, hash, changes: of the last proposal that was begun; "" and empty if there was none since the last thaw.
        is_ended: whether that one came to its end.
        root_txn: transaction that created the root which was frozen; None: a freeze was about to make it.
        identity: of the freeze.
        former: rights that nodes get at the thaw which were absent before the freeze.
        disabled_by: hash of the last freeze that disabled replication; "": none did.
    """

    originals: dict[str, str | None] = field(default_factory=dict)
    frozen_as: dict[str, set[str]] = field(default_factory=dict)
    kind: str = ""
    hash: str = ""
    changes: tuple[AclRow, ...] = ()
    is_ended: bool = True
    root_txn: int | None = None
    identity: str = ""
    former: str = ""
    disabled_by: str = ""

    def replay(self, record: JournalLine) -> None:
        """Take one line of the journal, in order."""
        match read_event(record):
            case AclChangesBegun() as begun:
                if begun.event == FREEZE and not self.is_same_root(begun.root_txn):
                    self.originals, self.frozen_as, self.former = {}, {}, ""
                self.kind, self.hash, self.root_txn, self.is_ended = begun.event, begun.hash, begun.root_txn, False
                self.changes = tuple(begun.changes)
                self.identity = self.identity if begun.identity is None else begun.identity
                self.former = self.former or begun.former or ""
                self.disabled_by = begun.hash if begun.disable is not None else self.disabled_by
            case AclIntent(command="freeze", op="create" | "rights", change=AclRow(key, before, str(after))):
                self.originals.setdefault(key, before)
                self.frozen_as.setdefault(key, set()).add(after)
            case AclChangesEnded(command="freeze") as ended:
                self.is_ended = True
                self.root_txn = self.root_txn if ended.root_txn is None else ended.root_txn
            case AclChangesEnded():
                self.originals, self.frozen_as, self.is_ended, self.former = {}, {}, True, ""
            case _:
                pass

    def is_same_root(self, root_txn: int | None) -> bool:
        """Whether a root is the one that was frozen, or the one that a run which was killed had announced and made."""
        return root_txn == self.root_txn or (self.root_txn is None and self.kind == FREEZE and not self.is_ended)
