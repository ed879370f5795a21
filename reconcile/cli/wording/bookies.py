"""What is said of one bookie."""

from typing import TYPE_CHECKING, Final

from reconcile.cli.command import Exit
from reconcile.cli.options import quote_command
from reconcile.cli.output import Result
from reconcile.words import count_noun, list_names
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from reconcile.jobs.diagnose.explain_bookie import BookieSides

_NAMED: Final = 5
_WORDS: Final = {
    "named": "name it",
    "held": "have entries on it",
    "only": "have entries on it alone",
    "lacking": "are closed, and it has fewer entries than they ask of it",
    "strays": "have entries on it, and do not name it",
    "unlisted": "have entries on it, and no record",
}


def make_result(sides: "BookieSides", out: DatasetPlace | None) -> Result:
    """Return what is shown."""
    ledgers = sides.ledgers
    code = (
        Exit.UNDECIDABLE if not sides.collected else Exit.FOUND if ledgers["only"] or ledgers["lacking"] else Exit.DONE
    )
    verdict = {
        Exit.UNDECIDABLE: f"{sides.bookie} was not collected: what it holds is not known",
        Exit.FOUND: f"{count_noun(sides.only, 'entry', 'entries')} of {count_noun(ledgers['only'], 'ledger')} on "
        f"{sides.bookie} alone; it lacks entries of {count_noun(ledgers['lacking'], 'ledger')}",
        Exit.DONE: f"nothing stands on {sides.bookie} alone, and it has all that is asked of it",
    }[code]
    details = [
        f"{count_noun(sides.segments, 'segment')} name it; entries: {sides.due} due, of closed ones, {sides.held} held"
    ]
    for name, words in _WORDS.items():
        first = f": {', '.join(map(str, sides.first[name][:_NAMED]))}" if ledgers[name] else ""
        details.append(f"{count_noun(ledgers[name], 'ledger')} {words}{first}{' …' if ledgers[name] > _NAMED else ''}")
    if sides.not_collected:
        details.append(f"not collected, so they may have copies: {list_names(sides.not_collected)}")
    following = ""
    if not sides.collected:
        following = (
            "on its host: bkmeta collect --bookie-conf bk_server.conf --out DIR; then again with --inventory DIR"
        )
    elif ledgers["only"]:
        named = quote_command("bkmeta", "check-impact", "--metadata", "URI", "--bookies", sides.bookie)
        following = f"before it goes: {named}"
    return Result(
        "explain",
        verdict,
        code,
        counts={
            "ledgers": dict(ledgers),
            "segments": sides.segments,
            "due": sides.due,
            "held": sides.held,
            "only": sides.only,
        },
        coverage={"collected": sides.collected, "not_collected": list(sides.not_collected)},
        details=details,
        following=following,
        facts={
            "bookie": sides.bookie,
            "first": {name: [str(ledger) for ledger in ids] for name, ids in sides.first.items()},
            "out": None if out is None else str(out),
        },
    )
