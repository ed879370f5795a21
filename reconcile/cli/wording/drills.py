"""What a drill says: what would come back, which fields would be guesses, and what to do about it today."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from reconcile.findings.refusal_texts import describe_reason
from reconcile.words import count_noun, list_names

if TYPE_CHECKING:
    from reconcile.jobs.records.drill import Drilled

_WORDS: Final = {
    "exact": "come back exactly",
    "readable": "come back readable, with other fields",
    "held": "are held: kept, and not readable",
    "lost": "are lost, or come back with fewer entries",
    "undecided": "cannot be told",
}
_ONLY_STORED: Final = ("ack_quorum", "ctime", "custom")
"""Fields that no bookie has."""
_NAMED: Final = 5


def describe_drill(drilled: "Drilled") -> Iterator[str]:
    """Yield the lines for people."""
    for name, words in _WORDS.items():
        count, entries = drilled.ledgers[name], drilled.entries.get(name, 0)
        yield f"{count_noun(count, 'ledger')} with {count_noun(entries, 'entry', 'entries')} {words}"
        for reason, number in sorted(drilled.reasons.get(name, {}).items(), key=lambda item: -item[1]):
            yield f"  {number}: {describe_reason(reason) if name == 'held' else reason}"
    if drilled.entries_lost:
        yield f"entries that are readable now, and would not be: {drilled.entries_lost}"
    for outcome, count in sorted(drilled.returned.items()):
        yield f"the store no longer lists {count_noun(count, 'ledger')}, and the plan has them as {outcome}"
    fields = sorted({*drilled.guessed, *drilled.differs})
    for name in fields:
        guessed, differs = drilled.guessed.get(name, 0), drilled.differs.get(name, 0)
        yield f"{name}: guessed in {guessed} of the ledgers that come back, different from the store in {differs}"
    for row in drilled.worst:
        yield f"{row['class']} ledger {row['ledger']}: {row['reason']}"


def list_advice(drilled: "Drilled") -> list[str]:
    """Return what to do today, so that all would come back."""
    return list(_advise(drilled))


def _advise(drilled: "Drilled") -> Iterator[str]:
    differs, lost = drilled.differs, drilled.reasons.get("lost", {})
    if drilled.not_collected:
        names = list_names(drilled.not_collected, _NAMED)
        yield f"collect {names}: bkmeta collect --bookie-conf bk_server.conf --out DIR"
    if differs.get("password_hash") or lost.get("another password"):
        count = count_noun(differs.get("password_hash", 0), "ledger")
        yield f"keep the passwords of all clients in a file of mode 0600, for --passwords: {count} would lack theirs"
    if not drilled.told["bookies"]:
        yield "keep a file of all bookies, one id a line, for --expect-bookies: only it shows which bookies are missing"
    only_stored = max((differs.get(name, 0) for name in _ONLY_STORED), default=0)
    empty = lost.get("without an entry: on no bookie", 0)
    if only_stored or empty or drilled.ledgers["held"]:
        age = "more often: what was given is older than these" if drilled.snapshots else "each day; none was given"
        yield (
            f"keep a capture, for --snapshot, {age}: bkmeta capture --metadata URI --out DIR, or bkmeta serve. It "
            f"alone has A, creation time and custom metadata ({count_noun(only_stored, 'ledger')}), and "
            f"{count_noun(empty, 'empty ledger')}"
        )
    if drilled.ledgers["undecided"]:
        yield "collect the bookies again: ledgers changed since"
    if drilled.returned:
        yield (
            "captures, bkmeta delete and --references show what was deleted: without them deleted ledgers come back, "
            "or are held"
        )
