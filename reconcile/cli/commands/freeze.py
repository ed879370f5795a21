"""`freeze`: every bookie's listing of ledgers fails, so that none deletes."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.command import Command, Exit
from reconcile.cli.options import (
    FOLDER,
    carry_options,
    describe_collect,
    make_context,
    make_output,
    output_options,
    reason_option,
)
from reconcile.cli.output import Result
from reconcile.cli.wording.freezing import (
    ask_for_hash,
    change_facts,
    describe_identity,
    make_waiting_result,
    take_identity,
)
from reconcile.jobs.context import add_remedy

if TYPE_CHECKING:
    from reconcile.jobs.changes.freeze import FreezeRequest, Frozen

NOT_SEEN: Final = (
    (
        "whether each bookie has failed a pass since: look in each one's log for 'Exception when iterating over the "
        "metadata', once in each gcWaitTime (10 minutes unless it is set); a pass that began before may still delete"
    ),
    "whether a bookie connects as a ZooKeeper super user: no rights stop one",
    "servers that the URI does not name: one that ignores rights (skipACL) lets its bookies list",
)
"""What this program cannot look at; said after every freeze."""


GOES_ON: Final = (
    "compaction, and the removal of logs whose ledgers are gone already: only stopping the bookies stops those"
)


@click.command(
    name="freeze",
    cls=Command,
    exits={
        Exit.DONE: "frozen, and every server was seen to refuse",
        Exit.FAILED: "the store did not answer",
        Exit.USAGE: "a URI, an identity or a journal that cannot be used",
        Exit.FOUND: "not frozen: an attempt to read was not refused",
        Exit.UNDECIDABLE: "rights are taken, but the refusal was not proved on every server and for every identity; "
        "or the identity may be the bookies' own",
        Exit.REFUSED: "not confirmed; a store or identity that cannot be frozen",
        Exit.PARTLY: "stopped midway: run the same command again",
    },
    epilog="Example: bkmeta freeze --metadata zk+hierarchical://zk1:2181/ledgers",
)
@click.option("--metadata", "uri", required=True, metavar="URI", help="The store, named as in bk_server.conf.")
@click.option(
    "--confirm", metavar="HASH", help="Make the changes that have this hash. A run without this option prints it."
)
@click.option(
    "--deletes-only",
    is_flag=True,
    help="Keep bookies from deleting, and nothing else: clients still create, write and delete ledgers. For mistaken "
    "deletes on a live cluster, not for a lost store.",
)
@click.option("--journal", type=FOLDER, help="Where every change is recorded. [default: ./bkmeta-freeze-HOST-ROOT]")
@reason_option
@output_options
def freeze(
    uri: str,
    confirm: str | None,
    deletes_only: bool,  # noqa: FBT001 - click's option
    journal: Path | None,
    reason: str | None,
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Make every bookie's listing of ledgers fail, so that none deletes. WRITES rights and a few empty nodes.

    Without --confirm it prints the exact changes and their hash, and changes nothing. It needs an identity of its own,
    which apply and thaw need, too: BKMETA_ZK_AUTH as user:password, or BKMETA_ZK_AUTH_FILE; without them it makes one
    and keeps it beside the incident file or the journal, for nobody else to read. Replication is disabled first and
    stays so. Bookies that connect with a digest identity: put theirs into BKMETA_ZK_BOOKIE_AUTH, and the proof is made
    as it.
    """
    from reconcile.jobs.changes import freeze as job

    output = make_output(shared)
    kept = take_identity(uri, journal, makes=True)
    request = job.FreezeRequest(
        uri=uri,
        journal=journal or job.default_journal(uri),
        confirmed=confirm,
        reason=reason,
        deletes_only=deletes_only,
    )
    options = [*carry_options("--metadata"), *(["--deletes-only"] if deletes_only else [])]
    with add_remedy(f"every change so far is recorded in {request.journal}; to continue, run the same command again"):
        done = job.freeze(request, make_context(output, identity=kept), ask_for_hash)
    sys.exit(
        output.show(
            make_waiting_result(done, request, kept, options)
            if isinstance(done, job.Waiting)
            else _frozen_result(done, request, kept)
        )
    )


