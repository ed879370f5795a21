"""A plan's actions written to a store: nothing over anything, by the journal, read back, in phases.

    phase  kinds                 before it begins
    1      generator
    2      ledger               of a guarded one the lock, and nothing of it where somebody else's lock stands
    3      subtree              of one depth, so that no node is made before the one above it
    4      node, layout
    5      instance_id
    6      cookie                every write of the phases before is read back once more; withheld if one differs

What each op does is in `plan_actions`, how a store is changed in `writer`, what is refused in `guards`. What else
is at a key is a conflict: it is left as it is, listed, and the run goes on with the other keys, until there are
more conflicts than it was to bear: then it is the wrong store, or somebody else restores it. A lock that a guard ends
is removed once the record is written, and stays where that is in conflict. A run that was ended is gone on with:
what its journal says is done is skipped; a batch that was announced and not finished is looked at in the store. A
plan that was cut is written wave by wave: what is before the last finished write is done.
"""

import base64
import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from backends.errors import BackendError
from backends.protocols import MetadataStore, Versioned, Write
from reconcile.errors import Advice, JournalError, PartlyAppliedError, Remedy
from reconcile.plan.actions import PHASES, Guard
from reconcile.words import count_noun
from reconcile.write import guards
from reconcile.write.apply_results import LISTED, Applied, AppliedTally, Conflict
from reconcile.write.audit_journal import JOURNAL, Approval, AuditJournal
from reconcile.write.counters import raise_counter
from reconcile.write.journal_events import (
    LOCK,
    AnnouncedWrite,
    ApplyEnd,
    Done,
    EarlierRuns,
    Event,
    Intent,
    JudgedWave,
    ReadBackEnd,
    RefusedWrite,
    Stopped,
    WriteCount,
    append_event,
)
from reconcile.write.plan_actions import (
    CHANGES,
    RAISE,
    RELEASE,
    Action,
    Actions,
    PlanSurvey,
    cut_batches,
    gather_windows,
    make_lock,
    make_release,
    read_actions,
    read_written,
    require_acl,
    select_wave,
    skip_left_alone,
    survey_plan,
)
from reconcile.write.writer import (
    BATCH_ROWS,
    PATIENCE_S,
    ChangeOutcome,
    Patience,
    RecordTarget,
    Writer,
    WriteStep,
    find_version,
    settle_changes,
    settle_patiently,
)
from recovery.codecs.replication_lock import encode_guard
from recovery.errors import RecoveryError

