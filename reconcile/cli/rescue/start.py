"""Step 6 of a rescue: bookies start in their order, and all is read back over the wire."""

from typing import Final

from reconcile.cli.command import Exit
from reconcile.cli.rescue import scripts
from reconcile.cli.rescue.freezes import freeze, thaw
from reconcile.cli.rescue.hosts import BookieHost
from reconcile.cli.rescue.open_rescue import LOST, WIRE, OpenRescue
from reconcile.cli.rescue.record import RescuePhase, RescueQuestion
from reconcile.cli.rescue.transports import require_done, run_script
from reconcile.errors import GuardRefusedError
from reconcile.write.guards import ask_whether_running
from recovery.bookies.addresses import read_members
from recovery.codecs.store import Layout

_NOT_READ: Final = {"may_start": False, "reason": "its disks were not read"}


def start(rescue: OpenRescue) -> None:
    """Start what was stopped, frozen where that is possible, read all back, and thaw."""
    plan = rescue.record.find_phase(RescuePhase.DECIDE)["plan"]
    is_flat = False
    if rescue.kind == LOST and rescue.is_frozen:
        is_flat = rescue.read_layout() is Layout.FLAT
        freeze(rescue)
        if is_flat:
            # Frozen bookies of this layout do not start. The thaw refuses what they would delete, and replication
            # stays disabled until all is read.
            thaw(rescue)
    if rescue.is_stopped:
        start_bookies(rescue)
    words = ["verify", plan, "--incident", rescue.incident, "--sample", "all", "--wire"]
    read = rescue.read_back(WIRE, words)
    facts = rescue.record.find_phase(RescuePhase.START)
    facts["read"], facts["read_code"] = read["verdict"], read["exit_code"]
    rescue.record.save()
    enable_replication = is_settled(rescue)
    if rescue.is_frozen and (enable_replication or not is_flat):
        thaw(rescue, enable_replication=enable_replication)


def is_settled(rescue: OpenRescue) -> bool:
    """Whether replication may go on: all was read as it should be, every bookie runs, and no ledger waits."""
    decided, counts = rescue.record.find_phase(RescuePhase.DECIDE), rescue.read_counts()
    is_read = rescue.record.find_phase(RescuePhase.START)["read_code"] == Exit.DONE
    is_waiting = any(counts.get(name) for name in ("guarded", "held")) or any(map(decided.get, ("older", "left_out")))
    return is_read and not is_waiting and not list_off(rescue)


def list_off(rescue: OpenRescue) -> dict[str, str]:
    """Return the bookies that stay stopped, each with the reason."""
    starts = {row["bookie"]: row for row in rescue.record.find_phase(RescuePhase.RESTORE)["starts"]}
    off = {}
    for bookie in rescue.hosts.bookies:
        # Of deletes no disks were read: what the bookies had is what they have.
        row = starts.get(rescue.find_id(bookie), _NOT_READ)
        if rescue.record.find_answer(f"host {bookie.name}") == "down":
            off[bookie.name] = "it was not reached"
        elif rescue.kind == LOST and not row["may_start"]:
            off[bookie.name] = row["reason"]
    return off


def start_bookies(rescue: OpenRescue) -> None:
    """Start the bookies that may start, in the order of the file of hosts."""
    off = list_off(rescue)
    for bookie in rescue.hosts.bookies:
        if bookie.name in off:
            rescue.say(f"{bookie.name} stays stopped: {off[bookie.name]}")
        else:
            start_bookie(rescue, bookie, rescue.find_id(bookie))


def start_bookie(rescue: OpenRescue, bookie: BookieHost, name: str | None) -> None:
    """Kill what was stopped, start it, and wait until it is registered.

    Args:
        rescue: of it.
        bookie: its host.
        name: its id; None: it is not known. All other bookies that run were started here.
    """
    started: dict[str, str] = rescue.record.find_phase(RescuePhase.START).setdefault("started", {})

    def find() -> set[str]:
        registered = rescue.list_registered()
        return registered - set(started.values()) if name is None else registered & {name}

    if started.get(bookie.name) in list_running(rescue):
        return
    left = scripts.parse_processes(
        require_done(bookie.host, run_script(bookie.host, scripts.build_kill(bookie.process)), "kill").out
    )
    if left:
        raise GuardRefusedError(bookie.name, f"process {left[0].pid} cannot be killed", "kill it from its node")
    # Its session may outlive it: what is registered then is not the bookie that is started.
    rescue.wait_until(lambda: not find(), f"{bookie.name}: its session ended")
    if bookie.start is None:
        rescue.answer(RescueQuestion(f"started {bookie.name}", f"start {bookie.name} by hand, then say: done"))
    else:
        rescue.say(f"{bookie.name}: {bookie.start}")
        require_done(bookie.host, run_script(bookie.host, scripts.build_start(bookie.start)), "its start")
    rescue.wait_until(lambda: bool(find()), f"{bookie.name}: it is registered")
    started[bookie.name] = min(find())
    rescue.record.save()


def list_running(rescue: OpenRescue) -> set[str]:
    """Return the registered bookies that answer. One that crashed is registered until its session ends.

    Of one whose registration names no address nothing more can be told.
    """
    with rescue.connect() as opened:
        names = read_members(opened.store, opened.root.rstrip("/"), opened.layout_hint, {})
        members = [member for name in names.bookies if (member := names.find(name)).registered_txn is not None]
    answers = ask_whether_running(str(member.address) for member in members)
    return {member.bookie for member in members if answers.get(str(member.address), True)}
