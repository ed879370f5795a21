"""Random histories of a restore: plans applied, killed, cut off, raced by others, gone on with and undone.

A schedule is drawn from a seed. Every write that takes effect is recorded with what it replaced, so that what must
never be can be looked for afterwards: somebody else's bytes overwritten, a write that took effect twice.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from backends.errors import BackendError, OutcomeUnknownError, UnavailableError, VersionConflictError
from backends.protocols import AccessControl, Acl, MetadataStore, Versioned, Write
from reconcile.errors import GuardRefusedError, JournalError, PartlyAppliedError
from reconcile.write import undo
from reconcile.write.apply import ApplyOptions, apply
from reconcile.write.audit_journal import JOURNAL, JournalLine, scan
from recovery.codecs.replication_lock import encode_guard
from tests.support.failing_stores import CrashError
from tests.support.plans import action, clock, plan_of

BATCH: Final = 3
LEDGERS: Final = tuple(f"/00/0000/L{n:04d}" for n in range(12))
LOCKS: Final = {key: f"/underreplication/locks/urL{n:010d}" for n, key in enumerate(LEDGERS)}
"""Key of each ledger's lock."""
_PLAN: Final = "5a" * 32
_OURS: Final = encode_guard(_PLAN)
_EARLIER: Final = encode_guard("7b" * 32)


@dataclass(frozen=True, slots=True)
class Effect:
    """One write that took effect: by whom, and what stood there, and beside it: a record's lock, or a lock's record."""

    by: str
    key: str
    before: bytes | None
    after: bytes | None
    beside: bytes | None = None


@dataclass(slots=True)
class Recorder:
    """A store through which both sides write; it strikes, or lets the other side in, where it is told to.

    Attributes:
        store: what keeps the keys.
        draw: decides what happens at each call; None: nothing.
        effects: every write that took effect, in order.
        partners: record → its lock, and lock → its record.
    """

    store: MetadataStore
    draw: Callable[[], str | None] = lambda: None
    effects: list[Effect] = field(default_factory=list)
    by: str = "apply"
    interfere: Callable[[], None] = lambda: None
    lock: threading.RLock = field(default_factory=threading.RLock)
    partners: Mapping[str, str] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        """As of the store."""
        return self.store.uri

    def _around(self, call: Callable[[], Any], *, writes: bool = False) -> Any:
        with self.lock:
            return self._struck(call, writes=writes)

    def _struck(self, call: Callable[[], Any], *, writes: bool) -> Any:
        match self.draw():
            case "rival":
                self.interfere()
            case "die before":
                raise CrashError
            case "die after":
                with suppress(BackendError):
                    call()
                raise CrashError
            case "cut before":
                raise OutcomeUnknownError("store", "cut") if writes else UnavailableError("store", "cut")
            case "cut after":
                with suppress(BackendError):
                    call()
                raise OutcomeUnknownError("store", "cut") if writes else UnavailableError("store", "cut")
            case _:
                pass
        return call()

    def get(self, key: str) -> Versioned | None:
        """As of the store."""
        found: Versioned | None = self._around(lambda: self.store.get(key))
        return found

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        """As of the store; a fault strikes between two keys."""
        for found in self.store.get_many(list(keys)):
            self._around(lambda: None)
            yield found

    def children(self, key: str) -> list[str] | None:
        """As of the store."""
        found: list[str] | None = self._around(lambda: self.store.children(key))
        return found

    def write(self, changes: Sequence[Write]) -> list[int]:
        """As of the store, with what it replaces recorded."""

        def call() -> list[int]:
            stood = dict(self.store.get_many([change.key for change in changes]))
            beside = {change.key: self.look(self.partners.get(change.key)) for change in changes}
            versions = self.store.write(changes)
            for change in changes:
                held = stood[change.key]
                value = held.value if held else None
                self.effects.append(Effect(self.by, change.key, value, change.value, beside[change.key]))
            return versions

        versions: list[int] = self._around(call, writes=True)
        return versions

    def look(self, key: str | None) -> bytes | None:
        """Return what stands at a key."""
        held = None if key is None else self.store.get(key)
        return None if held is None else held.value

    def raise_counter(self, key: str, beyond: int) -> int:
        """As of the store."""
        reached: int = self._around(lambda: self.store.raise_counter(key, beyond))
        return reached

    def close(self) -> None:
        """Leave it open."""