IN_FLIGHT: Final = 4
"""Transactions of ledgers that are announced together; while they are under way as many more are announced and sent."""
SURPRISES: Final = 1000
"""Conflicts after which a run ends."""
_NAMED: Final = 5
_COOKIES: Final = PHASES["cookie"]


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """How a plan is applied.

    Attributes:
        plan_hash: of the plan; the journal is bound to it.
        acl: ACL of created keys where an action names none; None: what the store gives.
        accept_unfrozen: write although bookies are registered.
        withhold_cookies: why no cookies may be written; None: they may.
        resume: go on with the journal that is there.
        batch_rows: writes in a transaction.
        wave: of a plan that was cut, the one to write; None: all of it.
        surprises: conflicts after which the run ends.
        in_flight: transactions of ledgers that are announced together, twice as many of which are under way; 1: one.
        patience_s: time that the run waits, all in all, for others to let go of locks.
        reason: why this is done, for the journal.
        approvals: who approved it, for the journal.
        principals: whom the session is taken for, as rights name it; None: not judged, for a store without ACLs.
        instance_ids: of the cluster that the plan was made from; none: nothing named one.
        outside: key that nodes of upper layers are put below; empty: where they belong.
        accept_findings: unexpected findings of the waves before that a person accepts.
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
    patience_s: float = PATIENCE_S
    reason: str | None = None
    approvals: Sequence[Approval] = ()
    principals: Sequence[str] | None = None
    instance_ids: Sequence[str] = ()
    outside: str = ""
    accept_findings: int = 0


def apply(
    actions: Actions,
    store: MetadataStore,
    root: str,
    journal: Path,
    options: ApplyOptions,
    *,
    now: Callable[[], datetime],
    progress: Callable[[int, int], None] = lambda _done, _all: None,
    judge: Callable[[], JudgedWave] | None = None,
) -> Applied:
    """Write what a plan proposes; overwrite nothing else.

    Args:
        actions: the plan's.
        store: writable.
        root: key of the ledgers root; the actions' keys are below it.
        journal: folder of the journal, made if it is missing.
        options: see there.
        now: the clock; aware.
        progress: is called with (done, of all) after each batch.
        judge: judges what was written, once all of it is; None: no wave waits for that.

    Raises:
        PlanError: the plan is not one that can be applied; nothing was written.
        GuardRefusedError: the root is in use or another cluster's, or a wave before was not written; nothing was.
        JournalError: the journal belongs to something else, or cannot be written; nothing was written.
        BackendError: the store failed before anything was written.
        PartlyAppliedError: the store, the journal or the plan's files failed later, or there were too many conflicts.
    """
    actions = skip_left_alone(actions)
    survey = survey_plan(actions, options.wave)
    _require_safe(survey, store, root, options)
    binding = {"plan": options.plan_hash, "store": store.uri, "root": root, "acl": options.acl or ""}
    earlier = EarlierRuns(survey.before, survey.last, {group: WriteCount() for group in survey.planned})
    path = journal / JOURNAL

    def require_ready() -> None:
        guards.require_not_undone(earlier, path)
        guards.require_waves_before(earlier, path, options.wave)
        if judge is not None:
            guards.require_sound_waves(earlier, options.wave, options.accept_findings)

    if not path.exists():
        require_ready()
    opening = partial(
        AuditJournal.open, resume=options.resume, now=now, reason=options.reason, approvals=options.approvals
    )
    with opening(journal, binding, replay=earlier.replay, ready=require_ready) as opened:
        run = _Run(survey, earlier, store, root.rstrip("/"), options, opened, progress)
        try:
            applied = run.carry_out(actions)
            if judge is not None:
                append_event(opened, judge())
                opened.sync()
            return applied
        except (BackendError, JournalError, RecoveryError) as error:
            if not run.has_begun:
                raise
            problem = f"the run ended midway ({error})"
            raise PartlyAppliedError(str(opened.path), problem, Remedy(Advice.MEND_AND_RESUME)) from error


def _require_safe(survey: PlanSurvey, store: MetadataStore, root: str, options: ApplyOptions) -> None:
    """Refuse where writing would destroy: into a root that is in use, or that is another cluster's."""
    if options.acl is not None:
        require_acl(options.acl)
    if options.principals is not None:
        for acl in sorted({*survey.acls, *([] if options.acl is None else [options.acl])}):
            guards.require_usable_acl(acl, options.principals)
    base = root.rstrip("/")
    guards.require_same_root(survey.fixed, store, base)
    # A plan that writes an instance id was compared by it.
    if not any(action.kind == "instance_id" for action in survey.fixed):
        guards.require_same_cluster(store, base, options.instance_ids)
    guards.require_room_for_locks(survey.locks, store, base)
    if not options.accept_unfrozen:
        guards.require_unused(store, root)


Outcomes = Mapping[str, ChangeOutcome]
"""Key → what became of its action."""


