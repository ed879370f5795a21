"""Backups in an object store that throttles, tears uploads, loses answers, and does not list what it has."""

from collections.abc import Iterator

import pytest

from recovery.backup.chain import BackupTakenError, BackupWriter, open_backup
from recovery.backup.store import BackupStore
from recovery.place import RemotePlace
from tests.support.backups import BINDING, list_states, make_backup, name_ledger, seal_all
from tests.support.object_store import Fault, FaultyProxy, ObjectStore, every, started_store

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    """Return a server of S3's protocol."""
    with started_store() as store:
        yield store


def set_environment(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """Let clients of this process find a store."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("fault", [Fault.TORN_UPLOAD, Fault.LOST_ANSWER, Fault.THROTTLED, Fault.CUT_UPLOAD])
def test_what_is_sealed_is_there_whatever_the_store_does(
    fault: Fault, server: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every so-many-th request fails; the chain is whole, and shows the store."""
    place = RemotePlace(f"{server.uri}/faults-{fault.name.lower()}")
    with FaultyProxy(server, every(12 if fault is Fault.THROTTLED else 5, fault)) as proxy:
        set_environment(monkeypatch, proxy.environment)
        writer, store = make_backup(place, 10)
        assert proxy.happened[fault] > 0
    set_environment(monkeypatch, server.environment())
    backup = open_backup(place)
    assert backup.damaged == ()
    assert backup.manifest.hash == writer.manifest.hash
    assert list_states(BackupStore(backup)) == list_states(store)


def test_nothing_is_listed_to_be_read(server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing that is late, or leaves names out, changes nothing; a stale head neither."""
    set_environment(monkeypatch, server.environment())
    place = RemotePlace(f"{server.uri}/unlisted")
    writer, store = make_backup(place, 10)
    head = server.read("unlisted/head.json")
    for number in (40, 41):
        store.put(name_ledger(number), b"x")
        seal_all(writer, store)
    server.write("unlisted/head.json", head)
    monkeypatch.setattr(RemotePlace, "iterdir", lambda _self: iter(()))
    backup = open_backup(place)
    assert backup.manifest.number == writer.manifest.number
    assert list_states(BackupStore(backup)) == list_states(store)
    store.put(name_ledger(42), b"x")
    seal_all(BackupWriter(place, BINDING), store)
    assert list_states(BackupStore(open_backup(place))) == list_states(store)


def test_two_that_write_the_same_number_find_it(server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store lets the later one write over the first: that one stops at its next seal, and nothing is lost."""
    set_environment(monkeypatch, server.environment())
    place = RemotePlace(f"{server.uri}/two")
    first, store = make_backup(place, 10)
    second = BackupWriter(place, BINDING)
    store.put(name_ledger(50), b"x")
    seal_all(first, store)
    # As if it had looked for the number before the first one wrote it.
    monkeypatch.setattr(RemotePlace, "is_file", lambda _self: False)
    seal_all(second, store)
    monkeypatch.undo()
    set_environment(monkeypatch, server.environment())
    store.put(name_ledger(51), b"x")
    with pytest.raises(BackupTakenError):
        seal_all(first, store)
    seal_all(second, store)
    assert list_states(BackupStore(open_backup(place))) == list_states(store)
