"""Deletes verified: each ledger gets its verdict, and those that may be purged a certificate."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from backends.registry import OpenStore
from reconcile.check.evidence import open_runs
from reconcile.deletes.certificate import Certificate, CertifiedLedger, encode_certificate, make_certificate
from reconcile.deletes.own_root import (
    OwnRoot,
    read_instance_id,
    require_clock,
    write_last_listing,
)
from reconcile.deletes.packed import PackedDecision
from reconcile.deletes.policy import DeletePolicy
from reconcile.deletes.purge import count_lately
from reconcile.deletes.records import ArchiveMark, LastListing
from reconcile.deletes.signatures import sign
from reconcile.deletes.tombstones import (
    LOOKS,
    DeleteState,
    DeleteVerdict,
    Tombstone,
    Verification,
    find_state,
    is_due,
    name_certificate,
    take_verification,
)
from reconcile.deletes.verification.absence import Absence, count_born
from reconcile.deletes.verification.durability import judge_copies
from reconcile.deletes.verification.evidence import gather_holdings, to_ms
from reconcile.deletes.verification.objections import UnsafeReason
from reconcile.deletes.verification.verdicts import Breaker, DeleteEvidence, Rules, judge_deletes
from reconcile.deletes.verification.wanted import WantedLedgers
from reconcile.errors import Advice, GuardRefusedError, Remedy
from reconcile.jobs.archive.sample import ArchiveSample, prove_sample
from reconcile.jobs.capture import capture_store
from reconcile.jobs.context import Context, connect, now_ms
from reconcile.jobs.deletes.clusters import (
    DeleteTarget,
    find_policy,
    name_self,
    open_deletes,
    read_layout,
    read_own_root,
)
from reconcile.jobs.deletes.compactions import find_loaded, read_compacted
from reconcile.jobs.deletes.listings import ListedReferences, list_references, measure_since_listing
from reconcile.jobs.deletes.looks import Looks, gather_inventories
from reconcile.jobs.deletes.quarantine import end_where_bookies_left
from recovery.codecs import ledger_metadata
from recovery.codecs.store_kind import kind_of
from recovery.dataset import Dataset, open_dataset
from recovery.errors import FormatError, InputError
from recovery.model.ids import LedgerId
from recovery.model.metadata import LedgerMetadata
from recovery.place import DatasetPlace

_ROWS = 200
"""Tombstones that are changed in a transaction."""
_DOUBTS = (UnsafeReason.LISTING_INCOMPLETE, UnsafeReason.MASS_ABSENCE)
"""Reasons that say that a listing of the store is not believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyDeletesRequest:
    """What is verified, and by what.

    Attributes:
        target: the store.
        ledgers: which; empty: all whose verification is due.
        looks: at bookies.
        references: files and URIs; those that the requests named are read, too.
        rules: what is demanded.
        looks_needed: safe verifications in a row before a purge.
        certificate: file that the certificate is written to; None: none is made.
        sign_key: PEM file that signs it.
        runs: folders of scrutinies: what they know of copies.
        archive_sample: so many of the archived copies are read back, where marks are demanded.
        history: URI of a backup of the store, which explains what went since the last verification; None: none.
    """

    target: DeleteTarget
    ledgers: tuple[LedgerId, ...]
    looks: Looks
    references: tuple[str, ...] = ()
    rules: Rules = field(default_factory=Rules)
    looks_needed: int = LOOKS
    certificate: Path | None = None
    sign_key: Path | None = None
    runs: tuple[DatasetPlace, ...] = ()
    archive_sample: int = 0
    history: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerVerdict:
    """What was found of one ledger.

    Attributes:
        ledger: which.
        verdict: may it be deleted?
        reasons: why not.
        state: of its delete now; None: nobody asked for it.
    """

    ledger: LedgerId
    verdict: DeleteVerdict
    reasons: tuple[str, ...]
    state: DeleteState | None


@dataclass(frozen=True, slots=True)
class VerifiedDeletes:
    """What a verification gave.

    Attributes:
        ledgers: each with its verdict.
        breaker: whether they are too many.
        absence: what went from the store since the last verification; None: there was none.
        certificate: that was made; None: none was, since no ledger may be purged, or no file was named.
        marks_kept: whether the store keeps marks for replication at all.
        certified: ledgers that were left out of those that are due, for a certificate names them that has not ended.
        ended_early: ledgers that came out of quarantine, since a bookie left; why.
    """

    ledgers: tuple[LedgerVerdict, ...]
    breaker: Breaker
    absence: Absence | None
    certificate: Certificate | None
    marks_kept: bool
    certified: int = 0
    ended_early: Mapping[LedgerId, str] = field(default_factory=dict)

    @property
    def verdicts(self) -> dict[str, int]:
        """How many ledgers have each verdict."""
        counts = Counter(item.verdict for item in self.ledgers)
        return {verdict.value: counts[verdict] for verdict in DeleteVerdict}


