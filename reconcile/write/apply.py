"""A plan's actions written to a store: nothing over anything, journalled before and after, read back, in phases.

    phase  kinds                 before it begins
    1      generator
    2      ledger
    3      node, layout
    4      instance_id
    5      cookie                every write of the phases before is read back once more; withheld if one differs

    op            is done where                                  is written where
    create, hold  the key has the value                          it is absent
    replace       the key has the value                          its version, and its bytes, are the expected ones
    remove        the key is absent                              the same
    raise         sequential children are numbered above value   they are not
    leave         always                                         never: it waits for a person's choice

Whatever else stands at a key is a conflict: it is left as it is, listed, and the run goes on with the others, until
there are more of them than it was to bear: then it is the wrong store, or somebody else restores it. Writes go in
transactions of one kind. A run that was ended anywhere is gone on with: what its journal says is done is skipped,
and a batch that was announced and not finished is looked at in the store. A plan that was cut is written wave by wave,
in their order: what is before the last finished write is done.
"""

import base64
import hashlib
import itertools
import re
import shlex
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backends.bookie import frames
from backends.errors import BackendError, OutcomeUnknownError, TooLargeError, UnavailableError, VersionConflictError
from backends.protocols import AccessControl, MetadataStore, Versioned, Write, parents, parse_rights
from reconcile.errors import GuardRefusedError, JournalError, PartlyAppliedError, PlanError
from reconcile.plan.action_rows import LEAVE, PHASES
from reconcile.rules import clusters
from reconcile.write.audit_journal import JOURNAL, Journal, Record
from reconcile.write.freeze_state import KEPT, WORLD, closed, find_lacking_rights, is_frozen, principal_of
from recovery.codecs import store as keys
from recovery.errors import RecoveryError

BATCH_ROWS: Final = 100
"""Writes in a transaction: five times faster than single ones, and far below what a server takes."""
BATCH_BYTES: Final = 256 << 10
IN_FLIGHT: Final = 4
"""Transactions of ledgers under way at once, announced together: a server syncs one while it takes the next."""
SURPRISES: Final = 1000
"""Conflicts that a run bears."""
OPEN_RIGHTS: Final = "world:anyone:cdrwa"
LISTED: Final = 100
"""Conflicts and changed keys that a result names; all are counted, and all are in the journal."""
COUNTER_END: Final = (1 << 31) - 2
"""The highest number that a counter can be raised past: names are numbered by a signed 32-bit integer."""

_NAMED: Final = 5
_SHOWN_BYTES: Final = 100
_ADDRESS: Final = re.compile(r"[^:]+:[0-9]{1,5}")
_ANSWER_S: Final = 5.0
_SIZE_FIELD: Final = 4
_ASKED_AT_ONCE: Final = 32
_ROUNDS: Final = 10
"""Times that a batch is sent: each settles at least one key unless somebody makes and removes it meanwhile."""
_COOKIES: Final = PHASES["cookie"]
_CREATES: Final = frozenset({"create", "hold"})
_CHANGES: Final = frozenset({"replace", "remove"})
_RAISE: Final = "raise"
_PROPER_KEY: Final = r"^(/[^/\x00-\x1f\x{7f}-\x{9f}\x{e000}-\x{f8ff}\x{fff0}-\x{10ffff}]+)+$"
"""What ZooKeeper takes for a path, but for ``.`` and ``..``; etcd takes anything."""
_OPS: Final = (*sorted(_CREATES | _CHANGES), _RAISE)
_WITH_VALUE: Final = ("create", "hold", "replace", _RAISE)

