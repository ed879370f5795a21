"""The record of the service fits into a node of the store, whatever is written into it."""

from reconcile.service.runs.record import decode_state, encode_state
from reconcile.service.runs.schedule import EndedRun, Gate, JobState, ServiceState

NODE: int = 1 << 20
"""Bytes: ZooKeeper's jute.maxbuffer as it comes."""
LETTER = "\u68da"  # three bytes of UTF-8; \\uXXXX would be six


def test_the_longest_record_fits_into_a_node() -> None:
    """A hundred maintenances with the longest names and statements, a hundred shares with the longest verdicts."""
    names, statement, verdict = LETTER * (2000 // 3), LETTER * (500 // 3), LETTER * 300
    gates = {
        f"{number:064}": Gate(
            f"{number:064}", (), (names,), "read-only", "w" * 64, 1 << 40, verdict=verdict, statement=statement
        )
        for number in range(100)
    }
    run = EndedRun(1 << 40, "i" * 64, 1 << 40, 100, 100, "w" * 64, 1 << 40, 4, verdict, "scrutinize/" + "f" * 60)
    job = JobState(last=run, latest=dict.fromkeys(range(1, 101), run))
    state = ServiceState(1 << 40, "i" * 64, "a" * 300, 1 << 40, {"scrutinize": job}, gates)
    raw = encode_state(state)
    assert len(raw) < NODE * 2 / 3
    assert decode_state(raw) == state


def test_bytes_that_are_no_text_come_back() -> None:
    """A name of a file in an address, as Python has it."""
    state = ServiceState(1, "one", "\udcff")
    assert decode_state(encode_state(state)) == state
