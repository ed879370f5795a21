"""`check-impact` as people and programs have it: words, colours, JSON, a page, and bad input."""

import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest

from recovery.dataset import Dataset
from tests.support.command import PATIENCE_S, PROGRAM, Done, environment, run
from tests.support.impact_judge import Ledger
from tests.support.impacts import write_catalog

SHARDS = tuple(f"n{number}:3181" for number in range(1, 14))
"""The seed's example: thirteen of them, one on each rack, written three times."""


@pytest.fixture
def example(tmp_path: Path) -> Dataset:
    """Log 9 of the seed as a ledger: 13 bookies, three copies of each entry."""
    return write_catalog(tmp_path / "example", SHARDS, [Ledger(9, (13, 3, 2), "CLOSED", 999, ((0, SHARDS),))])


@pytest.fixture
def racks(tmp_path: Path) -> Path:
    """A rack for each bookie."""
    file = tmp_path / "topology.txt"
    file.write_text("".join(f"{name} /r{number}\n" for number, name in enumerate(SHARDS, 1)))
    return file


def ask(capsys: pytest.CaptureFixture[str], catalog: Dataset, *words: object) -> Done:
    """Ask about a capture."""
    cache = Path(catalog.path).parent / "cache"
    return run(capsys, "check-impact", "--metadata", f"catalog://{catalog.path}", "--catalog", cache, *words)


