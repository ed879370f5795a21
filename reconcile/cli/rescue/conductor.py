"""The steps of a rescue. Each runs the commands that it prints; what a step has done is never done again.

    look       what kind of disaster? a store that is lost or went back, or deletes on a cluster that lives
    stop       the store's files are copied; a store that is not gone is frozen, which disables replication; every
               bookie is stopped where it is, and seen to be
    collect    every bookie's disks at once; what is missing becomes a question
    decide     a plan, and the questions that change it
    review     the plan, a rehearsal, one hash to confirm
    restore    apply; read back from disks that are here
    start      freeze what is not frozen, bookies in their order, read back over the wire, thaw; what is left

Of deletes on a cluster that lives, and of topics: freeze instead of stop, no collect, `undelete` instead of `recover`.
Where the store cannot be frozen, bookies are stopped for these, too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reconcile.cli.command import Exit
from reconcile.cli.rescue.collect import collect
from reconcile.cli.rescue.decide import decide
from reconcile.cli.rescue.left_out import LEFT_OUT
from reconcile.cli.rescue.look import look
from reconcile.cli.rescue.open_rescue import OpenRescue
from reconcile.cli.rescue.record import RescuePhase
from reconcile.cli.rescue.recover import OLDER
from reconcile.cli.rescue.restore import restore
from reconcile.cli.rescue.review import review
from reconcile.cli.rescue.start import start
from reconcile.cli.rescue.stop import stop
from reconcile.words import count_noun


@dataclass(frozen=True, slots=True)
class RescueEnd:
    """How a rescue ended.

    Attributes:
        kind: what it was taken for.
        left: what is left to do, a line each.
        may_not_start: bookies that must not start, with the reason.
        is_read: whether every ledger of the plan was read back as it should be.
    """

    kind: str
    left: tuple[str, ...]
    may_not_start: Mapping[str, str]
    is_read: bool


def conduct(rescue: OpenRescue) -> RescueEnd:
    """Go on where the record ends.

    Raises:
        GuardRefusedError: it is dangerous to go on: the way out is said.
        HostError: a host cannot be reached, or a script failed there.
    """
    steps: Mapping[RescuePhase, Callable[[OpenRescue], None]] = {
        RescuePhase.LOOK: look,
        RescuePhase.STOP: stop,
        RescuePhase.COLLECT: collect,
        RescuePhase.DECIDE: decide,
        RescuePhase.REVIEW: review,
        RescuePhase.RESTORE: restore,
        RescuePhase.START: start,
    }
    for number, (phase, step) in enumerate(steps.items()):
        rescue.say(f"== {number} {phase.value}" + (": done before" if rescue.record.is_done(phase) else ""))
        if not rescue.record.is_done(phase):
            step(rescue)
            rescue.record.end(phase)
    return conclude(rescue)


def conclude(rescue: OpenRescue) -> RescueEnd:
    """Return how it ended, with what is left to do."""
    decided = rescue.record.find_phase(RescuePhase.DECIDE)
    starts = rescue.record.find_phase(RescuePhase.RESTORE).get("starts", [])
    stay = {str(row["bookie"]): str(row["reason"]) for row in starts if not row["may_start"]}
    started = rescue.record.find_phase(RescuePhase.START)
    when = rescue.record.now().isoformat(timespec="seconds")
    left = [f"as of {when}: {started.get('read', '')}"]
    left += [f"{bookie} must not start: {reason}" for bookie, reason in stay.items()]
    if decided.get("saved", {}).get(OLDER):
        text = f"older ledgers of {count_noun(len(decided['older']), 'id')} are in {rescue.out / OLDER}"
        left.append(f"{text}: give them to the team that wrote them")
    left += decided.get("unload", [])
    if decided.get("has_topics"):
        left.append("restart the brokers, or start them now: they read topics and subscriptions again")
    if decided.get("saved", {}).get(LEFT_OUT):
        text = f"entries of {count_noun(len(decided['left_out']), 'ledger')} that no record names are in "
        left.append(f"{text}{rescue.out / LEFT_OUT}")
    if started.get("replication_disabled"):
        left.append("when all is verified, enable replication by hand: bookkeeper shell autorecovery -enable")
    elif started.get("replication_disabled") is False:
        left.append("replication, which the freeze had disabled, is enabled again")
    left.append(f"from today on, daily: bkmeta capture --metadata {rescue.uri} --out DIR")
    is_read = started.get("read_code") == Exit.DONE
    return RescueEnd(rescue.kind, tuple(left), stay, is_read)
