"""What an apply wrote is judged by what bookies hold, and the next wave waits for that."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest

from backends.protocols import Write
from backends.registry import OpenStore
from reconcile.cli.option_groups.ledger_files import read_ledger_file
from reconcile.jobs.changes import touched
from reconcile.jobs.changes.touched import open_evidence
from reconcile.plan.manifest import InputDataset, read_plan_manifest
from recovery.bookies.addresses import BookieNames, read_members
from recovery.bookies.wire_inventory import WireRequest
from recovery.bookies.wire_results import AskedKind
from recovery.codecs.keys import mark_keys
from recovery.dataset import Dataset, open_dataset
from recovery.errors import InputError
from recovery.model.ids import LedgerId
from tests.support.command import Done, run
from tests.support.inventories import write_inventory
from tests.support.memory_store import MemoryStore
from tests.support.plan_folder import Ledger, write_plan

pytestmark = pytest.mark.long

URI: Final = "zk+hierarchical://h:1/ledgers"
BOOKIES: Final = ("b1:3181", "b2:3181", "b3:3181")
LEDGERS: Final = range(60)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A store in memory that `apply` is connected with."""
    found = MemoryStore()

    @contextmanager
    def connected(*_: object, **__: object) -> Iterator[OpenStore]:
        yield OpenStore(found, "/ledgers", "hierarchical", URI)

    monkeypatch.setattr("reconcile.jobs.changes.apply.connect", connected)
    return found


def write_bookies(folder: Path, lacking: frozenset[int] = frozenset(), *, instance: str = "an-instance") -> list[str]:
    """Write an inventory of each bookie; the first one lacks some ledgers. Return the options that name them."""
    words = []
    for number, bookie in enumerate(BOOKIES):
        held = set(LEDGERS) - (lacking if number == 0 else set())
        path = write_inventory(folder / str(number), bookie, held, instance=instance, last=4, entries=5)
        words += ["--inventory", str(path)]
    return words


def plan_of(folder: Path, capsys: pytest.CaptureFixture[str], **known: Any) -> Dataset:
    """Return a plan of all ledgers in two waves; the keywords are what it knows of ledger 7."""
    ledgers = [
        Ledger(n, ((0, BOOKIES),), quorums=(3, 3, 2), last=4, length=500, **(known if n == 7 else {})) for n in LEDGERS
    ]
    write_plan(folder / "whole", ledgers)
    assert run(capsys, "plan", "split", folder / "whole", "--waves", "50%,rest", "--out", folder / "plan").code == 0
    return open_dataset(folder / "plan", "plan")


def apply(capsys: pytest.CaptureFixture[str], plan: Dataset, *words: str) -> Done:
    """Apply a plan."""
    return run(capsys, "apply", plan.path, "--metadata", URI, "--confirm", plan.manifest["hash"], *words)


def wave_of(plan: Dataset, ledger: int) -> int:
    """Return the wave that writes a ledger."""
    rows = plan.read("actions", columns=["ledger", "wave"]).to_pylist()
    return int(next(row["wave"] for row in rows if row["ledger"] == ledger))


