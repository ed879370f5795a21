"""The command that says everything about one ledger, or about one bookie."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import (
    FILE,
    LAYOUTS,
    PLACE,
    TAILS,
    add_moment,
    aliases_option,
    bookies_option,
    carry_options,
    evidence_option,
    inventory_options,
    lost_option,
    make_context,
    make_output,
    moment_option,
    output_options,
    parse_ledger,
    parse_quorum,
    quorums_option,
    quote_command,
    read_aliases,
    read_names,
    read_passwords,
    references_option,
    scope_option,
)
from reconcile.cli.output import Result
from reconcile.words import list_names
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from reconcile.explain.field_evidence import ExplainedField
    from reconcile.explain.ledger import Explanation
    from reconcile.explain.ledger_copies import SourceCopy

CODES: Final = {"settled": Exit.DONE, "open": Exit.FOUND, "undecided": Exit.UNDECIDABLE}
"""Exit code of each standing."""
_AS_RECOVER: Final = (
    "--inventory",
    "--inventory-dir",
    "--metadata",
    "--snapshot",
    "--passwords",
    "--expect-bookies",
    "--default-quorum",
    "--quorums",
    "--lost",
    "--references",
    "--aliases",
    "--tail",
)
_OF_LEDGERS: Final = (
    "ledger", "scope", "qualified", "snapshots", "plan", "passwords", "expect_bookies", "default_quorum",
    "quorums", "lost", "references", "evidence", "tail", "layout",
)  # fmt: skip
"""Parameters that mean nothing with --bookie."""
_NAMED: Final = 5
_WIDTH: Final = 16
_VALUE: Final = 18


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "the ledger comes back, or is in the store and nothing disagrees; with --bookie: no entry is on "
        "it alone, and none is missing",
        Exit.FAILED: "the store did not answer, or the tool failed",
        Exit.USAGE: "an id, a URI or datasets that cannot be used",
        Exit.FOUND: "the ledger is held or guarded, something disagrees, or it is not known and every bookie was "
        "read; with --bookie: entries are on it alone, or are missing",
        Exit.UNDECIDABLE: "the ledger is not known, and not every bookie was read; with --bookie: it was not collected",
    },
    epilog="Example: bkmeta explain 12345 --inventory inv/bk1 --inventory inv/bk2 --plan plan",
)
@click.argument("ledger", required=False)
@scope_option
@click.option("--ledger-qualified-name", "qualified", metavar="NAME", help="Instead of LEDGER: its 32 hex digits.")
@click.option(
    "--bookie",
    metavar="ID",
    help="Instead of LEDGER: show which ledgers name this bookie, what it holds, and what only it holds.",
)
@inventory_options("One bookie's inventory, or a table of entries.")
@click.option("--metadata", "uri", metavar="URI", help="The store, or a capture of it: catalog:///DIR.")
@moment_option
@click.option(
    "--snapshot",
    "snapshots",
    multiple=True,
    metavar="PATH|URI",
    help="What the store held earlier, as `recover` takes it.",
)
@click.option("--plan", type=PLACE, help="A plan: its decision about the ledger is explained, not made again.")
@click.option("--passwords", type=FILE, help="Candidate passwords, one a line; mode 0600.")
@bookies_option
@click.option(
    "--default-quorum",
    callback=parse_quorum,
    metavar="E/W/A",
    help="Quorums of ledgers for which nothing else decides.",
)
@quorums_option
@lost_option
@references_option
@evidence_option
@click.option("--tail", type=click.Choice(TAILS), default=TAILS[0], show_default=True, help="As recover.")
@click.option("--layout", type=click.Choice(LAYOUTS), help="Of the store to be repaired, where nothing else names it.")
@aliases_option
@click.option("--out", type=PLACE, help="With --bookie: a new folder for its ledgers, a page, and files of ids.")
@output_options
def explain(
    ledger: str | None,
    scope: str | None,
    qualified: str | None,
    bookie: str | None,
    inventories: tuple[str, ...],
    uri: str | None,
    snapshots: tuple[str, ...],
    moment: str | None,
    plan: DatasetPlace | None,
    passwords: Path | None,
    expect_bookies: Path | tuple[str, ...] | None,
    default_quorum: tuple[int, int, int] | None,
    quorums: Path | None,
    lost: tuple[str, ...],
    references: tuple[str, ...],
    evidence: tuple[DatasetPlace, ...],
    tail: str,
    layout: str | None,
    aliases: Path | None,
    out: DatasetPlace | None,
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Say what is known of one LEDGER: who holds what, what follows from it, what the store and a plan have.

    LEDGER is a number, scope:number, or a qualified name of 32 hex digits. Given what recover was given, it says what
    recover decides; with --plan, what that plan did. No Spark is needed, and nothing is written.

    With --bookie ID, of one bookie: which ledgers and segments name it, what it holds, and what only it holds, by
    --metadata and the inventories of all bookies; --out keeps it, with files of ids for other commands.
    """
    if bookie is not None:
        sys.exit(_explain_bookie(bookie, inventories, uri, aliases, out, shared))
    if out is not None:
        raise click.UsageError("--out belongs to --bookie")
    from reconcile.jobs.diagnose import explain as job
    from reconcile.plan.actions import Passwords
    from recovery.codecs.store import Layout
    from recovery.infer.lost_disks import LostDisk
    from recovery.infer.search import Tail

    output = make_output(shared)
    typed = ledger if ledger is not None else qualified
    if typed is None or (ledger is not None and qualified is not None):
        raise click.UsageError("name one ledger: LEDGER, or --ledger-qualified-name")
    named = parse_ledger(typed, scope)
    stores = add_moment([*([] if uri is None else [uri]), *snapshots], moment)
    uri, snapshots = (None, stores) if uri is None else (stores[0], stores[1:])
    if not (inventories or uri or snapshots or plan):
        raise click.UsageError("give at least one of --inventory, --metadata, --snapshot, --plan")
    if evidence and uri is None:
        raise click.UsageError("--evidence belongs to --metadata: it is about the store's record")
    request = job.ExplainRequest(
        ledger=named,
        inventories=inventories,
        uri=uri,
        snapshots=snapshots,
        plan=plan,
        passwords=Passwords.from_candidates(read_passwords(passwords)),
        expected=read_names(expect_bookies) if expect_bookies else None,
        default_quorum=default_quorum,
        quorums=quorums,
        lost=tuple(map(LostDisk.parse, lost)),
        references=references,
        tail=Tail(tail),
        layout=Layout(layout) if layout else None,
        aliases=read_aliases(aliases),
        runs=evidence,
    )
    explanation = job.explain(request, make_context(output))
    sys.exit(output.show(_result(explanation, carry_options(*_AS_RECOVER), uri, plan)))


