"""Approvals: who signed what, until when, and whether they are as many as a policy asks for."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reconcile.deletes.approvals import SKEW, Approvable, Subject, make_approval, read_approval, require_approvals
from reconcile.deletes.policy import NO_POLICY, Approver, DeletePolicy
from reconcile.deletes.signatures import read_public_key
from reconcile.errors import GuardRefusedError
from recovery.errors import InputError
from tests.support.signing import Person, make_person

NOW = datetime(2026, 5, 6, 7, 8, 9, tzinfo=UTC)
DAY = timedelta(days=1)
PLAN = Subject(Approvable.PLAN, "ab" * 32)


class Office:
    """Ann, Bob and Cid may approve; Eve may not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ann, self.bob, self.cid, self.eve = (make_person(folder, name) for name in ("ann", "bob", "cid", "eve"))
        self._approvers = tuple(
            Approver(one.name, read_public_key(one.public)) for one in (self.ann, self.bob, self.cid)
        )

    def ask_for(self, approvals: int) -> DeletePolicy:
        """Return a policy."""
        return DeletePolicy(approvals=approvals, approvers=self._approvers)

    def sign(self, person: Person, subject: Subject = PLAN, at: datetime = NOW, name: str = "") -> Path:
        """Return a person's approval."""
        path = self.folder / f"{name or person.name}.json"
        path.write_bytes(make_approval(subject, at, DAY, person.private).encode())
        return path


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """People with keys."""
    return Office(tmp_path)


def test_one_approval_takes_two_people(office: Office) -> None:
    """The one who made it signs, too; who signed is returned for the journal."""
    files = [office.sign(office.ann), office.sign(office.bob)]
    done = require_approvals(office.ask_for(1), PLAN, files, NOW)
    assert [(one.by, one.hash) for one in done] == [("ann", PLAN.hash), ("bob", PLAN.hash)]
    assert require_approvals(NO_POLICY, PLAN, (), NOW) == ()


def test_no_key_counts_twice(office: Office) -> None:
    """Two files of one person are one signature."""
    files = [office.sign(office.ann), office.sign(office.ann, name="again")]
    with pytest.raises(GuardRefusedError, match=r"needs 2 signatures, .* it has 1 \(ann\)"):
        require_approvals(office.ask_for(1), PLAN, files, NOW)
    with pytest.raises(GuardRefusedError, match=r"needs 3 signatures, .* it has 2 \(ann, bob\)"):
        require_approvals(office.ask_for(2), PLAN, [*files, office.sign(office.bob)], NOW)
    with pytest.raises(GuardRefusedError, match=rf"the plan.*no person.*sign plan={PLAN.hash}"):
        require_approvals(office.ask_for(1), PLAN, (), NOW)
    with pytest.raises(GuardRefusedError, match=r"the loss.*no person.*sign lost="):
        require_approvals(office.ask_for(1), Subject(Approvable.LOST, PLAN.hash), (), NOW)


def test_who_made_it_does_not_approve_it(office: Office) -> None:
    """A certificate's own signature is the maker's: the same key once more adds nothing; a stranger's is nothing."""
    ann, eve = (read_public_key(one.public) for one in (office.ann, office.eve))
    with pytest.raises(GuardRefusedError, match=r"it has 1 \(ann\)"):
        require_approvals(office.ask_for(1), PLAN, [office.sign(office.ann)], NOW, maker=ann)
    with pytest.raises(GuardRefusedError, match=r"it has 1 \(bob\)"):
        require_approvals(office.ask_for(1), PLAN, [office.sign(office.bob)], NOW, maker=eve)
    assert len(require_approvals(office.ask_for(1), PLAN, [office.sign(office.bob)], NOW, maker=ann)) == 2


