"""The commands that prove a plan: verify, and rehearse."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.incident import OPTION as INCIDENT
from reconcile.cli.incident import is_typed
from reconcile.cli.options import FOLDER, by_bookie, carried, make_output, now, output_options, quoted, store_auth
from reconcile.cli.output import Output, Result, broken_off, throttled
from reconcile.cli.wire import take_wire, wire_options
from reconcile.words import counted, is_or_are
from recovery.errors import InputError

if TYPE_CHECKING:
    from backends.bookie.client import Options
    from backends.protocols import MetadataStore
    from backends.registry import OpenStore
    from reconcile.check.verify import Cluster, Verified
    from recovery.bookies.disk_reader import BookieDisks
    from recovery.bookies.wire_reader import AskedCluster
    from recovery.dataset import Dataset

_SHOWN: Final = 10
_SAMPLE: Final = "1000"
_ALL: Final = "all"


def _number(_context: click.Context, _parameter: click.Parameter, value: str) -> int | None:
    """Read a number of ledgers; None is all of them."""
    if value == _ALL:
        return None
    if not value.isdigit() or int(value) < 1:
        raise click.BadParameter("write a number above 0, or all")
    return int(value)


@contextmanager
def _opened(disks: Mapping[str, Sequence[Path]], output: Output) -> "Iterator[dict[str, BookieDisks]]":
    from recovery.bookies.disk_reader import open_disks

    with ExitStack() as stack:
        found: dict[str, BookieDisks] = {}
        with output.progress("opening disks", "bookies") as told:
            for number, (bookie, folders) in enumerate(disks.items()):
                found[bookie] = stack.enter_context(open_disks(bookie, folders))
                told(number + 1, len(disks))
        yield found


@contextmanager
def _over_wire(opened: "OpenStore", asked: "tuple[Options, dict[str, str]]") -> "Iterator[AskedCluster]":
    """Give the bookies that are registered in a store."""
    from recovery.bookies.addresses import read_members
    from recovery.bookies.wire_reader import AskedCluster

    options, aliases = asked
    members = read_members(opened.store, opened.root, opened.layout_hint, aliases)
    with AskedCluster(members, options) as cluster:
        yield cluster


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "every ledger that was looked at is as it should be",
        Exit.FAILED: "the store did not answer, or the tool failed",
        Exit.USAGE: "a plan, a URI, folders or files that cannot be used",
        Exit.FOUND: "ledgers or holds are not as they should be",
        Exit.UNDECIDABLE: "some could not be looked at: disks are missing, or bookies do not answer",
    },
    epilog="Example: bkmeta verify plan --metadata zk+hierarchical://zk1:2181/ledgers --sample all "
    "--disk bk1:3181=/mnt/bk1 --disk bk2:3181=/mnt/bk2",
)
@click.argument("plan", type=FOLDER)
@click.option("--metadata", "uri", required=True, metavar="URI", help="The store that the plan was applied to.")
@click.option(
    "--sample",
    callback=_number,
    default=_SAMPLE,
    show_default=True,
    metavar="N|all",
    help="Ledgers drawn by the plan's hash, or all.",
)
@click.option("--disk", "disks", multiple=True, callback=by_bookie, metavar="ID=DIR", help="A bookie's folder.")
@click.option("--wire", is_flag=True, help="Ask the running bookies instead of reading disks.")
@wire_options
@output_options
def verify(
    plan: Path,
    uri: str,
    sample: int | None,
    disks: dict[str, list[Path]],
    wire: bool,  # noqa: FBT001 - click's option
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Read the ledgers of PLAN back: records from the store, entries through them from bookies or disks. Only reads.

    From disks, every entry is looked for where its bookie would serve it from: give every folder of a bookie, or the
    folder that they stand in. With --wire the running bookies are asked for it, without fencing and without recovery.
    Its digest is checked with the password that stands in the record.
    """
    from reconcile.plan.plan_reader import open_whole
    from reconcile.stores import open_store

    output = make_output(shared)
    asked = take_wire(shared, wire=wire)
    if wire and not is_typed("disks"):
        disks = {}
    if wire == bool(disks):
        raise click.UsageError("give either --wire, or the bookies' folders with --disk ID=DIR")
    dataset, _ = open_whole(plan)
    with ExitStack() as stack:
        opened = stack.enter_context(open_store(uri, auth=store_auth()))
        bookies: AskedCluster | dict[str, BookieDisks]
        if asked is not None:
            bookies = stack.enter_context(_over_wire(opened, asked))
        else:
            bookies = stack.enter_context(_opened(disks, output))
        found = _verify(dataset, opened.store, opened.root, bookies, sample, output)
    result = verified_result("verify", found, bookies, plan)
    sys.exit(output.show(result))


