"""What stands in front of messages, as Pulsar's own code wrote it (data/pulsar/PROVENANCE.md)."""

import base64
import json

import pytest

from recovery.codecs.pulsar_message import MessageHead, decode
from recovery.errors import FormatError, Reason
from tests.support.cases import DATA

AT = 1_700_000_000_000
TEXT = b"what a client wrote"


def messages() -> dict[str, bytes]:
    """The payload of an entry of each kind."""
    lines = [json.loads(line) for line in (DATA.parent / "pulsar" / "messages.jsonl").read_text().splitlines()]
    return {line["what"]: base64.b64decode(line["raw"]) for line in lines}


def test_producer_number_and_time_are_read() -> None:
    """Of a message, of batches to their last number, and behind what a broker put in front."""
    made = messages()
    assert decode(made["message"]) == MessageHead("here-0-1", 7, 7, AT)
    assert decode(made["batch"]) == MessageHead("here-0-1", 8, 12, AT + 100)
    assert decode(made["batch without a highest number"]) == MessageHead("here-0-1", 13, 15, AT + 200)
    assert decode(made["with a broker's metadata"]) == MessageHead("a name \u00e9", 16, 16, AT + 300)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (messages()["without a checksum"], Reason.BAD_MAGIC),
        (b"", Reason.TRUNCATED),
        (messages()["message"][:9], Reason.TRUNCATED),
        (messages()["message"][:-1], Reason.DIGEST),
        (messages()["with a broker's metadata"][:5], Reason.TRUNCATED),
        (b"\x0e\x02\x7f\xff\xff\xff" + TEXT, Reason.BAD_LENGTH),
        (b"\x0e\x02\xff\xff\xff\xff" + TEXT, Reason.BAD_LENGTH),
        (b"\x08\x01" + TEXT, Reason.BAD_MAGIC),
    ],
)
def test_what_is_no_message_is_refused(raw: bytes, reason: Reason) -> None:
    """Nothing without a checksum that agrees: an entry of a subscription's state is not taken for a message."""
    with pytest.raises(FormatError) as caught:
        decode(raw)
    assert caught.value.reason is reason