Actions = Callable[[], Iterable[pa.Table]]
"""Gives all of the plan's ACTIONS in batches sorted by seq, from the start each time that it is called."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a plan is applied.

    Attributes:
        plan_hash: of the plan; the journal is bound to it.
        acl: rights of created keys where an action names none; None: what the store gives.
        accept_unfrozen: write although bookies are registered.
        withhold_cookies: why no cookies may be written; None: they may.
        resume: go on with the journal that is there.
        batch_rows: writes in a transaction.
        wave: of a plan that was cut, the one to write; None: all of it.
        surprises: conflicts that the run bears before it ends.
        in_flight: transactions of ledgers that are under way at once.
        reason: why this is done, for the journal.
        principals: whom the session is taken for, as rights name it; None: not judged, for a store without rights.
        instance_ids: of the cluster that the plan was made from; none: nothing named one.
    """

    plan_hash: str
    acl: str | None = None
    accept_unfrozen: bool = False
    withhold_cookies: str | None = None
    resume: bool = False
    batch_rows: int = BATCH_ROWS
    wave: int | None = None
    surprises: int = SURPRISES
    in_flight: int = IN_FLIGHT
    reason: str | None = None
    principals: Sequence[str] | None = None
    instance_ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of the actions of one kind and op; the last four add up to the first."""

    planned: int
    written: int
    there: int
    conflicts: int
    withheld: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """An action that was not carried out."""

    kind: str
    op: str
    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class Applied:
    """What came of a plan.

    Attributes:
        tallies: by kind and op, earlier runs of the same journal included.
        conflicts: the first `LISTED`; their number is in the tallies.
        checked: keys that were read back once more after all were written, those of earlier waves too.
        changed: keys among them that no longer hold what was written, the first `LISTED`.
        changed_count: all of them.
        cookies_withheld: why, where they were; else empty.
        journal: the file.
    """

    tallies: Mapping[tuple[str, str], Tally]
    conflicts: tuple[Conflict, ...]
    checked: int
    changed: tuple[str, ...]
    changed_count: int
    cookies_withheld: str
    journal: Path

    @property
    def exit_code(self) -> int:
        """0: every action is done; 6: partly applied."""
        undone = any(tally.conflicts or tally.withheld for tally in self.tallies.values())
        return PartlyAppliedError.exit_code if undone or self.changed_count else 0


@dataclass(frozen=True, slots=True)
class _Action:
    seq: int
    op: str
    kind: str
    id: bytes
    key: str
    value: bytes | None
    acl: str | None
    expects: int | None
    before: bytes | None

    def __repr__(self) -> str:
        """Without the value: it may hold a password."""
        return f"_Action({self.seq}, {self.op} {self.kind} {self.key})"

    def is_done(self, held: Versioned | None) -> bool:
        """Whether what stands at the key is what the action wants."""
        if self.op == _RAISE:
            return held is not None and (held.children_created or 0) > _target(self)
        if self.op == "remove":
            return held is None
        return held is not None and held.value == self.value

    def objection(self, held: Versioned | None) -> str | None:
        """Return why what stands at the key forbids the write; None if it can be made."""
        if self.op in _CREATES:
            return None if held is None else "other bytes are there"
        if held is None:
            return "it is absent"
        if held.version != self.expects:
            return f"it has version {held.version}, not {self.expects}"
        return None if self.before in (None, held.value) else "its bytes are not those that were to be replaced"


_COLUMNS: Final = ("seq", "op", "kind", "id", "key", "value", "acl", "expects", "before")


def _rows(table: pa.Table) -> Iterator[_Action]:
    for row in zip(*(table[name].to_pylist() for name in _COLUMNS), strict=True):
        yield _Action(*row)


@dataclass(frozen=True, slots=True)
class _Survey:
    """What a plan holds, from one reading of it.

    Attributes:
        planned: actions of the wave by kind and op.
        fixed: LAYOUT and instance ids, of any wave.
        before: the last action of the waves before; -1 if there is none.
        last: the last action of the wave.
        read_back: actions of the wave and of those before it, but for cookies.
    """

    planned: Mapping[tuple[str, str], int]
    fixed: tuple[_Action, ...]
    before: int
    last: int
    read_back: int

    @property
    def steps(self) -> int:
        """Writes, and the second reading of all but cookies."""
        return sum(self.planned.values()) + self.read_back


def apply(
    actions: Actions,
    store: MetadataStore,
    root: str,
    journal: Path,
    options: Options,
    *,
    now: Callable[[], datetime],
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Applied:
    """Write what a plan proposes, and nothing over anything.

    Args:
        actions: the plan's.
        store: writable.
        root: key of the ledgers root; the actions' keys are below it.
        journal: folder of the journal, made if it is missing.
        options: see there.
        now: the clock; aware.
        progress: is told (done, of all) after each batch.

    Raises:
        PlanError: the plan is not one that can be applied; nothing was written.
        GuardRefusedError: the root is in use or another cluster's, or a wave before was not written; nothing was.
        JournalError: the journal belongs to something else, or cannot be written; nothing was written.
        BackendError: the store failed before anything was written.
        PartlyAppliedError: the store, the journal or the plan's files failed later, or there were too many conflicts.
    """
    actions = _that_write(actions)
    survey = _survey(actions, options)
    _guard(survey, store, root, options)
    binding = {"plan": options.plan_hash, "store": store.uri, "root": root, "acl": options.acl or ""}
    run, path = _Run(survey, store, root.rstrip("/"), options, progress), journal / JOURNAL

    def ready() -> None:
        run.demand_not_undone(path)
        run.demand_waves_before(path)

    if not path.exists():
        ready()
    with Journal.open(
        journal, binding, resume=options.resume, now=now, replay=run.replay, ready=ready, reason=options.reason
    ) as opened:
        try:
            return run.carry_out(actions, opened)
        except (BackendError, JournalError, RecoveryError) as error:
            if not run.begun:
                raise
            raise PartlyAppliedError(
                str(opened.path), f"the run ended midway ({error})", "mend that, then run it again with --resume"
            ) from error


def next_journal(folder: Path) -> Path:
    """Return the folder beside a journal's that is not there yet."""
    return next(path for n in itertools.count(2) if not (path := folder.with_name(f"{folder.name}-{n}")).exists())


