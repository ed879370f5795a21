"""`freeze`: every bookie's listing of ledgers fails, so that none deletes."""

import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from backends.errors import UnavailableError
from backends.protocols import ControlledStore
from backends.registry import OpenStore, parse_store_uri
from reconcile.cli.command import Command, Exit
from reconcile.cli.options import (
    AUTH_VARIABLE,
    FOLDER,
    make_output,
    output_options,
    reason_option,
    store_auth,
)
from reconcile.cli.output import Result, broken_off
from reconcile.errors import GuardRefusedError
from reconcile.printable import printable
from reconcile.stores import SASL_VARIABLE, open_store, user_and_password
from reconcile.write import audit_journal, freeze_state
from reconcile.write import freeze as engine
from recovery.codecs.store import LAYOUT, Layout
from recovery.errors import InputError

BOOKIE_AUTH_VARIABLE: Final = "BKMETA_ZK_BOOKIE_AUTH"
"""Environment variable with ``user:password`` of the bookies' digest identity, for the proof."""


_TYPED: Final = 8
"""Digits of the hash that count as having read it."""


_SERVER_PATIENCE_S: Final = 5.0


_STOP: Final = "keep the bookies stopped until apply has ended"


_PULSAR: Final = "metadata-store:"


_ZOOKEEPER: Final = "zookeeper"


_PULSAR_ELSEWHERE: Final = re.compile(r"metadata-store:(?:etcd|oxia)\b", re.IGNORECASE)


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


_AFTER_THAW: Final = (
    "whether every bookie's next pass ends: 'Exception when iterating over the metadata' must not come again in its log"
)


def _now() -> datetime:
    return datetime.now(UTC)


