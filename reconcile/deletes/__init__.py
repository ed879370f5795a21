"""Deletes that cannot go wrong: tombstones, verification, certificates, purges, receipts, orphans."""

from reconcile.deletes.certificate import check_certificate

__all__ = ["check_certificate"]