def _that_write(actions: Actions) -> Actions:
    return lambda: (table.filter(pc.not_equal(table["op"], LEAVE)) for table in actions())


def _survey(actions: Actions, options: Options) -> _Survey:
    """Read the plan once, and refuse what is no plan."""
    planned: Counter[tuple[str, str]] = Counter()
    fixed: list[_Action] = []
    acls = {options.acl} if options.acl is not None else set()
    seq, phase, wave = -1, 0, 0
    before, last, read_back = -1, -1, 0
    for table in actions():
        if not table.num_rows:
            continue
        _demand_order(table, seq, phase)
        if options.wave is not None:
            _refuse(table, pa.array(np.diff(table["wave"].to_numpy(), prepend=wave) < 0), "it stands behind its wave")
        seq, phase, wave = table["seq"][-1].as_py(), PHASES[table["kind"][-1].as_py()], table["wave"][-1].as_py()
        _demand_fields(table)
        acls.update(acl for acl in pc.unique(table["acl"]).to_pylist() if acl is not None)
        chosen, so_far = _of_wave(table, options.wave), _up_to_wave(table, options.wave)
        for row in chosen.group_by(["kind", "op"]).aggregate([([], "count_all")]).to_pylist():
            planned[row["kind"], row["op"]] += row["count_all"]
        read_back += pc.sum(pc.not_equal(so_far["kind"], "cookie")).as_py() or 0
        if so_far.num_rows > chosen.num_rows:
            before = so_far["seq"][so_far.num_rows - chosen.num_rows - 1].as_py()
        if chosen.num_rows:
            last = chosen["seq"][-1].as_py()
        fixed += _rows(table.filter(pc.is_in(table["kind"], pa.array(["layout", "instance_id"]))))
        for action in _rows(table.filter(pc.equal(table["op"], _RAISE))):
            _target(action)
    for acl in acls:
        try:
            parse_rights(acl)
        except ValueError as error:
            raise PlanError("rights", str(error), "write them as scheme:id:perms,…") from error
        if options.principals is not None:
            _demand_usable(acl, options.principals)
    return _Survey(planned, tuple(fixed), before, last, read_back)


def _demand_usable(acl: str, principals: Iterable[str]) -> None:
    """Refuse rights under which this session could not read, go on below or remove what it makes.

    Raises:
        GuardRefusedError: it would lock us out, and whoever else is not named.
    """
    lacking = find_lacking_rights(acl, principals)
    if lacking:
        raise GuardRefusedError(
            acl,
            f"leaves this session without {lacking}: it could not read, make or remove what it writes",
            f"name whom it connects as, too, e.g. {min(principals, default=WORLD)}:cdrwa",
        )


def _of_wave(table: pa.Table, wave: int | None) -> pa.Table:
    return table if wave is None else table.filter(pc.equal(table["wave"], wave))


def _up_to_wave(table: pa.Table, wave: int | None) -> pa.Table:
    return table if wave is None else table.filter(pc.less_equal(table["wave"], wave))


def _demand_order(table: pa.Table, seq: int, phase: int) -> None:
    where = pc.index_in(table["kind"], pa.array(list(PHASES)))
    if where.null_count:
        _refuse(table, pc.is_null(where), "its kind is not known")
    phases = np.array(list(PHASES.values()))[where.to_numpy()]
    numbers = table["seq"].to_numpy()
    behind = (np.diff(numbers, prepend=seq) <= 0) | (np.diff(phases, prepend=phase) < 0)
    _refuse(table, pa.array(behind), "it stands out of order")


def _demand_fields(table: pa.Table) -> None:
    op, kind = table["op"], table["kind"]
    is_raise = pc.equal(op, _RAISE)
    changes = pc.is_in(op, pa.array(sorted(_CHANGES)))
    _refuse(table, pc.invert(pc.is_in(op, pa.array(_OPS))), "its op is not known")
    _refuse(table, pc.and_(is_raise, pc.not_equal(kind, "generator")), "only a generator can be raised")
    _refuse(
        table, pc.xor(changes, pc.is_valid(table["expects"])), "it must name a version if and only if it changes one"
    )
    _refuse(
        table, pc.xor(pc.is_in(op, pa.array(_WITH_VALUE)), pc.is_valid(table["value"])), "it lacks a value, or has one"
    )
    key = table["key"]
    proper = pc.match_substring_regex(key, _PROPER_KEY)
    climbs = pc.match_substring_regex(key, r"/\.{1,2}(/|$)")
    proper = pc.and_not(proper, climbs)
    _refuse(table, pc.invert(pc.or_(proper, pc.and_(is_raise, pc.equal(key, keys.ROOT)))), "its key is none")