def _explain_bookie(
    bookie: str,
    inventories: tuple[str, ...],
    uri: str | None,
    aliases: Path | None,
    out: DatasetPlace | None,
    shared: dict[str, Any],
) -> int:
    """Show what there is of a bookie; return the exit code."""
    from reconcile.cli.wording.bookies import make_result
    from reconcile.jobs.diagnose.explain_bookie import BookieRequest, explain_bookie

    context = click.get_current_context()
    foreign = [
        name for name in _OF_LEDGERS if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    ]
    if foreign or uri is None:
        raise click.UsageError("--bookie goes with --metadata, --inventory, --inventory-dir, --aliases and --out alone")
    output = make_output(shared)
    request = BookieRequest(bookie=bookie, uri=uri, inventories=inventories, aliases=read_aliases(aliases), out=out)
    return output.show(make_result(explain_bookie(request, make_context(output)), out))


def _result(explanation: "Explanation", given: Sequence[str], uri: str | None, plan: DatasetPlace | None) -> Result:
    return Result(
        "explain",
        explanation.verdict,
        CODES[explanation.standing],
        counts={
            "copies": len(explanation.copies),
            "entries_held": sum(copy.entries for copy in explanation.copies),
            "disagreements": len(explanation.disagreements),
            "actions": len(explanation.actions),
            "damage": len(explanation.damage),
        },
        coverage=explanation.coverage.to_json(),
        details=list(_details(explanation)),
        following=_next(explanation, given, uri, plan),
        facts={
            "ledger": str(explanation.ledger),
            "qualified_name": explanation.ledger.qualified_name,
            "standing": str(explanation.standing),
            "outcome": explanation.outcome,
            "reason": explanation.reason,
            "settled_by": explanation.settles,
            "reconstruction": {"from": explanation.origin, "fields": [asdict(known) for known in explanation.fields]},
            "alternatives": list(explanation.alternatives),
            "sides": list(explanation.sides),
            "timeline": list(explanation.timeline),
            "references": list(explanation.references),
            "copies": [asdict(copy) for copy in explanation.copies],
            "grid": list(explanation.grid),
            "stored": explanation.stored,
            "disagreements": list(explanation.disagreements),
            "planned": list(explanation.actions),
            "damage": list(explanation.damage),
            "seen": list(explanation.seen),
        },
    )