class _Run:
    """One run of a plan."""

    def __init__(
        self,
        survey: PlanSurvey,
        earlier: EarlierRuns,
        store: MetadataStore,
        base: str,
        options: ApplyOptions,
        journal: AuditJournal,
        progress: Callable[[int, int], None],
    ) -> None:
        self._earlier = earlier
        self._survey = survey
        self._store = store
        self._base = base
        self._options = options
        self._journal = journal
        self._writer = Writer(journal)
        self._records: RecordTarget[Action] = RecordTarget(store, base, self._to_write, options.outside)
        self._progress = progress
        self._counts = earlier.counts
        self._steps = sum(count.written + count.there for count in self._counts.values())
        self._conflicts: list[Conflict] = []
        self._conflicting: set[int] = set()
        self._unlocked: dict[int, str] = {}
        self._patience = Patience(options.patience_s)
        self._batch = earlier.next_batch
        self._flying: set[str] = set()

    @property
    def has_begun(self) -> bool:
        """Whether anything may have been written, by this run or an earlier one."""
        return self._writer.has_begun or self._earlier.has_announced

    def carry_out(self, actions: Actions) -> Applied:
        """Write phase by phase; read all back; write cookies if they may be."""
        cookies: list[Action] = []

        def read_before_cookies() -> Iterator[Action]:
            for table in actions():
                for action in read_actions(select_wave(table, self._options.wave)):
                    if PHASES[action.kind] == _COOKIES:
                        cookies.append(action)
                    elif self._earlier.is_open(action.seq) or self._has_release(action):
                        yield action

        self._advance(0)
        batches = cut_batches(read_before_cookies(), self._options.batch_rows)
        # While one window is under way the next one is announced: the server need not wait for the journal's disk.
        with ThreadPoolExecutor(2 * self._options.in_flight, thread_name_prefix="apply") as pool:
            try:
                for window in gather_windows(batches, self._options.in_flight):
                    self._write_window(window, pool)
                    self._stop_if_surprised()
            except Exception:
                with suppress(BackendError, JournalError):
                    self._writer.finish()
                raise
            self._writer.finish()
        checked, changed, changed_count = self._read_back(actions)
        append_event(self._journal, ReadBackEnd(checked, changed_count))
        withheld = self._find_why_withheld(changed_count) if cookies else ""
        if withheld:
            self._withhold_cookies(cookies, withheld)
        else:
            open_cookies = (cookie for cookie in cookies if self._earlier.is_open(cookie.seq))
            for batch in cut_batches(open_cookies, self._options.batch_rows):
                self._writer.carry_out([self._plan_step(batch)])
        result = Applied(
            tallies={
                group: AppliedTally(planned, count.written, count.there, count.conflicts, count.withheld)
                for group, planned in sorted(self._survey.planned.items())
                for count in (self._counts[group],)
            },
            conflicts=tuple(self._conflicts),
            checked=checked,
            changed=changed,
            changed_count=changed_count,
            cookies_withheld=withheld,
            journal=self._journal.path,
        )
        counts = {
            f"{kind}.{op}": [t.planned, t.written, t.there, t.conflicts, t.withheld]
            for (kind, op), t in result.tallies.items()
        }
        append_event(self._journal, ApplyEnd(counts, result.exit_code))
        self._journal.sync()
        return result

    def _has_release(self, action: Action) -> bool:
        return action.guard == Guard.RELEASE and action.seq not in self._earlier.released

    def _write_window(self, window: Sequence[Sequence[Action]], pool: ThreadPoolExecutor) -> None:
        """Make the locks of batches, write their records, and remove the locks that they end."""
        batches = [[action for action in batch if self._earlier.is_open(action.seq)] for batch in window]
        keys = {action.key for batch in batches for action in batch}
        is_plain = all(action.kind == "ledger" and action.guard is None for batch in window for action in batch)
        if not keys.isdisjoint(self._flying):
            self._writer.finish()
        self._flying = keys
        if is_plain and self._options.in_flight > 1:
            self._writer.begin([self._plan_step(batch) for batch in batches if batch], pool)
            return
        self._carry_out([self._choose_locks(batch) for batch in batches], pool)
        self._carry_out(batches, pool)
        self._carry_out(
            [[make_release(a) for a in b if self._has_release(a) and a.seq not in self._conflicting] for b in window],
            pool,
        )

    def _carry_out(self, batches: Sequence[Sequence[Action]], pool: ThreadPoolExecutor) -> None:
        steps = [self._plan_step(batch) for batch in batches if batch]
        if steps:
            self._writer.carry_out(steps, pool)

    def _choose_locks(self, batch: Sequence[Action]) -> list[Action]:
        """Return the locks to be made; a record that cannot be written gets none, and is not tried again without."""
        guarded = [action for action in batch if action.guard == Guard.LOCK]
        stored = self._records.read(guarded) if guarded else {}
        locks: list[Action] = []
        for action in guarded:
            node = stored[action.key]
            objection = None if action.is_made(node) else action.find_objection(node)
            if objection is None:
                locks.append(make_lock(action, encode_guard(self._options.plan_hash)))
            else:
                self._unlocked[action.seq] = objection
        return locks

    def _stop_if_surprised(self) -> None:
        """End the run if it met more conflicts than it was to bear."""
        conflicts = len(self._conflicting)
        if conflicts <= self._options.surprises:
            return
        self._writer.finish()
        first = ", ".join(conflict.key for conflict in self._conflicts[:_NAMED])
        reason = f"{conflicts} keys hold something else than the plan expects ({first}, …)"
        append_event(self._journal, Stopped(reason))
        self._journal.sync()
        raise PartlyAppliedError(
            str(self._journal.path),
            f"stopped: {reason}",
            "see whether this is the right store, and who else writes to it; then make the plan again",
        )

    def _find_why_withheld(self, changed: int) -> str:
        conflicts = sum(count.conflicts for count in self._counts.values()) + len(self._earlier.conflicts_before)
        if self._options.withhold_cookies is not None:
            return self._options.withhold_cookies
        if conflicts:
            return f"{count_noun(conflicts, 'write')} in conflict with what is in the store"
        return f"{count_noun(changed, 'record')} not read back as written" if changed else ""

    def _withhold_cookies(self, cookies: Sequence[Action], reason: str) -> None:
        standing: set[int] = set()
        # Those that a run announced before it was killed may be there.
        presumed = (cookie for cookie in cookies if cookie.seq in self._earlier.presumed)
        for batch in cut_batches(presumed, self._options.batch_rows):
            standing |= self._record_standing(batch, reason)
        for cookie in cookies:
            if self._earlier.is_open(cookie.seq) and cookie.seq not in standing:
                self._counts[cookie.kind, cookie.op].withheld += 1
                self._advance(1)

    def _record_standing(self, batch: Sequence[Action], reason: str) -> set[int]:
        """Record what became of cookies that an earlier run announced, without writing; return those that stand."""
        stored = self._records.read(batch)
        number = self._take_number()
        standing: set[int] = set()

        def make() -> list[int | None]:
            return [find_version(stored[a.key]) if a.is_made(stored[a.key]) else None for a in batch]

        def report(versions: list[int | None]) -> Event:
            missing = [RefusedWrite(place, reason) for place, version in enumerate(versions) if version is None]
            presumed = [place for place, version in enumerate(versions) if version is not None]
            for place in presumed:
                standing.add(batch[place].seq)
                self._counts[batch[place].kind, batch[place].op].written += 1
                self._advance(1)
            return Done(number, versions, presumed, missing)

        self._writer.carry_out([WriteStep([self._announce(number, batch, stored)], make, report)])
        return standing

    def _plan_step(self, batch: Sequence[Action]) -> WriteStep[Outcomes]:
        """Return how a batch is announced, written, and recorded."""
        stored = self._records.read(batch) if batch[0].op in (*CHANGES, RELEASE) else None
        number = self._take_number()
        is_lock = batch[0].kind == LOCK
        announced = self._earlier.presumed_locks if is_lock else self._earlier.presumed
        presumed = [place for place, action in enumerate(batch) if action.seq in announced]

        def make() -> Outcomes:
            if batch[0].op == RAISE:
                return {batch[0].key: self._raise(batch[0])}
            announced_before = {batch[place].key for place in presumed}
            if is_lock:
                return settle_patiently(self._records, batch, stored, self._patience, announced_before=announced_before)
            refused = {a.key: ChangeOutcome(conflict=self._unlocked[a.seq]) for a in batch if a.seq in self._unlocked}
            writable = [action for action in batch if action.key not in refused]
            return refused | settle_changes(self._records, writable, stored, announced_before=announced_before)

        def report(outcomes: Outcomes) -> Event:
            ordered = [outcomes[action.key] for action in batch]
            self._count(batch, ordered)
            refused = [RefusedWrite(place, o.conflict) for place, o in enumerate(ordered) if o.conflict is not None]
            return Done(number, [outcome.version for outcome in ordered], presumed, refused)

        return WriteStep([self._announce(number, batch, stored or {})], make, report)

    def _take_number(self) -> int:
        self._batch += 1
        return self._batch - 1

    def _announce(self, number: int, batch: Sequence[Action], stored: Mapping[str, Versioned | None]) -> Intent:
        writes = []
        for action in batch:
            digest = None if action.value is None else hashlib.sha256(action.value).hexdigest()
            replaced = self._find_replaced(action, stored.get(action.key))
            writes.append(
                AnnouncedWrite(action.seq, action.op, action.id.hex(), action.key, action.expects, digest, replaced)
            )
        return Intent(number, batch[0].kind, writes)

    def _find_replaced(self, action: Action, stored: Versioned | None) -> str | None:
        """Return the bytes that an action replaces or removes, as the journal writes them."""
        if action.op not in (*CHANGES, RELEASE):
            return None
        known = self._earlier.presumed_locks if action.kind == LOCK else self._earlier.replaced
        if action.seq in known and action.is_made(stored):
            return known[action.seq]
        return None if stored is None else base64.b64encode(stored.value).decode()

    def _count(self, batch: Sequence[Action], outcomes: Sequence[ChangeOutcome]) -> None:
        for action, outcome in zip(batch, outcomes, strict=True):
            count = self._counts[action.kind, action.op]
            if action.op == LOCK:
                if outcome.conflict is not None:
                    self._unlocked[action.seq] = f"its lock was not had: {outcome.conflict}"
                elif action.seq in self._earlier.locked:
                    continue  # an earlier run counted it
            if outcome.conflict is None and outcome.version is None:
                count.there += 1
            elif outcome.conflict is None:
                count.written += 1
            else:
                count.conflicts += 1
                self._conflicting.add(action.seq)
                if len(self._conflicts) < LISTED:
                    self._conflicts.append(Conflict(action.kind, action.op, action.key, outcome.conflict))
            self._advance(1)

    def _advance(self, steps: int) -> None:
        self._steps += steps
        self._progress(self._steps, self._survey.steps)

    def _to_write(self, action: Action, key: str, stored: Versioned | None) -> Write:
        expects = action.expects if action.op != RELEASE or stored is None else stored.version
        return Write(key, action.value, expects, self._choose_acl(action))

    def _choose_acl(self, action: Action) -> str | None:
        return action.acl if action.acl is not None else self._options.acl

    def _raise(self, action: Action) -> ChangeOutcome:
        key, acl = self._records.make_absolute(action.key), self._choose_acl(action)
        was_announced = action.seq in self._earlier.presumed
        return raise_counter(action, self._store, self._base, key, acl=acl, was_announced=was_announced)

    def _read_back(self, actions: Actions) -> tuple[int, tuple[str, ...], int]:
        """Read every key of the phases before cookies; return how many, and which are not as they must be."""
        awaited: deque[Action] = deque()
        conflicting = self._conflicting | self._earlier.conflicts_before

        def list_keys() -> Iterator[str]:
            for step in read_written(actions, self._options.wave, conflicting):
                awaited.append(step)
                yield self._records.make_absolute(step.key)

        checked, count = 0, 0
        changed: list[str] = []
        for _, stored in self._store.get_many(list_keys()):
            action = awaited.popleft()
            checked += 1
            self._advance(1)
            if not action.is_made(stored):
                count += 1
                if len(changed) < LISTED:
                    changed.append(action.key)
        return checked, tuple(changed), count
