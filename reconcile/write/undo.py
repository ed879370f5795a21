"""What an apply wrote, taken back by its journal: records that it replaced put back, records that it created removed.

    was written    is taken back                              where
    replace        the former bytes are written               the key has the bytes and the version that were written
    remove         the key is created with its former bytes   it is absent
    create, hold   the key is removed                         as for replace, and the store is frozen
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
from typing import Any, Final

from backends.errors import (
    BackendError,
    NotEmptyError,
    OutcomeUnknownError,
    UnavailableError,
    VersionConflictError,
)
from backends.protocols import MetadataStore, Versioned, Write
from reconcile.errors import GuardRefusedError, JournalError, PartlyAppliedError
from reconcile.write.audit_journal import JOURNAL, Journal, Torn, read_at, scan, taking
from reconcile.write.freeze_state import is_frozen

LISTED: Final = 100
"""Keys left as they are that a result names; all are counted, and all are in the journal."""
_CREATED: Final = frozenset({"create", "hold"})
_UNDONE: Final = frozenset({*_CREATED, "replace", "remove"})
_OF_AN_APPLY: Final = frozenset({"begin", "intent", "done", "verified", "stopped", "end"})
_ROUNDS: Final = 10


@dataclass(frozen=True, slots=True)
class Proposal:
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
class _Wrote:
    """One write of an apply that took effect."""

    place: int
    kind: str
    op: str
    key: str
    digest: str | None
    before: bytes | None
    version: int


@dataclass(slots=True)
class _Past:
    """What a journal says, batch by batch; the writes themselves are read again when they are taken back.

    Attributes:
        spans: of each batch, where its intent and its done stand.
        unfinished: actions that were announced, and of which nothing says what became of them.
        writes: that took effect, by kind and op.
        head: of the last line of the apply.
        begun: hashes of the undos that were begun.
    """

    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    unfinished: set[int] = field(default_factory=set)
    writes: Counter[tuple[str, str]] = field(default_factory=Counter)
    binding: dict[str, str] = field(default_factory=dict)
    head: str = ""
    begun: list[str] = field(default_factory=list)


def _read(path: Path) -> _Past:
    with taking(path):
        return _taken(path)


def _taken(path: Path) -> _Past:
    past = _Past()
    intents: dict[int, tuple[int, str, list[tuple[int, str]]]] = {}
    for record in scan(path):
        if isinstance(record, Torn):
            break
        if record.number == 0:
            past.binding = {str(key): str(value) for key, value in (record.fields.get("binding") or {}).items()}
        match record.event:
            case "intent":
                writes = [(int(row[0]), str(row[1])) for row in record.fields["writes"]]
                intents[record.fields["batch"]] = (record.offset, record.fields["kind"], writes)
                past.unfinished.update(seq for seq, _ in writes)
            case "done":
                offset, kind, writes = intents.pop(record.fields["batch"])
                past.spans[record.fields["batch"]] = (offset, record.offset)
                for (seq, op), version in zip(writes, record.fields["versions"], strict=True):
                    past.unfinished.discard(seq)
                    if version is not None and op in _UNDONE:
                        past.writes[kind, op] += 1
            case "undo":
                past.begun.append(record.fields["hash"])
            case _:
                pass
        if record.event in _OF_AN_APPLY:
            past.head = record.hash
    return past


def propose(folder: Path, store: MetadataStore, root: str, *, replaced_only: bool = False) -> Proposal:
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
    past = _read(path)
    if "plan" not in past.binding:
        raise JournalError(str(path), "is not the journal of an apply", "name the folder that apply wrote it to")
    if past.binding.get("root") != root or past.binding.get("store") != store.uri:
        problem = f"is of {past.binding.get('root')} in {past.binding.get('store')}"
        raise JournalError(str(path), problem, "name the store that the apply wrote to")
    if past.unfinished:
        problem = "was broken off in a batch, so it does not know all that it wrote"
        raise JournalError(str(path), problem, "let it come to its end first: bkmeta apply … --resume")
    created = sum(count for (_, op), count in past.writes.items() if op in _CREATED)
    ledgers = sum(count for (kind, op), count in past.writes.items() if op in _CREATED and kind == "ledger")
    if created and not replaced_only and not is_frozen(store, root).frozen:
        raise GuardRefusedError(
            root,
            f"is not frozen: bookies would delete the {ledgers} ledgers whose records the undo removes",
            "freeze it first (bkmeta freeze; a store without rights cannot be), or put back only what was replaced: "
            "--replaced-only",
        )
    return Proposal(path, past.binding, past.writes, ledgers, replaced_only, past.head)


def undo(
    proposal: Proposal,
    store: MetadataStore,
    root: str,
    *,
    now: Callable[[], datetime],
    progress: Callable[[int, int], None] = lambda _done, _all: None,
    reason: str | None = None,
) -> Undone:
    """Take back what an apply wrote.

    Args:
        proposal: made just now, and confirmed.
        store: writable.
        root: key of the ledgers root.
        now: the clock; aware.
        progress: is told (done, of all) after each batch.
        reason: why this is done, for the journal.

    Raises:
        JournalError: in use, altered, or cannot be written; nothing was written.
        BackendError: the store failed before anything was written.
        PartlyAppliedError: the store, or the journal, failed later.
    """
    run = _Run(proposal, store, root.rstrip("/"), progress)
    with Journal.open(
        proposal.journal.parent, proposal.binding, resume=True, now=now, replay=lambda _record: None, reason=reason
    ) as opened:
        try:
            return run.carry_out(opened)
        except (BackendError, JournalError) as error:
            if not run.begun:
                raise
            raise PartlyAppliedError(
                str(opened.path), f"the undo ended midway ({error})", "mend that, then run the same command again"
            ) from error


class _Run:
    def __init__(
        self, proposal: Proposal, store: MetadataStore, base: str, progress: Callable[[int, int], None]
    ) -> None:
        self.begun = False
        self._proposal = proposal
        self._store = store
        self._base = base
        self._progress = progress
        self._done: Counter[str] = Counter()
        self._there: Counter[str] = Counter()
        self._left: Counter[str] = Counter()
        self._listed: list[Left] = []

    def carry_out(self, journal: Journal) -> Undone:
        past = _read(self._proposal.journal)
        if past.head != self._proposal.head:
            raise JournalError(str(journal.path), "an apply went on with it meanwhile", "run it again, and look again")
        if self._proposal.hash not in past.begun:
            removes = not self._proposal.replaced_only
            journal.append("undo", {"hash": self._proposal.hash, "removes": removes})
        for number in sorted(past.spans, reverse=True):
            wrote = [one for one in self._wrote(past.spans[number]) if self._is_wanted(one)]
            if wrote:
                self._take_back(number, wrote, journal)
            self._progress(len(past.spans) - number, len(past.spans))
        result = Undone(dict(self._done), dict(self._there), dict(self._left), tuple(self._listed))
        counts = {"done": result.done, "there": result.there, "left": result.left}
        journal.append("undone", {"counts": counts})
        journal.sync()
        return result

    def _is_wanted(self, wrote: _Wrote) -> bool:
        return wrote.op in _UNDONE and not (self._proposal.replaced_only and wrote.op in _CREATED)

    def _wrote(self, span: tuple[int, int]) -> Iterator[_Wrote]:
        """Yield what a batch of the apply wrote, the last first."""
        intent, done = (read_at(self._proposal.journal, at) for at in span)
        versions = done.fields["versions"]
        for place, (row, version) in reversed(list(enumerate(zip(intent.fields["writes"], versions, strict=True)))):
            if version is not None:
                _, op, _, key, _, digest, replaced = row
                before = None if replaced is None else base64.b64decode(replaced)
                yield _Wrote(place, intent.fields["kind"], op, key, digest, before, version)

    def _take_back(self, number: int, batch: Sequence[_Wrote], journal: Journal) -> None:
        held = self._held(batch)
        open_ones = [wrote for wrote in batch if not _is_back(wrote, held[wrote.key])]
        for wrote in batch:
            if wrote not in open_ones:
                self._there[wrote.op] += 1
        left: list[list[Any]] = []
        writable = []
        for wrote in open_ones:
            reason = _objection(wrote, held[wrote.key])
            if reason is None:
                writable.append(wrote)
            else:
                left.append([wrote.place, reason])
                self._leave(wrote, reason)
        if writable:
            journal.append(
                "undoing",
                {"batch": number, "writes": [[w.place, w.key, _version(held[w.key]), w.op] for w in writable]},
            )
            journal.sync()
            self.begun = True
            left += self._write(writable, held)
        if open_ones:
            journal.append("undid", {"batch": number, "left": left})

    def _leave(self, wrote: _Wrote, reason: str) -> None:
        self._left[wrote.op] += 1
        if len(self._listed) < LISTED:
            self._listed.append(Left(wrote.key, wrote.op, reason))

    def _held(self, batch: Sequence[_Wrote]) -> dict[str, Versioned | None]:
        wanted = {self._base + wrote.key: wrote.key for wrote in batch}
        return {wanted[key]: held for key, held in self._store.get_many(wanted)}

    def _write(self, batch: list[_Wrote], held: Mapping[str, Versioned | None]) -> list[list[Any]]:
        """Bring every write of a batch to its end; nothing counts as taken back before it was read."""
        left: list[list[Any]] = []
        lost: OutcomeUnknownError | None = None
        for _ in range(_ROUNDS):
            lost = None
            changes = [
                Write(self._base + wrote.key, _wanted(wrote), None if (now := held[wrote.key]) is None else now.version)
                for wrote in batch
            ]
            try:
                self._store.write(changes)
            except OutcomeUnknownError as error:
                lost = error
            except NotEmptyError as error:
                # Somebody put something below it: a bookie that registered.
                full = [wrote for wrote in batch if self._base + wrote.key == error.key]
                for wrote in full:
                    left.append([wrote.place, "something stands below it"])
                    self._leave(wrote, "something stands below it")
                batch = [wrote for wrote in batch if wrote not in full]
            except VersionConflictError:
                pass  # which of them changed shows the reading
            held = self._held(batch)
            rest = []
            for wrote in batch:
                reason = _objection(wrote, held[wrote.key])
                if _is_back(wrote, held[wrote.key]):
                    self._done[wrote.op] += 1
                elif reason is None:
                    rest.append(wrote)
                else:
                    left.append([wrote.place, reason])
                    self._leave(wrote, reason)
            batch = rest
            if not batch:
                return left
        if lost is not None:
            raise UnavailableError(lost.store, f"{_ROUNDS} writes in a row had no answer") from lost
        for wrote in batch:
            left.append([wrote.place, "somebody changes it all the time"])
            self._leave(wrote, "somebody changes it all the time")
        return left


def _wanted(wrote: _Wrote) -> bytes | None:
    return None if wrote.op in _CREATED else wrote.before


def _version(held: Versioned | None) -> int | None:
    return None if held is None else held.version


def _is_back(wrote: _Wrote, held: Versioned | None) -> bool:
    """Whether what stands there is what stood there before the apply."""
    wanted = _wanted(wrote)
    return held is None if wanted is None else held is not None and held.value == wanted


def _objection(wrote: _Wrote, held: Versioned | None) -> str | None:
    """Return why a write cannot be taken back; None if it can."""
    if wrote.op == "remove":
        return None if held is None else "somebody made it again"
    if held is None:
        return "somebody removed it"
    if held.version != wrote.version or hashlib.sha256(held.value).hexdigest() != wrote.digest:
        return "somebody changed it since"
    return None
