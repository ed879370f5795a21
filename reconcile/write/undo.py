"""What an apply wrote, taken back by its journal: records that it replaced put back, records that it created removed.

    was written    is taken back                              where
    replace        the former bytes are written               the key has the bytes and the version that were written
    remove         the key is created with its former bytes   it is absent
    create, hold   the key is removed                         as for replace, and the store is frozen (but for nodes
                                                              of upper layers, of which bookies know nothing, and
                                                              for locks)
    keep           the lock is removed                        as for replace
    lock           a guard's lock is removed                  as for replace, and its record was taken back
    release        the lock is made again, then the record    the key is absent
                   is put back
    raise          never: ids that were given out are not given again

What somebody changed since is left as it is, and listed. A created record is never removed from a store that bookies
can list: they would delete the ledger. The last write is taken back first, so no bookie has a cookie without its
ledgers. The journal is the apply's own; after an undo it takes no more writes. A run that was ended anywhere is gone
on with by running it again.
"""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from backends.errors import BackendError
from backends.protocols import MetadataStore, Versioned, Write
from reconcile.errors import Advice, JournalError, PartlyAppliedError, Remedy
from reconcile.plan.actions import REUSE_LOCK, SUBTREE
from reconcile.write.audit_journal import (
    JOURNAL,
    Approval,
    AuditJournal,
    JournalLine,
    Torn,
    read_at,
    report_foreign,
    scan,
)
from reconcile.write.guards import require_frozen
from reconcile.write.journal_events import (
    LOCK,
    Done,
    Event,
    Intent,
    OpenBatches,
    RefusedWrite,
    Undid,
    UndoBegun,
    UndoEnded,
    Undoing,
    UndoneWrite,
    append_event,
    read_event,
)
from reconcile.write.plan_actions import CREATES, RELEASE
from reconcile.write.writer import ChangeOutcome, RecordTarget, Writer, WriteStep, cut_transactions, settle_changes

LISTED: Final = 100
"""Keys left as they are that a result names; all are counted, and all are in the journal."""
_MADE: Final = frozenset({*CREATES, LOCK})
_REMOVED: Final = frozenset({"remove", RELEASE})
_UNDONE: Final = frozenset({*_MADE, *_REMOVED, "replace"})
_BELONGS: Final = "what belongs to it was left: a guard's lock and its record are taken back together"
_EVENTS_OF_APPLY: Final = frozenset({"begin", "intent", "done", "verified", "stopped", "end"})


