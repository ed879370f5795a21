"""Rescues that are killed, cut off and left by their hosts, at random: the same command comes to the same end.

`scripts/soak rescue` runs these; what the disasters are is in `tests/support/rescue_disasters.py`.
"""

import json
import os
import random
import signal
import subprocess
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.support.command import started
from tests.support.rescue_disasters import DISASTERS, MOST_ANSWERS, Disaster, Happen, require_same_end
from tests.support.rescues import SshServer, name_host, ssh_server

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

RUNS: Final = int(os.environ.get("BKMETA_SOAK_RESCUE", "0"))
BASE: Final = int(os.environ.get("BKMETA_SOAK_SEED", "0"))
FAULTS: Final = 12
"""Faults of one run, at most: then it is left alone."""


@pytest.mark.skipif(not RUNS, reason="faults at random, a minute each: scripts/soak rescue")
@pytest.mark.parametrize("happen", DISASTERS, ids=lambda happen: happen.__name__)
@pytest.mark.parametrize("seed", range(max(RUNS, 1)))
def test_whatever_fails_it_comes_to_the_same_end(
    happen: Happen,
    seed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rescue is killed, connections are cut, hosts crash, again and again, whatever it was doing.

    The same command comes to the end, with the same answers: that a crashed host's bookie is off is the only other one.
    """
    rng = random.Random(BASE + seed)
    with DISASTERS[happen](tmp_path) as site, ssh_server(tmp_path / "ssh") as server:
        # Folders of the bookies are named from there.
        monkeypatch.chdir(site.home)
        disaster = happen(site)
        hosts = disaster.hosts or {name_host(bookie.bookie.n): bookie for bookie in site.bookies}
        answers = {"bookies off": "off", **disaster.answers}
        faults = fail_until_done(replace(disaster, answers=answers, hosts=hosts), server, rng)
        asked = set(site.read_record()["answers"])
        # A soak shows its figures.
        print(f"{happen.__name__}, seed {BASE + seed}: {faults}, {len(asked)} answers")  # noqa: T201 - see above
        for bookie in hosts.values():
            # Its host crashed after its ledgers were read: a person starts it.
            if bookie is not None and not site.runs(bookie):
                site.start(bookie)
        assert len(asked - {"bookies off"} | (asked & set(disaster.answers))) <= MOST_ANSWERS
        require_same_end(disaster)


def fail_until_done(disaster: Disaster, server: SshServer, rng: random.Random) -> dict[str, int]:
    """Run the same command until it has come to its end, with faults; return how many there were of each kind."""
    site, faults = disaster.site, dict.fromkeys(("rescue", "connection", "host"), 0)
    words = [*site.word(transport="ssh"), "--answers", site.write_answers(disaster.answers), "--json"]
    for number in range(100):
        fault = rng.choice(sorted(faults)) if number < FAULTS else ""
        with ExitStack() as down, started("rescue", *words) as running:
            try:
                out, err = running.communicate(timeout=rng.uniform(0.5, 15.0) if fault else 600)
                fault = ""
            except subprocess.TimeoutExpired:
                faults[fault] += 1
                strike(fault, running, server, disaster, rng, down)
                out, err = running.communicate(timeout=600)
        if running.returncode == -signal.SIGKILL:
            continue
        result = json.loads(out.splitlines()[-1])
        # 1: a host was not reached; it is named, and the same command goes on.
        assert running.returncode in (0, 1, 3, 4, 5), out + err
        assert fault in ("connection", "host") or "kind" in result, out + err
        if "kind" in result:
            assert running.returncode in disaster.ends, out + err
            return faults
    raise AssertionError("it never came to its end")


def strike(
    fault: str,
    running: "subprocess.Popen[str]",
    server: SshServer,
    disaster: Disaster,
    rng: random.Random,
    down: ExitStack,
) -> None:
    """Let something fail; a host that crashed is not reached until `down` ends, and its bookie does not start again."""
    match fault:
        case "rescue":
            running.kill()
        case "connection":
            server.cut()
        case "host":
            assert disaster.hosts
            name, bookie = rng.choice(sorted(disaster.hosts.items()))
            down.enter_context(server.host_down(name))
            if bookie is not None:
                disaster.site.kill(bookie)
