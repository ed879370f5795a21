"""An archive in an object store: what is there is whole, whatever the network does to it."""

from pathlib import Path

import pytest

from recovery.archive import task as tasks
from recovery.archive.reader import prove_ledger, require_archive
from recovery.place import to_place
from tests.support.archives import ALL, capture_case, closed_of, disks_of, list_archived, make_task, read_payloads
from tests.support.object_store import Fault, FaultyProxy, every, started_store

pytestmark = pytest.mark.long

CASE = "c02-clean-interleaved"


def test_an_archive_in_a_store_that_fails_is_whole_or_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Throttled, torn and lost uploads are tried again; a byte that comes back as another one is seen."""
    monkeypatch.setattr(tasks, "TARGET", 16 << 10)
    catalog = capture_case(CASE, tmp_path / "catalog")
    wanted = closed_of(CASE)
    with started_store() as store:
        place = to_place(f"{store.uri}/archive")
        with FaultyProxy(store, every(5, Fault.THROTTLED, Fault.TORN_UPLOAD, Fault.LOST_ANSWER)) as proxy:
            for name, value in proxy.environment.items():
                monkeypatch.setenv(name, value)
            answer = make_task(catalog, place, disks_of(CASE))(ALL)
        assert answer["counts"]["copied"] == len(wanted)
        assert proxy.happened.keys() == {Fault.THROTTLED, Fault.TORN_UPLOAD, Fault.LOST_ANSWER}
        for name, value in store.environment().items():
            monkeypatch.setenv(name, value)
        require_archive(place)
        archived = list_archived(place)
        assert sorted(item.id for item in archived) == sorted(wanted)
        assert len({piece["object"] for item in archived for piece in item.pieces}) > 1
        for item in archived:
            assert read_payloads(place, item) == wanted[item.id]
            assert prove_ledger(place, item).problem == ""
        again = make_task(catalog, place, disks_of(CASE), "run-2")(ALL)
        assert again["indexes"] == []

        def alter(method: str, path: str, _port: int) -> Fault | None:
            return Fault.ALTERED_DOWNLOAD if method == "GET" and path.endswith(".entries") else None

        with FaultyProxy(store, alter) as proxy:
            for name, value in proxy.environment.items():
                monkeypatch.setenv(name, value)
            large = max(archived, key=lambda item: item.size)
            assert prove_ledger(place, large).problem