@dataclass(frozen=True, slots=True)
class UndoProposal:
    """What an undo would do, as a person confirms it.

    Attributes:
        journal: the file.
        binding: what the journal belongs to.
        writes: of the apply, by kind and op; raised generators stay.
        created_ledgers: records of ledgers that it created.
        replaced_only: whether what was created stays.
        head: hash of the last line that the apply wrote.
    """

    journal: Path
    binding: Mapping[str, str]
    writes: Mapping[tuple[str, str], int]
    created_ledgers: int
    replaced_only: bool
    head: str

    @property
    def hash(self) -> str:
        """SHA-256 of what will be taken back, from which journal."""
        content = [dict(self.binding), self.head, self.replaced_only]
        return hashlib.sha256(json.dumps(content, separators=(",", ":"), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Left:
    """A key that was left as it is."""

    key: str
    op: str
    reason: str


@dataclass(frozen=True, slots=True)
class Undone:
    """What came of an undo, by the op of the apply: taken back now, taken back before, left; they add up to all."""

    done: Mapping[str, int]
    there: Mapping[str, int]
    left: Mapping[str, int]
    listed: tuple[Left, ...]

    @property
    def exit_code(self) -> int:
        """0: all is as it was before the apply; 6: something was left."""
        return PartlyAppliedError.exit_code if sum(self.left.values()) else 0


@dataclass(frozen=True, slots=True)
class _Reversal:
    """The taking back of one write of an apply that took effect.

    Attributes:
        seq: of the action.
        place: of the write in its batch.
        digest: SHA-256 of the value that the apply wrote.
        former: the value that was there before.
        version: that the apply's write left.
    """

    seq: int
    place: int
    op: str
    key: str
    digest: str | None
    former: bytes | None
    version: int

    @property
    def value(self) -> bytes | None:
        """What the key must have; None: it must be absent."""
        return None if self.op in _MADE else self.former

    @property
    def size(self) -> int:
        """Bytes that it adds to a transaction."""
        return len(self.value or b"") + len(self.key)

    def is_made(self, stored: Versioned | None) -> bool:
        """Whether what is there is what was there before the apply."""
        return stored is None if self.value is None else stored is not None and stored.value == self.value

    def find_objection(self, stored: Versioned | None) -> str | None:
        """Return why the write cannot be taken back; None if it can."""
        if self.op in _REMOVED:
            return None if stored is None else "it was made again since then"
        if stored is None:
            return "it was removed since then"
        if stored.version != self.version or hashlib.sha256(stored.value).hexdigest() != self.digest:
            return "it was changed since then"
        return None


@dataclass(slots=True)
class _History:
    """What a journal says, batch by batch; the writes themselves are read again when they are taken back.

    Attributes:
        spans: of each batch, the bytes at which its intent and its done begin.
        unfinished: actions that were announced, and of which no line says what became of them.
        writes: that took effect, by kind and op.
        binding: what the journal belongs to.
        head: hash of the last line of the apply.
        undos: hashes of the undos that were begun.
        guarded: actions that locks were made or removed for.
    """

    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    unfinished: set[int] = field(default_factory=set)
    writes: Counter[tuple[str, str]] = field(default_factory=Counter)
    binding: dict[str, str] = field(default_factory=dict)
    head: str = ""
    undos: list[str] = field(default_factory=list)
    guarded: set[int] = field(default_factory=set)
    _open: OpenBatches = field(default_factory=OpenBatches)
    _offsets: dict[int, int] = field(default_factory=dict)

    def replay(self, record: JournalLine) -> None:
        """Take one line of the journal, in order."""
        if record.number == 0:
            self.binding = {str(key): str(value) for key, value in (record.fields.get("binding") or {}).items()}
        match read_event(record):
            case Intent() as intent:
                self._open.open(intent)
                self._offsets[intent.batch] = record.offset
                self.unfinished.update(write.seq for write in intent.writes)
                if intent.kind == LOCK:
                    self.guarded.update(write.seq for write in intent.writes)
            case Done() as done:
                intent = self._open.close(done)
                self.spans[done.batch] = (self._offsets.pop(done.batch), record.offset)
                for write, version in zip(intent.writes, done.versions, strict=True):
                    self.unfinished.discard(write.seq)
                    if version is not None and write.op in _UNDONE:
                        self.writes[intent.kind, write.op] += 1
            case UndoBegun() as begun:
                self.undos.append(begun.hash)
            case _:
                pass
        if record.event in _EVENTS_OF_APPLY:
            self.head = record.hash


def _read_history(path: Path) -> _History:
    history = _History()
    with report_foreign(path):
        for record in scan(path):
            if isinstance(record, Torn):
                break
            history.replay(record)
    return history


def propose(folder: Path, store: MetadataStore, root: str, *, replaced_only: bool = False) -> UndoProposal:
    """Return what an undo would do; nothing is written.

    Args:
        folder: of the apply's journal.
        store: that the apply wrote to.
        root: key of the ledgers root.
        replaced_only: put back what was replaced, and leave what was created.

    Raises:
        JournalError: missing, altered, not of an apply, of another store or root, or not of a run that ended.
        GuardRefusedError: records were created, and bookies can list the store.
    """
    path = folder / JOURNAL
    history = _read_history(path)
    if "plan" not in history.binding:
        raise JournalError(str(path), "is not the journal of an apply", "name the folder that apply wrote it to")
    if history.binding.get("root") != root or history.binding.get("store") != store.uri:
        problem = f"is of {history.binding.get('root')} in {history.binding.get('store')}"
        raise JournalError(str(path), problem, "name the store that the apply wrote to")
    if history.unfinished:
        problem = "was broken off in a batch, so it does not know all that it wrote"
        raise JournalError(str(path), problem, Remedy(Advice.END_APPLY))
    # Bookies delete what has no record; of nodes of upper layers they know nothing.
    harmless = (SUBTREE, REUSE_LOCK)
    created = sum(count for (kind, op), count in history.writes.items() if op in CREATES and kind not in harmless)
    ledgers = sum(count for (kind, op), count in history.writes.items() if op in CREATES and kind == "ledger")
    if created and not replaced_only:
        require_frozen(store, root, ledgers)
    return UndoProposal(path, history.binding, history.writes, ledgers, replaced_only, history.head)


def undo(
    proposal: UndoProposal,
    store: MetadataStore,
    root: str,
    *,
    now: Callable[[], datetime],
    progress: Callable[[int, int], None] = lambda _done, _all: None,
    reason: str | None = None,
    approvals: Sequence[Approval] = (),
) -> Undone:
    """Take back what an apply wrote.

    Args:
        proposal: made just now, and confirmed.
        store: writable.
        root: key of the ledgers root.
        now: the clock; aware.
        progress: is called with (done, of all) after each batch.
        reason: why this is done, for the journal.
        approvals: who approved it, for the journal.

    Raises:
        JournalError: in use, altered, or cannot be written; nothing was written.
        BackendError: the store failed before anything was written.
        PartlyAppliedError: the store, or the journal, failed later.
    """
    with AuditJournal.open(
        proposal.journal.parent,
        proposal.binding,
        resume=True,
        now=now,
        replay=lambda _record: None,
        reason=reason,
        approvals=approvals,
    ) as opened:
        run = _Run(proposal, store, root.rstrip("/"), opened)
        try:
            return run.carry_out(progress)
        except (BackendError, JournalError) as error:
            if not run.writer.has_begun:
                raise
            raise PartlyAppliedError(
                str(opened.path), f"the undo ended midway ({error})", "fix that, then run the same command again"
            ) from error


def _make_write(reversal: _Reversal, key: str, stored: Versioned | None) -> Write:
    return Write(key, reversal.value, None if stored is None else stored.version)


class _Run:
    """One run of an undo."""

    def __init__(self, proposal: UndoProposal, store: MetadataStore, base: str, journal: AuditJournal) -> None:
        self.writer = Writer(journal)
        self._journal = journal
        self._proposal = proposal
        self._records: RecordTarget[_Reversal] = RecordTarget(store, base, _make_write)
        self._done: Counter[str] = Counter()
        self._there: Counter[str] = Counter()
        self._left: Counter[str] = Counter()
        self._listed: list[Left] = []
        self._guarded: set[int] = set()
        self._kept: set[int] = set()
        """Guarded actions of which something stays, so that all of it has to."""

    def carry_out(self, progress: Callable[[int, int], None]) -> Undone:
        """Take back batch by batch, the last first."""
        history = _read_history(self._proposal.journal)
        if history.head != self._proposal.head:
            problem = "an apply went on with it meanwhile"
            raise JournalError(str(self._journal.path), problem, "run it again, and look again")
        if self._proposal.hash not in history.undos:
            append_event(self._journal, UndoBegun(self._proposal.hash, not self._proposal.replaced_only))
        self._guarded = history.guarded
        for number in sorted(history.spans, reverse=True):
            reversals = [r for r in self._read_reversals(history.spans[number]) if self._is_wanted(r)]
            if reversals:
                self._take_back(number, reversals)
            progress(len(history.spans) - number, len(history.spans))
        result = Undone(dict(self._done), dict(self._there), dict(self._left), tuple(self._listed))
        append_event(self._journal, UndoEnded({"done": result.done, "there": result.there, "left": result.left}))
        self._journal.sync()
        return result

    def _is_wanted(self, reversal: _Reversal) -> bool:
        if self._proposal.replaced_only and reversal.op in CREATES:
            self._keep(reversal.seq)
            return False
        stays = self._proposal.replaced_only and reversal.op == LOCK and reversal.seq in self._kept
        return reversal.op in _UNDONE and not stays

    def _keep(self, seq: int) -> None:
        if seq in self._guarded:
            self._kept.add(seq)

    def _read_reversals(self, span: tuple[int, int]) -> Iterator[_Reversal]:
        """Yield what a batch of the apply wrote, the last write first."""
        path = self._proposal.journal
        intent, done = (read_event(read_at(path, offset)) for offset in span)
        if not (isinstance(intent, Intent) and isinstance(done, Done)):
            raise JournalError(str(path), "was changed while it was read", "keep it as evidence")
        refused = {refusal.place for refusal in done.conflicts}
        for place, (write, version) in reversed(list(enumerate(zip(intent.writes, done.versions, strict=True)))):
            if version is not None:
                former = None if write.replaced is None else base64.b64decode(write.replaced)
                yield _Reversal(write.seq, place, write.op, write.key, write.digest, former, version)
            elif intent.kind != LOCK and place not in refused:
                self._keep(write.seq)  # it was there before the apply, and stays

    def _take_back(self, number: int, batch: Sequence[_Reversal]) -> None:
        """Take back one batch of the apply."""
        stored = self._records.read(batch)
        left: list[RefusedWrite] = []
        writable: list[_Reversal] = []
        for reversal in batch:
            objection = reversal.find_objection(stored[reversal.key])
            if reversal.seq in self._kept:
                objection = _BELONGS
            if reversal.is_made(stored[reversal.key]):
                self._there[reversal.op] += 1
            elif objection is not None:
                left.append(self._leave(reversal, objection))
            else:
                writable.append(reversal)
        if writable:
            self.writer.carry_out([self._plan_step(number, writable, stored, left)])
        elif left:
            append_event(self._journal, Undid(number, left))

    def _plan_step(
        self,
        number: int,
        batch: Sequence[_Reversal],
        stored: Mapping[str, Versioned | None],
        left: Sequence[RefusedWrite],
    ) -> WriteStep[Mapping[str, ChangeOutcome]]:
        versions = {key: None if node is None else node.version for key, node in stored.items()}
        announced = [UndoneWrite(r.place, r.key, versions[r.key], r.op) for r in batch]

        def make() -> dict[str, ChangeOutcome]:
            outcomes: dict[str, ChangeOutcome] = {}
            # Former values may be much larger than those that replaced them.
            for transaction in cut_transactions(batch):
                outcomes |= settle_changes(self._records, transaction, stored)
            return outcomes

        def report(outcomes: Mapping[str, ChangeOutcome]) -> Event:
            refused = []
            for reversal in batch:
                conflict = outcomes[reversal.key].conflict
                if conflict is None:
                    self._done[reversal.op] += 1
                else:
                    refused.append(self._leave(reversal, conflict))
            return Undid(number, [*left, *refused])

        return WriteStep([Undoing(number, announced)], make, report)

    def _leave(self, reversal: _Reversal, reason: str) -> RefusedWrite:
        self._keep(reversal.seq)
        self._left[reversal.op] += 1
        if len(self._listed) < LISTED:
            self._listed.append(Left(reversal.key, reversal.op, reason))
        return RefusedWrite(reversal.place, reason)
