"""Step 6 of a rescue: bookies start in their order, and all is read back over the wire."""

from typing import Final

from reconcile.cli.rescue import scripts
from reconcile.cli.rescue.freezes import freeze, thaw
from reconcile.cli.rescue.hosts import BookieHost
from reconcile.cli.rescue.open_rescue import LOST, OpenRescue
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
            # stays disabled.
            thaw(rescue)
    if rescue.is_stopped:
        start_bookies(rescue)
    words = ["verify", plan, "--incident", rescue.incident, "--sample", "all", "--wire"]
    read = rescue.read_back("wire read", words)
    facts = rescue.record.find_phase(RescuePhase.START)
    facts["read"], facts["read_code"] = read["verdict"], read["exit_code"]
    if rescue.is_frozen and not is_flat:
        thaw(rescue)


def start_bookies(rescue: OpenRescue) -> None:
    """Start the bookies that may start, in the order of the file of hosts."""
    starts = {row["bookie"]: row for row in rescue.record.find_phase(RescuePhase.RESTORE)["starts"]}
    for bookie in rescue.hosts.bookies:
        name = rescue.find_id(bookie)
        if rescue.record.find_answer(f"host {bookie.name}") == "down":
            rescue.say(f"{bookie.name} was not reached, and stays off")
            continue
        # Of deletes no disks were read: what the bookies had is what they have.
        if rescue.kind == LOST and not (row := starts.get(name, _NOT_READ))["may_start"]:
            rescue.say(f"{bookie.name} stays stopped: {row['reason']}")
            continue
        start_bookie(rescue, bookie, name)


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