def test_the_example_of_the_seed_is_told_in_its_numbers(
    example: Dataset, racks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three neighbours of thirteen: from 13 to 10, two may be lost and three would be on three racks, and a table."""
    done = ask(capsys, example, "--bookies", ",".join(SHARDS[4:7]), "--topology", racks)
    assert done.code == 3
    lines = [line.strip() for line in done.out.splitlines()]
    begin = lines.index("ledger 9, entries 0 to 999, 13/3/2: READ_AVAILABILITY_LOSS, REBUILDING_STALL by "
                        "n5:3181, n6:3181, n7:3181")  # fmt: skip
    assert lines[begin + 1 : begin + 4] == [
        "copies of the worst entry: 3 → 0 (needs 1); may lose 2 bookies, would lose 3 on 3 racks",
        "positions that want another bookie: 3; bookies outside of the ensemble that can be written to: 0",
        "its bookies that can be read from: 13 → 10; written to: 13 → 10",
    ]
    table = dict(line.split(maxsplit=1) for line in lines[begin + 4 : begin + 17])
    changed = [rack for rack, text in table.items() if text.endswith("read-write → down")]
    assert changed == ["/r5", "/r6", "/r7"]
    assert table["/r5"] == "n5:3181 read-write → down"
    assert table["/r1"] == "n1:3181 read-write"
    assert len(table) == 13
    assert [line.partition(" ")[0] for line in lines if "is not applicable" in line] == [
        "SEQUENCING_CAPACITY_LOSS", "METADATA_QUORUM"
    ]  # fmt: skip


def test_a_list_of_hit_ledgers_is_what_the_next_question_takes(
    example: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--out writes ids, --from reads them: the same bookies hit the same ledgers, and no other is asked about."""
    shards = ",".join(SHARDS[:3])
    whole = ask(capsys, example, "--bookies", shards, "--out", tmp_path / "out", "--json").result
    ids = (tmp_path / "out" / "ledgers.txt").read_text().split()
    assert ids == ["9"]
    chosen = ask(capsys, example, "--bookies", shards, "--from", tmp_path / "out" / "ledgers.txt", "--json").result
    assert (chosen["counts"]["ledgers"], chosen["impacts"]) == (1, whole["impacts"])
    assert chosen["settings"]["--from"]["value"].endswith("ledgers.txt")


def test_programs_have_every_key_and_people_the_same_verdict(
    example: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    """JSON says what the page of JSON promises; the verdict is one word."""
    found = ask(capsys, example, "--bookies", ",".join(SHARDS[:3]), "--json").result
    assert (found["verdict"], found["exit_code"]) == ("UNSAFE", 3)
    assert found["summary"].startswith("UNSAFE: n1:3181, n2:3181, n3:3181 may not be taken down")
    # Entries e with e mod 13 = 0 stand on the first three.
    assert found["impacts"]["READ_AVAILABILITY_LOSS"] == {"segments": 1, "ledgers": 1, "entries": 77}
    assert found["now"] == {}
    assert found["targets"][0]["capacity_pct"]["after"] == pytest.approx(300 / 13)
    assert found["cache"] | {"path": "", "age_s": 0} == {
        "path": "", "at": "2026-01-02T03:04:05+00:00", "age_s": 0, "txn": 77, "fresh": False, "alive": False
    }  # fmt: skip
    assert set(found["not_applicable"]) == {"METADATA_QUORUM", "SEQUENCING_CAPACITY_LOSS"}
    [segment] = found["sample"]
    assert (segment["copies"], segment["may_lose"], segment["would_lose"]) == (
        {"before": 3, "after": 0, "needs": 1}, 2, 3
    )  # fmt: skip
    page = (Path(__file__).resolve().parents[3] / "docs/operations/json.md").read_text()
    rows = page[page.index("| `check-impact` |") : page.index("| `inspect` | `kind`")]
    assert [key for key in found if f"`{key}`" not in rows + page[:2500]] == []


def test_a_drill_is_a_table_and_a_page(
    example: Dataset, racks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each rack with its verdict; the page has the same, impact by impact."""
    out = tmp_path / "out"
    done = ask(capsys, example, "--drill", "rack", "--topology", racks, "--max", "2", "--out", out)
    assert done.code == 3
    assert "  /r4   UNSAFE     1 bookie; WRITE_AVAILABILITY_LOSS, REBUILDING_STALL 1 segment" in done.out
    assert "0 of the 2 that were asked for may be taken at once: none" in done.out
    assert "next: take one that is SAFE in the table" in done.out
    page = (out / "report.html").read_text()
    assert page.count("UNSAFE") >= 13
    assert '<th scope="row" class="mono">/r13</th>' in page
    assert json.loads((out / "manifest.json").read_text())["answer"] == "UNSAFE"


def test_what_is_changed_has_a_colour_on_a_terminal(example: Dataset, tmp_path: Path) -> None:
    """The verdict, the impacts, and the states that change; none of that where colours are not wanted."""

    def shown(**more: str) -> str:
        words = [
            str(PROGRAM),
            "check-impact",
            "--metadata",
            f"catalog://{example.path}",
            "--bookies",
            "n1:3181,n2:3181,n3:3181",
        ]
        ours, theirs = pty.openpty()
        done = subprocess.Popen(
            [*words, "--catalog", str(tmp_path / "cache")],
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            env=environment(TERM="xterm", **more),
        )
        os.close(theirs)
        text = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            if not piece:
                break
            text += piece
        os.close(ours)
        assert done.wait(PATIENCE_S) == 3
        return text.decode()

    plain = shown(NO_COLOR="1")
    assert "\x1b[" not in plain
    coloured = shown()
    assert "\x1b[33m\x1b[1mread-write → down" in coloured
    assert "\x1b[31m\x1b[1mREAD_AVAILABILITY_LOSS" in coloured


BAD: list[tuple[list[str], str]] = [
    (["--bookies", ","], "a list of bookies or hosts is empty"),
    (["--bookies", "not an id"], "not a bookie id"),
    (["--bookies", "n1:3181", "--domain", "/r1"], "give one of"),
    (["--domain", "/r1"], "needs the bookies' locations"),
    (["--drill", "rack"], "needs the bookies' locations"),
    (["--max-age", "soon"], "is not a duration"),
    (["--ledgers", "x"], "write 123, scope:123 or 32 hex digits"),
    (["--default-quorum", "2/3/1"], "E ≥ W ≥ A"),
    (["--weights", "{bad}"], "line 2"),
    (["--weights", "{absent}"], "cannot be read"),
    (["--weights", "{strange}"], "n99:3181 has a weight, and is not a bookie"),
    (["--topology", "{bad}"], "line 1"),
    (["--stable-for", "2"], "is a copy of a store"),
]


@pytest.mark.parametrize(("words", "reason"), BAD, ids=lambda value: str(value)[:30])
def test_bad_input_is_one_error_that_says_what_and_where(
    words: list[str], reason: str, example: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 before anything is asked, in words and as an object."""
    (tmp_path / "bad").write_text("n1:3181 1\nn2:3181 much\n")
    names: dict[str, Any] = {"bad": tmp_path / "bad", "absent": tmp_path / "absent", "strange": tmp_path / "strange"}
    (tmp_path / "strange").write_text("n99:3181 1\n")
    done = ask(capsys, example, *(word.format(**names) for word in words), "--json")
    assert (done.code, done.result["schema"]) == (2, "bkmeta.error/1")
    assert reason in done.result["verdict"]


def test_weights_are_read(example: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bookie and a number a line, with comments."""
    (tmp_path / "weights").write_text("# ours\nn1:3181 24 # large\n\n")
    found = ask(capsys, example, "--bookies", "n1:3181", "--weights", tmp_path / "weights", "--json").result
    assert found["targets"][0]["capacity_pct"]["after"] == pytest.approx(100 * 24 / 36)
