"""`undelete`: ledgers that somebody deleted, from history alone, as a plan."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.option_groups.deletes import (
    ledger_arguments,
    list_lines,
    metadata_option,
    name_ledgers,
    take_ledgers,
)
from reconcile.cli.options import (
    PLACE,
    add_moment,
    inventory_options,
    make_context,
    make_output,
    moment_option,
    output_options,
    parse_sessions,
    quote_command,
)
from reconcile.cli.output import Result
from reconcile.cli.settings import effective_settings
from reconcile.cli.wording.topics import describe_topics, topic_json
from reconcile.cli.wording.whole_datasets import tell_if_whole
from reconcile.words import count_noun, is_or_are
from recovery.place import DatasetPlace

if TYPE_CHECKING:
    from backends.zkfiles.store import At
    from reconcile.jobs.undelete.histogram import DeletesBar, SessionDeletes
    from reconcile.jobs.undelete.request import KeptLedger, NotRestored, Undeleted
    from recovery.model.ids import LedgerId

_SHOWN: Final = 10
"""Sessions, gaps and notes that are shown."""
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
"""Units of spans, in ms, the largest first."""
_BAR: Final = 40
"""Characters of the longest bar."""
_MINUTE_MS: Final = 60_000
_KEPT: Final = {
    "in_store": "the store has a record of this id and keeps it: the ledger is there, or its id was used again",
    "tombstone": "bkmeta purged it by a certificate, and it stays deleted",
    "made_again": "its id was used again after the delete",
    "deleted_again": "its id was used again and deleted again, by a delete that was not chosen",
    "not_known": "no history has its last record",
    "not_closed": "a copy of the store has it before it was closed: only bookies show where it ends (bkmeta recover)",
    "unparsable": "its last record cannot be read",
    "hold": "its last record is a hold of an earlier restore: bookies must be read (bkmeta recover)",
    "trimmed": "the last record of its topic no longer named it: retention deleted it. Name it, or a window",
    "no_place": "the store's layout has no key for its id",
}
"""Why a ledger does not come back, in words."""
_ETCD_FIRST: Final = (
    "first: stop compaction, for etcd forgets what was deleted when it compacts: run its members with "
    "--auto-compaction-retention=0, stop whatever runs `etcdctl compact` (cron, an operator), and keep a copy: "
    "etcdctl snapshot save FILE"
)


def _read_moment(_context: click.Context, _parameter: click.Parameter, value: str | None) -> "At | None":
    """Read a point in time as `capture --at` takes it."""
    from backends.zkfiles.store import parse_at

    try:
        return None if value is None else parse_at(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "all chosen ledgers come back, or are in the store",
        Exit.FAILED: "the store did not answer, or the disk of --out is full",
        Exit.USAGE: "a URI, a capture or a file that cannot be used; or nothing is chosen yet: the choices are listed",
        Exit.FOUND: "some of the chosen ledgers do not come back: each is named, with the reason",
        Exit.UNDECIDABLE: "the history has gaps: deletes may be missing",
    },
    epilog="Example: bkmeta undelete --metadata zk+hierarchical://zk1:2181/ledgers --history zkfiles:///copies/zk1 "
    "--session 0x100009a3f0c0001 --from-time 2026-01-31T11:50 --to-time 2026-01-31T12:10 --out undelete-1",
)
@ledger_arguments
@metadata_option
@moment_option
@click.option(
    "--history",
    "histories",
    multiple=True,
    metavar="URI",
    help="A source with history: backup:PLACE, zkfiles:///DIR, etcdfile:///FILE, catalog:///DIR. A live etcd has "
    "its own.",
)
@click.option(
    "--session",
    "sessions",
    multiple=True,
    callback=parse_sessions,
    metavar="SESSION",
    help="All that this session deleted between --from-time and --to-time: 0x…, or none, as on etcd.",
)
@click.option(
    "--from-time",
    "begin",
    callback=_read_moment,
    metavar="TIME|TXN",
    help="Leave out earlier deletes: an ISO 8601 time, or a transaction (on etcd a revision).",
)
@click.option("--to-time", "end", callback=_read_moment, metavar="TIME|TXN", help="No delete after it.")
@click.option(
    "--topic",
    metavar="GLOB",
    help="The ledgers of Pulsar's topics, with the topics' own records: persistent://tenant/namespace/topic, * and ?.",
)
@inventory_options("One bookie's inventory: it shows what the bookie still has. [default: no bookie is read]")
@click.option("--out", type=PLACE, required=True, help="A new folder for the plan; it will hold passwords.")
@output_options
def undelete(
    uri: str,
    histories: tuple[str, ...],
    moment: str | None,
    sessions: tuple[int | None, ...],
    begin: "At | None",
    end: "At | None",
    topic: str | None,
    inventories: tuple[str, ...],
    out: DatasetPlace,
    **shared: Any,  # noqa: ANN401 - the shared options
) -> None:
    """Make a plan that brings deleted ledgers back, from the store's history alone. Writes nothing but the plan.

    Choose by --session and a window, by --topic, or by the ledgers' ids. Without a choice, or with a session alone, it
    shows who deleted how many ledgers and when. In Pulsar the session is the broker's, which also trims for weeks.
    """
    output = make_output(shared)
    ledgers = take_ledgers(shared, may_be_none=True)
    if sum(map(bool, (ledgers, sessions, topic))) > 1:
        raise click.UsageError("choose by --session, by --topic, or by ledgers: one of them")
    with output.progress("looking at what was given", "stores"):
        from reconcile.jobs.undelete import undelete as job
        from reconcile.jobs.undelete.request import DeletedSelection, UndeleteRequest

    selection = DeletedSelection(ledgers=ledgers, topic=topic, sessions=sessions, begin=begin, end=end)
    request = UndeleteRequest(
        uri=uri,
        out=out,
        histories=add_moment(histories, moment),
        selection=selection,
        inventories=inventories,
        settings=effective_settings(),
    )
    tell_if_whole(out, "plan")
    context = make_context(output)
    done = job.undelete(request, context)
    sys.exit(output.show(_make_result(request.uri, selection.is_complete, out, done, context.now())))


def _make_result(uri: str, is_complete: bool, out: DatasetPlace, done: "Undeleted", now: datetime) -> Result:  # noqa: FBT001 - of the selection
    restored = 0 if done.manifest is None else done.manifest.counts.restored
    following = ""
    if not is_complete:
        verdict = "nothing is chosen yet, and no plan was made: choose a session with a window, a topic, or ledgers"
        code = Exit.USAGE
    else:
        total = restored + len(done.kept)
        verdict = f"{restored} of {count_noun(total, 'deleted ledger')} {'comes' if restored == 1 else 'come'} back"
        if done.present:
            verdict += f"; {len(done.present)} more {is_or_are(len(done.present))} in the store already"
        code = _choose_exit(restored, done)
        if not (restored or done.present or done.kept):
            verdict = "no history has a delete or a record of what was chosen: no plan was made"
        if done.plan is not None:
            following = quote_command("bkmeta", "plan", "show", out)
    return Result(
        "undelete",
        verdict,
        code,
        counts={
            "restored": restored,
            "in_store": len(done.present),
            "kept": len(done.kept),
            "empty": done.empty,
            "not_closed": done.not_closed,
            "as_captured": done.as_captured,
            "on_no_bookie": done.gone,
            "nodes_created": done.topics.created,
            "nodes_differing": done.topics.differing,
            "unnamed": len(done.topics.unnamed),
            "missing": len(done.topics.missing),
            "topics": done.back.total,
        },
        coverage={"complete": not done.gaps, "gaps": list(done.gaps), "notes": list(done.notes)},
        details=[
            *([_ETCD_FIRST] if done.forgets else []),
            *_describe_sessions(done.sessions, shows_all=not is_complete),
            *_draw(done.bars),
            *_describe_kept(done.kept),
            *(_describe_plan(uri, out, done, now) if done.plan is not None else []),
            *(f"the history has a gap: {gap}" for gap in done.gaps[:_SHOWN]),
            *(f"note: {note}" for note in done.notes[:_SHOWN]),
        ],
        following=following,
        facts={
            "plan": None if done.plan is None else str(out),
            "hash": None if done.manifest is None else done.manifest.hash,
            "in_store": [str(ledger) for ledger in done.present],
            "kept": {
                str(ledger): {"reason": str(kept.reason), "detail": kept.detail} for ledger, kept in done.kept.items()
            },
            "first_deleted": _show_time(done.first_at_ms),
            "last_deleted": _show_time(done.last_at_ms),
            "sessions": [_session_json(session) for session in done.sessions],
            "histogram": [
                {
                    "begin": _show_time(bar.begin_ms),
                    "seconds": bar.width_ms // 1000,
                    "deletes": bar.count,
                    "chosen": bar.chosen,
                }
                for bar in done.bars
            ],
            "unnamed": {str(ledger): topic for ledger, topic in done.topics.unnamed.items()},
            "missing": [str(ledger) for ledger in done.topics.missing],
            "topics": [topic_json(topic) for topic in done.back.topics],
        },
    )


def _choose_exit(restored: int, done: "Undeleted") -> Exit:
    if done.kept or not (restored or done.present):
        return Exit.FOUND
    return Exit.UNDECIDABLE if done.gaps else Exit.DONE


def _show_time(at_ms: int | None) -> str | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def _name_session(session: int | None) -> str:
    return "none" if session is None else f"{session & ((1 << 64) - 1):#x}"


def _session_json(session: "SessionDeletes") -> dict[str, object]:
    return {
        "session": None if session.session is None else _name_session(session.session),
        "ledgers": session.ledgers,
        "first_txn": session.first_txn,
        "last_txn": session.last_txn,
        "first_at": _show_time(session.first_ms),
        "last_at": _show_time(session.last_ms),
    }


def _describe_sessions(sessions: "Sequence[SessionDeletes]", *, shows_all: bool) -> Iterator[str]:
    if not shows_all:
        return
    if not sessions:
        yield "no history has a delete of a ledger"
        return
    yield "who deleted ledgers, and did not make them again:"
    for session in sessions[:_SHOWN]:
        span = f"transactions {session.first_txn:#x} to {session.last_txn:#x}"
        if session.first_ms is not None:
            span += f", from {_show_time(session.first_ms)} to {_show_time(session.last_ms)}"
        yield f"  session {_name_session(session.session)}: {count_noun(session.ledgers, 'ledger')}, {span}"
    if len(sessions) > _SHOWN:
        yield f"  and {count_noun(len(sessions) - _SHOWN, 'session')} that deleted fewer: --json names all"
    yield "a session is one connection: a broker's deletes by retention, too. See when: --session SESSION"


def _draw(bars: "Sequence[DeletesBar]") -> Iterator[str]:
    """Yield the histogram of the chosen sessions' deletes; spans without any are left out."""
    if not bars:
        return
    width = bars[0].width_ms
    unit, name = next((unit, name) for unit, name in _UNITS if width >= unit)
    span = f"{width // unit} {name}"
    chosen = sum(bar.chosen for bar in bars)
    of_all = f", {chosen} of them inside the window (#)" if chosen else ""
    yield f"deletes of the chosen session over time, by {span} (UTC), {sum(bar.count for bar in bars)} in all{of_all}:"
    largest = max(bar.count for bar in bars)
    for bar in bars:
        inside, outside = (-(-_BAR * count // largest) for count in (bar.chosen, bar.count - bar.chosen))
        yield f"  {_show_time(bar.begin_ms)}  {bar.count:>7}  {'#' * inside}{'-' * outside}"
    if not chosen:
        yield "choose the span that is a mistake: --from-time TIME --to-time TIME"


def _describe_kept(kept: "Mapping[LedgerId, KeptLedger]") -> Iterator[str]:
    reasons: dict[NotRestored, dict[LedgerId, str]] = {}
    for ledger, why in kept.items():
        reasons.setdefault(why.reason, {})[ledger] = why.detail
    for reason, ledgers in reasons.items():
        yield f"not brought back: {count_noun(len(ledgers), 'ledger')}: {_KEPT[reason]}"
        if any(ledgers.values()):
            yield from (f"  {line}" for line in list_lines(ledgers))
        else:
            yield f"  {name_ledgers(tuple(ledgers))}"


def _describe_plan(uri: str, out: DatasetPlace, done: "Undeleted", now: datetime) -> Iterator[str]:
    from recovery.dataset import REPORT

    manifest, topics = done.manifest, done.topics
    if manifest is None:
        return
    yield f"the plan: {count_noun(manifest.counts.writes, 'write')}, hash {manifest.hash}"
    yield f"the report: {out / REPORT}"
    if done.empty:
        yield f"closed without an entry: {count_noun(done.empty, 'ledger')}"
    if done.not_closed:
        yield (
            f"not closed when they were deleted: {count_noun(done.not_closed, 'ledger')}. The first client that opens "
            "one closes it by what bookies have then: see that none has collected it"
        )
    if done.as_captured:
        yield (
            f"as an earlier copy of the store has them: {count_noun(done.as_captured, 'ledger')}. Replication may have "
            "moved entries since: bkmeta verify after apply"
        )
    yield from _describe_bookies(done, now)
    yield from describe_topics(done.back)
    if topics.created or topics.differing:
        yield f"nodes of topics: {topics.created} come back; {topics.differing} differ in the store and stay so"
    if topics.differing:
        yield "  to take the earlier ones instead, unload these topics first: bkmeta plan edit --replace-below PATH"
    if topics.unnamed:
        yield (
            f"orphans: {count_noun(len(topics.unnamed), 'ledger')} that no topic's record names. No client reads one "
            "until its topic's record names it"
        )
        yield from (f"  {line}" for line in list_lines(topics.unnamed))
    if topics.missing:
        names = name_ledgers(topics.missing)
        count = count_noun(len(topics.missing), "ledger")
        yield f"records of topics name {count} that neither the store nor the plan has: {names}"
    write = quote_command("bkmeta", "apply", out, "--metadata", uri, "--accept-unfrozen")
    yield f"the rest of the store is whole, so bookies may run while it is written: {write}"


def _describe_bookies(done: "Undeleted", now: datetime) -> Iterator[str]:
    """Yield what bookies may have collected meanwhile."""
    ago = ""
    if done.first_at_ms is not None:
        minutes = max(0, int(now.timestamp() * 1000) - done.first_at_ms) // _MINUTE_MS
        ago = f" The first was deleted {count_noun(minutes, 'minute')} ago."
    yield (
        "bookies collect what the store does not list, at each garbage collection (gcWaitTime, 10 minutes by default; "
        f"entry logs go by compaction, later).{ago} Until this is applied, keep them from it: "
        "bkmeta freeze --deletes-only, or stop them"
    )
    if done.gone is None:
        yield "what bookies still have was not checked: give --inventory, or run bkmeta verify after apply"
    elif done.gone:
        yield f"on no bookie that was read: {count_noun(done.gone, 'ledger')} with entries, which may be gone"
