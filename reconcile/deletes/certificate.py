"""Certificates of deletes: what was found safe, by which evidence, until when. Checked without a store.

file          one JSON object: certificate, hash, signature (where it is signed)
hash          SHA-256 of the canonical JSON (RFC 8785) of `certificate`
signature     Ed25519 over these canonical bytes, with the public key, both base64
numbers       versions, transactions and incarnations are strings: JSON's numbers end at 2^53

certificate.schema       bkmeta.certificate/1
certificate.cluster      instance_id, root
certificate.ledgers      ledger, version, record_sha256
certificate.evidence     captures, inventories, references: hashes and times
certificate.breaker      asked, lately, total, limit, confirmed
certificate.issued, not_after    UTC
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from reconcile.deletes.signatures import Signature, canonicalize, read_public_key, sign
from reconcile.deletes.tombstones import CERTIFICATE_MS
from reconcile.operator_files import read_json
from recovery.errors import InputError
from recovery.model.ids import LedgerId, parse

SCHEMA: Final = "bkmeta.certificate/1"
LIFETIME: Final = timedelta(milliseconds=CERTIFICATE_MS)
SKEW: Final = timedelta(minutes=5)
"""So much may the clocks of who makes a certificate and who checks it differ."""
_REMEDY: Final = "name the file that a verification wrote"


class Validity(IntEnum):
    """What a check gives; the values are exit codes."""

    VALID = 0
    INVALID = 3
    EXPIRED = 4


@dataclass(frozen=True, slots=True)
class CertifiedLedger:
    """A ledger that a certificate names.

    Attributes:
        ledger: which.
        version: of its record.
        record_sha256: of its record.
    """

    ledger: LedgerId
    version: int
    record_sha256: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that was read.

    Attributes:
        body: what is hashed.
        hash: of it, as stated.
        signature: None: it is not signed.
    """

    body: Mapping[str, Any]
    hash: str
    signature: Signature | None = None

    @property
    def instance_id(self) -> str:
        """Of the cluster; empty: it has none."""
        return str(self.body["cluster"]["instance_id"])

    @property
    def root(self) -> str:
        """Key of the cluster's ledgers root."""
        return str(self.body["cluster"]["root"])

    @property
    def issued(self) -> datetime:
        """When it was made."""
        return datetime.fromisoformat(self.body["issued"])

    @property
    def not_after(self) -> datetime:
        """When it ends."""
        return datetime.fromisoformat(self.body["not_after"])

    @property
    def ledgers(self) -> dict[LedgerId, CertifiedLedger]:
        """The ledgers that it names."""
        by_ledger = {}
        for row in self.body["ledgers"]:
            ledger = parse(row["ledger"])
            by_ledger[ledger] = CertifiedLedger(ledger, int(row["version"]), str(row["record_sha256"]))
        return by_ledger


@dataclass(frozen=True, slots=True)
class CertificateCheck:
    """What a check of a certificate gave.

    Attributes:
        validity: valid, invalid, or expired.
        problems: why it is not valid; empty: it is.
        hash: of what it says.
        ledgers: how many it names.
        is_signed: it has a signature; without a key nobody looked whose.
    """

    validity: Validity
    problems: tuple[str, ...]
    hash: str
    ledgers: int
    is_signed: bool


def make_certificate(
    instance_id: str,
    root: str,
    ledgers: Sequence[CertifiedLedger],
    evidence: Mapping[str, object],
    breaker: Mapping[str, object],
    issued: datetime,
    sign_key: Path | None = None,
) -> Certificate:
    """Return a certificate of ledgers that were found safe.

    Args:
        instance_id: of the cluster.
        root: key of the ledgers root.
        ledgers: what it names.
        evidence: JSON values without numbers above 2^53.
        breaker: likewise.
        issued: now, aware.
        sign_key: PEM file of an Ed25519 private key; None: it is not signed.

    Raises:
        InputError: the key cannot be used.
    """
    body = {
        "schema": SCHEMA,
        "cluster": {"instance_id": instance_id, "root": root},
        "issued": _format_time(issued),
        "not_after": _format_time(issued + LIFETIME),
        "ledgers": [
            {"ledger": str(item.ledger), "version": str(item.version), "record_sha256": item.record_sha256}
            for item in sorted(ledgers, key=lambda item: item.ledger.unsigned_key)
        ],
        "evidence": evidence,
        "breaker": breaker,
    }
    raw = canonicalize(body)
    digest = hashlib.sha256(raw).hexdigest()
    if sign_key is None:
        return Certificate(body, digest)
    return Certificate(body, digest, sign(raw, sign_key))


