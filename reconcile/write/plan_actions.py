"""The actions of a plan as apply reads them: one reading refuses what is not a plan, and counts the rest.

op            is done where                                  is written where
create, hold  the key has the value                          it is absent
keep          a lock of an id that two ledgers have is there the key is absent
replace       the key has the value                          its version, and its bytes, are the expected ones
remove        the key is absent                              the same
raise         sequential children are numbered above value   they are not
leave         always                                         never: it waits for a person's choice

guard of an action    makes besides, of kind lock      where
lock                  lock, before the record          the key is absent; a guard's lock there already is as good
release               release, after the record        a guard's lock is there
"""

import itertools
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backends.protocols import Versioned, parse_acl
from reconcile.errors import PlanError
from reconcile.plan.actions import KEEP, LEAVE, PHASES, SUBTREE, Guard
from reconcile.write.journal_events import LOCK
from reconcile.write.writer import cut_transactions
from recovery.codecs import replication_lock
from recovery.codecs import store as keys
from recovery.model.ids import LedgerId

COUNTER_END: Final = (1 << 31) - 2
"""The highest number that a counter can be raised past: names are numbered by a signed 32-bit integer."""
CREATES: Final = frozenset({"create", "hold", KEEP})
CHANGES: Final = frozenset({"replace", "remove"})
RAISE: Final = "raise"
RELEASE: Final = "release"
"""Op of the writes that remove locks."""
_OPS: Final = (*sorted(CREATES | CHANGES), RAISE)
_WITH_VALUE: Final = (*sorted(CREATES), "replace", RAISE)
_PROPER_KEY: Final = r"^/?(/[^/\x00-\x1f\x{7f}-\x{9f}\x{e000}-\x{f8ff}\x{fff0}-\x{10ffff}]+)+$"
"""What ZooKeeper takes for a path, but for ``.`` and ``..``; etcd takes anything. Two slashes: not below the root."""

Actions = Callable[[], Iterable[pa.Table]]
"""Gives all of the plan's ACTIONS in batches sorted by seq, from the start each time that it is called."""


@dataclass(frozen=True, slots=True)
class Action:
    """One row of ACTIONS, or the making or the removal of the lock that belongs to one."""

    seq: int
    op: str
    kind: str
    id: bytes
    key: str
    value: bytes | None
    acl: str | None
    expects: int | None
    before: bytes | None
    guard: str | None = None
    scope: int | None = None
    ledger: int | None = None

    def __repr__(self) -> str:
        """Without the value: it may hold a password."""
        return f"Action({self.seq}, {self.op} {self.kind} {self.key})"

    @property
    def size(self) -> int:
        """Bytes that it adds to a transaction."""
        return len(self.value or b"") + len(self.key)

    def is_made(self, stored: Versioned | None) -> bool:
        """Whether what is at the key is what the action wants."""
        if self.op == RAISE:
            return stored is not None and (stored.children_created or 0) > read_counter(self)
        if self.op == "remove":
            return stored is None
        if self.kind == LOCK:
            return is_guard(stored) == (self.op == LOCK)
        if self.op == KEEP:
            return stored is not None and replication_lock.read_reuse_end(stored.value, stored.owner) is not None
        return stored is not None and stored.value == self.value

    def find_objection(self, stored: Versioned | None) -> str | None:
        """Return why what is at the key forbids the write; None if it can be made."""
        if self.op == KEEP:
            return None if stored is None else f"{name_holder(stored)} holds it"
        if self.op in CREATES:
            return None if stored is None else "other bytes are there"
        if self.kind == LOCK:
            return None if stored is None or self.op == RELEASE else f"{name_holder(stored)} holds it"
        if stored is None:
            return "it is absent"
        if stored.version != self.expects:
            return f"it has version {stored.version}, not {self.expects}"
        return None if self.before in (None, stored.value) else "its bytes are not those that were to be replaced"


_COLUMNS: Final = (
    "seq",
    "op",
    "kind",
    "id",
    "key",
    "value",
    "acl",
    "expects",
    "before",
    "guard",
    "scope",
    "ledger",
)


def read_actions(table: pa.Table) -> Iterator[Action]:
    """Yield the rows of a table."""
    for row in zip(*(table[name].to_pylist() for name in _COLUMNS), strict=True):
        yield Action(*row)


def is_guard(stored: Versioned | None) -> bool:
    """Whether what is at a lock's key is the lock of a guard."""
    return stored is not None and replication_lock.is_guard(stored.value, stored.owner)


def name_holder(stored: Versioned) -> str:
    """Return who holds a lock, for people."""
    return replication_lock.decode_holder(stored.value) or "a client without a name"


def make_lock(action: Action, value: bytes) -> Action:
    """Return the making of the lock under which an action's record is written."""
    return replace(action, op=LOCK, kind=LOCK, key=_lock_key(action), value=value, expects=None, before=None)


def make_release(action: Action) -> Action:
    """Return the removal of the lock that ends when an action's record is written."""
    return replace(action, op=RELEASE, kind=LOCK, key=_lock_key(action), value=None, expects=None, before=None)


