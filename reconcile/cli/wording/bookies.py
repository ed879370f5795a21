"""What is said about one bookie, and of what asking a cluster's bookies gave."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from reconcile.cli.command import Exit
from reconcile.cli.options import carry_options, quote_command
from reconcile.cli.output import Result
from reconcile.words import count_noun, list_names
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from reconcile.explain.bookie import BookieSides
    from reconcile.jobs.collect.cluster import CollectedCluster
    from recovery.bookies.wire_results import BookieResult

_SHOWN: Final = 10
_CONF: Final = "/etc/bookkeeper/bk_server.conf"
_NAMED: Final = 5
_WORDS: Final = {
    "named": "name it",
    "held": "have entries on it",
    "only": "have entries on it alone",
    "lacking": "are closed, and the bookie has fewer entries than they ask of it",
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
        Exit.DONE: f"no entry is on {sides.bookie} alone, and it has every entry that records ask of it",
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


def cluster_result(collected: "CollectedCluster", out: DatasetPlace) -> Result:
    """Say which bookies answered, and what for."""
    from recovery.bookies.addresses import ALIAS_UNRESOLVED
    from recovery.bookies.wire_results import NOT_TOLD, AskedKind, folder_of

    summary, gaps = collected.summary, collected.gaps
    made = [bookie for bookie in summary.bookies if bookie.kind is AskedKind.COLLECTED]
    without = [bookie for bookie in summary.bookies if bookie.kind is not AskedKind.COLLECTED]
    partly = [bookie for bookie in made if bookie.unanswered]
    unknown = bool(without or partly or summary.unresolved or gaps or summary.scoped)
    entries = sum(bookie.entries for bookie in made)
    listed, shown = count_noun(summary.listed, "ledger"), count_noun(entries, "entry", "entries")
    verdict = f"{len(made)} of {count_noun(len(summary.bookies), 'bookie')} answered for {listed}: {shown}"
    if unknown:
        verdict += ", NOT complete: ledgers without an answer may have more entries"
    details = [
        f"{bookie.bookie}: {count_noun(bookie.ledgers, 'ledger')}, {count_noun(bookie.entries, 'entry', 'entries')}, "
        f"in {bookie.folder}"
        for bookie in made[:_SHOWN]
    ]
    details += [
        f"{bookie.bookie}: nothing is known of {count_noun(bookie.unanswered, 'ledger')} ({bookie.why})"
        for bookie in partly[:_SHOWN]
    ]
    for bookie in without[:_SHOWN]:
        if bookie.kind is AskedKind.NO_LISTS:
            command = quote_command(
                "bkmeta", "collect", "--bookie-conf", _CONF, "--out", f"inv-{folder_of(bookie.bookie)}"
            )
            details.append(
                f"{bookie.bookie}: does not say what it has of a ledger (DbLedgerStorage, or BookKeeper before 4.10); "
                f"run on its host: {command}"
            )
        else:
            details.append(f"{bookie.bookie}: {bookie.kind.replace('_', ' ')} ({bookie.why})")
    details += [f"{ALIAS_UNRESOLVED} {name}: {why}" for name, why in list(summary.unresolved.items())[:_SHOWN]]
    details += [f"not read in the store: {gap}" for gap in gaps[:_SHOWN]]
    if summary.scoped:
        details.append(
            f"not asked for: {count_noun(summary.scoped, 'ledger')} of other scopes, which no released bookie knows"
        )
    details.append("the wire does not tell: " + "; ".join(NOT_TOLD))
    return Result(
        "collect",
        verdict,
        Exit.UNDECIDABLE if unknown else Exit.DONE,
        counts={
            "ledgers": summary.listed,
            "bookies": len(made),
            "entries": entries,
            "negatives": sum(bookie.negatives for bookie in made),
            "unanswered": sum(bookie.unanswered for bookie in made),
            "damaged": sum(bookie.damaged for bookie in made),
        },
        coverage={
            "complete": False,
            "not_told": list(NOT_TOLD),
            "bookies": {bookie.bookie: _facts(bookie) for bookie in summary.bookies},
            "unresolved": dict(summary.unresolved),
            "gaps": list(gaps),
            "other_scopes": summary.scoped,
        },
        details=details,
        following=quote_command("bkmeta", "explain", "LEDGER", "--inventory-dir", out, *carry_options("--metadata"))
        if made
        else "",
        facts={"out": str(out)},
    )


def _facts(bookie: "BookieResult") -> Mapping[str, object]:
    names = ("why", "folder", "ledgers", "entries", "negatives", "unanswered", "damaged")
    return {"kind": str(bookie.kind), **{name: getattr(bookie, name) for name in names}}