def _details(explanation: "Explanation") -> Iterator[str]:
    if explanation.settles:
        yield f"what would settle it: {explanation.settles}"
    yield from _block("who holds what", [line for copy in explanation.copies for line in _copy(copy)])
    yield from _block(
        "entries by bookie (# all, - some, ! none of what it should have, + not asked for, . nothing)", explanation.grid
    )
    yield from _block(
        f"the record that follows ({explanation.origin})", [_field(known) for known in explanation.fields]
    )
    yield from _block("other readings that fit", explanation.alternatives)
    yield from _block("upper layers", explanation.references)
    yield from _block("three sides", explanation.sides)
    yield from _block("timeline", explanation.timeline)
    yield from _block("the store's record", _pairs(explanation.stored or {}))
    yield from _block("disagreements", explanation.disagreements)
    yield from _block("its copies as they were seen", explanation.seen)
    yield from _block("the plan writes", explanation.actions)
    yield from _block("damage that names it", explanation.damage)
    yield from _block("looked at", list(_coverage(explanation.coverage.to_json())))


def _block(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield f"{title}:"
        yield from (f"  {line}" for line in lines)


def _pairs(values: Mapping[str, str]) -> list[str]:
    return [f"{name:<{_WIDTH}} {value}" for name, value in values.items()]


def _field(known: "ExplainedField") -> str:
    # What is long is in the timeline, line by line.
    value = known.value if len(known.value) <= _VALUE else "see the timeline"
    return f"{known.name:<{_WIDTH}} {value:<{_VALUE}} {known.grade:<9}" + known.evidence


def _copy(copy: "SourceCopy") -> Iterator[str]:
    entries = f", {copy.entries} in all: {', '.join(copy.ranges)}" if copy.ranges else ", no entries"
    texts = [f"{copy.bookie} ({copy.source}){entries}"]
    texts += ["fenced"] if copy.fenced else []
    texts += ["in limbo"] if copy.limbo else []
    texts += ["" if copy.complete else "not read completely"]
    texts += [f"key {copy.key}"]
    texts += [] if copy.explicit_lac is None else [f"explicit LAC {copy.explicit_lac}"]
    yield "; ".join(filter(None, texts))
    yield from (f"  {header}" for header in copy.headers)


def _coverage(coverage: Mapping[str, Any]) -> Iterator[str]:
    bookies = coverage["bookies_looked_at"]
    yield f"bookies: {', '.join(bookies) if bookies else 'none'}"
    for key, text in (
        ("not_scanned", "known, and not read"),
        ("not_complete", "not read completely"),
        ("stores", "stores and catalogs"),
        ("stores_with_gaps", "of these not read whole"),
    ):
        if coverage[key]:
            yield f"{text}: {', '.join(coverage[key])}"
    if not coverage["members_known_from"]:
        yield "nothing says which bookies the cluster has: others may hold this ledger"


def _next(explanation: "Explanation", given: Sequence[str], uri: str | None, plan: DatasetPlace | None) -> str:
    if explanation.actions and plan is not None:
        return quote_command("bkmeta", "plan", "show", plan)
    unseen = explanation.coverage.bookies.not_scanned
    if unseen and (explanation.standing == "undecided" or explanation.outcome == "held"):
        return f"collect {list_names(unseen, _NAMED)}, and add the new inventories: --inventory DIR"
    if explanation.standing == "undecided" and not explanation.coverage.bookies.members_known_from:
        return "name every bookie of the cluster in a file, one id a line: --expect-bookies FILE"
    if explanation.standing == "undecided":
        return "give what was not read: inventories with --inventory, the store with --metadata"
    if explanation.outcome and plan is None and not explanation.stored:
        store = [] if uri is not None else ["--metadata", "URI"]
        return quote_command("bkmeta", "recover", *given, *store, "--out", "plan")
    return ""