def _lock_key(action: Action) -> str:
    if action.scope is None or action.ledger is None:
        raise AssertionError("guards are of ledgers")
    kind = keys.store_kind_of(action.key)
    if not kind.has_replication:
        problem = f"{kind.name} has no locks that would guard it"
        raise PlanError(action.key, problem, "make the plan again with this store")
    return replication_lock.lock_key(LedgerId(action.scope, action.ledger))


def read_counter(action: Action) -> int:
    """Return the number that a counter is to be raised past.

    Raises:
        PlanError: it is not a number, or too high.
    """
    text = (action.value or b"").decode(errors="replace")
    if not (text.isascii() and text.isdigit() and int(text) <= COUNTER_END):
        raise PlanError(action.key, f"no counter can be raised past {text[:40]!r}", "make the plan again")
    return int(text)


@dataclass(frozen=True, slots=True)
class PlanSurvey:
    """What a plan has, from one reading of it.

    Attributes:
        planned: actions of the wave by kind and op.
        fixed: LAYOUT and instance ids, of any wave.
        acls: every ACL that the plan names.
        before: seq of the last action of the waves before; -1 if there is none.
        last: seq of the last action of the wave.
        read_back: actions of the wave and of those before it, but for cookies; a lock beside its record.
        locks: keys of the wave's locks, as many as any store takes and one more.
    """

    planned: Mapping[tuple[str, str], int]
    fixed: tuple[Action, ...]
    acls: frozenset[str]
    before: int
    last: int
    read_back: int
    locks: frozenset[str] = frozenset()

    @property
    def steps(self) -> int:
        """Writes, and the second reading of all but cookies."""
        return sum(self.planned.values()) + self.read_back


def skip_left_alone(actions: Actions) -> Actions:
    """Leave out the actions that write nothing."""
    return lambda: (table.filter(pc.not_equal(table["op"], LEAVE)) for table in actions())


def survey_plan(actions: Actions, wave: int | None) -> PlanSurvey:
    """Read a plan once, and refuse what is not a plan.

    Args:
        actions: without those that write nothing.
        wave: of a plan that was cut; None: all of it.

    Raises:
        PlanError: an action is out of order, or lacks what its op needs, or names no ACL that can be read.
    """
    planned: Counter[tuple[str, str]] = Counter()
    fixed: list[Action] = []
    acls: set[str] = set()
    seq, phase, wave_number = -1, 0, 0
    last_before, last, read_back = -1, -1, 0
    locks: set[str] = set()
    for table in actions():
        if not table.num_rows:
            continue
        _require_order(table, seq, phase)
        if wave is not None:
            behind = pa.array(np.diff(table["wave"].to_numpy(), prepend=wave_number) < 0)
            _refuse(table, behind, "it comes after its wave")
        seq, phase = table["seq"][-1].as_py(), PHASES[table["kind"][-1].as_py()]
        wave_number = table["wave"][-1].as_py()
        _require_fields(table)
        acls.update(acl for acl in pc.unique(table["acl"]).to_pylist() if acl is not None)
        chosen, so_far = select_wave(table, wave), select_up_to_wave(table, wave)
        for row in chosen.group_by(["kind", "op"]).aggregate([([], "count_all")]).to_pylist():
            planned[row["kind"], row["op"]] += row["count_all"]
        for guard, op in ((Guard.LOCK, LOCK), (Guard.RELEASE, RELEASE)):
            guarded = chosen.filter(pc.equal(chosen["guard"], guard))
            if guarded.num_rows:
                planned[LOCK, op] += guarded.num_rows
            if op == LOCK and len(locks) <= replication_lock.MAX_LOCKS:
                locks.update(_lock_key(action) for action in read_actions(guarded))
        kept = chosen.filter(pc.equal(chosen["op"], KEEP))
        locks.update(kept["key"].slice(0, replication_lock.MAX_LOCKS + 1).to_pylist())
        read_back += pc.sum(pc.not_equal(so_far["kind"], "cookie")).as_py() or 0
        read_back += pc.sum(pc.equal(so_far["guard"], Guard.LOCK)).as_py() or 0
        if so_far.num_rows > chosen.num_rows:
            last_before = so_far["seq"][so_far.num_rows - chosen.num_rows - 1].as_py()
        if chosen.num_rows:
            last = chosen["seq"][-1].as_py()
        fixed += read_actions(table.filter(pc.is_in(table["kind"], pa.array(["layout", "instance_id"]))))
        for action in read_actions(table.filter(pc.equal(table["op"], RAISE))):
            read_counter(action)
    for acl in acls:
        require_acl(acl)
    return PlanSurvey(planned, tuple(fixed), frozenset(acls), last_before, last, read_back, frozenset(locks))


def require_acl(acl: str) -> None:
    """Refuse text that is no ACL.

    Raises:
        PlanError: it is none.
    """
    try:
        parse_acl(acl)
    except ValueError as error:
        raise PlanError("rights", str(error), "write them as scheme:id:perms,…") from error


def select_wave(table: pa.Table, wave: int | None) -> pa.Table:
    """Return the actions of one wave; of all, where none is chosen."""
    return table if wave is None else table.filter(pc.equal(table["wave"], wave))


