"""Records of ledgers packed many to a node, changed by compare and set, together with other keys where that is wanted.

    <folder>/t             all ledgers, until they are too many for a node
    <folder>/t0, /t1, …    those whose place begins with these bits; a node that grows past 512 KiB is split into two
    place of a ledger      64 bits: its bucket (12 bits), then the rest of its hash (`recovery.model.ids.mix`)

The nodes of a folder always cover every place once: a split removes a node and makes its halves in one transaction, and
no node is removed otherwise. What a node has and what it must have may be more than a transaction takes: then it is
split as it is, until what comes has a node that it fits into.
"""

import base64
import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from backends.errors import UnavailableError
from backends.protocols import MetadataStore, Versioned, Write
from reconcile.deletes.nodes import ChangeableNode, NodeKind
from reconcile.errors import PartlyAppliedError
from reconcile.write.audit_journal import AuditJournal
from reconcile.write.journal_events import AnnouncedWrite, ApplyEnd, Done, Event, Intent, RefusedWrite
from reconcile.write.writer import ABSENT, ByKey, ChangeOutcome, Writer, WriteStep, settle_changes
from recovery.errors import FormatError
from recovery.model.ids import LedgerId, mix

NODE_BYTES: Final = 512 << 10
"""Of one node, at most: half of what a server takes in one request."""
FIRST: Final = "t"
_BITS: Final = 64
_BUCKET_BITS: Final = 12
TRANSACTION_BYTES: Final = 900_000
"""Of the values that are written together, at most: servers refuse a million, and fewer ledgers are changed then."""
_READ: Final = 4
"""Nodes that are asked for together: half a MiB each, which server and program hold whole."""
_ROUNDS: Final = 10
"""Times that a change is made again because somebody changed its node meanwhile."""

T = TypeVar("T")
Places = npt.NDArray[np.uint64]


class _TooMuchError(Exception):
    """What is decided of some ledgers does not fit into one transaction."""


@dataclass(frozen=True, slots=True)
class PackedDecision(Generic[T]):
    """What becomes of one ledger.

    Attributes:
        record: what its node must have; None: nothing.
        beside: writes of other keys in the same transaction.
        replaced: bytes that these writes remove or replace, for the journal, in their order.
    """

    record: T | None
    beside: tuple[Write, ...] = ()
    replaced: tuple[bytes | None, ...] = ()


Decide = Callable[[LedgerId, T | None], PackedDecision[T] | None]
"""Says what becomes of a ledger, from the record that its node has; None: nothing is changed."""


@dataclass(slots=True)
class Cost:
    """What changes cost a store: transactions, nodes written, bytes of these."""

    transactions: int = 0
    nodes: int = 0
    written_bytes: int = 0


class ChangeLog:
    """The journal of changes, and the writer that makes them by it.

    Attributes:
        cost: of what was written.
        journal: where it is recorded.
    """

    def __init__(self, journal: AuditJournal, first_batch: int) -> None:
        """Take a journal that is open for writing, and the number of the next batch in it."""
        self.cost = Cost()
        self.journal = journal
        self._writer = Writer(journal)
        self._batch = first_batch

    @property
    def has_begun(self) -> bool:
        """Whether anything may have been written."""
        return self._writer.has_begun

    def carry_out(
        self, store: MetadataStore, kind: str, writes: Sequence[Write], replaced: Mapping[str, bytes | None]
    ) -> ChangeOutcome:
        """Make writes in one transaction, all or none; return what became of them.

        Args:
            store: writable.
            kind: what they are of, for the journal.
            writes: the first has a value.
            replaced: values that are replaced or removed, for the journal.

        Raises:
            BackendError: the store failed.
            JournalError: the journal cannot be written.
        """
        transaction = _Transaction(tuple(writes))
        target = _Target(store)
        number = self._batch
        self._batch += 1
        result: list[ChangeOutcome] = []

        def report(outcome: ChangeOutcome) -> Event:
            result.append(outcome)
            refused = [] if outcome.conflict is None else [RefusedWrite(0, outcome.conflict)]
            made = [ABSENT if write.value is None else outcome.version for write in writes]
            return Done(number, [None] * len(writes) if refused else made, (), refused)

        def make() -> ChangeOutcome:
            return settle_changes(target, [transaction], is_whole=True)[transaction.key]

        announced = Intent(number, kind, _announce(writes, replaced))
        self._writer.carry_out([WriteStep([announced], make, report)])
        if result[0].conflict is None:
            self.cost.transactions += 1
            self.cost.nodes += sum(write.value is not None for write in writes)
            self.cost.written_bytes += sum(len(write.value or b"") for write in writes)
        return result[0]

    def end(self, counts: Mapping[str, int], exit_code: int) -> None:
        """Record how the run ended."""
        self.journal.append("end", ApplyEnd({name: [count] for name, count in counts.items()}, exit_code).encode())
        self.journal.sync()