class ControlledRecorder(Recorder):
    """The same of a store with rights."""

    def get_acl(self, key: str) -> Acl | None:
        """As of the store, without faults."""
        assert isinstance(self.store, AccessControl)
        return self.store.get_acl(key)

    def set_acl(self, key: str, acl: str, *, expected: int) -> int:
        """As of the store, without faults."""
        assert isinstance(self.store, AccessControl)
        return self.store.set_acl(key, acl, expected=expected)


class Schedule:
    """One history, drawn from a seed, over a root that holds something already and is frozen."""

    def __init__(self, store: MetadataStore, root: str, folder: Path, seed: int, *, undoable: bool) -> None:
        self.random = random.Random(seed)
        self.root = root
        self.folder = folder
        self.recorder = ControlledRecorder(store) if isinstance(store, AccessControl) else Recorder(store)
        self.recorder.interfere = self._rival
        self.lock_of = {root + key: root + lock for key, lock in LOCKS.items()}
        self.record_of = {lock: key for key, lock in self.lock_of.items()}
        self.recorder.partners = self.lock_of | self.record_of
        self.undoable = undoable
        self.rivals: Counter[str] = Counter()
        self.store = store
        self._fill()
        self.table = plan_of(self._plan())
        self.planned = {root + row["key"]: row for row in self.table.to_pylist()}

    def _fill(self) -> None:
        full = self.random.sample(LEDGERS, 4)
        self.store.write([Write(self.root + key, b"hold " + key.encode()) for key in full])
        self.store.write([Write(self.root + LOCKS[key], _EARLIER) for key in full if self.random.random() < 0.5])
        self.store.write([Write(f"{self.root}/available/readonly", b""), Write(f"{self.root}/cookies", b"")])
        self.initial = {key: self._value(key) for key in self._keys()}
        self.versions = {key: held.version for key in self._keys() if (held := self.store.get(key)) is not None}

    def _keys(self) -> list[str]:
        own = ("/LAYOUT", "/INSTANCEID", "/cookies/b0")
        return [self.root + key for key in (*LEDGERS, *LOCKS.values(), *own)]

    def _value(self, key: str) -> bytes | None:
        held = self.store.get(key)
        return None if held is None else held.value

    def _plan(self) -> list[dict[str, Any]]:
        """Propose something for most ledgers: replaced where a hold stands, or (wrongly) created over it, or new."""
        rows = [action("generator", "raise", "/idgen", b"%d" % self.random.randrange(200))]
        for number, key in enumerate(LEDGERS):
            guard = self.random.choice((None, "lock", "lock", "release"))
            of = {"ledger": number, "guard": guard}
            kind, held = self.random.random(), self.initial[self.root + key]
            if held is not None and kind < 0.5:
                was = {"expects": self.versions[self.root + key], "before": held}
                rows.append(action("ledger", "replace", key, b"true " + key.encode(), **was, **of))
            elif held is not None and kind < 0.65:
                was = {"expects": self.versions[self.root + key], "before": held}
                rows.append(action("ledger", "remove", key, None, **was))
            elif kind < 0.9:
                op = self.random.choice(("create", "hold"))
                of["guard"] = guard if op == "create" and guard == "lock" else None
                rows.append(action("ledger", op, key, b"new " + key.encode(), **of))
        rows += [action("layout", "create", "/LAYOUT", b"layout"), action("instance_id", "create", "/INSTANCEID", b"i")]
        return [*rows, action("cookie", "create", "/cookies/b0", b"cookie")]

    def _rival(self) -> None:
        """Let somebody else create, change or remove a record or a lock, with the versions that stand there."""
        key = self.root + self.random.choice((*LEDGERS, *LOCKS.values()))
        held = self.store.get(key)
        value = None if held is not None and self.random.random() < 0.4 else b"rival %d" % self.random.randrange(10**9)
        with suppress(VersionConflictError):
            self.store.write([Write(key, value, None if held is None else held.version)])
            self.rivals[key] += 1
            self.recorder.effects.append(Effect("rival", key, held.value if held else None, value))

    def _draws(self, faults: int) -> Callable[[], str | None]:
        kinds = ("rival", "rival", "die before", "die after", "cut before", "cut after")
        at = {self.random.randrange(60): self.random.choice(kinds) for _ in range(faults)}
        calls = iter(range(10**9))
        return lambda: at.get(next(calls))

    def _apply(self) -> bool:
        """Run an apply; return whether it came to its end."""
        self.recorder.by = "apply"
        flying = self.random.choice((1, 3))
        options = ApplyOptions(_PLAN, resume=True, batch_rows=BATCH, in_flight=flying, patience_s=0)
        with suppress(CrashError, UnavailableError, PartlyAppliedError):
            apply(lambda: [self.table], self.recorder, self.root, self.folder, options, now=clock())
            return True
        return False

    def _undo(self) -> bool:
        """Run an undo; return whether it came to its end."""
        self.recorder.by = "undo"
        with suppress(CrashError, UnavailableError, PartlyAppliedError):
            proposal = undo.propose(self.folder, self.recorder, self.root)
            undo.undo(proposal, self.recorder, self.root, now=clock())
            return True
        return False

    def run(self) -> None:
        """Play it, and look for what must never be."""
        for _ in range(self.random.randrange(5)):
            self.recorder.draw = self._draws(self.random.randrange(1, 4))
            self._apply()
        self.recorder.draw = lambda: None
        assert self._apply()
        self._require_applied()
        if self.undoable:
            for _ in range(self.random.randrange(4)):
                self.recorder.draw = self._draws(self.random.randrange(1, 3))
                self._undo()
            self.recorder.draw = lambda: None
            assert self._undo()
            self._require_undone()
            with suppress(GuardRefusedError, JournalError):
                assert not self._apply()
        self._require_no_lost_update()
        records = [record for record in scan(self.folder / JOURNAL) if isinstance(record, JournalLine)]
        assert [record.number for record in records] == list(range(len(records)))

    def _require_applied(self) -> None:
        for key, row in self.planned.items():
            if row["op"] == "raise":
                held = self.store.get(key)
                assert held is not None
                assert (held.children_created or 0) > int(row["value"])
            elif row["kind"] == "ledger" and not self.rivals[key] + self.rivals[self.lock_of[key]]:
                wanted = row["value"] if row["op"] != "create" or self.initial[key] is None else self.initial[key]
                if row["op"] == "hold" and self.initial[key] is not None:
                    wanted = self.initial[key]
                assert self._value(key) == wanted, key
                lock = was = self.initial[self.lock_of[key]]
                if row["guard"] and wanted == row["value"]:
                    lock = None if row["guard"] == "release" else was or _OURS
                assert self._value(self.lock_of[key]) == lock, key

    def _require_undone(self) -> None:
        for key in self._keys():
            if not self.rivals[key] + self.rivals[self.recorder.partners.get(key, key)]:
                assert self._value(key) == self.initial[key], key

    def _require_guarded(self, effect: Effect) -> None:
        """A record stands under its lock from before it is written until after it is settled, or taken back."""
        record = self.record_of.get(effect.key, effect.key)
        row = self.planned[record]
        if self.rivals[record] + self.rivals[self.lock_of[record]]:
            # Ours stays out of what others hold.
            assert effect.key == record or not (effect.before or b"").startswith(b"rival"), effect
        elif effect.key == record:
            was = self.initial[self.lock_of[record]]
            assert effect.beside == (was if row["guard"] == "release" else was or _OURS), effect
        else:
            is_lock = row["guard"] == "lock"
            value = _OURS if is_lock else _EARLIER
            wanted = (None, value) if is_lock == (effect.by == "apply") else (value, None)
            assert (effect.before, effect.after) == wanted, effect
            assert effect.beside == (self.initial[record] if is_lock else row["value"]), effect

    def _require_no_lost_update(self) -> None:
        """Ours replaced only what it was to replace, and took effect once, or again after somebody took it away."""
        ours: Counter[tuple[str, str]] = Counter()
        last: dict[str, Effect] = {}
        for effect in self.recorder.effects:
            row = self.planned.get(effect.key)
            if row is not None and row["op"] == "raise":
                continue  # made, and then counted up, which no key's bytes show
            of = self.planned.get(self.record_of.get(effect.key, effect.key))
            if effect.by != "rival" and of is not None and of["guard"] is not None:
                self._require_guarded(effect)
            if effect.key in self.record_of:
                pass
            elif effect.by == "apply":
                assert row is not None
                wanted = None if row["op"] in ("create", "hold") else row["before"]
                assert (effect.before, effect.after) == (wanted, row["value"]), effect
            elif effect.by == "undo":
                assert row is not None
                assert effect.before == row["value"], effect
                assert effect.after == (None if row["op"] in ("create", "hold") else row["before"]), effect
            if effect.by != "rival":
                ours[effect.by, effect.key] += 1
                assert ours[effect.by, effect.key] <= 1 + self.rivals[effect.key], effect
            last[effect.key] = effect
        for key, effect in last.items():
            if effect.key in self.planned or effect.key in self.record_of or effect.by == "rival":
                assert self._value(key) == effect.after, effect
