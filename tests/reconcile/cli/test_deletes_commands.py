"""Commands of deletes, on a store in memory."""

from pathlib import Path

import pytest

from backends.memory import MemoryStore
from backends.registry import OpenStore
from recovery.codecs.store import Layout
from recovery.model.ids import LedgerId
from tests.support.command import Done, run
from tests.support.deletes import Ledger, fill_store

URI = "zk+longlonghierarchical://127.0.0.1:1/ledgers"
LEDGERS = [*(Ledger(LedgerId(0, number)) for number in range(1, 5)), Ledger(LedgerId(5, 1)), Ledger(LedgerId(5, 2))]


class Desk:
    """A store with ledgers, and commands of deletes that are run on it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.store = MemoryStore()
        self._journal = folder / "journal"
        self._capsys = capsys
        fill_store(self.store, "/ledgers", Layout.LONGLONGHIERARCHICAL, LEDGERS)
        self.store.set_acl("/ledgers", "world:anyone:cdrwa", expected=0)

    def show(self, *words: object) -> Done:
        """Run a command that only reads, for a person."""
        return run(self._capsys, *words, "--metadata", URI)

    def read(self, *words: object) -> Done:
        """Run a command that only reads."""
        return self.show(*words, "--json")

    def write(self, *words: object) -> Done:
        """Run a command that writes."""
        return self.read(*words, "--journal", self._journal)


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A store with ledgers 1 to 4 of scope 0, and two of scope 5."""
    desk = Desk(tmp_path, capsys)
    monkeypatch.setattr("reconcile.stores.open_store", lambda *_, **__: OpenStore(desk.store, "/ledgers", None, URI))
    monkeypatch.setattr(desk.store, "close", lambda: None)
    return desk


@pytest.mark.parametrize("words", [("delete", "status"), ("tombstones", "list")])
def test_a_scope_that_is_not_named_is_scope_0(words: tuple[str, ...], desk: Desk) -> None:
    """Deletes are listed by scope; a person sees that other scopes have some, too."""
    desk.write("delete", "request", "1", "2", "5:1")

    def list_ledgers(*more: str) -> list[str]:
        return [row["ledger"] for row in desk.read(*words, *more).result["ledgers"]]

    assert list_ledgers() == ["1", "2"]
    assert list_ledgers("--ledger-scope-id", "0") == ["1", "2"]
    assert list_ledgers("--ledger-scope-id", "5") == ["5:1"]
    assert list_ledgers("--ledger-scope-id", "6") == []
    assert desk.read(*words).result["other_scopes"] == {"5": 1}
    assert "not listed, of other scopes: 5 (1); name one with --ledger-scope-id" in desk.show(*words).out
    assert desk.read(*words, "--ledger-scope-id", "x").code == 2


def test_a_ledger_that_is_named_is_found_in_its_own_scope(desk: Desk) -> None:
    """The scope that is listed by default hides no ledger that was asked for."""
    desk.write("delete", "request", "1", "5:1")
    shown = desk.read("delete", "status", "5:1", "1").result["ledgers"]
    assert [row["ledger"] for row in shown] == ["1", "5:1"]
