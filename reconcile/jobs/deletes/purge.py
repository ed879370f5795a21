"""Ledgers purged by a certificate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backends.registry import OpenStore
from reconcile.deletes.approvals import Approvable, Subject
from reconcile.deletes.certificate import Certificate, Validity, judge_certificate, read_certificate
from reconcile.deletes.own_root import read_instance_id, require_clock
from reconcile.deletes.policy import DeletePolicy
from reconcile.deletes.purge import Purged, PurgeRequest, Quarantine, count_lately, purge_ledgers
from reconcile.deletes.tombstones import TAKEN, StepRefusedError
from reconcile.deletes.verification.evidence import ReferenceListing
from reconcile.deletes.verification.unreferenced import select_live
from reconcile.deletes.verification.verdicts import set_breaker
from reconcile.deletes.verification.wanted import WantedLedgers
from reconcile.errors import Advice, GuardRefusedError, Remedy
from reconcile.jobs.approvals import NO_APPROVALS, Approvals
from reconcile.jobs.context import Context, now_ms, throttle
from reconcile.jobs.deletes.clusters import DeleteTarget, OpenDeletes, open_deletes
from reconcile.jobs.deletes.listings import list_again
from reconcile.jobs.deletes.quarantine import end_where_bookies_left, list_quarantined
from recovery.model.ids import LedgerId

_TYPED = 8
"""Digits of a hash that count as having read it."""
_LISTED_ANEW_MS = 300_000
"""A purge that takes longer lists references again."""


@dataclass(frozen=True, slots=True)
class PurgeJob:
    """What is purged.

    Attributes:
        target: the store.
        certificate: its file.
        key: PEM file of the public key that must have signed it; None: it need not be signed.
        rate: ledgers a second, at most.
        batch: ledgers in a transaction, at most; None: as many as the store takes.
        confirmed: hash of the certificate, needed where the breaker trips.
        approvals: that were given.
    """

    target: DeleteTarget
    certificate: Path
    key: Path | None = None
    rate: float | None = None
    batch: int | None = None
    confirmed: str | None = None
    approvals: Approvals = NO_APPROVALS


@dataclass(frozen=True, slots=True)
class PurgedLedgers:
    """What was purged.

    Attributes:
        certificate: by which.
        result: its ledgers.
        ended_early: ledgers that came out of quarantine, since a bookie left; why.
        as_then: references that were not read again: the names of files that are gone, and of copies of stores.
        transactions, written_bytes: what it cost the store.
    """

    certificate: Certificate
    result: Purged
    transactions: int
    written_bytes: int
    ended_early: Mapping[LedgerId, str]
    as_then: tuple[str, ...] = ()


def purge_deletes(job: PurgeJob, context: Context) -> PurgedLedgers:
    """Remove the records of a certificate's ledgers; where the policy asks for a quarantine, after a hold for a while.

    A certificate that has ended removes the holds that it put there while it was valid.

    Raises:
        GuardRefusedError: no valid certificate of this cluster, too few approvals, less than the policy asks for, the
            breaker, or a clock that is not the store's.
        InputError: the certificate cannot be read.
        PartlyAppliedError: stopped midway.
        UnavailableError: the store does not answer.
    """
    certificate = read_certificate(job.certificate)
    check = judge_certificate(certificate, key=job.key, now=context.now())
    remedy = "verify again for a new one"
    is_ended = check.validity is Validity.EXPIRED
    refusal = GuardRefusedError(str(job.certificate), f"is not valid: {'; '.join(check.problems)}", remedy)
    if check.validity is Validity.INVALID:
        raise refusal
    maker = None if certificate.signature is None else certificate.signature.public_key
    subject = Subject(Approvable.CERTIFICATE, certificate.hash)
    with (
        open_deletes(
            job.target,
            context,
            lambda _opened, policy: job.approvals.require(policy, subject, context.now(), maker=maker),
        ) as target,
        context.reporter.progress("purging", "ledgers") as progress,
    ):
        _require_same_cluster(certificate, target, str(job.certificate))
        if is_ended and not any(item.certificate == certificate.hash for item in list_quarantined(target)):
            raise refusal
        # By a clock that is behind a certificate would hold for ever.
        require_clock(target.cluster.store, target.own, context.now, target.by, target.log)
        ended_early = end_where_bookies_left(target, now_ms(context))
        if not is_ended:
            _require_unbroken(certificate, target, job.confirmed, context)
            _require_age(certificate, target.policy, str(job.certificate))
        archived = bool(certificate.body["evidence"]["rules"]["archived"]) or target.policy.archived
        naming = _Naming(certificate, target.opened, context)
        quarantine = None
        if target.policy.quarantine_ms:
            room = target.policy.quarantine_most - len(list_quarantined(target))
            quarantine = Quarantine(target.policy.quarantine_ms, room)
        request = PurgeRequest(
            certificate=certificate,
            by=target.by,
            name_owners=naming.find,
            archived=archived,
            soak_ms=target.policy.soak_ms,
            rate=job.rate,
            batch=job.batch,
            quarantine=quarantine,
            is_ended=is_ended,
        )
        result = purge_ledgers(
            request, target.cluster, target.own, target.log, now=context.now, progress=throttle(progress)
        )
        for ledgers in (result.purged, result.earlier, result.quarantined, result.beyond):
            ledgers.sort()
        names = ("purged", "earlier", "quarantined", "waiting", "beyond", "left_out")
        target.log.end({name: len(getattr(result, name)) for name in names}, 0)
        cost = target.log.cost
        return PurgedLedgers(certificate, result, cost.transactions, cost.written_bytes, ended_early, naming.as_then)


@dataclass(slots=True)
class _Naming:
    """What upper layers name while a purge runs: what the verification read, as far as it is still here."""

    certificate: Certificate
    opened: OpenStore
    context: Context
    listing: ReferenceListing | None = None
    listed_ms: int = 0
    owners: Mapping[LedgerId, str] = field(default_factory=dict)
    as_then: tuple[str, ...] = ()

    def find(self, ledgers: Sequence[LedgerId]) -> dict[LedgerId, str]:
        """Return the owners of those of some ledgers that are named now.

        Raises:
            StepRefusedError: they cannot be listed.
        """
        if self.listing is None or now_ms(self.context) > self.listed_ms + _LISTED_ANEW_MS:
            self.listed_ms = now_ms(self.context)
            again = list_again(self.certificate, self.opened, self.context)
            self.listing, self.as_then = again.listing, again.as_then
            self.owners = self._find_owners(self.listing)
        if self.listing.problem:
            raise StepRefusedError(f"references cannot be listed again: {self.listing.problem}")
        return {ledger: self.owners[ledger] for ledger in ledgers if ledger in self.owners}

    def _find_owners(self, listing: ReferenceListing) -> dict[LedgerId, str]:
        """Return who names any of the certificate's ledgers, in one pass over all that is named."""
        if listing.references is None:
            return {}
        wanted = WantedLedgers(list(self.certificate.ledgers))
        rows, numbers = wanted.select(select_live(listing.references.rows))
        owners = rows["owner"].to_pylist()
        return {wanted.ledgers[n]: owner or "an upper layer" for n, owner in zip(numbers.tolist(), owners, strict=True)}


