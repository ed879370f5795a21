"""`plan edit`: a plan changed into another one."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from reconcile.cli.access import AUTH_VARIABLE, EnvironmentAccess
from reconcile.cli.command import Command, Exit
from reconcile.cli.options import (
    FOLDER,
    make_output,
    output_options,
    parse_ledger,
    scope_option,
)
from reconcile.cli.output import Result
from reconcile.words import count_noun

if TYPE_CHECKING:
    from recovery.dataset import Dataset
    from recovery.model.ids import LedgerId


_SHOWN: Final = 10


_NAMED: Final = "-"
"""Typed for the ledger that an option of its own names."""


_CATALOG: Final = "catalog://"


def _sessions(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> tuple[int | None, ...]:
    """Read sessions as plans show them."""
    from reconcile.plan.deletions import parse_session

    try:
        return tuple(parse_session(value) for value in values)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command(
    cls=Command,
    exits={
        Exit.DONE: "the new plan was written",
        Exit.FAILED: "the disk of --out is full",
        Exit.USAGE: "a plan, a ledger, an alternative or a folder that cannot be used",
    },
    epilog="Example: bkmeta plan edit plan --accept-loss 4711 --out plan-2",
)
@click.argument("path", metavar="PLAN", type=FOLDER)
@click.option("--drop", "dropped", multiple=True, metavar="LEDGER", help="Write nothing for it: it waits for a person.")
@click.option("--choose", "chosen", multiple=True, metavar="LEDGER=LABEL", help="Write this alternative of its record.")
@click.option(
    "--accept-loss", "lost", multiple=True, metavar="LEDGER", help="Let the bookies delete it; its hold is removed."
)
@click.option(
    "--restore-deleted-by",
    "restored_of",
    multiple=True,
    callback=_sessions,
    metavar="SESSION",
    help="Write the last record of each ledger on bookies that this session deleted; `plan show` lists sessions.",
)
@click.option(
    "--accept-deleted-by",
    "accepted_of",
    multiple=True,
    callback=_sessions,
    metavar="SESSION",
    help="What this session deleted stays deleted: bookies delete it.",
)
@scope_option
@click.option("--ledger-qualified-name", "qualified", metavar="NAME", help="The ledger that is written - above.")
@click.option("--acl", metavar="SPEC", help="ACL of everything that is created: scheme:id:perms,…")
@click.option("--acl-of", "acl_of", metavar="URI", help="ACLs as they were in a snapshot: catalog:///DIR.")
@click.option("--replace-instance-id", is_flag=True, help="Replace the store's INSTANCEID with the bookies' own.")
@click.option("--replace-cookie", "cookies", multiple=True, metavar="BOOKIE", help="Replace the store's cookie of it.")
@click.option("--out", type=FOLDER, required=True, help="A new folder for the new plan; it will hold passwords.")
@output_options
def edit(
    path: Path,
    dropped: tuple[str, ...],
    chosen: tuple[str, ...],
    lost: tuple[str, ...],
    restored_of: tuple[int | None, ...],
    accepted_of: tuple[int | None, ...],
    scope: str | None,
    qualified: str | None,
    acl: str | None,
    acl_of: str | None,
    *,
    replace_instance_id: bool,
    cookies: tuple[str, ...],
    out: Path,
    **shared: Any,  # noqa: ANN401 - click's options
) -> None:
    """Change what PLAN would write: a new plan with a new hash; PLAN stays as it is.

    LEDGER is a number, scope:number, a qualified name of 32 hex digits, or - for that of --ledger-qualified-name.

    Replacing INSTANCEID or cookies is for a store that somebody initialised again: the versions that are replaced are
    those of the store as it was captured when the plan was made.
    """
    from backends.protocols import parse_acl
    from reconcile.plan.alternatives import RESTORE
    from reconcile.plan.deletions import select_deleted_by
    from reconcile.plan.edits import Edits, edit_plan
    from reconcile.plan.manifest import read_plan_manifest
    from recovery.dataset import open_dataset

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
    if acl is not None and acl_of is not None:
        raise click.UsageError("give --acl or --acl-of, not both")
    if acl is not None:
        try:
            parse_acl(acl)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--acl") from error
    if acl_of is not None and not acl_of.startswith(_CATALOG):
        raise click.BadParameter(f"{acl_of!r} is not catalog:///DIR", param_hint="--acl-of")
    before = open_dataset(path, "plan")
    accepted = frozenset(name_ledgers(text, "--accept-loss") for text in lost)
    if restored_of:
        choices = dict.fromkeys(select_deleted_by(before, restored_of, restorable=True), RESTORE) | choices
    if accepted_of:
        accepted |= select_deleted_by(before, accepted_of, restorable=False)
    edits = Edits(
        drop=frozenset(name_ledgers(text, "--drop") for text in dropped),
        accept_loss=accepted,
        choose=choices,
        acl=acl,
        acl_of=None if acl_of is None else open_dataset(acl_of.removeprefix(_CATALOG), "catalog"),
        replace_instance_id=replace_instance_id,
        replace_cookies=frozenset(cookies),
    )
    if not edits.texts:
        raise click.UsageError("nothing to change: name at least one edit")
    before.verify()
    manifest = edit_plan(before, edits, out)
    details = list(edits.texts[:_SHOWN])
    if len(edits.texts) > _SHOWN:
        details.append(f"and {len(edits.texts) - _SHOWN} more edits: bkmeta plan diff lists them")
    if acl is not None or acl_of is not None:
        details += _warn_of_acls(open_dataset(out, "plan"))
    details.append(f"made of {read_plan_manifest(before).hash}")
    if manifest.binding.cookies_held_back:
        wait = "1 ledger waits" if manifest.counts.waiting == 1 else f"{manifest.counts.waiting} ledgers wait"
        details.append(f"{wait} for a person: no cookies are written until each is settled")
    result = Result(
        "plan-edit",
        f"{count_noun(len(edits.texts), 'edit')}; the new plan has hash {manifest.hash}",
        0,
        counts=manifest.counts.to_json(),
        coverage=manifest.coverage.to_json(),
        details=details,
        following=shlex.join(["bkmeta", "plan", "diff", str(path), str(out)]),
        facts={
            "plan": str(out),
            "hash": manifest.hash,
            "edited_from": manifest.binding.edited_from,
            "edits": edits.texts,
        },
    )
    sys.exit(output.show(result))


def _warn_of_acls(made: "Dataset") -> list[str]:
    """Say which ACLs of a plan would lock out whom the environment names now: apply refuses them."""
    from reconcile.plan.manifest import read_plan_manifest
    from reconcile.stores import list_principals
    from reconcile.write.guards import find_lacking_permissions

    if read_plan_manifest(made).binding.layout == "etcd":
        return []
    named = list_principals(EnvironmentAccess()) or []
    acls = sorted({acl for rows in made.batches("actions") for acl in rows["acl"].unique().to_pylist() if acl})
    session = f"as {' and '.join(named)}" if named else "without a name"
    return [
        f"WARNING: {acl} leaves a session that connects {session} without {lacking}: apply refuses it. "
        f"Connect as somebody whom it names ({AUTH_VARIABLE}), or name another ACL"
        for acl in acls
        if (lacking := find_lacking_permissions(acl, named))
    ]