def encode_certificate(certificate: Certificate) -> bytes:
    """Return the bytes of a certificate's file."""
    content: dict[str, Any] = {"certificate": certificate.body, "hash": certificate.hash}
    if certificate.signature is not None:
        content["signature"] = certificate.signature.to_json()
    return json.dumps(content, indent=1).encode() + b"\n"


def read_certificate(path: Path) -> Certificate:
    """Return what a certificate's file says, unchecked but for its form.

    Raises:
        InputError: the file cannot be read, or is not a certificate.
    """
    content = read_json(path, _REMEDY)
    try:
        signature = content.get("signature")
        certificate = Certificate(
            content["certificate"],
            str(content["hash"]),
            None if signature is None else msgspec.convert(signature, Signature),
        )
        _ = certificate.ledgers, certificate.not_after.astimezone(UTC), certificate.root, certificate.instance_id
        _ = certificate.issued.astimezone(UTC)
        named = certificate.body["schema"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(str(path), "is not a certificate of deletes", _REMEDY) from error
    if named != SCHEMA:
        raise InputError(str(path), f"has schema {named!r}; this program reads {SCHEMA}", _REMEDY)
    return certificate


def check_certificate(
    path: Path | str,
    *,
    key: Path | str | None = None,
    ledgers: Sequence[LedgerId | str] = (),
    now: datetime | None = None,
) -> CertificateCheck:
    """Say whether a certificate holds: its hash, its signature, its time, and the ledgers that it must name.

    Args:
        path: the file.
        key: PEM file of the Ed25519 public key that must have signed it; None: a signature need not be there, and it
            is compared with the key in the file only.
        ledgers: that it must name.
        now: the time, aware; None: the clock's.

    Raises:
        InputError: the file or the key cannot be read.
    """
    return judge_certificate(read_certificate(Path(path)), key=key, ledgers=ledgers, now=now)


def judge_certificate(
    certificate: Certificate,
    *,
    key: Path | str | None = None,
    ledgers: Sequence[LedgerId | str] = (),
    now: datetime | None = None,
) -> CertificateCheck:
    """Say whether a certificate that was read holds, as `check_certificate` does.

    Raises:
        InputError: the key cannot be read.
    """
    problems: list[str] = []
    at = now or datetime.now(UTC)
    try:
        raw = canonicalize(certificate.body)
    except ValueError as error:
        raw, problems = b"", [f"it has no canonical form ({error})"]
    digest = hashlib.sha256(raw).hexdigest()
    if digest != certificate.hash:
        problems.append("its hash is not that of what it says: it was altered")
    problems += _check_signature(certificate.signature, raw, None if key is None else Path(key))
    named = certificate.ledgers
    wanted = [parse(item) if isinstance(item, str) else item for item in ledgers]
    problems += [f"it does not name ledger {ledger}" for ledger in wanted if ledger not in named]
    if certificate.issued > at + SKEW:
        problems.append(f"it was made at {certificate.body['issued']}, later than now: a clock is wrong")
    validity = Validity.INVALID if problems else Validity.VALID
    if not problems and at > certificate.not_after:
        validity = Validity.EXPIRED
        problems = [f"it ended at {certificate.body['not_after']}"]
    return CertificateCheck(validity, tuple(problems), digest, len(named), certificate.signature is not None)


def _format_time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds")


def _check_signature(signature: Signature | None, raw: bytes, path: Path | None) -> list[str]:
    if signature is None:
        return [] if path is None else ["it is not signed, although a key was given"]
    if path is not None and read_public_key(path) != signature.public_key:
        return ["another key signed it"]
    return [] if signature.holds(raw) else ["its signature does not hold"]