@click.command(
    name="freeze",
    cls=Command,
    exits={
        Exit.DONE: "frozen, and every server was seen to refuse",
        Exit.FAILED: "the store did not answer",
        Exit.USAGE: "a URI, an identity or a journal that cannot be used",
        Exit.FOUND: "not frozen: an attempt was let pass",
        Exit.UNDECIDABLE: "rights taken, but not everywhere, or not as everybody, seen to be refused; or the identity "
        "may be the bookies' own",
        Exit.REFUSED: "not confirmed; a store or identity that cannot be frozen",
        Exit.PARTLY: "stopped midway: run the same command again",
    },
    epilog=f"Example: {AUTH_VARIABLE}=bkmeta:secret bkmeta freeze --metadata zk+hierarchical://zk1:2181/ledgers",
)
@click.option("--metadata", "uri", required=True, metavar="URI", help="The store, named as in bk_server.conf.")
@click.option("--confirm", metavar="HASH", help="Of the changes that a run without it prints.")
@click.option("--journal", type=FOLDER, help="Where every change is recorded. [default: ./bkmeta-freeze-HOST-ROOT]")
@reason_option
@output_options
def freeze(
    uri: str,
    confirm: str | None,
    journal: Path | None,
    reason: str | None,
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Make every bookie's listing of ledgers fail, so that none deletes. WRITES rights and a few empty nodes.

    Without --confirm it prints the exact changes and their hash, and changes nothing. It needs an identity of its own,
    in BKMETA_ZK_AUTH as user:password: keep it, apply and thaw need the same. Replication is disabled first and stays
    so. Bookies that connect with a digest identity: put theirs into BKMETA_ZK_BOOKIE_AUTH, and the proof is made as it.
    """
    output = make_output(shared)
    auth = freeze_identity(uri)
    with open_store(uri, writable=True, auth=auth) as opened:
        run = FreezeRun(opened, auth, journal or journal_folder(uri), uri, reason=reason)
        layout = engine.demand_layout(run.store, run.root, freeze_layout(opened))

        def propose(past: engine.Past | None) -> engine.Proposal:
            return engine.propose_freeze(run.store, run.root, run.identity, past, layout=layout)

        waiting = run.make("freeze", propose, confirm)
        sys.exit(output.show(waiting or run.holds(propose(engine.read_past(run.folder, run.root)), layout)))


class FreezeRun:
    """One run of either command on an open store."""

    def __init__(
        self,
        opened: OpenStore,
        auth: tuple[str, str],
        folder: Path,
        uri: str,
        arguments: Sequence[str] = (),
        *,
        reason: str | None = None,
    ) -> None:
        from backends.zookeeper import digest_principal

        if not isinstance(opened.store, ControlledStore):
            raise GuardRefusedError(opened.uri, "has no rights that could be taken", _STOP)
        self.store = opened.store
        self.root = opened.root
        self.identity = digest_principal(auth)
        self.folder = folder
        self._uri = uri
        self._reason = reason
        self._arguments = [*arguments, *(["--reason", reason] if reason else [])]

    def make(
        self,
        kind: str,
        propose: Callable[[engine.Past | None], engine.Proposal],
        confirm: str | None,
        counts: Mapping[str, int | None] | None = None,
    ) -> Result | None:
        """Make the changes if they are confirmed; return what to say if they are not."""
        past = engine.read_past(self.folder, self.root)
        proposal = propose(past)
        if proposal.empty and (past is None or past.ended or past.kind != kind):
            return None
        if confirm is None and sys.stdin.isatty():
            for line in _lines(proposal):
                click.echo(printable(line), err=True)
            confirm = click.prompt(f"type the first {_TYPED} digits of the hash to go on", err=True)
        if confirm is None or not _is_confirmed(proposal, past, confirm):
            return self._waiting(proposal, confirm, counts or {})
        begun = engine.Past()
        binding = engine.binding(self.root)
        stopped = broken_off(f"what was changed is recorded in {self.folder}, go on: run the same command again")
        opening = partial(audit_journal.Journal.open, resume=True, now=_now, replay=begun.replay, reason=self._reason)
        with stopped, opening(self.folder, binding) as journal:
            # Once more, now that no other process can write the journal.
            proposal = propose(begun)
            if not _is_confirmed(proposal, begun, confirm):
                return self._waiting(proposal, confirm, counts or {})
            engine.carry_out(proposal, self.store, journal, resumed=begun.covers(proposal, confirm))
        return None

    def _waiting(self, proposal: engine.Proposal, given: str | None, counts: Mapping[str, int | None]) -> Result:
        verdict = f"nothing was changed: {proposal.kind} waits for its hash"
        if given is not None:
            verdict = f"nothing was changed: what was confirmed ({given[:12]}) is not what would be done now"
        words = ["bkmeta", proposal.kind, "--metadata", self._uri, "--journal", str(self.folder), *self._arguments]
        return Result(
            proposal.kind,
            verdict,
            Exit.REFUSED,
            counts={"changes": len(proposal.changes), **counts},
            details=_lines(proposal),
            following=shlex.join([*words, "--confirm", proposal.hash]),
            facts=self._facts(proposal),
        )

    def _facts(self, proposal: engine.Proposal) -> dict[str, object]:
        return {
            "hash": proposal.hash,
            "root": self.root,
            "identity": self.identity,
            "journal": str(self.folder),
            "replication_to_be_disabled": proposal.disable is not None,
            "changes": [{"key": c.key, "before": c.before, "after": c.after} for c in proposal.changes],
            "notes": list(proposal.notes),
        }

    def holds(self, left: engine.Proposal, layout: Layout) -> Result:
        """Say whether the freeze holds: what the rights are, and what was refused without our identity."""
        state = freeze_state.is_frozen(self.store, self.root)
        trials, silent = self._trials(layout)
        tried_as = sorted({trial.principal for trial in trials})
        untried = sorted({*freeze_state.principals(self.store, self.root, self.identity)} - {*tried_as})
        verdict, code = _judged(state, trials, silent, untried)
        details = [f"refused: {what}" for what in dict.fromkeys(w for t in trials for w in t.proof.refused)]
        details += [f"LET PASS by {t.server} for {t.principal}: {what}" for t in trials for what in t.proof.allowed]
        details += [f"its rights are taken, and it was not tried: {principal}" for principal in untried]
        if not untried and not any(trial.proof.starts for trial in trials):
            details.append(f"{self.root} cannot be read without our identity: a bookie that restarts does not start")
        details.append("replication is disabled" if state.replication_disabled else "replication is NOT disabled")
        details += [*(f"not seen: {what}" for what in NOT_SEEN), f"not stopped: {GOES_ON}"]
        if (self.folder / audit_journal.JOURNAL).exists():
            details.append(f"every change is recorded in {self.folder}: thaw needs it")
        collect = "on each bookie's host: bkmeta collect --bookie-conf bk_server.conf --out inventory/BOOKIE"
        return Result(
            "freeze",
            verdict,
            code,
            counts={"servers": len({trial.server for trial in trials}), "servers_silent": len(silent)},
            coverage={
                "tried_as": tried_as,
                "not_tried_as": untried,
                "servers_silent": silent,
                "not_seen": list(NOT_SEEN),
                "not_stopped": GOES_ON,
            },
            details=details,
            following="stop every bookie: kill -STOP" if code == Exit.FOUND else collect,
            facts={
                **self._facts(left),
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

    def _trials(self, layout: Layout) -> tuple[list["_Trial"], list[str]]:
        """Try on each server that the URI names, as nobody and as the bookies; return also who did not answer.

        Where connections are made as somebody by SASL, nobody's is, too: what is refused to that one is to nobody.
        """
        bookie, sasl = store_auth(BOOKIE_AUTH_VARIABLE), user_and_password(SASL_VARIABLE)
        nobody = freeze_state.WORLD if sasl is None else f"sasl:{sasl[0]}"
        trials, silent = [], []
        for server in parse_store_uri(self._uri).hosts.split(","):
            address = f"zk://{server}{self.root}"
            try:
                for auth in (None, bookie) if bookie else (None,):
                    with open_store(address, writable=True, auth=auth, patience_s=_SERVER_PATIENCE_S) as stranger:
                        proof = freeze_state.prove(stranger.store, self.store, self.root, layout)
                    trials.append(_Trial(server, _principal(auth) if auth else nobody, proof))
            except UnavailableError:
                silent.append(server)
        return trials, silent

    def ended(self, was_frozen: bool, counts: Mapping[str, int | None]) -> Result:  # noqa: FBT001 - what it says, not a switch
        """Say what the rights are now."""
        state = freeze_state.is_frozen(self.store, self.root)
        compared = counts.get("held") is not None
        verdict, code = "thawed: the rights are what they were before the freeze", 0
        if not was_frozen:
            verdict = "nothing to do: the journal holds no freeze that is in force"
        if state.frozen:
            verdict = f"STILL FROZEN by {state.identity or 'nobody known'}: this journal is not of that freeze"
            code = Exit.FOUND
        details = [
            "replication is still disabled" if state.replication_disabled else "replication is enabled",
            *([] if compared else ["not compared with what bookies hold: no --inventory was given"]),
            f"not seen: {_AFTER_THAW}",
            "not looked at: which ledgers are held; the plan's report lists them",
        ]
        return Result(
            "thaw",
            verdict,
            code,
            counts=dict(counts),
            coverage={"compared_with_inventories": compared},
            details=details,
            following="when all is verified, enable replication by hand: bookkeeper shell autorecovery -enable",
            facts={"root": self.root, "state": str(state.state), "journal": str(self.folder)},
        )


@dataclass(frozen=True, slots=True)
class _Trial:
    """What one server answered to one principal."""

    server: str
    principal: str
    proof: freeze_state.Proof


def _judged(
    state: freeze_state.FreezeState, trials: Sequence[_Trial], silent: Sequence[str], untried: Sequence[str]
) -> tuple[str, int]:
    for trial in trials:
        if trial.proof.allowed:
            why = "it ignores rights (skipACL), or the principal is its super user"
            let = f"{trial.server} let {trial.principal} {trial.proof.allowed[0]}"
            return f"NOT FROZEN: {let}: {why}", Exit.FOUND
    if state.open:
        return f"NOT FROZEN: {'; '.join([*state.open, *state.unknown])}", Exit.FOUND
    if state.unknown:
        return f"the rights are taken, but that they hold cannot be told: {'; '.join(state.unknown)}", Exit.UNDECIDABLE
    unseen = [f"{server} did not answer" for server in silent]
    unseen += [f"{trial.server}: {what}" for trial in trials for what in trial.proof.failed]
    if unseen:
        return f"the rights are taken, but not every server was seen to refuse: {'; '.join(unseen)}", Exit.UNDECIDABLE
    if untried:
        return f"the rights are taken, but nobody could be tried as {', '.join(untried)}", Exit.UNDECIDABLE
    refused = sum(len(trial.proof.refused) for trial in trials)
    servers = len({trial.server for trial in trials})
    return f"frozen: every server named ({servers}) refused all {refused} attempts without our identity", 0


def freeze_identity(uri: str) -> tuple[str, str]:
    """Return the identity that a freeze is made as.

    Raises:
        GuardRefusedError: the store has no rights.
        InputError: no identity is named, or that of the bookies.
    """
    if _PULSAR_ELSEWHERE.match(uri.strip()) or parse_store_uri(uri).kind != _ZOOKEEPER:
        raise GuardRefusedError(uri, "has no rights by which listings could be made to fail", _STOP)
    auth = store_auth()
    if auth is None:
        raise InputError(
            AUTH_VARIABLE,
            "is not set, and a freeze needs an identity that no bookie has",
            f"export {AUTH_VARIABLE}=bkmeta:<a password of your own>, and keep it: apply and thaw need the same",
        )
    if auth == store_auth(BOOKIE_AUTH_VARIABLE):
        raise InputError(BOOKIE_AUTH_VARIABLE, f"is the same as {AUTH_VARIABLE}", "freeze as somebody else")
    return auth


def _principal(auth: tuple[str, str]) -> str:
    from backends.zookeeper import digest_principal

    return digest_principal(auth)


def freeze_layout(opened: OpenStore) -> Layout | None:
    """Return the layout that the URI names, or that Pulsar's driver takes for granted; None: LAYOUT says it."""
    if opened.layout_hint:
        return Layout(opened.layout_hint)
    # Pulsar's driver never reads LAYOUT when it lists: it looks into the folders of both trees.
    pulsar = opened.uri.strip().lower().startswith(_PULSAR) and opened.store.get(opened.root + LAYOUT) is None
    return Layout.HIERARCHICAL if pulsar else None


def journal_folder(uri: str) -> Path:
    """Return the folder that the journal of a store's freeze is in, unless another one is named."""
    address = parse_store_uri(uri)
    place = re.sub(r"[^A-Za-z0-9.]+", "-", address.hosts.split(",")[0] + address.root)
    return Path(f"bkmeta-freeze-{place}")


def _is_confirmed(proposal: engine.Proposal, past: engine.Past | None, given: str) -> bool:
    given = given.lower()
    if len(given) < _TYPED:
        return False
    return proposal.hash.startswith(given) or (past is not None and past.covers(proposal, given))


def _lines(proposal: engine.Proposal) -> list[str]:
    first = [] if proposal.disable is None else ["/underreplication/disable: made, so that replication stops"]
    return [*first, *map(str, proposal.changes), *proposal.notes, f"hash {proposal.hash}"]