def _frozen_result(frozen: "Frozen", request: "FreezeRequest", kept: Path | None) -> Result:
    """Say whether the freeze holds: what the rights are, and what was refused without our identity."""
    from reconcile.write.freezing.freeze_state import FreezeExtent

    state, trials, silent, untried = frozen.state, frozen.trials, frozen.silent, frozen.untried
    tried_as = sorted({trial.principal for trial in trials})
    verdict, code = _judge(frozen)
    details = [f"refused: {act}" for act in dict.fromkeys(w for t in trials for w in t.proof.refused)]
    details += [f"LET PASS by {t.server} for {t.principal}: {act}" for t in trials for act in t.proof.allowed]
    details += [f"its rights are taken, and it was not tried: {principal}" for principal in untried]
    if state.state is FreezeExtent.DELETES:
        details.append("not refused: clients still create, write, close and delete ledgers")
    if not untried and not any(trial.proof.starts for trial in trials):
        details.append(f"{frozen.root} cannot be read without our identity: a bookie that restarts does not start")
    details.append("replication is disabled" if state.replication_disabled else "replication is NOT disabled")
    details += [*(f"not seen: {act}" for act in NOT_SEEN), f"not stopped: {GOES_ON}"]
    if frozen.has_journal:
        details.append(f"every change is recorded in {request.journal}: thaw needs it")
    details += describe_identity(kept)
    return Result(
        "freeze",
        verdict,
        code,
        counts={"servers": len({trial.server for trial in trials}), "servers_silent": len(silent)},
        coverage={
            "tried_as": tried_as,
            "not_tried_as": list(untried),
            "servers_silent": list(silent),
            "not_seen": list(NOT_SEEN),
            "not_stopped": GOES_ON,
        },
        details=details,
        following="stop every bookie: kill -STOP" if code == Exit.FOUND else describe_collect(),
        facts={
            **change_facts(frozen.proposal, frozen.root, frozen.identity, request.journal),
            "identity_file": None if kept is None else str(kept),
            "deletes_only": request.deletes_only,
            "state": str(state.state),
            "replication_disabled": state.replication_disabled,
            "trials": [
                {
                    "server": trial.server,
                    "as": trial.principal,
                    "refused": trial.proof.refused,
                    "allowed": trial.proof.allowed,
                    "failed": trial.proof.failed,
                }
                for trial in trials
            ],
        },
    )


def _judge(frozen: "Frozen") -> tuple[str, int]:
    """Return the verdict and the exit code."""
    from reconcile.write.freezing.freeze_state import FreezeExtent

    state, trials, silent, untried = frozen.state, frozen.trials, frozen.silent, frozen.untried
    for trial in trials:
        if trial.proof.allowed:
            why = "it ignores rights (skipACL), or the principal is its super user"
            let = f"{trial.server} let {trial.principal} {trial.proof.allowed[0]}"
            return f"NOT FROZEN: {let}: {why}", Exit.FOUND
    if state.open:
        return f"NOT FROZEN: {'; '.join([*state.open, *state.unknown])}", Exit.FOUND
    if state.unknown:
        return f"the rights are taken, but whether they hold is not known: {'; '.join(state.unknown)}", Exit.UNDECIDABLE
    unseen = [f"{server} did not answer" for server in silent]
    unseen += [f"{trial.server}: {act}" for trial in trials for act in trial.proof.failed]
    if unseen:
        return f"the rights are taken, but not every server was seen to refuse: {'; '.join(unseen)}", Exit.UNDECIDABLE
    if untried:
        return f"the rights are taken, but there was no connection to try as {', '.join(untried)}", Exit.UNDECIDABLE
    refused = sum(len(trial.proof.refused) for trial in trials)
    servers = len({trial.server for trial in trials})
    extent = "frozen for deletes only" if state.state is FreezeExtent.DELETES else "frozen"
    return f"{extent}: every server named ({servers}) refused all {refused} attempts without our identity", 0