def verify_deletes(request: VerifyDeletesRequest, context: Context) -> VerifiedDeletes:
    """Look at everything that a verdict needs, write what becomes of the tombstones, and a certificate.

    Raises:
        DatasetError: an inventory is missing or damaged.
        GuardRefusedError: what stands at the key of our own root is not ours, the clock is not the store's, or the
            policy asks for approvals and no key signs the certificate.
        InputError: a file cannot be used, or there is no ledgers root.
        UnavailableError: the store does not answer.
    """
    if request.certificate is not None and not request.certificate.absolute().parent.is_dir():
        problem = "is in a folder that does not exist"
        raise InputError(str(request.certificate), problem, "make the folder, or name another file")
    with _gather_evidence(request, context) as gathered:
        wanted, evidence = gathered.wanted, gathered.evidence
        verifications, breaker = judge_deletes(wanted, evidence, gathered.rules)
    changed = _write(request, gathered, verifications, breaker, context)
    at_ms = now_ms(context)
    ledgers = tuple(
        LedgerVerdict(
            ledger,
            verification.verdict,
            verification.reasons,
            None if changed.get(ledger) is None else find_state(changed[ledger], at_ms),
        )
        for ledger, verification in sorted(zip(wanted.ledgers, verifications, strict=True), key=lambda pair: pair[0])
    )
    absence = gathered.evidence.absence
    return VerifiedDeletes(
        ledgers,
        breaker,
        absence,
        gathered.certificate,
        gathered.marks_kept,
        gathered.certified,
        gathered.ended_early,
    )


@dataclass(slots=True)
class _Gathered:
    """Everything that was looked at."""

    wanted: WantedLedgers
    evidence: DeleteEvidence
    listed: tuple[ListedReferences, ListedReferences]
    instance_id: str
    root: str
    marks_kept: bool
    described: Mapping[str, Any]
    listing: LastListing
    certified: int
    policy: DeletePolicy
    rules: Rules
    any_quarantined: bool
    certificate: Certificate | None = None
    ended_early: Mapping[LedgerId, str] = field(default_factory=dict)


@contextmanager
def _gather_evidence(request: VerifyDeletesRequest, context: Context) -> Iterator[_Gathered]:
    with (
        connect(request.target.uri, context) as opened,
        TemporaryDirectory(prefix="bkmeta-verify-", dir=request.looks.scratch) as name,
    ):
        folder = Path(name)
        layout = read_layout(opened)
        own = read_own_root(opened)
        policy = find_policy(opened, request.target)
        rules = request.rules.tighten(policy)
        if request.certificate is not None:
            _require_maker(policy, request.sign_key)
        ledgers, certified, quarantined = (
            (request.ledgers, 0, 0) if request.ledgers else _list_due(own, now_ms(context))
        )
        tombstones = {} if own is None else own.tombstones.read_some(ledgers)
        lately = 0 if own is None else count_lately(own.tombstones.read_all(), now_ms(context))
        named = {name: None for tombstone in tombstones.values() for name in tombstone.references}
        references = (*request.references, *named)
        wanted = WantedLedgers(ledgers)
        first_listing = list_references(references, opened, context)
        first = _capture(opened, folder / "first", context)
        first_listing = _add_compacted(request, wanted, first, first_listing, opened)
        records = {} if request.looks.wire is None else _read_raws(wanted, first)
        txn = first.manifest["coverage"]["txn"]
        with gather_inventories(request.looks, opened, layout, records, context, txn) as inventories:
            holdings = gather_holdings(inventories, wanted)
            runs = open_runs(request.runs, first, request.target.uri) if request.runs else ()
            durability = judge_copies(wanted, first, inventories, runs, request.looks.aliases)
        second_listing = list_references(references, opened, context)
        second = _capture(opened, folder / "second", context)
        second_listing = _add_compacted(request, wanted, second, second_listing, opened)
        began_ms = to_ms(first.read("sources", columns=["at"])["at"][0].as_py())
        absence = measure_since_listing(opened, own, second, now_ms(context), request.history)
        if request.archive_sample and not rules.archived:
            problem = "has no meaning where no archive mark is demanded"
            raise InputError("a sample of archived copies", problem, "demand marks, or ask for no sample")
        marks = _read_archive(own, ledgers)
        copies = ArchiveSample()
        if rules.archived and request.archive_sample and marks:
            with context.reporter.progress("reading archived copies back", "ledgers"):
                copies = prove_sample(marks, _decode_all(_read_raws(wanted, second)), request.archive_sample)
        evidence = DeleteEvidence(
            captures=(first, second),
            listings=(first_listing.listing, second_listing.listing),
            holdings=holdings,
            durability=durability,
            tombstones=tombstones,
            archive=marks,
            removed_lately=lately,
            aliases=request.looks.aliases,
            now_ms=now_ms(context),
            absence=absence,
            bad_copies=copies.bad,
            unread_copies=copies.unread,
        )
        described = _describe(evidence, (first_listing, second_listing), rules)
        described["archived_copies_proven"] = str(copies.proven)
        instance_id = read_instance_id(opened.store, opened.root)
        marks_kept = kind_of(layout).has_replication
        listed = (first_listing, second_listing)
        listing = LastListing(began_ms, count_born(second, began_ms), name_self())
        root = opened.root.rstrip("/")
        yield _Gathered(
            wanted,
            evidence,
            listed,
            instance_id,
            root,
            marks_kept,
            described,
            listing,
            certified,
            policy,
            rules,
            quarantined > 0,
        )