def _announce(writes: Sequence[Write], replaced: Mapping[str, bytes | None]) -> list[AnnouncedWrite]:
    rows = []
    for place, write in enumerate(writes):
        op = "remove" if write.value is None else "create" if write.expected is None else "replace"
        digest = None if write.value is None else hashlib.sha256(write.value).hexdigest()
        stood = replaced.get(write.key)
        text = None if stood is None else base64.b64encode(stood).decode()
        rows.append(AnnouncedWrite(place, op, "", write.key, write.expected, digest, text))
    return rows


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is at the keys of a transaction."""

    version: int
    by_key: Mapping[str, Versioned | None]


@dataclass(frozen=True, slots=True)
class _Transaction:
    """Writes that are made together; whether they were is told by those that have values."""

    writes: tuple[Write, ...]

    @property
    def key(self) -> str:
        """The key that stands for it."""
        return self.writes[0].key

    def is_made(self, stored: _Seen | None) -> bool:
        """Whether what it writes is there."""
        if stored is None:
            return False
        standing = ((stored.by_key[write.key], write.value) for write in self.writes if write.value is not None)
        return all(node is not None and node.value == value for node, value in standing)

    def find_objection(self, stored: _Seen | None) -> str | None:
        """Return why it cannot be made."""
        for write in self.writes:
            node = None if stored is None else stored.by_key[write.key]
            version = None if node is None else node.version
            if version != write.expected:
                if node is None:
                    return f"{write.key} is gone"
                return f"{write.key} " + ("exists" if write.expected is None else "was changed")
        return None


class _Target:
    """A store, for transactions of absolute keys."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def make_absolute(self, key: str) -> str:
        """Return the key."""
        return key

    def read(self, changes: Sequence[_Transaction]) -> ByKey:
        """Return what is at the keys of each transaction."""
        seen = {}
        for change in changes:
            by_key = dict(self._store.get_many([write.key for write in change.writes]))
            versions = [node.version for node in by_key.values() if node is not None]
            seen[change.key] = _Seen(max(versions, default=ABSENT), by_key)
        return seen

    def send(self, changes: Sequence[_Transaction], stored: ByKey) -> None:
        """Make the one transaction."""
        del stored
        for change in changes:
            self._store.write(change.writes)