def _verify(
    dataset: "Dataset",
    store: "MetadataStore",
    root: str,
    bookies: "Cluster",
    sample: int | None,
    output: Output,
) -> "Verified":
    from reconcile.check.verify import verify as run

    with output.progress("reading back", "ledgers") as told:
        return run(dataset, store, root, bookies, sample=sample, progress=throttled(told))


def verified_result(
    command: str, found: "Verified", bookies: "AskedCluster | Mapping[str, BookieDisks]", plan: Path
) -> Result:
    """Say what reading back gave."""
    from reconcile.check.verify import Outcome, Stored

    outcomes = {str(outcome): found.outcomes.get(outcome, 0) for outcome in Outcome}
    records = {str(stored): found.records.get(stored, 0) for stored in Stored}
    holds = {str(stored): found.holds.get(stored, 0) for stored in Stored}
    entries, copies = dict(found.entries), dict(found.copies)
    readable, unchecked = outcomes[Outcome.READABLE], outcomes[Outcome.UNCHECKED]
    wire = not isinstance(bookies, Mapping)
    unresolved = {} if isinstance(bookies, Mapping) else dict(bookies.unresolved)
    code = Exit.FOUND if found.wrong else Exit.UNDECIDABLE if unchecked or unresolved or found.denied else Exit.DONE
    verdict = (
        f"{readable} of {counted(found.looked_at, 'ledger')} {is_or_are(readable)} readable, every entry from a bookie"
        f"{'' if wire else chr(39) + 's disks'}, "
        f"{found.full} of them from every bookie that should hold it"
    )
    bad = {name: count for name, count in outcomes.items() if name != Outcome.READABLE and count}
    if bad:
        verdict = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in bad.items()) + f"; {verdict}"
    if found.wrong > sum(bad.values()) - unchecked:
        wrong = "1 ledger or hold is" if found.wrong == 1 else f"{found.wrong} ledgers or holds are"
        verdict = f"{wrong} not as they should be: {verdict}"
    if not found.looked_at:
        verdict = "no ledger was looked at" + (": the plan restores none" if not found.ledgers else "")
    if not found.adds_up:
        code, verdict = Exit.FAILED, f"INVALID, the sums do not add up: {verdict}"
    details = [f"ledgers of the plan: {found.ledgers} restored, {found.held} held"]
    if found.seed:
        details.append(f"looked at: {counted(found.looked_at, 'ledger')}, drawn with {found.seed}; the rest may differ")
    details += [
        f"entries: {entries.get('readable', 0)} readable of {entries.get('looked_at', 0)} looked at",
        "copies: " + ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(copies.items()) if count),
    ]
    details.append("records: " + _counted(records))
    if found.held:
        details.append("holds: " + _counted(holds) + "; their entries are not read, nobody can")
    if found.longer:
        longer = "1 record is" if found.longer == 1 else f"{found.longer} records are"
        details.append(f"{longer} longer than the entries: a writer that closes with adds under way leaves such ones")
    details += [f"{one.ledger}: {one.outcome.replace('_', ' ')}; {one.detail}" for one in found.problems[:_SHOWN]]
    if len(found.problems) > _SHOWN:
        details.append("more of them with --json")
    missing = sorted(found.without_disks.items(), key=lambda item: -item[1])
    if missing:
        named = ", ".join(f"{bookie} ({count} copies)" for bookie, count in missing[:_SHOWN])
        said = "cannot be asked:" if wire else f"no disks were given of {len(missing)} bookies:"
        details.append(f"{said} {named}")
    details += [f"{name}: {why}" for name, why in list(unresolved.items())[:_SHOWN]]
    for bookie, problems in list(found.incomplete.items())[:_SHOWN]:
        details.append(f"{bookie} was not looked at whole: {problems[0] if problems else 'no cookie'}")
    return Result(
        command,
        verdict,
        code,
        counts={
            "ledgers": outcomes,
            "every_copy_good": found.full,
            "longer_than_entries": found.longer,
            "records": records,
            "holds": holds,
            "entries": entries,
            "copies": copies,
        },
        coverage={
            "ledgers": found.ledgers,
            "looked_at": found.looked_at,
            "held": found.held,
            "holds_looked_at": sum(found.holds.values()),
            "sample_seed": found.seed or None,
            "bookies": sorted(name for name, _ in bookies.items()),
            "wire": wire,
            "unresolved": unresolved,
            "without_disks": dict(missing),
            "incomplete": {bookie: list(problems) for bookie, problems in found.incomplete.items()},
        },
        details=details,
        following=_next(command, code, plan, [str(one.ledger) for one in found.problems], wire=wire),
        facts={
            "plan": str(plan),
            "problems": [{**asdict(one), "ledger": str(one.ledger)} for one in found.problems],
        },
    )


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count) or "none"


