"""Step 2 of a rescue: every bookie's disks, and the questions for what is missing."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from reconcile.cli.rescue import questions
from reconcile.cli.rescue.copies import FetchedBookie, collect_bookie
from reconcile.cli.rescue.open_rescue import AT_ONCE, DELETES, OpenRescue
from reconcile.cli.rescue.record import RescuePhase, RescueQuestion
from reconcile.errors import GuardRefusedError
from reconcile.estimates import EstimatedStep, estimate_s, in_words
from reconcile.jobs.described_bookies import list_recorded_bookies


def collect(rescue: OpenRescue) -> None:
    """Collect every bookie, and ask about what is missing and what names a bookie; of deletes nothing is collected."""
    if rescue.kind == DELETES:
        return
    for bookie in rescue.hosts.bookies:
        rescue.say(f"{bookie.name}: {bookie.program} collect --bookie-conf {bookie.conf}")
    seconds = estimate_s(EstimatedStep.COLLECT, 1_000_000)
    rescue.say(f"  a million ledgers of a bookie take {in_words(seconds)}; an hour where its disk seeks")
    collected = collect_all(rescue)
    facts = rescue.record.find_phase(RescuePhase.COLLECT)
    facts["bookies"] = {item.name: item.bookie for item in collected if item.bookie is not None}
    facts["disks"] = {item.bookie: _list_disks(item) for item in collected if item.bookie is not None}
    unread = [item for item in collected if not item.is_complete]
    facts["gaps"] = {item.name: [gap.path for gap in item.gaps] for item in unread if item.bookie is not None}
    gaps = [question for item in unread for question in _ask_for_gaps(item)]
    rescue.answer_all([question for question in gaps if question.recommended == questions.AGAIN])
    require_read(rescue, collected)
    names = ask_for_ids(rescue)
    rescue.answer_all([*gaps, *names])
    require_read(rescue, collected)
    require_own_ids(rescue, names)


def require_read(rescue: OpenRescue, collected: Sequence[FetchedBookie]) -> None:
    """Refuse to go on without a bookie that is to be collected again.

    Raises:
        GuardRefusedError: a person says so of one; what was collected is kept.
    """
    names = [
        name for item in collected if rescue.record.find_answer(name := f"disks of {item.name}") == questions.AGAIN
    ]
    for name in names:
        rescue.forget(name)
    if names:
        remedy = (
            "give its host the program (`program` and `copy` in the file of hosts) or its disks, then run this again"
        )
        raise GuardRefusedError("; ".join(names), "were not read", remedy)


def collect_all(rescue: OpenRescue) -> list[FetchedBookie]:
    """Collect every bookie, all at once, and say each as it is done."""
    bookies, passwords = rescue.hosts.bookies, rescue.passwords
    with (
        ThreadPoolExecutor(AT_ONCE) as pool,
        rescue.output.progress("collecting bookies", "bookies") as show,
    ):
        begun = [pool.submit(collect_bookie, bookie, rescue.out / "inv", passwords) for bookie in bookies]
        for done, item in enumerate(as_completed(begun), 1):
            rescue.say(f"{item.result().name}: {item.result().verdict} ({done} of {len(bookies)} bookies)")
            show(done, len(bookies))
    return [item.result() for item in begun]


def ask_for_ids(rescue: OpenRescue) -> list[RescueQuestion]:
    """Return the questions for the ids of bookies that neither their disks nor the file of hosts name."""
    bookies = rescue.hosts.bookies
    nameless = [bookie.name for bookie in bookies if rescue.find_named_id(bookie) is None]
    if not nameless:
        return []
    known = {rescue.find_named_id(bookie) for bookie in bookies}
    context = rescue.make_context()
    left = sorted(list_recorded_bookies(rescue.list_snapshots(), rescue.uri, context) - known)
    return [questions.ask_for_id(name, left, is_only=len(nameless) == len(left) == 1) for name in nameless]


def require_own_ids(rescue: OpenRescue, asked: Sequence[RescueQuestion]) -> None:
    """Refuse an id that a person does not know, or that two bookies would have.

    Raises:
        GuardRefusedError: a bookie has no id of its own.
    """
    ids = [rescue.find_id(bookie) for bookie in rescue.hosts.bookies]
    remedy = "write the `id` of each such bookie in the file of hosts, and each bookie that it lacks; then run this"
    for question in asked:
        answer = rescue.answer(question)
        if answer == questions.NONE_OF_THESE or ids.count(answer) > 1:
            rescue.forget(question.id)
            is_twice = answer != questions.NONE_OF_THESE
            problem = f"is answered {answer}, which another bookie has" if is_twice else "is not known"
            raise GuardRefusedError(question.id, problem, f"{remedy} again")


def _ask_for_gaps(item: FetchedBookie) -> list[RescueQuestion]:
    """Return the questions for what was not read of a bookie: folder by folder where it is known which."""
    if item.bookie is None or not item.gaps:
        return [questions.ask_for_disks(item)]
    return [questions.ask_for_folder(item, gap) for gap in item.gaps]


def _list_disks(item: FetchedBookie) -> list[str]:
    """Return the folders of a bookie that are there."""
    missing = {gap.path for gap in item.gaps if gap.is_missing}
    return [disk for disk in item.disks if disk not in missing]
