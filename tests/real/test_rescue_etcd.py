"""`rescue` on real bookies and etcd, where nothing can be frozen: bookies are stopped, and started again."""

import json
from pathlib import Path

import pytest

from tests.support.rescue_disasters import etcd_is_gone, require_rescued
from tests.support.rescues import (
    SharedSite,
    SshServer,
    count_read,
    share_site,
    share_ssh_server,
    site_on_etcd,
    write_ledger,
)

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

shared, ssh = share_site(site_on_etcd), share_ssh_server()


def test_deletes_on_etcd_are_taken_back_with_the_bookies_stopped(shared: SharedSite, tmp_path: Path) -> None:
    """Nothing of etcd's can be frozen: bookies are stopped, and started again when all is back; it asks before."""
    with shared.lend(tmp_path) as site:
        ledgers = [write_ledger(site.cluster) for _ in range(4)]
        for ledger in ledgers[1:]:
            site.cluster("delete", ledger=ledger)
        asked = site.rescue(answers={"kind": "deletes"})
        [question] = asked.result["questions"]
        assert (asked.code, question["id"], question["recommended"]) == (4, "stop", "stop"), asked.err
        assert site.list_stopped() == [False] * 3
        waiting = site.rescue(answers={"stop": "stop"})
        [session] = waiting.result["questions"]
        assert "deleted 3 ledgers" in session["text"], waiting.err
        assert site.list_stopped() == [True] * 3
        done = site.rescue(answers={session["id"]: "mistake", "confirm": "any"})
        assert (done.code, done.result["kind"]) == (0, "deletes"), done.out + done.err
        assert [count_read(site.cluster, ledger) for ledger in ledgers] == [12] * 4
        record = json.loads((site.out / "rescue.json").read_text())
        assert sorted(record["phases"]["start"]["started"].values()) == sorted(b.bookie.id for b in site.bookies)
        [apply] = [row["command"] for row in record["commands"] if row["command"].startswith("bkmeta apply")]
        assert "--accept-unfrozen" not in apply


def test_etcd_is_gone_and_yesterdays_snapshot_is_there(shared: SharedSite, ssh: SshServer, tmp_path: Path) -> None:
    """Bookies stay stopped until all is written; what came after the snapshot is inferred."""
    with shared.lend(tmp_path, is_harmed=True) as site:
        require_rescued(etcd_is_gone, site, ssh)
