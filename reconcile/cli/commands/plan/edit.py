"""`plan edit`: a plan changed into another one."""

import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.access import AUTH_VARIABLE
from reconcile.cli.command import Command, Exit
from reconcile.cli.option_groups.ledger_files import read_ledger_file
from reconcile.cli.options import (
    FILE,
    PLACE,
    make_context,
    make_output,
    output_options,
    parse_ledger,
    parse_sessions,
    read_names,
    scope_option,
)
from reconcile.cli.output import Result
from reconcile.words import count_noun
from recovery.place import DatasetPlace, to_place

if TYPE_CHECKING:
    from reconcile.jobs.plans.change import LockingAcl
    from reconcile.plan.views.ledger_lists import HeldChoice
    from recovery.model.ids import LedgerId


_SHOWN: Final = 10


_NAMED: Final = "-"
"""Typed for the ledger that an option of its own names."""


def _parse_where(text: str, scope: str | None) -> "HeldChoice":
    """Read which held ledgers are meant: conditions with ``and`` between them."""
    from reconcile.plan.views.ledger_lists import HeldChoice

    choice = HeldChoice()
    for condition in re.split(r"\s+and\s+", text.strip()):
        if match := re.fullmatch(r"reason\s*=\s*(\S+)", condition):
            choice = replace(choice, reason=match[1])
        elif match := re.fullmatch(r"bookie\s*=\s*(\S+)", condition):
            choice = replace(choice, bookie=match[1])
        elif match := re.fullmatch(r"ledger\s+in\s+(.+)", condition):
            names = read_names(Path(match[1]))
            choice = replace(choice, among=frozenset(parse_ledger(name, scope, hint="--where") for name in names))
        else:
            wanted = "reason=…, bookie=… or ledger in FILE"
            raise click.BadParameter(f"{condition!r} is none of {wanted}", param_hint="--where")
    return choice


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "the new plan was written",
        Exit.FAILED: "the disk of --out is full",
        Exit.USAGE: "a plan, a ledger, an alternative or a folder that cannot be used",
    },
    epilog="Example: bkmeta plan edit plan --accept-loss 4711 --out plan-2",
)
@click.argument("path", metavar="PLAN", type=PLACE)
@click.option(
    "--drop", "dropped", multiple=True, metavar="LEDGER", help="Write nothing for this ledger until you decide."
)
@click.option(
    "--choose", "chosen", multiple=True, metavar="LEDGER=LABEL", help="Write this alternative of the ledger's record."
)
@click.option(
    "--accept-loss",
    "lost",
    multiple=True,
    metavar="LEDGER",
    help="Let the bookies delete this ledger; its hold is removed.",
)
@click.option(
    "--accept-loss-of", "lost_file", type=FILE, help="Let the bookies delete the ledgers of this file, one a line."
)
@click.option(
    "--choose-all",
    "chosen_all",
    multiple=True,
    metavar="REASON=LABEL",
    help="For every ledger that is held for this reason: write this alternative, if the ledger has it.",
)
@click.option("--accept-loss-all", is_flag=True, help="Let the bookies delete every held ledger that --where selects.")
@click.option(
    "--where",
    metavar="TEXT",
    help="Select held ledgers for an edit of all: reason=…, bookie=…, ledger in FILE, or several of these joined by "
    "`and`.",
)
@click.option(
    "--restore-deleted-by",
    "restored_of",
    multiple=True,
    callback=parse_sessions,
    metavar="SESSION",
    help="Restore what this session deleted: write the last record of each such ledger that is on bookies or is "
    "empty; see `plan show`.",
)
@click.option(
    "--accept-deleted-by",
    "accepted_of",
    multiple=True,
    callback=parse_sessions,
    metavar="SESSION",
    help="What this session deleted stays deleted: bookies delete it.",
)
@scope_option
@click.option("--ledger-qualified-name", "qualified", metavar="NAME", help="The ledger that is written - above.")
@click.option("--acl", metavar="SPEC", help="ACL of everything that is created: scheme:id:perms,…")
@click.option("--acl-of", "acl_of", metavar="URI", help="ACLs as they were in a snapshot: catalog:///DIR.")
@click.option("--replace-instance-id", is_flag=True, help="Replace the store's INSTANCEID with the bookies' own.")
@click.option(
    "--replace-cookie",
    "cookies",
    multiple=True,
    metavar="BOOKIE",
    help="Replace this bookie's cookie in the store with its own.",
)
@click.option(
    "--replace-below",
    "replaced_below",
    multiple=True,
    metavar="PATH",
    help="Replace nodes of an upper layer at and below PATH with the snapshot's, where the store's differ.",
)
@click.option(
    "--adopt",
    "adopted",
    multiple=True,
    metavar="LEDGER=TOPIC",
    help="Append this ledger, which comes back and no topic names, to a topic of Pulsar: persistent://tenant/ns/topic.",
)
@click.option(
    "--adopt-candidates",
    is_flag=True,
    help="Append every ledger that came after the snapshot if its own record names its topic, and make the nodes of "
    "younger schemas and subscriptions. `plan show` lists these as candidates by record and by entry; for others use "
    "--adopt.",
)
@click.option("--out", type=PLACE, required=True, help="A new folder for the new plan; it will hold passwords.")
@output_options
def edit(
    path: DatasetPlace,
    dropped: tuple[str, ...],
    chosen: tuple[str, ...],
    lost: tuple[str, ...],
    lost_file: Path | None,
    chosen_all: tuple[str, ...],
    restored_of: tuple[int | None, ...],
    accepted_of: tuple[int | None, ...],
    scope: str | None,
    qualified: str | None,
    acl: str | None,
    acl_of: str | None,
    *,
    accept_loss_all: bool,
    where: str | None,
    replace_instance_id: bool,
    cookies: tuple[str, ...],
    replaced_below: tuple[str, ...],
    adopted: tuple[str, ...],
    adopt_candidates: bool,
    out: DatasetPlace,
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Change what PLAN would write: a new plan with a new hash; PLAN stays as it is.

    LEDGER is a number, scope:number, a qualified name of 32 hex digits, or - for that of --ledger-qualified-name.

    Replacing INSTANCEID or cookies is for a store that somebody initialised again: the versions that are replaced are
    those of the store as it was captured when the plan was made.
    """
    from backends.protocols import parse_acl
    from reconcile.jobs.plans.change import EditRequest
    from reconcile.jobs.plans.change import edit as run
    from reconcile.plan.views.ledger_lists import HeldChoice
    from reconcile.stores import catalog_path

    def name_ledgers(text: str, hint: str) -> "LedgerId":
        return parse_ledger(qualified if text == _NAMED and qualified is not None else text, scope, hint=hint)

    output = make_output(shared)
    texts = (*dropped, *lost, *(text.partition("=")[0] for text in chosen))
    if (qualified is not None) != (_NAMED in texts):
        raise click.UsageError(f"--ledger-qualified-name goes with {_NAMED} as the LEDGER of an edit: --drop {_NAMED}")
    choices: dict[LedgerId, str] = {}
    for text in chosen:
        name, equals, label = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not LEDGER=LABEL", param_hint="--choose")
        choices[name_ledgers(name, "--choose")] = label
    adoptions: dict[LedgerId, str] = {}
    for text in adopted:
        name, equals, topic = text.partition("=")
        if not equals or not topic:
            raise click.BadParameter(f"{text!r} is not LEDGER=TOPIC", param_hint="--adopt")
        ledger = name_ledgers(name, "--adopt")
        if adoptions.setdefault(ledger, topic) != topic:
            raise click.BadParameter(f"ledger {ledger} is given to two topics", param_hint="--adopt")
    if acl is not None and acl_of is not None:
        raise click.UsageError("give --acl or --acl-of, not both")
    if acl is not None:
        try:
            parse_acl(acl)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--acl") from error
    rights_of = None if acl_of is None else catalog_path(acl_of)
    if acl_of is not None and rights_of is None:
        problem = f"{acl_of!r} is not a capture: write catalog:///DIR, or its URI in an object store"
        raise click.BadParameter(problem, param_hint="--acl-of")
    meant = HeldChoice() if where is None else _parse_where(where, scope)
    if where is not None and not (chosen_all or accept_loss_all):
        raise click.UsageError("--where goes with --choose-all or --accept-loss-all")
    if accept_loss_all and where is None:
        raise click.UsageError("--accept-loss-all needs --where: name the ledgers that may be lost")
    requests = []
    for text in chosen_all:
        reason, equals, label = text.partition("=")
        if not equals or not reason or not label or meant.reason not in (None, reason):
            raise click.BadParameter(f"{text!r} is not REASON=LABEL, or --where names another reason")
        requests.append(replace(meant, reason=reason, label=label))
    given_up = () if lost_file is None else read_ledger_file(lost_file, scope)
    if not (
        texts
        or given_up
        or requests
        or accept_loss_all
        or restored_of
        or accepted_of
        or acl
        or acl_of
        or replace_instance_id
        or cookies
        or replaced_below
        or adopted
        or adopt_candidates
    ):
        raise click.UsageError("nothing to change: name at least one edit")
    request = EditRequest(
        plan=path,
        out=out,
        drop=frozenset(name_ledgers(text, "--drop") for text in dropped),
        accept_loss=frozenset((*(name_ledgers(text, "--accept-loss") for text in lost), *given_up)),
        choose=choices,
        choose_all=requests,
        accept_loss_all=meant if accept_loss_all else None,
        restore_deleted_by=restored_of,
        accept_deleted_by=accepted_of,
        acl=acl,
        acl_of=None if rights_of is None else to_place(rights_of),
        replace_instance_id=replace_instance_id,
        replace_cookies=frozenset(cookies),
        replace_below=frozenset(path.rstrip("/") for path in replaced_below),
        adopt=adoptions,
        adopt_recorded=adopt_candidates,
    )
    edited = run(request, make_context(output))
    manifest = edited.manifest
    details = list(edited.texts[:_SHOWN])
    if len(edited.texts) > _SHOWN:
        details.append(f"and {len(edited.texts) - _SHOWN} more edits: bkmeta plan diff lists them")
    details += [_warn_of_acl(locking) for locking in edited.locking]
    left = [f"not adopted: {ledger}, {reason}" for ledger, reason in edited.not_adopted.items()]
    details += [*left[:_SHOWN], *([f"and {len(left) - _SHOWN} more are not adopted"] if len(left) > _SHOWN else [])]
    if edited.left_purged:
        stay = "1 stays" if edited.left_purged == 1 else f"{edited.left_purged} stay"
        details.append(
            f"of those sessions {stay} deleted: bkmeta purged by a certificate. Name one: --choose LEDGER=restore"
        )
    details.append(f"made of {manifest.binding.edited_from}")
    if manifest.binding.cookies_held_back:
        wait = "1 ledger waits" if manifest.counts.waiting == 1 else f"{manifest.counts.waiting} ledgers wait"
        details.append(f"{wait} for a person: no cookies are written until each is settled")
    result = Result(
        "plan-edit",
        f"{count_noun(len(edited.texts), 'edit')}; the new plan has hash {manifest.hash}",
        0,
        counts=manifest.counts.to_json(),
        coverage=manifest.coverage.to_json(),
        details=details,
        following=shlex.join(["bkmeta", "plan", "diff", str(path), str(out)]),
        facts={
            "plan": str(out),
            "hash": manifest.hash,
            "edited_from": manifest.binding.edited_from,
            "edits": list(edited.texts),
            "not_adopted": {str(ledger): reason for ledger, reason in edited.not_adopted.items()},
        },
    )
    sys.exit(output.show(result))


def _warn_of_acl(locking: "LockingAcl") -> str:
    """Say that an ACL of a plan would lock out whom the environment names now: apply refuses it."""
    session = f"as {' and '.join(locking.principals)}" if locking.principals else "without a name"
    return (
        f"WARNING: {locking.acl} leaves a session that connects {session} without {locking.lacking}: apply refuses it. "
        f"Connect as an identity that it names ({AUTH_VARIABLE}), or name another ACL"
    )