def _require_same_cluster(certificate: Certificate, target: OpenDeletes, name: str) -> None:
    instance_id = read_instance_id(target.cluster.store, target.opened.root)
    if certificate.instance_id != instance_id or certificate.root != target.cluster.root:
        problem = (
            f"is of cluster {certificate.instance_id or 'without an id'} at {certificate.root}; the store is "
            f"{instance_id or 'without an id'} at {target.cluster.root}"
        )
        raise GuardRefusedError(name, problem, "name the store of the certificate's cluster")


def _require_age(certificate: Certificate, policy: DeletePolicy, name: str) -> None:
    """Refuse a certificate that was made by a rule that is weaker than the policy by now."""
    if int(certificate.body["evidence"]["rules"]["min_age_ms"]) < policy.min_age_ms:
        problem = "was made for ledgers of a smaller age than the policy of the cluster asks for now"
        raise GuardRefusedError(name, problem, "verify again for a new one")


def _require_unbroken(certificate: Certificate, target: OpenDeletes, confirmed: str | None, context: Context) -> None:
    """Refuse another certificate's confirmation, and more purges than a day may have without one."""
    own = target.own.tombstones
    named = own.read_some(list(certificate.ledgers))
    asked = sum(tombstone.state not in TAKEN for tombstone in named.values())
    lately = count_lately(own.read_all(), now_ms(context))
    breaker = set_breaker(asked, lately, int(certificate.body["breaker"]["total"]), target.policy.most_in_a_day)
    typed = confirmed or ""
    is_confirmed = len(typed) >= _TYPED and certificate.hash.startswith(typed.lower())
    if typed and not is_confirmed:
        problem = f"is confirmed for {typed!r}, and the certificate is {certificate.hash}"
        raise GuardRefusedError("the purge", problem, Remedy(Advice.CONFIRM, certificate.hash))
    if breaker.is_tripped and not is_confirmed:
        problem = f"{asked} ledgers and {lately} of the last day are more than {breaker.limit} a day"
        raise GuardRefusedError("the purge", problem, Remedy(Advice.CONFIRM, certificate.hash))
