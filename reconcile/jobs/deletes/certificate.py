"""A certificate checked by itself, as a pipeline does before it lets a purge begin; no store is touched."""

from dataclasses import dataclass
from pathlib import Path

from reconcile.deletes.certificate import CertificateCheck, check_certificate
from reconcile.jobs.context import Context
from recovery.model.ids import LedgerId


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateRequest:
    """What a certificate must hold against.

    Attributes:
        file: the certificate.
        key: PEM of the public key that must have signed it; None: nobody said by whom.
        ledgers: that it must name.
    """

    file: Path
    key: Path | None = None
    ledgers: tuple[LedgerId, ...] = ()


def check(request: CertificateRequest, context: Context) -> CertificateCheck:
    """Say whether a certificate holds now.

    Raises:
        InputError: the file or the key cannot be read.
    """
    return check_certificate(request.file, key=request.key, ledgers=request.ledgers, now=context.now())