def select_up_to_wave(table: pa.Table, wave: int | None) -> pa.Table:
    """Return the actions of one wave and of those before it; of all, where none is chosen."""
    return table if wave is None else table.filter(pc.less_equal(table["wave"], wave))


def _require_order(table: pa.Table, seq: int, phase: int) -> None:
    places = pc.index_in(table["kind"], pa.array(list(PHASES)))
    if places.null_count:
        _refuse(table, pc.is_null(places), "its kind is not known")
    phases = np.array(list(PHASES.values()))[places.to_numpy()]
    numbers = table["seq"].to_numpy()
    behind = (np.diff(numbers, prepend=seq) <= 0) | (np.diff(phases, prepend=phase) < 0)
    _refuse(table, pa.array(behind), "it is out of order")


def _require_fields(table: pa.Table) -> None:
    op, kind = table["op"], table["kind"]
    is_raise = pc.equal(op, RAISE)
    changes = pc.is_in(op, pa.array(sorted(CHANGES)))
    _refuse(table, pc.invert(pc.is_in(op, pa.array(_OPS))), "its op is not known")
    is_counter = pc.is_in(kind, pa.array(["generator", SUBTREE]))
    _refuse(table, pc.and_(is_raise, pc.invert(is_counter)), "only a generator can be raised")
    _refuse(
        table, pc.xor(changes, pc.is_valid(table["expects"])), "it must name a version if and only if it changes one"
    )
    _refuse(
        table, pc.xor(pc.is_in(op, pa.array(_WITH_VALUE)), pc.is_valid(table["value"])), "it lacks a value, or has one"
    )
    known = pc.is_in(table["guard"], pa.array([None, *Guard], pa.string()))
    _refuse(table, pc.invert(known), "its guard is not known")
    is_guarded = pc.is_valid(table["guard"])
    of_ledger = pc.and_(pc.equal(kind, "ledger"), pc.and_(pc.is_valid(table["scope"]), pc.is_valid(table["ledger"])))
    writes_record = pc.and_(of_ledger, pc.is_in(op, pa.array(["create", "replace"])))
    _refuse(table, pc.and_not(is_guarded, writes_record), "only a ledger's record is guarded")
    key = table["key"]
    proper = pc.match_substring_regex(key, _PROPER_KEY)
    is_outside = pc.starts_with(key, "//")
    _refuse(table, pc.xor(is_outside, pc.equal(kind, SUBTREE)), "its key is not one of its kind")
    climbs = pc.match_substring_regex(key, r"/\.{1,2}(/|$)")
    proper = pc.and_not(proper, climbs)
    _refuse(table, pc.invert(pc.or_(proper, pc.and_(is_raise, pc.equal(key, keys.ROOT)))), "its key is none")


def _refuse(table: pa.Table, is_bad: pa.Array, problem: str) -> None:
    refused = table["key"].filter(is_bad)
    if len(refused):
        raise PlanError(str(refused[0].as_py()), problem, "make the plan again")


def read_written(actions: Actions, wave: int | None, left: Container[int]) -> Iterator[Action]:
    """Yield what is in a store where all phases before cookies were written, a lock before its record.

    Args:
        actions: of the plan.
        wave: up to which it was written; None: all of it.
        left: seqs of actions that were not written.
    """
    for table in actions():
        written = select_up_to_wave(table, wave)
        for action in read_actions(written.filter(pc.not_equal(written["kind"], "cookie"))):
            if action.seq not in left:
                yield from (make_lock(action, b""),) if action.guard == Guard.LOCK else ()
                yield action


def cut_batches(actions: Iterable[Action], rows: int) -> Iterator[list[Action]]:
    """Cut actions into transactions: of one lane, each key once; a counter is raised by itself."""
    for (*_, manner), alike in itertools.groupby(actions, lambda action: (_find_lane(action), _find_manner(action))):
        yield from cut_transactions(alike, 1 if manner == RAISE else rows)


def gather_windows(batches: Iterable[list[Action]], size: int) -> Iterator[list[list[Action]]]:
    """Gather batches that may be under way at once: of ledgers, or of nodes of one depth, and no key twice."""
    window: list[list[Action]] = []
    taken: set[str] = set()
    for batch in batches:
        batch_keys = {action.key for action in batch}
        is_alone = batch[0].kind not in ("ledger", SUBTREE) or batch[0].op == RAISE
        is_apart = bool(window) and _find_lane(window[0][0]) != _find_lane(batch[0])
        if window and (is_alone or is_apart or len(window) >= size or not taken.isdisjoint(batch_keys)):
            yield window
            window, taken = [], set()
        window.append(batch)
        taken |= batch_keys
        if is_alone:
            yield window
            window, taken = [], set()
    if window:
        yield window


def _find_lane(action: Action) -> tuple[str, int]:
    """Return what actions have in common that may be written in any order: a node's parent is of another lane."""
    return action.kind, action.key.count("/") if action.kind == SUBTREE else 0


def _find_manner(action: Action) -> str:
    return RAISE if action.op == RAISE else "create" if action.op in CREATES else "change"