@pytest.mark.parametrize(
    ("subject", "at", "words"),
    [
        (Subject(Approvable.PLAN, "cd" * 32), NOW, "approves plan=cdcd"),
        (Subject(Approvable.CERTIFICATE, PLAN.hash), NOW, "approves certificate=abab"),
        (PLAN, NOW - DAY - timedelta(seconds=1), "not now"),
        (PLAN, NOW + SKEW + timedelta(seconds=1), "not now"),
    ],
)
def test_an_approval_is_of_one_thing_and_of_its_time(
    office: Office, subject: Subject, at: datetime, words: str
) -> None:
    """Of another hash, another kind, or another day: refused, though none is asked for."""
    path = office.sign(office.ann, subject, at)
    for approvals in (0, 1):
        with pytest.raises(GuardRefusedError, match=words):
            require_approvals(office.ask_for(approvals), PLAN, [path], NOW)
    within = [office.sign(office.ann, at=NOW - DAY), office.sign(office.bob, at=NOW + SKEW)]
    assert len(require_approvals(office.ask_for(1), PLAN, within, NOW)) == 2


def test_a_signature_of_a_stranger_or_of_other_words_is_refused(office: Office) -> None:
    """A key that the policy does not name; a file in which something was changed after it was signed."""
    with pytest.raises(GuardRefusedError, match="a key that the policy does not name"):
        require_approvals(office.ask_for(1), PLAN, [office.sign(office.eve)], NOW)
    path = office.sign(office.ann)
    content = json.loads(path.read_text())
    content["approval"]["not_after"] = "2099-01-01T00:00:00+00:00"
    path.write_text(json.dumps(content))
    with pytest.raises(GuardRefusedError, match="does not hold"):
        require_approvals(office.ask_for(1), PLAN, [path], NOW)
    content["signature"]["public_key"] = json.loads(office.sign(office.bob).read_text())["signature"]["public_key"]
    path.write_text(json.dumps(content))
    with pytest.raises(GuardRefusedError, match="does not hold"):
        require_approvals(office.ask_for(1), PLAN, [path], NOW)


def test_what_is_left_of_an_approved_change_is_approved(office: Office) -> None:
    """A thaw that was stopped has another hash when it is gone on with."""
    rest = Subject(Approvable.PLAN, "00" * 32)
    files = [office.sign(office.ann), office.sign(office.bob)]
    done = require_approvals(office.ask_for(1), rest, files, NOW, is_hash=lambda digest: digest == PLAN.hash)
    assert {one.hash for one in done} == {PLAN.hash}


def test_a_signature_of_no_hash_approves_nothing(office: Office) -> None:
    """Its form is refused, though it is signed."""
    with pytest.raises(InputError, match="is not an approval"):
        read_approval(office.sign(office.ann, Subject(Approvable.PLAN, "")))


@pytest.mark.parametrize("field", ["schema", "of", "hash", "issued", "not_after"])
def test_a_file_that_is_no_approval_is_named(office: Office, field: str) -> None:
    """A field that lacks or has another form, further fields, no JSON."""
    path = office.sign(office.ann)
    content = json.loads(path.read_text())
    for values in ({**content["approval"], field: "other"}, {**content["approval"], "more": 1}):
        path.write_text(json.dumps({**content, "approval": values}))
        is_time = field in ("issued", "not_after") and values[field] == "other"
        with pytest.raises(InputError, match="is not an approval" + " that this program reads" * (not is_time)):
            read_approval(path)
    path.write_text("{")
    with pytest.raises(InputError, match="is not JSON"):
        read_approval(path)


@pytest.mark.parametrize("text", ["", "thaw", "thaw=", "thaw=ab", "thaw=" + "g" * 64, "other=" + "ab" * 32, "ab" * 32])
def test_what_names_nothing_is_no_subject(text: str) -> None:
    """A kind and a whole hash, in letters of any case."""
    assert Subject.parse(text) is None
    assert Subject.parse(f"thaw={'AB' * 32}") == Subject(Approvable.THAW, "ab" * 32)