def _refuse(table: pa.Table, bad: pa.Array, problem: str) -> None:
    found = table["key"].filter(bad)
    if len(found):
        raise PlanError(str(found[0].as_py()), problem, "make the plan again")


def _target(action: _Action) -> int:
    text = (action.value or b"").decode(errors="replace")
    if not (text.isascii() and text.isdigit() and int(text) <= COUNTER_END):
        raise PlanError(action.key, f"no counter can be raised past {text[:40]!r}", "make the plan again")
    return int(text)


def _guard(survey: _Survey, store: MetadataStore, root: str, options: Options) -> None:
    """Refuse where writing would destroy: into a root that is in use, or that is another cluster's."""
    base = root.rstrip("/")
    for key, same in _by_key(survey.fixed).items():
        values = {action.value for action in same}
        if len(values) > 1:
            raise GuardRefusedError(
                base + key, "the plan has two values for it: the bookies are of two clusters", "recover each by itself"
            )
        held = store.get(base + key)
        # One that a person asked to be replaced stands for itself.
        known = values | {action.before for action in same if action.op in _CHANGES}
        if held is not None and held.value not in known:
            theirs, ours = ((value or b"")[:_SHOWN_BYTES].decode(errors="replace") for value in (held.value, *values))
            raise GuardRefusedError(
                base + key,
                f"the store has {theirs!r}, the plan {ours!r}: it is another cluster's root",
                "choose the root of the plan's cluster",
            )
    _demand_cluster(survey, store, base, options.instance_ids)
    registered = sorted(
        {
            name
            for parent in keys.REGISTRATIONS
            for name in store.children(base + parent) or ()
            if f"{parent}/{name}" != keys.READ_ONLY
        }
    )
    if registered and not options.accept_unfrozen and not is_frozen(store, root).frozen:
        named = ", ".join(registered[:5]) + (", …" if len(registered) > 5 else "")
        freezes = isinstance(store, AccessControl)
        remedy = "stop them or freeze first (bkmeta freeze)" if freezes else "stop them until apply has ended"
        raise GuardRefusedError(
            base or "/",
            f"{len(registered)} bookies are running ({named}), and delete what a partial root does not name",
            f"{remedy}, or accept that: --accept-unfrozen",
        )


def _demand_cluster(survey: _Survey, store: MetadataStore, base: str, instance_ids: Sequence[str]) -> None:
    """Refuse another cluster's store where the plan writes no instance id of its own: its bookies name none."""
    if not instance_ids or any(action.kind == "instance_id" for action in survey.fixed):
        return
    for where in (keys.ON_ZOOKEEPER, keys.ON_ETCD):
        held = store.get(base + where.instance_id)
        stored = clusters.decode_named(held.value if held is not None else None)
        if stored is not None and stored not in instance_ids:
            raise GuardRefusedError(
                base + where.instance_id,
                f"the store has {stored!r}, the plan was made of {instance_ids[0]!r}: it is another cluster's root",
                "choose the root of the plan's cluster",
            )


def demand_stopped(bookies: Iterable[str]) -> None:
    """Refuse where a bookie answers at the address in its id.

    On etcd one that lost its lease once runs on and never registers again. What is no host:port is not looked at.

    Raises:
        GuardRefusedError: one answers.
    """
    names = sorted(bookie for bookie in set(bookies) if _ADDRESS.fullmatch(bookie))
    with ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="bookies") as pool:
        running = [name for name, answers in zip(names, pool.map(_answers, names), strict=True) if answers]
    if running:
        raise GuardRefusedError(
            ", ".join(running[:5]),
            f"{len(running)} bookies answer at the addresses in their ids, registered or not, and delete what a "
            "partial root does not name",
            "stop them until apply has ended, or accept that: --accept-unfrozen",
        )