def _next(command: str, code: int, plan: Path, problems: Sequence[str], *, wire: bool) -> str:
    if code == Exit.FOUND:
        given = carried("--metadata")
        if INCIDENT not in given:
            given = [*given, "--inventory-dir", "DIR"]
        ledger = problems[0] if problems else "LEDGER"
        return f"look at one of them: {quoted('bkmeta', 'explain', ledger, '--plan', plan, *given)}"
    if code == Exit.UNDECIDABLE:
        return "see why these bookies do not answer" if wire else "give the disks that are missing: --disk ID=DIR"
    if wire:
        return ""
    return "start the bookies, one first, and read its log; if you froze: bkmeta thaw" if command == "verify" else ""


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "all was written and read back as planned; or the rehearsal is removed",
        Exit.FAILED: "the store did not answer, or the tool failed",
        Exit.USAGE: "a plan, a URI, folders or files that cannot be used",
        Exit.FOUND: "ledgers or holds are not as they should be",
        Exit.UNDECIDABLE: "some could not be looked at: disks are missing, or bookies do not answer",
        Exit.REFUSED: "the root is not absent and not marked as a rehearsal of this plan",
        Exit.PARTLY: "stopped midway, or keys were left as they are: run it again",
    },
    # The root of a rehearsal is never that of the cluster.
    not_of_incident=frozenset({"--metadata"}),
    epilog="Example: bkmeta rehearse plan --metadata zk+hierarchical://zk1:2181/bkmeta-rehearsal/ledgers "
    "--disk bk1:3181=/mnt/bk1",
)
@click.argument("plan", type=FOLDER)
@click.option("--metadata", "uri", required=True, metavar="URI", help="A root that is absent, or an earlier rehearsal.")
@click.option("--disk", "disks", multiple=True, callback=by_bookie, metavar="ID=DIR", help="A bookie's folder.")
@click.option("--wire", is_flag=True, help="Ask the running bookies instead of reading disks.")
@click.option(
    "--bookies-from",
    metavar="URI",
    help="With --wire: where the bookies are registered. [default: the plan's own root, in the store of --metadata]",
)
@wire_options
@click.option(
    "--sample",
    callback=_number,
    default=_SAMPLE,
    show_default=True,
    metavar="N|all",
    help="Ledgers read back from disks or bookies, or all.",
)
@click.option("--remove", "away", is_flag=True, help="Remove the rehearsal of URI instead; only what is marked as one.")
@output_options
def rehearse(
    plan: Path,
    uri: str,
    disks: dict[str, list[Path]],
    sample: int | None,
    *,
    wire: bool,
    bookies_from: str | None,
    away: bool,
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Apply PLAN where it can do no harm, and read back what was written. Writes to the root of URI and nowhere else.

    The root must be absent, and is marked before anything else is written in it; or be the marked root of an earlier
    rehearsal of the same plan, which is gone on with. It stays, to be looked at, until --remove.
    """
    from reconcile.stores import demand_same_keys, open_store
    from reconcile.write import rehearse as engine
    from recovery.dataset import open_dataset

    output = make_output(shared)
    asked = take_wire(shared, wire=wire)
    if (wire or away) and not is_typed("disks"):
        disks = {}
    if (wire and disks) or (bookies_from and not wire):
        raise click.UsageError("give either --wire, perhaps with --bookies-from, or --disk ID=DIR")
    dataset = open_dataset(plan, "plan")
    with ExitStack() as stack:
        opened = stack.enter_context(open_store(uri, writable=True, auth=store_auth()))
        if away:
            if disks or wire:
                raise InputError("--disk, --wire", "have no meaning with --remove", "leave one of them out")
            with output.progress("removing", "keys") as told:
                removed = engine.remove(opened.store, opened.root, progress=throttled(told))
            verdict = (
                f"{counted(removed, 'key')} removed: the rehearsal is gone" if removed else "there is no such root"
            )
            sys.exit(output.show(Result("rehearse", verdict, 0, {"removed": removed}, {"root": opened.root})))
        demand_same_keys(opened, str(dataset.manifest["binding"].get("layout") or ""))
        bookies: AskedCluster | dict[str, BookieDisks] = {}
        if asked is not None:
            own = replace(opened, root=str(dataset.manifest["binding"].get("root") or opened.root))
            if bookies_from:
                own = stack.enter_context(open_store(bookies_from, auth=store_auth()))
            bookies = stack.enter_context(_over_wire(own, asked))
        elif disks:
            bookies = stack.enter_context(_opened(disks, output))
        result = _rehearsed(dataset, opened, bookies, sample, output, plan, uri)
    sys.exit(output.show(result))


def _rehearsed(
    dataset: "Dataset",
    opened: "OpenStore",
    bookies: "AskedCluster | Mapping[str, BookieDisks]",
    sample: int | None,
    output: Output,
    plan: Path,
    uri: str,
) -> Result:
    from reconcile.cli.targets import store_of
    from reconcile.plan.plan_reader import demand_whole
    from reconcile.write import apply, rehearse

    seen = demand_whole(dataset)
    mark = rehearse.begin(dataset, seen.hash, opened.store, opened.root, now=now)
    journal = plan / rehearse.JOURNALS / mark.journal
    stopped = broken_off("the rehearsal is begun, go on: run the same command again")
    with stopped, output.progress("writing", "writes") as told:
        applied = apply.apply(
            lambda: dataset.batches("actions"),
            opened.store,
            opened.root,
            journal,
            apply.Options(plan_hash=seen.hash, resume=journal.exists()),
            now=now,
            progress=throttled(told),
        )
    tallies = {f"{op} {kind}": asdict(tally) for (kind, op), tally in sorted(applied.tallies.items())}
    written = sum(tally.written + tally.there for tally in applied.tallies.values())
    planned = sum(tally.planned for tally in applied.tallies.values())
    verdict = f"{written} of {planned} writes stand in {opened.root}, {applied.checked} keys read back as written"
    if applied.changed_count:
        verdict = f"{applied.changed_count} keys do not hold what was written. {verdict}"
    details = [f"left as it is: {c.key} ({c.reason})" for c in applied.conflicts[:_SHOWN]]
    details += [f"not as written: {key}" for key in applied.changed[:_SHOWN]]
    facts: dict[str, object] = {"root": opened.root, "made": mark.made, "journal": str(applied.journal)}
    counts: dict[str, object] = {"writes": tallies}
    coverage: dict[str, object] = {"read_back": applied.checked, "changed": applied.changed_count}
    code = applied.exit_code
    if bookies != {}:
        read = verified_result(
            "rehearse", _verify(dataset, opened.store, opened.root, bookies, sample, output), bookies, plan
        )
        verdict = f"{verdict}; {read.verdict}"
        details += read.details
        counts, coverage = {**counts, **read.counts}, {**coverage, **read.coverage}
        facts = {**facts, **read.facts}
        code = code or read.exit_code
    else:
        details.append(
            "no entries were read: give the bookies' disks with --disk ID=DIR, or ask the bookies with --wire"
        )
    details.append(
        f"look at it in the store; then remove it: {quoted('bkmeta', 'rehearse', plan, '--metadata', uri)} --remove"
    )
    following = quoted("bkmeta", "apply", plan, "--metadata", store_of(dataset), "--confirm", seen.hash)
    return Result("rehearse", verdict, code, counts, coverage, details, following if not code else "", facts)
