"""Entries of some ledgers, written from bookies' disks into files before bookies may delete them."""

from collections.abc import Sequence

from reconcile.cli.rescue import questions
from reconcile.cli.rescue.copies import export_ledgers
from reconcile.cli.rescue.open_rescue import OpenRescue
from reconcile.cli.rescue.record import RescuePhase
from reconcile.errors import GuardRefusedError
from reconcile.words import count_noun


def save_ledgers(rescue: OpenRescue, ledgers: Sequence[str], folder: str) -> None:
    """Save what each bookie has of some ledgers; where some may have more, go on only if a person says so.

    Args:
        rescue: of it.
        ledgers: their ids.
        folder: of the incident's folder that gets the files.

    Raises:
        GuardRefusedError: no person does.
    """
    ids, disks = (rescue.record.find_phase(RescuePhase.COLLECT)[name] for name in ("bookies", "disks"))
    saved: dict[str, str] = rescue.record.find_phase(RescuePhase.DECIDE).setdefault("saved", {}).setdefault(folder, {})
    for bookie in rescue.hosts.bookies:
        name, is_gone = ids.get(bookie.name), rescue.is_said_to_be_gone(bookie)
        if name is None:
            saved[bookie.name] = "" if is_gone else "its disks were not read"
        elif saved.get(bookie.name) != "":
            rescue.say(f"{bookie.name}: {bookie.program} export of {count_noun(len(ledgers), 'ledger')}")
            done = export_ledgers(bookie, name, disks[name], ledgers, rescue.out / folder, rescue.passwords)
            # That folders which are gone were not looked at is known.
            saved[bookie.name] = done.unreadable or ("" if is_gone else done.unread)
            rescue.say(f"  {done.verdict}")
        rescue.record.save()
    lacking = [f"{name}: {problem}" for name, problem in saved.items() if problem]
    if lacking:
        question = questions.ask_for_unsaved(folder, lacking)
        if rescue.answer(question) == "no":
            rescue.forget(question.id)
            remedy = "save the rest with bkmeta export, then run this again and answer yes"
            raise GuardRefusedError("what was saved of these ledgers", f"may not be all: {lacking[0]}", remedy)