def _answers(address: str) -> bool:
    """Whether something that speaks as a bookie does answers; that a connection stands may be a proxy's doing."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_ANSWER_S) as connection:
            connection.sendall(frames.encode(frames.bookie_info(), 1))
            size = connection.recv(_SIZE_FIELD, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(size) == _SIZE_FIELD and 0 < int.from_bytes(size) <= frames.LARGEST_FRAME


def _by_key(actions: Iterable[_Action]) -> dict[str, list[_Action]]:
    found: dict[str, list[_Action]] = {}
    for action in actions:
        found.setdefault(action.key, []).append(action)
    return found


def decide_rights(store: MetadataStore, root: str) -> str | None:
    """Return the rights that records shall have where neither plan nor person named any, from what stands in the store.

    Raises:
        GuardRefusedError: somebody secured the store, so a person has to say who may do what with the records.
    """
    if not isinstance(store, AccessControl):
        return None
    base = root.rstrip("/")
    beside = (keys.LAYOUT, keys.INSTANCE_ID, keys.COOKIES, keys.AVAILABLE, keys.READ_ONLY, keys.UNDERREPLICATION)
    found = _shown(store, [base + key for key in beside])
    state = is_frozen(store, root)
    own = _shown(store, [base or "/"])
    if state.frozen:
        # Rights were taken there, and one identity was added: only who else is named says something.
        found |= {(name, "") for name, _ in own if name not in (WORLD, state.identity)}
    else:
        found |= own
    if not found:
        found = next((held for key in reversed(["/", *parents(base)]) if (held := _shown(store, [key]))), set())
    others = {f"{name}:{perms}" for name, perms in found} - {OPEN_RIGHTS}
    if others:
        raise GuardRefusedError(
            base or "/",
            f"has rights of its own ({', '.join(sorted(others)[:5])}), and nothing says which the records shall have",
            "name them: --acl scheme:id:perms,… as ledgers of this cluster have them",
        )
    return OPEN_RIGHTS


def _shown(store: AccessControl, wanted: Iterable[str]) -> set[tuple[str, str]]:
    held = [store.get_acl(key) for key in wanted]
    return {(principal_of(r), r.perms) for one in held if one is not None for r in parse_rights(one.acl)}


@dataclass(slots=True)
class _Count:
    written: int = 0
    there: int = 0
    conflicts: int = 0
    withheld: int = 0


@dataclass(frozen=True, slots=True)
class _Outcome:
    """`version` where it was written, `conflict` where it could not be; neither: it was there."""

    version: int | None = None
    conflict: str | None = None


class _Run:
    """One run of a plan: what earlier runs did, and what became of each action."""

    def __init__(
        self,
        survey: _Survey,
        store: MetadataStore,
        base: str,
        options: Options,
        progress: Callable[[int, int], None],
    ) -> None:
        self.begun = False
        self._survey = survey
        self._store = store
        self._base = base
        self._options = options
        self._progress = progress
        self._steps = 0
        self._counts = {group: _Count() for group in survey.planned}
        self._conflicts: list[Conflict] = []
        self._conflicting: set[int] = set()
        self._batch = 0
        # From the journal: done up to here, but for these.
        self._finished = -1
        self._undo = ""
        self._again: set[int] = set()
        self._announced: dict[int, tuple[str, list[tuple[int, str]]]] = {}
        self._ours: set[int] = set()
        self._former: dict[int, str | None] = {}
        self._finished_too: set[int] = set()

    def demand_not_undone(self, journal: Path) -> None:
        """Refuse a journal that an undo has begun with: what it says is written may be gone."""
        if self._undo == "undo":
            problem = "is being undone: an undo was begun and has not ended"
            remedy = f"end it: bkmeta undo {shlex.quote(str(journal.parent))}; then apply with a journal of its own"
            raise GuardRefusedError(str(journal), problem, remedy)
        if self._undo == "undone":
            fresh = shlex.quote(str(next_journal(journal.parent)))
            problem = "was undone: what it says is written is gone"
            raise GuardRefusedError(
                str(journal), problem, f"to apply again, leave --resume out and name a new journal: --journal {fresh}"
            )

    def demand_waves_before(self, journal: Path) -> None:
        """Refuse to go on where a wave before was not written to its end: a resumed run would take it for done."""
        if self._finished < self._survey.before or any(seq <= self._survey.before for seq in self._ours):
            raise GuardRefusedError(
                f"wave {self._options.wave}",
                f"the waves before it were not written to their end, by the journal {journal}",
                "apply them first, in their order; one that was begun with --resume",
            )

    def replay(self, record: Record) -> None:
        """Take what an earlier run's journal says."""
        if record.event == "intent":
            self.begun = True
            writes = [(int(seq), str(op)) for seq, op, *_ in record.fields["writes"]]
            self._announced[record.fields["batch"]] = (record.fields["kind"], writes)
            self._ours.update(seq for seq, _ in writes)
            # What stood there before it was announced first: by now our own bytes may stand there.
            for seq, _, *_, replaced in record.fields["writes"]:
                self._former.setdefault(int(seq), replaced)
            self._batch = record.fields["batch"] + 1
        elif record.event in ("undo", "undone"):
            self._undo = record.event
        elif record.event == "done":
            kind, writes = self._announced.pop(record.fields["batch"])
            refused = {place for place, _ in record.fields["conflicts"]}
            for place, ((seq, op), version) in enumerate(zip(writes, record.fields["versions"], strict=True)):
                self._ours.discard(seq)
                self._former.pop(seq, None)
                self._again.discard(seq)
                if place in refused:
                    self._again.add(seq)
                elif self._survey.before < seq <= self._survey.last:
                    self._note(kind, op, written=version is not None)
            self._finished = max(self._finished, *(seq for seq, _ in writes))

    def _note(self, kind: str, op: str, *, written: bool) -> None:
        count = self._counts[kind, op]
        if written:
            count.written += 1
        else:
            count.there += 1
        self._step(1)

    def _step(self, steps: int) -> None:
        self._steps += steps
        self._progress(self._steps, self._survey.steps)

    def carry_out(self, actions: Actions, journal: Journal) -> Applied:
        """Write phase by phase; read all back; write cookies if they may be."""
        cookies: list[_Action] = []

        def before_cookies() -> Iterator[_Action]:
            for table in actions():
                for action in _rows(_of_wave(table, self._options.wave)):
                    if PHASES[action.kind] == _COOKIES:
                        cookies.append(action)
                    elif self._is_open(action):
                        yield action

        batches = _batches(before_cookies(), self._options.batch_rows)
        with ThreadPoolExecutor(self._options.in_flight, thread_name_prefix="apply") as pool:
            for window in _windows(batches, self._options.in_flight):
                self._settle_all(window, journal, pool)
                self._break_off(journal)
        checked, changed, changed_count = self._read_back(actions)
        journal.append("verified", {"checked": checked, "changed": changed_count})
        withheld = self._why_withheld(changed_count) if cookies else ""
        self._write_cookies(cookies, journal, withheld)
        result = Applied(
            tallies={
                group: Tally(planned, count.written, count.there, count.conflicts, count.withheld)
                for group, planned in sorted(self._survey.planned.items())
                for count in (self._counts[group],)
            },
            conflicts=tuple(self._conflicts),
            checked=checked,
            changed=changed,
            changed_count=changed_count,
            cookies_withheld=withheld,
            journal=journal.path,
        )
        counts = {
            f"{kind}.{op}": [t.planned, t.written, t.there, t.conflicts, t.withheld]
            for (kind, op), t in result.tallies.items()
        }
        journal.append("end", {"counts": counts, "exit_code": result.exit_code})
        journal.sync()
        return result

    def _break_off(self, journal: Journal) -> None:
        """End the run if it was surprised too often."""
        conflicts = len(self._conflicting)
        if conflicts <= self._options.surprises:
            return
        first = ", ".join(conflict.key for conflict in self._conflicts[:_NAMED])
        reason = f"{conflicts} keys hold something else than the plan expects ({first}, …)"
        journal.append("stopped", {"reason": reason})
        journal.sync()
        raise PartlyAppliedError(
            str(journal.path),
            f"stopped: {reason}",
            "see whether this is the right store, and who else writes to it; then make the plan again",
        )

    def _is_open(self, action: _Action) -> bool:
        if action.seq in self._finished_too:
            return False
        return action.seq > self._finished or action.seq in self._again or action.seq in self._ours

    def _why_withheld(self, changed: int) -> str:
        conflicts = sum(count.conflicts for count in self._counts.values()) + len(self._conflicts_before())
        if self._options.withhold_cookies is not None:
            return self._options.withhold_cookies
        if conflicts:
            return f"{conflicts} writes were in conflict with what is in the store"
        return f"{changed} records were not read back as they were written" if changed else ""

    def _conflicts_before(self) -> set[int]:
        """Return the actions of earlier waves that were left in conflict."""
        return {seq for seq in self._again if seq <= self._survey.before}

    def _write_cookies(self, cookies: Sequence[_Action], journal: Journal, withheld: str) -> None:
        if not withheld:
            for batch in _batches(filter(self._is_open, cookies), self._options.batch_rows):
                self._settle(batch, journal)
            return
        # Those that a run announced before it was killed may stand there.
        for batch in _batches((action for action in cookies if action.seq in self._ours), self._options.batch_rows):
            self._look(batch, journal, withheld)
        for action in filter(self._is_open, cookies):
            self._counts[action.kind, action.op].withheld += 1
            self._step(1)

    def _look(self, batch: Sequence[_Action], journal: Journal, withheld: str) -> None:
        """Record what became of writes that an earlier run announced, without writing."""
        held = self._held(batch)
        announced = [_announcement(action, self._replaced(action, held[action.key])) for action in batch]
        journal.append("intent", {"batch": self._batch, "kind": batch[0].kind, "writes": announced})
        stand = [action.is_done(held[action.key]) for action in batch]
        versions = [_version(held[action.key]) if there else None for action, there in zip(batch, stand, strict=True)]
        missing = [[place, withheld] for place, there in enumerate(stand) if not there]
        presumed = [place for place, there in enumerate(stand) if there]
        done = {"batch": self._batch, "versions": versions, "presumed": presumed, "conflicts": missing}
        journal.append("done", done)
        self._batch += 1
        for action, there in zip(batch, stand, strict=True):
            self._ours.discard(action.seq)
            if there:
                self._again.discard(action.seq)
                self._finished_too.add(action.seq)
                self._note(action.kind, action.op, written=True)
            else:
                self._again.add(action.seq)

    def _settle(self, batch: Sequence[_Action], journal: Journal) -> None:
        """Announce a batch, carry it out, read it back, record what became of it."""
        number, held = self._announce(batch, journal)
        journal.sync()
        self.begun = True
        outcomes = {batch[0].seq: self._raise(batch[0])} if batch[0].op == _RAISE else self._write(batch, held)
        self._record(number, batch, outcomes, journal)

    def _settle_all(self, window: Sequence[Sequence[_Action]], journal: Journal, pool: ThreadPoolExecutor) -> None:
        """Settle batches at once that have no key in common; what ended is recorded though another fails."""
        if len(window) == 1:
            self._settle(window[0], journal)
            return
        announced = [self._announce(batch, journal) for batch in window]
        journal.sync()
        self.begun = True
        flying = [pool.submit(self._write, batch, held) for batch, (_, held) in zip(window, announced, strict=True)]
        wait(flying)
        failed: BaseException | None = None
        for batch, (number, _), answer in zip(window, announced, flying, strict=True):
            error = answer.exception()
            if error is None:
                self._record(number, batch, answer.result(), journal)
            failed = failed or error
        if failed is not None:
            raise failed

    def _announce(self, batch: Sequence[_Action], journal: Journal) -> tuple[int, dict[str, Versioned | None]]:
        held = self._held(batch) if batch[0].op in _CHANGES else {}
        number = self._batch
        self._batch += 1
        journal.append(
            "intent",
            {
                "batch": number,
                "kind": batch[0].kind,
                "writes": [_announcement(action, self._replaced(action, held.get(action.key))) for action in batch],
            },
        )
        return number, held

    def _record(
        self, number: int, batch: Sequence[_Action], outcomes: Mapping[int, _Outcome], journal: Journal
    ) -> None:
        ordered = [outcomes[action.seq] for action in batch]
        journal.append(
            "done",
            {
                "batch": number,
                "versions": [outcome.version for outcome in ordered],
                "presumed": [i for i, action in enumerate(batch) if action.seq in self._ours],
                "conflicts": [[i, outcome.conflict] for i, outcome in enumerate(ordered) if outcome.conflict],
            },
        )
        for action, outcome in zip(batch, ordered, strict=True):
            if outcome.conflict is None:
                self._note(action.kind, action.op, written=outcome.version is not None)
                continue
            self._counts[action.kind, action.op].conflicts += 1
            self._conflicting.add(action.seq)
            self._step(1)
            if len(self._conflicts) < LISTED:
                self._conflicts.append(Conflict(action.kind, action.op, action.key, outcome.conflict))

    def _replaced(self, action: _Action, held: Versioned | None) -> str | None:
        """Return the bytes that an action replaces or removes, as the journal writes them."""
        if action.op not in _CHANGES:
            return None
        if action.seq in self._former and action.is_done(held):
            return self._former[action.seq]
        return None if held is None else base64.b64encode(held.value).decode()

    def _key(self, action: _Action) -> str:
        return self._base + action.key if action.key != keys.ROOT else self._base or "/"

    def _held(self, batch: Iterable[_Action]) -> dict[str, Versioned | None]:
        wanted = {self._key(action): action.key for action in batch}
        return {wanted[key]: held for key, held in self._store.get_many(wanted)}

    def _write(self, batch: Sequence[_Action], held: Mapping[str, Versioned | None]) -> dict[int, _Outcome]:
        """Bring every action of a batch to its end; nothing counts as written before it was read back."""
        outcomes: dict[int, _Outcome] = {}
        ours = {action.seq for action in batch} & self._ours
        seen: Mapping[str, Versioned | None] | None = held or None
        open_actions = list(batch)
        lost: OutcomeUnknownError | None = None
        for _ in range(_ROUNDS):
            if seen is not None:
                open_actions = _sort_out(open_actions, seen, ours, outcomes)
            if not open_actions:
                return outcomes
            lost, sent = None, False
            try:
                self._store.write([self._change(action) for action in open_actions])
                sent = True
            except OutcomeUnknownError as error:
                lost = error
            except TooLargeError as error:
                open_actions = _too_large(open_actions, self._base, error.key, outcomes)
                continue
            except VersionConflictError:
                pass  # which of them stand there already shows the reading
            if sent or lost:
                # Bytes that are there now and are ours were written by us: nobody else has this plan.
                ours |= {action.seq for action in open_actions}
            seen = self._held(open_actions)
            if sent:
                _sort_out(open_actions, seen, ours, outcomes, sent=True)
                return outcomes
        if seen is not None:
            open_actions = _sort_out(open_actions, seen, ours, outcomes)
        if lost is not None and open_actions:
            raise UnavailableError(lost.store, f"{_ROUNDS} writes in a row had no answer") from lost
        for action in open_actions:
            outcomes[action.seq] = _Outcome(conflict="somebody changes it all the time")
        return outcomes

    def _change(self, action: _Action) -> Write:
        acl = action.acl if action.acl is not None else self._options.acl
        return Write(self._key(action), action.value, action.expects, acl)

    def _raise(self, action: _Action) -> _Outcome:
        """Raise a counter; a repetition costs some numbers at most."""
        key, target = self._key(action), _target(action)
        held = self._store.get(key)
        if held is None:
            try:
                acl = action.acl if action.acl is not None else self._options.acl
                self._store.write([Write(key, b"", None, self._closed(action.key, acl))])
            except (VersionConflictError, OutcomeUnknownError):
                pass  # raising makes it if it is still absent
        elif action.is_done(held):
            return _Outcome(version=held.version if action.seq in self._ours else None)
        reached = self._store.raise_counter(key, target)
        held = self._store.get(key)
        if held is None or reached <= target or not action.is_done(held):
            return _Outcome(conflict="it did not keep the number that it was raised to")
        return _Outcome(version=held.version)

    def _closed(self, key: str, acl: str | None) -> str | None:
        """Return the rights of a generator that is made: in a frozen store as the freeze has it, which thaw opens."""
        state = is_frozen(self._store, self._base) if isinstance(self._store, AccessControl) else None
        if state is None or not state.frozen or key not in KEPT:
            return acl
        return closed(acl or OPEN_RIGHTS, KEPT[key], state.identity or "")

    def _read_back(self, actions: Actions) -> tuple[int, tuple[str, ...], int]:
        """Read every key of the phases before cookies; return how many, and which are not as they must be."""
        flying: deque[_Action] = deque()
        conflicting = self._conflicting | self._conflicts_before()

        def wanted() -> Iterator[str]:
            for table in actions():
                written = _up_to_wave(table, self._options.wave)
                for action in _rows(written.filter(pc.not_equal(written["kind"], "cookie"))):
                    if action.seq not in conflicting:
                        flying.append(action)
                        yield self._key(action)

        checked, count = 0, 0
        changed: list[str] = []
        for _, held in self._store.get_many(wanted()):
            action = flying.popleft()
            checked += 1
            self._step(1)
            if not action.is_done(held):
                count += 1
                if len(changed) < LISTED:
                    changed.append(action.key)
        return checked, tuple(changed), count


