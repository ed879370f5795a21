"""Rights that would lock the session out that writes them are refused before anything is written."""

from pathlib import Path

import pytest

from reconcile.errors import GuardRefusedError
from reconcile.write.apply import ApplyOptions, apply
from tests.support.memory_store import MemoryStore
from tests.support.plans import action, clock, plan_of

OURS = ("digest:us:hash",)


def write(acl: str, principals: tuple[str, ...], store: MemoryStore, folder: Path) -> None:
    """Apply one record with these rights."""
    plan = plan_of([action("ledger", "create", "/00/0000/L0001", b"record")])
    apply(lambda: [plan], store, "/ledgers", folder, ApplyOptions("h", acl=acl, principals=principals), now=clock())


@pytest.mark.parametrize(
    ("acl", "principals"),
    [
        ("world:anyone:", ()),
        ("world:anyone:ra", ()),
        ("digest:them:hash:cdrwa", ()),
        ("digest:them:hash:cdrwa,world:anyone:r", OURS),
        ("sasl:us:cdrwa", OURS),
    ],
)
def test_rights_that_lock_us_out_are_refused(acl: str, principals: tuple[str, ...], tmp_path: Path) -> None:
    """Nothing is written, and the rights are named with what is missing."""
    store = MemoryStore()
    with pytest.raises(GuardRefusedError, match="leaves this session without"):
        write(acl, principals, store, tmp_path / "journal")
    assert store.get("/ledgers") is None


@pytest.mark.parametrize(
    ("acl", "principals"),
    [
        ("world:anyone:cdr", ()),
        ("digest:us:hash:cdrwa,world:anyone:r", OURS),
        ("digest:us:hash:cd,world:anyone:r", OURS),
        ("digest:them:hash:r", ("digest:super:hash",)),
        ("ip:10.0.0.1:cdrwa", ()),
    ],
)
def test_rights_that_leave_us_in_are_written(acl: str, principals: tuple[str, ...], tmp_path: Path) -> None:
    """By name, as anybody, as the super user; addresses cannot be judged."""
    store = MemoryStore()
    write(acl, principals, store, tmp_path / "journal")
    assert store.get("/ledgers/00/0000/L0001") is not None
