"""Commands of deletes, on a store in memory."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from backends.registry import OpenStore
from reconcile import stores
from reconcile.jobs.deletes.receipts import RemovedCopies
from reconcile.write.audit_journal import JOURNAL
from recovery.codecs.store import Layout
from recovery.model.ids import LedgerId
from tests.support.command import Done, run
from tests.support.deletes import BOOKIES, Ledger, fill_store, name_looks, write_looks, write_references
from tests.support.memory_store import MemoryStore
from tests.support.signing import Person, make_person

URI = "zk+longlonghierarchical://127.0.0.1:1/ledgers"
LEDGERS = [*(Ledger(LedgerId(0, number)) for number in range(1, 5)), Ledger(LedgerId(5, 1)), Ledger(LedgerId(5, 2))]


class Desk:
    """A store with ledgers, and commands of deletes that are run on it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.store = MemoryStore()
        self.folder = folder
        self.journal = folder / "journal"
        self.certificate = folder / "c.json"
        self._capsys = capsys
        self._looked = 0
        fill_store(self.store, "/ledgers", Layout.LONGLONGHIERARCHICAL, LEDGERS)
        self.store.set_acl("/ledgers", "world:anyone:cdrwa", expected=0)

    def show(self, *words: object, uri: str = URI) -> Done:
        """Run a command that only reads, for a person."""
        return run(self._capsys, *words, "--metadata", uri)

    def read(self, *words: object, uri: str = URI) -> Done:
        """Run a command that only reads."""
        return self.show(*words, "--json", uri=uri)

    def write(self, *words: object) -> Done:
        """Run a command that writes."""
        return self.read(*words, "--journal", self.journal)

    def verify(self, *words: object) -> Done:
        """Verify what is due, with fresh looks and references."""
        self._looked += 1
        looks = write_looks(self.folder / f"look-{self._looked}", LEDGERS)
        named = name_looks(looks)
        refs = write_references(self.folder / "refs.jsonl", ())
        return self.write("delete", "verify", "--due", *named, "--references", refs, "--min-age", "0s", *words)

    def certify(self, *ledgers: object, more: tuple[object, ...] = ()) -> Done:
        """Bring ledgers to a certificate; return what the last verification gave."""
        assert self.write("delete", "request", *ledgers, "--soak", "0s").code == 0
        self.verify(*more)
        return self.verify("--certificate", self.certificate, *more)

    def set_policy(self, *words: object) -> Done:
        """Set the policy."""
        return self.write("delete", "policy", "set", *words)

    def sign(self, what: object, *people: Person) -> list[object]:
        """Return the options with the approvals of people."""
        options: list[object] = []
        for person in people:
            path = self.folder / f"approval-{person.name}.json"
            assert run(self._capsys, "approve", what, "--key", person.private, "--out", path).code == 0
            options += ["--approval", path]
        return options

    def list_journal(self) -> list[dict[str, Any]]:
        """Return the lines of the journal."""
        return [json.loads(line) for line in (self.journal / JOURNAL).read_text().splitlines()]


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A store with ledgers 1 to 4 of scope 0, and two of scope 5."""
    desk = Desk(tmp_path, capsys)
    opening = stores.open_store

    def open_store(uri: str, *more: Any, **options: Any) -> OpenStore:
        return OpenStore(desk.store, "/ledgers", None, URI) if uri == URI else opening(uri, *more, **options)

    monkeypatch.setattr("reconcile.stores.open_store", open_store)
    monkeypatch.setattr(desk.store, "close", lambda: None)
    monkeypatch.setattr("reconcile.cli.approval.DEFAULT_FILE", tmp_path / "none.json")
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


@pytest.fixture
def people(tmp_path: Path) -> tuple[Person, Person, Person]:
    """Ann and Bob, who may approve, and Eve, who may not."""
    ann, bob, eve = (make_person(tmp_path, name) for name in ("ann", "bob", "eve"))
    return ann, bob, eve


def name_approvers(*people: Person) -> list[object]:
    """Return the options that name people."""
    return [word for one in people for word in ("--approver", f"{one.name}={one.public}")]


def test_a_delete_without_the_archival_bit_is_rejected(desk: Desk) -> None:
    """At the request already, whatever its options are; and again at each step that follows."""
    assert desk.set_policy("--archived", "required").code == 0
    desk.write("archive", "mark", "1", "--by", "backup", "--to", "s3://b/1")
    asked = desk.write("delete", "request", "1", "2", "--soak", "0s")
    assert (asked.code, [row["ledger"] for row in asked.result["ledgers"]]) == (5, ["1"])
    assert asked.result["refused"] == {"2": "it has no archive mark, which the policy of the cluster requires"}
    assert desk.verify("--archived", "ignored").result["verdicts"]["SAFE"] == 1
    assert desk.verify("--certificate", desk.certificate).code == 0
    desk.write("archive", "unmark", "1")
    purged = desk.write("delete", "purge", "--certificate", desk.certificate)
    assert (purged.code, "it has no archive mark now" in purged.result["verdict"]) == (5, True)
    assert desk.verify("--archived", "ignored").result["verdicts"]["SAFE"] == 0


def test_a_policy_that_came_later_holds_for_what_was_asked_before(desk: Desk) -> None:
    """Soak and age, for a verification and for a purge by a certificate that is older than the policy."""
    assert desk.certify("1").result["verdicts"]["SAFE"] == 1
    assert desk.set_policy("--least-age", "1d").code == 0
    purged = desk.write("delete", "purge", "--certificate", desk.certificate)
    assert (purged.code, "smaller age" in purged.result["verdict"]) == (5, True)
    assert desk.set_policy("--least-age", "0s", "--least-soak", "7d").code == 0
    purged = desk.write("delete", "purge", "--certificate", desk.certificate)
    assert (purged.code, "its soak is not over" in purged.result["verdict"]) == (5, True)
    desk.write("delete", "request", "2", "--soak", "0s")
    assert [one["state"] for one in desk.verify().result["ledgers"] if one["ledger"] == "2"] == ["SOAKING"]
    assert desk.set_policy("--least-soak", "0s", "--breaker", "0").code == 0
    purged = desk.write("delete", "purge", "--certificate", desk.certificate)
    assert (purged.code, "are more than 0 a day" in purged.result["verdict"]) == (5, True)


def test_one_person_purges_nothing_alone(desk: Desk, people: tuple[Person, Person, Person]) -> None:
    """Who makes the certificate signs it; another one approves it; both are in the journal."""
    ann, bob, eve = people
    assert desk.set_policy("--approvals", "1", *name_approvers(ann, bob)).code == 0
    desk.write("delete", "request", "1", "--soak", "0s")
    desk.verify()
    for more, words in (((), "must be signed"), (("--sign-key", eve.private), "is not a key that the policy")):
        refused = desk.verify("--certificate", desk.certificate, *more)
        assert (refused.code, words in refused.result["verdict"]) == (5, True)
    assert desk.verify("--certificate", desk.certificate, "--sign-key", ann.private).code == 0
    purge = ("delete", "purge", "--certificate", desk.certificate)
    for approvals in ((), desk.sign(desk.certificate, ann)):
        refused = desk.write(*purge, *approvals)
        assert (refused.code, "it has 1 (ann)" in refused.result["verdict"]) == (5, True)
    assert desk.write(*purge, *desk.sign(desk.certificate, eve)).code == 5
    assert desk.write(*purge, *desk.sign(desk.certificate, bob)).code == 0
    approved = [line["approved"] for line in desk.list_journal() if "approved" in line]
    assert [[one["by"] for one in row] for row in approved] == [["bob", "ann"]]


def test_to_loosen_a_policy_takes_the_approvals_that_it_asks_for(
    desk: Desk, people: tuple[Person, Person, Person]
) -> None:
    """An approval is of one change; what asks for more needs none; each change is in the journal."""
    ann, bob, eve = people
    desk.set_policy("--approvals", "1", "--least-soak", "1d", *name_approvers(ann, bob))
    assert desk.set_policy("--least-soak", "2d").code == 0
    words = []
    for change in (("--least-soak", "1d"), name_approvers(eve), ("--approvals", "0")):
        refused = desk.set_policy(*change)
        assert (refused.code, "bkmeta approve policy=" in refused.result["verdict"]) == (5, True)
        words += [one for one in refused.result["verdict"].split() if one.startswith("policy=")]
    assert len(set(words)) == 3
    word = words[-1]
    assert desk.set_policy("--approvals", "0", *desk.sign(word, ann)).code == 5
    approved = desk.sign(word, ann, bob)
    assert desk.set_policy("--approvals", "0", "--breaker", "2000", *approved).code == 5
    done = desk.set_policy("--approvals", "0", *approved)
    assert (done.code, done.result["loosened"]) == (0, ["the number of approvals is weaker"])
    assert desk.set_policy("--approvals", "0", "--least-soak", "0s").code == 0
    kinds = [line["kind"] for line in desk.list_journal() if line["event"] == "intent"]
    assert kinds.count("policy") == 4
    assert desk.set_policy().code == 2
    assert desk.set_policy("--without-approver", "zoe").code == 2
    assert desk.set_policy("--approver", "ann").code == 2
    assert desk.set_policy("--approvals", "2").code == 2


def test_a_policy_is_in_every_capture(desk: Desk, people: tuple[Person, Person, Person]) -> None:
    """It is shown of the store and of a capture alike, with who set it."""
    assert desk.read("delete", "policy", "show").result["policy"] is None
    ann, bob, _ = people
    desk.set_policy("--approvals", "1", "--archived", "required", *name_approvers(ann, bob))

    def show(uri: str) -> dict[str, Any]:
        shown = desk.read("delete", "policy", "show", uri=uri).result
        return {name: shown[name] for name in ("policy", "by", "at")}

    shown = show(URI)
    assert (shown["policy"]["approvals"], shown["policy"]["archived"]) == (1, True)
    assert "@" in shown["by"]
    assert desk.read("capture", "--out", desk.folder / "capture").code == 0
    assert show(f"catalog://{desk.folder}/capture") == shown
    assert "may approve: ann, bob" in desk.show("delete", "policy", "show").out


def test_receipts_say_what_each_bookie_removed(desk: Desk) -> None:
    """Entries and bytes, as they were seen last before: in the answer of the look that shows them gone."""
    assert desk.certify("1", "2").code == 0
    assert desk.write("delete", "purge", "--certificate", desk.certificate).code == 0
    holders = desk.read("delete", "status", "1").result["ledgers"][0]["holders"]
    assert {one["bookie"]: one["entries"] for one in holders} == dict.fromkeys(BOOKIES, 10)
    rest = [one for one in LEDGERS if one.id not in (LedgerId(0, 1), LedgerId(0, 2))]

    def confirm(name: str, ledgers: list[Ledger], *bookies: str) -> Done:
        looks = write_looks(desk.folder / name, ledgers, bookies=bookies)
        return desk.write("delete", "confirm", *name_looks(looks))

    first = confirm("one", rest, BOOKIES[0])
    assert (first.code, first.result["removed"]) == (4, {BOOKIES[0]: {"ledgers": 2, "entries": 20, "bytes": 200}})
    last = confirm("all", rest, *BOOKIES)
    assert last.result["removed"] == {bookie: {"ledgers": 2, "entries": 20, "bytes": 200} for bookie in BOOKIES[1:]}
    totals = ("removed_copies", "removed_entries", "removed_bytes")
    assert [last.result["counts"][name] for name in totals] == [n * (len(BOOKIES) - 1) for n in (2, 20, 200)]
    assert (last.code, confirm("again", rest, *BOOKIES).result["removed"]) == (0, {})


def test_what_a_bookie_removed_is_its_share_and_unknown_where_a_part_is() -> None:
    """Half of the entries, half of the bytes; entries beyond the end add none; one that is unknown makes the sum so."""
    removed = RemovedCopies()
    removed.add(5, 10, 1000)
    removed.add(12, 10, 70)
    removed.add(0, 0, 0)
    assert removed == RemovedCopies(3, 17, 570)
    removed.add(None, 10, 1000)
    removed.add(1, None, None)
    assert removed == RemovedCopies(5, None, None)


@pytest.mark.parametrize("words", [("delete", "status"), ("tombstones", "list")])
def test_tombstones_as_csv_are_the_rows_of_json(words: tuple[str, ...], desk: Desk) -> None:
    """A column for each key; what has parts is JSON; nothing else is on stdout, none or many."""
    for ledgers in ((), ("1", "2")):
        if ledgers:
            desk.write("delete", "request", *ledgers, "--reason", 'old, "done"')
        rows = desk.read(*words).result["ledgers"]
        printed = desk.show(*words, "--csv").out
        read = list(csv.DictReader(io.StringIO(printed)))
        assert len(printed.splitlines()) == len(read) + 1 == len(rows) + 1
        for row, line in zip(rows, read, strict=True):
            assert set(line) == set(row)
            assert line["reason"] == row["reason"] == 'old, "done"'
            assert line["certificate"] == ""
            assert json.loads(line["steps"]) == row["steps"]


def test_verdicts_as_csv(desk: Desk) -> None:
    """`delete verify --csv`: a line for each ledger, with the same code as without."""
    desk.write("delete", "request", "1", "2", "--soak", "0s")
    looks = name_looks(write_looks(desk.folder / "looks", LEDGERS))
    refs = write_references(desk.folder / "refs.jsonl", ())
    words = ["delete", "verify", "--due", *looks, "--references", refs, "--min-age", "0s", "--journal", desk.journal]
    done = desk.show(*words, "--csv")
    read = list(csv.DictReader(io.StringIO(done.out)))
    assert {line["ledger"] for line in read} == {"1", "2"}
    assert all(line.keys() == {"ledger", "verdict", "reasons", "state"} for line in read)
    assert "of 2 ledgers" in done.err


def test_marks_as_csv(desk: Desk) -> None:
    """`archive show --csv`: the rows of --json."""
    desk.write("archive", "mark", "1", "2", "--by", "a, b", "--to", "s3://bucket")
    rows = desk.read("archive", "show").result["marks"]
    read = list(csv.DictReader(io.StringIO(desk.show("archive", "show", "--csv").out)))
    assert [(line["ledger"], line["by"], line["checksum"]) for line in read] == [("1", "a, b", ""), ("2", "a, b", "")]
    assert [line.keys() for line in read] == [row.keys() for row in rows]