def test_the_next_wave_waits_for_the_scrutiny_of_the_one_before(
    store: MemoryStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy that the plan counts and no bookie holds: 3, and the next wave is refused until it is there."""
    plan = plan_of(tmp_path, capsys)
    number = next(n for n in LEDGERS if wave_of(plan, n) == 1)
    whole = write_bookies(tmp_path / "whole-bookies")
    lacking = write_bookies(tmp_path / "bookies", frozenset({number}))
    first = apply(capsys, plan, "--wave", "1", *lacking, "--json").result
    assert (first["exit_code"], first["scrutiny"]["unexpected"], first["scrutiny"]["with_findings"]) == (3, 1, 1)
    assert first["scrutiny"]["ledgers"] == sum(wave_of(plan, n) == 1 for n in LEDGERS)
    assert first["scrutiny"]["judged"] == first["scrutiny"]["positions"] == 15 * first["scrutiny"]["ledgers"]
    refused = apply(capsys, plan, "--wave", "2", "--resume", *lacking)
    assert (refused.code, "1 finding that the plan does not have" in refused.err) == (5, True)
    assert "--accept-findings 1" in refused.err
    again = apply(capsys, plan, "--wave", "1", "--resume", *whole)
    assert (again.code, "scrutiny of" in again.out) == (0, True)
    assert apply(capsys, plan, "--wave", "2", "--resume", *whole).code == 0
    assert len(store.children("/ledgers") or ()) > 1


def test_findings_that_a_person_accepts_stop_no_wave(
    store: MemoryStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With exactly their number; with another one it is refused."""
    plan = plan_of(tmp_path, capsys)
    lacking = write_bookies(tmp_path / "bookies", frozenset(n for n in LEDGERS if wave_of(plan, n) == 1))
    found = apply(capsys, plan, "--wave", "1", *lacking)
    count = sum(wave_of(plan, n) == 1 for n in LEDGERS)
    assert (found.code, "critical BELOW_WRITE_QUORUM" in found.out) == (3, False)
    assert "warning BELOW_WRITE_QUORUM ledger" in found.out
    assert apply(capsys, plan, "--wave", "2", "--resume", "--accept-findings", "1", *lacking).code == 5
    assert apply(capsys, plan, "--wave", "2", "--resume", "--accept-findings", str(count), *lacking).code == 0
    assert store.children("/ledgers/cookies") is None


def test_what_the_plan_knows_is_expected(
    store: MemoryStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Copies that the plan itself counted as missing are no news; a plan that is not cut is judged at its end."""
    plan = plan_of(tmp_path, capsys, missing=5)
    done = apply(capsys, plan, *write_bookies(tmp_path / "bookies", frozenset({7})), "--json").result
    scrutiny = done["scrutiny"]
    assert (done["exit_code"], scrutiny["expected"], scrutiny["unexpected"], scrutiny["clean"]) == (0, 1, 0, 59)
    assert store.get("/ledgers/LAYOUT") is not None


def test_a_wave_that_no_scrutiny_judged_stops_the_next(
    store: MemoryStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inventories of the plan that are gone are named; what they would show is undecided, and the next wave waits."""
    plan = plan_of(tmp_path, capsys)
    gone = InputDataset("inventory", str(tmp_path / "gone"), "0" * 64)
    manifest = read_plan_manifest(plan)
    bound = replace(manifest, binding=replace(manifest.binding, inputs=(gone,)))
    monkeypatch.setattr("reconcile.jobs.changes.apply.read_plan_manifest", lambda _plan: bound)
    first = apply(capsys, plan, "--wave", "1", "--json").result
    assert (first["exit_code"], first["scrutiny"]["absent"]) == (0, [str(tmp_path / "gone")])
    assert first["scrutiny"]["undecided"] == {"not seen": first["scrutiny"]["ledgers"]}
    refused = apply(capsys, plan, "--wave", "2", "--resume")
    assert (refused.code, "wave 1 was not judged by" in refused.err, "--wire" in refused.err) == (5, True, True)
    assert apply(capsys, plan, "--wave", "2", "--resume", *write_bookies(tmp_path / "bookies")).code == 5
    given = write_bookies(tmp_path / "more")
    assert apply(capsys, plan, "--wave", "1", "--resume", *given).code == 0
    assert apply(capsys, plan, "--wave", "2", "--resume", *given).code == 0
    assert store.get("/ledgers/LAYOUT") is not None


def test_inventories_of_another_cluster_are_refused_before_anything_is_written(
    store: MemoryStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan names its cluster, and an inventory another one."""
    plan = plan_of(tmp_path, capsys)
    foreign = write_bookies(tmp_path / "bookies", instance="another")
    assert apply(capsys, plan, *foreign).code == 2
    assert store.children("/ledgers") is None
    with pytest.raises(InputError, match="the plan is of"):
        open_evidence(read_plan_manifest(plan), foreign[1::2], None, {})


def test_the_plans_own_inventories_are_used_only_with_the_same_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that was collected again since has another digest."""
    plan = plan_of(tmp_path, capsys)
    paths = write_bookies(tmp_path / "bookies")[1::2]
    digests = [open_dataset(path, "inventory").digest for path in paths]
    inputs = tuple(InputDataset("inventory", *pair) for pair in zip(paths, [*digests[:2], "0" * 64], strict=True))
    manifest = read_plan_manifest(plan)
    evidence = open_evidence(replace(manifest, binding=replace(manifest.binding, inputs=inputs)), (), None, {})
    assert (len(evidence.inventories), evidence.absent) == (2, (paths[2],))


@pytest.mark.parametrize("is_back", [True, False])
def test_what_running_bookies_seem_to_lack_is_asked_for_once_more(
    is_back: bool,
    store: MemoryStore,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """First its members, of all; then every registered bookie, of what they lacked: only that counts."""
    plan = plan_of(tmp_path, capsys)
    asked: list[tuple[tuple[str, ...], bool, list[int]]] = []

    def collect(request: WireRequest, folder: Path, *_: object, **__: object) -> SimpleNamespace:
        ledgers = request.catalog.read("ledgers", columns=["ledger"])["ledger"].to_pylist()
        asked.append((request.wanted or (), request.only_members, sorted(ledgers)))
        results = []
        for name in request.wanted or ():
            lacking = {7} if name == BOOKIES[0] and not (is_back and len(asked) > 1) else set()
            path = write_inventory(folder / name, name, set(ledgers) - lacking, instance=None, last=4, entries=5)
            results.append(SimpleNamespace(bookie=name, kind=AskedKind.COLLECTED, unanswered=0, folder=path))
        return SimpleNamespace(bookies=results)

    def read(*_: object) -> BookieNames:
        """They are registered by now, but for one that only a cookie names."""
        with_cookies = MemoryStore()
        names = [f"/ledgers/available/{name}" for name in BOOKIES] + ["/ledgers/cookies/b4:3181"]
        for name in names:
            with_cookies.write([Write(name, b"")])
        return read_members(with_cookies, "/ledgers", "hierarchical", {})

    monkeypatch.setattr(touched, "collect_wire", collect)
    monkeypatch.setattr(touched, "read_members", read)
    done = apply(capsys, plan, "--wire", "--json").result
    assert asked == [(BOOKIES, True, list(LEDGERS)), (BOOKIES, False, [7])]
    scrutiny = done["scrutiny"]
    assert (done["exit_code"], scrutiny["unexpected"], scrutiny["clean"]) == ((0, 0, 60) if is_back else (3, 1, 59))
    assert (scrutiny["asked"], scrutiny["inventories"]) == (True, 0)


def mark(store: MemoryStore, *ledgers: int) -> None:
    """Mark ledgers for re-replication, as the auditor does."""
    for number in ledgers:
        [path] = mark_keys(np.array([0]), np.array([number]))
        store.write([Write(f"/ledgers{path}", b'replica: "b1:3181"\n')])


def test_a_wave_waits_while_ledgers_of_those_before_are_marked(
    store: MemoryStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Marks of ledgers that were not written yet, or whose missing copies the plan counted, stop no wave."""
    written = [n for n in LEDGERS if n != 7]
    plan = plan_of(tmp_path, capsys, missing=5)
    early, late = ([n for n in written if wave_of(plan, n) == wave] for wave in (1, 2))
    bookies = write_bookies(tmp_path / "bookies")
    assert apply(capsys, plan, "--wave", "1", *bookies).code == 0
    mark(store, *early[:2], late[0], *([7] if wave_of(plan, 7) == 1 else []))
    refused = apply(capsys, plan, "--wave", "2", "--resume", *bookies)
    assert (refused.code, "2 ledgers of the waves before it are marked" in refused.err) == (5, True)
    assert "--accept-marked 2" in refused.err
    listed = Path(str(plan.path)) / "journal" / "marked.txt"
    assert str(listed) in refused.err
    assert read_ledger_file(listed, None) == tuple(sorted(LedgerId(0, n) for n in early[:2]))
    assert apply(capsys, plan, "--wave", "2", "--resume", "--accept-marked", "1", *bookies).code == 5
    done = apply(capsys, plan, "--wave", "2", "--resume", "--accept-marked", "2", *bookies, "--json").result
    assert (done["exit_code"], done["scrutiny"]["skipped"]) == (0, {"marked": 1})


def test_ledgers_with_findings_are_a_file_that_other_commands_take(
    store: MemoryStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of them; it goes when nothing is found any more. Where it cannot be written, the result says so."""
    plan = plan_of(tmp_path, capsys)
    lacking = write_bookies(tmp_path / "bookies", frozenset({3, 4}))
    found = apply(capsys, plan, *lacking, "--json").result
    assert read_ledger_file(Path(found["ids"]), None) == (LedgerId(0, 3), LedgerId(0, 4))
    assert "export --from takes it" in apply(capsys, plan, "--resume", *lacking).out
    whole = apply(capsys, plan, "--resume", *write_bookies(tmp_path / "whole-bookies"), "--json").result
    assert (whole["ids"], Path(found["ids"]).exists()) == (None, False)
    Path(found["ids"]).mkdir()
    (Path(found["ids"]) / "foreign").touch()
    told = apply(capsys, plan, "--resume", *lacking)
    assert (told.code, "could not be written into a file" in told.out) == (3, True)
    assert store.children("/ledgers") is not None
