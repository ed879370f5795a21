"""The rights of the records that a rescue writes: a snapshot's, or those that a person names."""

from typing import Final

import pyarrow.compute as pc

from reconcile.cli.rescue import questions
from reconcile.cli.rescue.open_rescue import OpenRescue
from reconcile.cli.rescue.record import RescueQuestion
from reconcile.compare.evidence import sort_newest_first
from reconcile.errors import GuardRefusedError, PlanError
from reconcile.plan.views.open_points import count_rights
from reconcile.stores import catalog_path
from reconcile.write.guards import OPEN_ACL, choose_acl
from reconcile.write.plan_actions import require_acl
from recovery.dataset import SNAPSHOTS, Dataset, open_dataset

_FROM_SNAPSHOT: Final = "from-snapshot"


def find_rights(rescue: OpenRescue) -> str | None:
    """Return the newest capture that has rights of records; None: none has any but those of an open store."""
    given = [catalog_path(text) for text in rescue.hosts.incident.get("snapshots", [])]
    made = sorted(rescue.out.absolute().glob(f"plan-*/{SNAPSHOTS}/*"))
    catalogs = [open_dataset(str(path), "catalog") for path in (*given, *made) if path is not None]
    for catalog in sort_newest_first(catalogs):
        columns = (batch["acl"] for batch in catalog.dataset.batches("ledgers", ["acl"]))
        acls = {acl for column in columns for acl in pc.unique(column).to_pylist()}
        if acls - {None, OPEN_ACL}:
            return str(catalog.dataset.path)
    return None


def choose_rights(rescue: OpenRescue, plan: Dataset) -> str | None:
    """Return what `apply --acl` takes: what the snapshot has, what a person says, or None where all is open."""
    rights = count_rights(plan)
    if not rights.lacking:
        return _FROM_SNAPSHOT if rights.created else None
    secured = ""
    with rescue.connect() as opened:
        try:
            choose_acl(opened.store, opened.root)
        except GuardRefusedError as error:
            secured = str(error)
    if not secured and set(rights.named) <= {OPEN_ACL}:
        return None
    return answer_rights(rescue, questions.ask_for_rights(rights.created, rights.lacking, rights.named, secured))


def answer_rights(rescue: OpenRescue, question: RescueQuestion) -> str:
    """Return the rights that a person names. What is none is forgotten: `apply` would refuse it each time.

    Raises:
        GuardRefusedError: the answer is not rights.
    """
    rights = rescue.answer(question)
    try:
        require_acl(rights)
    except PlanError as error:
        rescue.forget(question.id)
        problem = f"are answered {rights!r}, which is not scheme:id:perms,…"
        raise GuardRefusedError("the rights", problem, "run this again, and write them so") from error
    return rights