class PackedRecords(Generic[T]):
    """The records of one folder."""

    def __init__(self, store: MetadataStore, folder: str, kind: NodeKind[T], acl: str | None) -> None:
        """Take a store.

        Args:
            store: writable, if anything is changed.
            folder: key below which the nodes are.
            kind: of the nodes.
            acl: rights of the nodes that are made; None: the store has no rights.
        """
        self._store = store
        self._top, self._folder = folder, folder.rpartition("/")[2]
        self._kind = kind
        self._acl = acl

    def make_first(self) -> list[Write]:
        """Return the writes that make an empty folder."""
        return [
            Write(self._top, b"", None, self._acl),
            Write(f"{self._top}/{FIRST}", self._kind.encode([]), None, self._acl),
        ]

    def read_all(self, report: Callable[[str, FormatError], None] | None = None) -> Iterator[list[T]]:
        """Yield the records of each node.

        Args:
            report: is told the key of a node that is not ours to read, and why, and the others are read; None: raise.

        Raises:
            FormatError: a node is not ours to read.
            UnavailableError: nodes were split while they were read, again and again.
        """
        names = self._list_names()
        for name, stored in zip(names, self._read(names), strict=True):
            try:
                yield from (node.list_records() for node in self._open_down(name, stored))
            except FormatError as error:
                if report is None:
                    raise
                report(f"{self._top}/{name}", error)

    def read_some(self, ledgers: Sequence[LedgerId]) -> dict[LedgerId, T]:
        """Return the records that ledgers have."""
        wanted = set(ledgers)
        names = self._list_names()
        chosen = sorted({names[n] for n in _find_nodes(names, find_places(ledgers)).tolist()}) if names else []
        return {
            self._kind.find_ledger(record): record
            for name, stored in zip(chosen, self._read(chosen), strict=True)
            for node in self._open_down(name, stored)
            for record in node.list_records(wanted)
        }

    def read_sorted(self, ledgers: Sequence[LedgerId]) -> list[T]:
        """Return the records of ledgers, or all if none is named, in the order of their ids."""
        if ledgers:
            records = list(self.read_some(ledgers).values())
        else:
            records = [record for node in self.read_all() for record in node]
        return sorted(records, key=lambda record: self._kind.find_ledger(record).unsigned_key)

    def measure(self) -> tuple[int, int]:
        """Return how many nodes there are, and their bytes."""
        names = self._list_names()
        return len(names), sum(len(stored.value) for stored in self._read(names) if stored is not None)

    def _read(self, names: Sequence[str]) -> Iterator[Versioned | None]:
        for low in range(0, len(names), _READ):
            keys = [f"{self._top}/{name}" for name in names[low : low + _READ]]
            yield from (stored for _, stored in self._store.get_many(keys))

    def _open_down(self, name: str, stored: Versioned | None) -> Iterator[ChangeableNode[T]]:
        """Yield a node, or its halves where it was split after it was listed."""
        if stored is not None:
            yield ChangeableNode(self._kind, stored.value)
            return
        if len(name) > _BITS:
            raise UnavailableError(self._store.uri, f"{self._top}/{name} is gone")
        halves = [f"{name}0", f"{name}1"]
        for half, node in zip(halves, list(self._read(halves)), strict=True):
            yield from self._open_down(half, node)

    def _list_names(self) -> list[str]:
        """Return the names of the nodes by the places that they have."""
        names = [name for name in self._store.children(self._top) or () if not name.strip(FIRST + "01")]
        return sorted(names, key=_find_start)

    def change(
        self,
        ledgers: Sequence[LedgerId],
        decide: Decide[T],
        log: ChangeLog,
        *,
        rows: int,
        prepare: Callable[[Sequence[LedgerId]], None] = lambda _ledgers: None,
        done: Callable[[Sequence[LedgerId]], None] = lambda _ledgers: None,
    ) -> None:
        """Bring every ledger's record to what is decided of it; what somebody else changes meanwhile is decided again.

        Args:
            ledgers: which, each once.
            decide: is called once or more for each; what it raises ends the run with its batch unwritten.
            log: by which it is written.
            rows: ledgers in a transaction, at most.
            prepare: is told the ledgers of each batch before they are decided.
            done: is told the ledgers of each batch that came to its end.

        Raises:
            PartlyAppliedError: a node is changed by others all the time, or a key that goes with it is.
            BackendError: the store failed.
        """
        places = find_places(ledgers)
        order = np.argsort(places, kind="stable")
        open_ledgers = deque(ledgers[n] for n in order.tolist())
        open_places = deque(places[order].tolist())
        names = self._list_names()
        tries, most = 0, rows
        while open_ledgers:
            name = names[_find_nodes(names, np.array([open_places[0]], np.uint64))[0]]
            end = _find_start(name) + (1 << (_BITS - len(name) + 1))
            count = 0
            while count < min(most, len(open_places)) and open_places[count] < end:
                count += 1
            batch = [open_ledgers[n] for n in range(count)]
            prepare(batch)
            try:
                conflict, is_split = self._change_node(name, batch, decide, log)
                is_made, most = conflict is None, rows
            except _TooMuchError:
                most = max(count // 2, 1)
                if count > 1:
                    continue
                conflict, is_split, is_made = self._make_room(name, batch[0], log), True, False
            if conflict is not None:
                tries += 1
                if tries > _ROUNDS:
                    remedy = "see who else writes there, then run the same command again"
                    raise PartlyAppliedError(str(log.journal.path), f"stopped: {conflict}", remedy)
            if is_made:
                tries = 0
                for _ in range(count):
                    open_ledgers.popleft()
                    open_places.popleft()
                done(batch)
            if conflict is not None or is_split:
                names = self._list_names()

    def _change_node(
        self, name: str, batch: Sequence[LedgerId], decide: Decide[T], log: ChangeLog
    ) -> tuple[str | None, bool]:
        """Change the records of some ledgers of one node; return what was in the way, and whether it was split."""
        key = f"{self._top}/{name}"
        [stored] = self._read([name])
        if stored is None:
            return f"{key} is gone", False
        node = ChangeableNode(self._kind, stored.value)
        beside: list[Write] = []
        replaced: dict[str, bytes | None] = {}
        is_changed = False
        for ledger in batch:
            decision = decide(ledger, node.get(ledger))
            if decision is None:
                continue
            is_changed = True
            beside += decision.beside
            replaced.update((w.key, b) for w, b in zip(decision.beside, decision.replaced, strict=False))
            if decision.record is None:
                node.remove(ledger)
            else:
                node.put(decision.record)
        if not is_changed:
            return None, False
        own = self._write_node(name, stored.version, node)
        if sum(len(write.value or b"") for write in (*own, *beside)) > TRANSACTION_BYTES:
            raise _TooMuchError
        outcome = log.carry_out(self._store, self._folder, [*own, *beside], replaced)
        return outcome.conflict, outcome.conflict is None and len(own) > 1

    def _make_room(self, name: str, ledger: LedgerId, log: ChangeLog) -> str | None:
        """Split a node as it is, so that fewer records share one with a ledger's; return what was in the way.

        Raises:
            PartlyAppliedError: the node has no other record: nothing makes what comes fit.
        """
        [stored] = self._read([name])
        if stored is None:
            return f"{self._top}/{name} is gone"
        records = ChangeableNode(self._kind, stored.value).list_records()
        if all(self._kind.find_ledger(record) == ledger for record in records):
            problem = (
                f"stopped: what is kept of ledger {ledger} is more than a transaction takes, {TRANSACTION_BYTES} bytes"
            )
            remedy = "name the other ledgers only, or take that one's delete back"
            raise PartlyAppliedError(str(log.journal.path), problem, remedy)
        writes = self._replace(name, stored.version, self._halve(name, records))
        return log.carry_out(self._store, self._folder, writes, {}).conflict

    def _write_node(self, name: str, version: int, node: ChangeableNode[T]) -> list[Write]:
        """Return the writes that give a node its records: one, or more where it is split."""
        value = node.encode()
        if len(value) <= NODE_BYTES:
            return [Write(f"{self._top}/{name}", value, version)]
        return self._replace(name, version, self._split(name, node.list_records()))

    def _replace(self, name: str, version: int, leaves: Iterable[tuple[str, list[T]]]) -> list[Write]:
        """Return the writes that put others in the place of a node."""
        fresh = [Write(f"{self._top}/{leaf}", self._kind.encode(part), None, self._acl) for leaf, part in leaves]
        return [*fresh, Write(f"{self._top}/{name}", None, version)]

    def _split(self, name: str, records: list[T]) -> Iterator[tuple[str, list[T]]]:
        """Yield the nodes that take the place of one, each with its records, none too large if that can be helped."""
        for half, part in self._halve(name, records):
            if len(part) > 1 and len(self._kind.encode(part)) > NODE_BYTES:
                yield from self._split(half, part)
            else:
                yield half, part

    def _halve(self, name: str, records: list[T]) -> Iterator[tuple[str, list[T]]]:
        """Yield the names of a node's halves with the records of each."""
        places = find_places([self._kind.find_ledger(record) for record in records])
        bit = np.uint64(_BITS - len(name))
        upper = ((places >> bit) & np.uint64(1)).astype(bool)
        for digit, chosen in (("0", ~upper), ("1", upper)):
            yield name + digit, [records[n] for n in np.flatnonzero(chosen).tolist()]


def find_places(ledgers: Sequence[LedgerId]) -> Places:
    """Return the place of each ledger: its bucket in the upper bits, the rest of its hash below."""
    ids = np.array([(ledger.scope, ledger.ledger) for ledger in ledgers], np.int64).reshape(-1, 2)
    hashes = mix(np.ascontiguousarray(ids[:, 0]), np.ascontiguousarray(ids[:, 1]))
    places: Places = (hashes << np.uint64(_BITS - _BUCKET_BITS)) | (hashes >> np.uint64(_BUCKET_BITS))
    return places


def _find_start(name: str) -> int:
    """Return the first place of a node."""
    bits = name.removeprefix(FIRST)
    return int(bits, 2) << (_BITS - len(bits)) if bits else 0


def _find_nodes(names: Sequence[str], places: Places) -> npt.NDArray[np.intp]:
    """Return for each place which of the nodes, in the order of `_list_names`, it is in."""
    starts = np.array([_find_start(name) for name in names], np.uint64)
    nodes: npt.NDArray[np.intp] = np.searchsorted(starts, places, side="right") - 1
    return nodes
