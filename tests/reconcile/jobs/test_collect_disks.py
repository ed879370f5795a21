"""`recover --disk`: mounted disks instead of inventories."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from recovery.collect.options import CollectOptions
from recovery.collect.pipeline import collect
from recovery.dataset import open_dataset
from tests.support import command
from tests.support.cases import case_dir, operator

pytestmark = pytest.mark.spark
CASE = "c02-clean-interleaved"


def folders() -> dict[str, list[Path]]:
    """Return the folders of every bookie of the case."""
    found = {}
    for bookie in operator(CASE)["bookies"]:
        roles = [bookie[role] or () for role in ("ledgers", "indexes", "journals")]
        found[bookie["id"]] = [case_dir(CASE) / folder for role in roles for folder in role]
    return found


def test_disks_give_the_plan_that_their_inventories_give(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same writes, byte for byte, and the inventories stay beside the plan.

    One bookie's folders are given by the folder that they stand in, as `export` and `verify` take them, too.
    """
    passwords = tmp_path / "passwords"
    passwords.write_text("\n".join(operator(CASE)["passwords"]) + "\n")
    passwords.chmod(0o600)
    shared = ("--passwords", passwords, "--layout", "hierarchical", "--master", "local[2]", "--json")
    (first, own), *others = folders().items()
    disks = [f"--disk={first}={own[0].parent}"]
    disks += [f"--disk={bookie}={folder}" for bookie, mounted in others for folder in mounted]
    one = command.run(capsys, "recover", *disks, *shared, "--out", tmp_path / "one")
    given = []
    for number, mounted in enumerate(folders().values()):
        out = tmp_path / f"inventory{number}"
        options = CollectOptions(tuple(mounted), passwords=tuple(p.encode() for p in operator(CASE)["passwords"]))
        collect(options, out, now=lambda: datetime.now(UTC), progress=lambda _: None)
        given.append(f"--inventory={out}")
    other = command.run(capsys, "recover", *given, *shared, "--out", tmp_path / "other")
    assert one.code == other.code
    assert one.result["counts"] == other.result["counts"]
    assert one.result["counts"]["restored"] > 0
    actions = [
        sorted((row["key"], row["value"]) for row in open_dataset(tmp_path / name, "plan").read("actions").to_pylist())
        for name in ("one", "other")
    ]
    assert actions[0] == actions[1]
    assert len(list((tmp_path / "one" / "inventories").iterdir())) == len(folders())


def test_a_disk_of_another_bookie_is_refused_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the folder and whose it is."""
    (one, _), (other, mounted), *_ = folders().items()
    done = command.run(
        capsys, "recover", f"--disk={one}={mounted[0]}", "--layout", "hierarchical", "--out", tmp_path / "plan"
    )
    assert done.code == 2
    assert other in done.err
    assert not (tmp_path / "plan").exists()