def _batches(actions: Iterable[_Action], rows: int) -> Iterator[list[_Action]]:
    """Cut actions into transactions: of one kind, each key once; a counter is raised by itself."""
    batch: list[_Action] = []
    places: set[str] = set()
    size = 0
    for action in actions:
        weight = len(action.value or b"") + len(action.key)
        if batch and not (
            len(batch) < rows
            and size + weight <= BATCH_BYTES
            and action.kind == batch[0].kind
            and _manner(action) == _manner(batch[0]) != _RAISE
            and action.key not in places
        ):
            yield batch
            batch, places, size = [], set(), 0
        batch.append(action)
        places.add(action.key)
        size += weight
    if batch:
        yield batch


def _windows(batches: Iterable[list[_Action]], size: int) -> Iterator[list[list[_Action]]]:
    """Gather batches that may be under way at once: ledgers only, and no key twice."""
    window: list[list[_Action]] = []
    places: set[str] = set()
    for batch in batches:
        mine = {action.key for action in batch}
        alone = batch[0].kind != "ledger"
        if window and (alone or len(window) >= size or not places.isdisjoint(mine)):
            yield window
            window, places = [], set()
        window.append(batch)
        places |= mine
        if alone:
            yield window
            window, places = [], set()
    if window:
        yield window