def _add_compacted(
    request: VerifyDeletesRequest,
    wanted: WantedLedgers,
    capture: Dataset,
    listed: ListedReferences,
    opened: OpenStore,
) -> ListedReferences:
    """Return a listing with the compacted ledgers that only the ledgers of subscriptions name, if bookies are asked."""
    cursors = find_loaded(wanted, capture, listed.listing)
    if request.looks.wire is None or not cursors:
        return listed
    wire = replace(request.looks.wire, aliases=request.looks.aliases)
    raws = _read_raws(WantedLedgers(list(cursors.values())), capture)
    return replace(listed, listing=read_compacted(listed.listing, cursors, raws, opened, wire))


def _require_maker(policy: DeletePolicy, sign_key: Path | None) -> None:
    """Refuse to make a certificate that is not signed, where others must approve it: none of them may be its maker."""
    if not policy.approvals:
        return
    remedy = Remedy(Advice.SIGN_CERTIFICATE)
    if sign_key is None:
        problem = "must be signed by the one who makes it, for the policy of the cluster asks for approvals"
        raise GuardRefusedError("the certificate", problem, remedy)
    if sign(b"", sign_key).public_key not in {approver.key for approver in policy.approvers}:
        raise GuardRefusedError(str(sign_key), "is not a key that the policy of the cluster names", remedy)


def _list_due(own: OwnRoot | None, at_ms: int) -> tuple[tuple[LedgerId, ...], int, int]:
    """Return the ledgers whose verification is due, how many a certificate names, and how many are in quarantine."""
    due, certified, quarantined = list[LedgerId](), 0, 0
    for node in () if own is None else own.tombstones.read_all():
        for tombstone in node:
            if is_due(tombstone, at_ms):
                due.append(tombstone.ledger)
            elif tombstone.state is DeleteState.PURGEABLE:
                certified += 1
            quarantined += tombstone.state is DeleteState.QUARANTINED
    return tuple(due), certified, quarantined


def _capture(opened: OpenStore, folder: Path, context: Context) -> Dataset:
    capture_store(opened, folder, context, with_rights=False, with_own_root=False, with_history=False)
    return open_dataset(folder, "catalog")


def _read_raws(wanted: WantedLedgers, capture: Dataset) -> dict[LedgerId, bytes]:
    raws: dict[LedgerId, bytes] = {}
    for rows, ledger_numbers in wanted.read(capture, "ledgers", ("raw",)):
        raws.update(zip((wanted.ledgers[n] for n in ledger_numbers.tolist()), rows["raw"].to_pylist(), strict=True))
    return raws


def _decode_all(raws: Mapping[LedgerId, bytes]) -> dict[LedgerId, LedgerMetadata]:
    """Return the records that can be read; the others are objected to anyway."""
    records = {}
    for ledger, raw in raws.items():
        with suppress(FormatError):
            records[ledger] = ledger_metadata.decode(raw)
    return records


def _read_archive(own: OwnRoot | None, ledgers: Sequence[LedgerId]) -> dict[LedgerId, ArchiveMark] | None:
    try:
        return {} if own is None else own.archive.read_some(ledgers)
    except FormatError:
        return None


