"""The service has its store followed: by the instance that leads, and by the next one in the same chain."""

from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from reconcile.jobs.backup.verify import verify_backup
from reconcile.service.api.metrics import format_service
from reconcile.service.api.page import make_page
from reconcile.service.config import read_config
from reconcile.service.server import start_service
from recovery.backup.chain import open_backup
from recovery.codecs.store import Layout, ledger_key
from recovery.model.ids import LedgerId
from tests.support.etcd_server import EtcdServer
from tests.support.service import REAL_PROGRAM, make_context, write_config
from tests.support.waiting import until

pytestmark = pytest.mark.real


def test_whoever_leads_follows_and_the_chain_goes_on(etcd_server: EtcdServer, tmp_path: Path) -> None:
    """What happened at the handover is in it, once; both instances show its figures, and the page its worth."""
    root = f"/{tmp_path.name}/ledgers"
    etcd_server.put(f"{root}/layout", b"org.apache.bookkeeper.metadata.etcd.EtcdLedgerManagerFactory\n1")
    uri, place = f"etcd://{etcd_server.hosts}{root}", tmp_path / "backup"
    more = f'[backup]\nto = "{place}"\nkeep = "30d"\narguments = ["--seal-after", "1s"]\n'
    numbers = count()

    def write() -> int:
        return etcd_server.put(root + ledger_key(Layout.ETCD, LedgerId(0, next(numbers))), b"x")

    def is_sealed(revision: int) -> bool:
        return (place / "head.json").exists() and open_backup(place).manifest.through >= revision

    with ExitStack() as first, ExitStack() as second:
        one, two = (
            stack.enter_context(
                start_service(
                    read_config(write_config(tmp_path, uri, name, tmp_path / name, "", more, session="9s")),
                    make_context(),
                    REAL_PROGRAM,
                )
            )
            for name, stack in (("one", first), ("two", second))
        )
        revision = write()
        until(lambda: is_sealed(revision), "one of them follows")
        leader, other = (one, two) if one.instance.leads else (two, one)
        (first if leader is one else second).close()
        revision = write()
        until(lambda: is_sealed(revision), "the other one follows")
        figures = format_service(other.instance)
        assert "bookkeeper_metadata_backup_readable 1.0" in figures
        assert "bookkeeper_metadata_backup_rpo_seconds" in figures
        assert "every moment since" in make_page(other.instance)
    manifest = open_backup(place).manifest
    assert (len(manifest.bases), manifest.gaps) == (1, [])
    assert verify_backup(place, None, make_context()).problems == []