def _manner(action: _Action) -> str:
    return _RAISE if action.op == _RAISE else "create" if action.op in _CREATES else "change"


def _announcement(action: _Action, replaced: str | None) -> list[object]:
    value = None if action.value is None else hashlib.sha256(action.value).hexdigest()
    return [action.seq, action.op, action.id.hex(), action.key, action.expects, value, replaced]


def _version(held: Versioned | None) -> int:
    return -1 if held is None else held.version


def _sort_out(
    batch: Iterable[_Action],
    seen: Mapping[str, Versioned | None],
    ours: set[int],
    outcomes: dict[int, _Outcome],
    *,
    sent: bool = False,
) -> list[_Action]:
    """Settle what a reading settles; return the actions that can still be written."""
    rest = []
    for action in batch:
        held = seen[action.key]
        objection = None if sent else action.objection(held)
        if action.is_done(held):
            outcomes[action.seq] = _Outcome(version=_version(held) if action.seq in ours else None)
        elif sent:
            outcomes[action.seq] = _Outcome(conflict="somebody changed it right after it was written")
        elif objection is not None:
            outcomes[action.seq] = _Outcome(conflict=objection)
        else:
            rest.append(action)
    return rest


def _too_large(batch: list[_Action], base: str, key: str, outcomes: dict[int, _Outcome]) -> list[_Action]:
    rest = []
    for action in batch:
        if base + action.key == key:
            outcomes[action.seq] = _Outcome(conflict="it is larger than what the store takes")
        else:
            rest.append(action)
    return rest