def _describe(evidence: DeleteEvidence, listed: Sequence[ListedReferences], rules: Rules) -> dict[str, Any]:
    """Return the evidence as a certificate names it."""
    captures = []
    for capture in evidence.captures:
        [source] = capture.read("sources", columns=["at", "txn"]).to_pylist()
        captures.append(
            {"digest": capture.digest, "at": source["at"].isoformat(timespec="seconds"), "txn": str(source["txn"])}
        )
    return {
        "captures": captures,
        "inventories": [
            {
                "bookie": look.bookie,
                "incarnation": str(look.incarnation),
                "digest": look.source,
                "ended_ms": str(look.ended_ms),
            }
            for look in evidence.holdings.looks
        ],
        "references": [
            {"at_ms": str(item.listing.at_ms), "sources": [{"name": name, "sha256": sha} for name, sha in item.sources]}
            for item in listed
        ],
        "absence": None
        if evidence.absence is None
        else {name: str(value) for name, value in asdict(evidence.absence).items()},
        "rules": {
            "min_age_ms": str(rules.min_age_ms),
            "freshness_ms": str(rules.freshness_ms),
            "archived": rules.archived,
        },
    }


def _write(
    request: VerifyDeletesRequest,
    gathered: _Gathered,
    verifications: Sequence[Verification],
    breaker: Breaker,
    context: Context,
) -> dict[LedgerId, Tombstone]:
    """Write what becomes of the tombstones, and the certificate of those that may be purged; return them."""
    known = gathered.evidence.tombstones
    if not known and not gathered.any_quarantined:
        return {}
    at_ms = now_ms(context)
    with open_deletes(request.target, context) as target:
        if gathered.any_quarantined:
            gathered.ended_early = end_where_bookies_left(target, at_ms)
        changed = {
            ledger: take_verification(
                _bring_up_to_date(known[ledger], request.looks, gathered.policy),
                verification,
                at_ms,
                target.by,
                looks=request.looks_needed,
            )
            for ledger, verification in zip(gathered.wanted.ledgers, verifications, strict=True)
            if ledger in known
        }
        ready = [tombstone for tombstone in changed.values() if tombstone.state is DeleteState.PURGEABLE]
        if request.certificate is not None and ready:
            gathered.certificate = _certify(request, gathered, ready, breaker, context.now())
            for tombstone in ready:
                changed[tombstone.ledger] = name_certificate(tombstone, gathered.certificate.hash)

        def decide(ledger: LedgerId, tombstone: Tombstone | None) -> PackedDecision[Tombstone] | None:
            if tombstone == known[ledger]:
                return None if changed[ledger] == tombstone else PackedDecision(changed[ledger])
            # Somebody changed it while everything was looked at: what they wrote stands.
            return None

        require_clock(target.cluster.store, target.own, context.now, target.by, target.log)
        if not any(text.startswith(_DOUBTS) for item in verifications for text in item.reasons):
            write_last_listing(target.cluster.store, target.own, gathered.listing, target.log)
        target.own.tombstones.change(list(changed), decide, target.log, rows=_ROWS)
        target.log.end({"verified": len(changed), "purgeable": len(ready)}, 0)
    if request.certificate is not None and gathered.certificate is not None:
        _write_file(request.certificate, encode_certificate(gathered.certificate))
    return changed


def _bring_up_to_date(tombstone: Tombstone, looks: Looks, policy: DeletePolicy) -> Tombstone:
    """Return a tombstone with its bookies by their own names, and with the soak that the policy asks for by now."""
    names = dict.fromkeys(looks.aliases.get(member, member) for member in tombstone.members)
    return replace(tombstone, members=tuple(names), soak_ms=max(tombstone.soak_ms, policy.soak_ms))


def _certify(
    request: VerifyDeletesRequest, gathered: _Gathered, ready: Sequence[Tombstone], breaker: Breaker, now: datetime
) -> Certificate:
    ledgers = [
        CertifiedLedger(item.ledger, item.record.version, hashlib.sha256(item.record.raw).hexdigest()) for item in ready
    ]
    return make_certificate(
        gathered.instance_id,
        gathered.root,
        ledgers,
        gathered.described,
        {**asdict(breaker), "confirmed": request.rules.confirmed},
        now,
        request.sign_key,
    )


def _write_file(path: Path, raw: bytes) -> None:
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_bytes(raw)
        fresh.replace(path)
    except OSError as error:
        remedy = "fix that, and verify again: the tombstones name a certificate that was not written"
        raise InputError(str(path), f"cannot be written ({error.strerror})", remedy) from error
