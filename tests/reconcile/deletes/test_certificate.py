"""Certificates: canonical, bound to their hash and key, and ended in time."""

import hashlib
import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from reconcile.deletes import check_certificate
from reconcile.deletes.certificate import (
    CertifiedLedger,
    Validity,
    encode_certificate,
    make_certificate,
)
from reconcile.deletes.signatures import canonicalize
from recovery.errors import InputError
from recovery.model.ids import LedgerId

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
LEDGERS = [CertifiedLedger(LedgerId(0, 10), 3, "aa"), CertifiedLedger(LedgerId(7, 9), 1, "bb")]


def write(folder: Path, key: Path | None = None) -> Path:
    """Write a certificate of two ledgers."""
    path = folder / "c.json"
    path.write_bytes(encode_certificate(make_certificate("one", "/ledgers", LEDGERS, {}, {}, NOW, key)))
    return path


def make_keys(folder: Path, name: str) -> tuple[Path, Path]:
    """Make an Ed25519 key pair as the messages say how."""
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    return private, public


def alter(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Write a certificate with something changed."""
    content = json.loads(path.read_text())
    change(content)
    other = path.with_name("altered.json")
    other.write_text(json.dumps(content))
    return other


def test_it_holds_until_its_end(tmp_path: Path) -> None:
    """24 hours, to the second; then it was valid and is not any more."""
    path = write(tmp_path)
    for hours, validity in ((0, Validity.VALID), (24, Validity.VALID), (25, Validity.EXPIRED)):
        assert check_certificate(path, now=NOW + timedelta(hours=hours)).validity is validity
    assert check_certificate(path, now=NOW + timedelta(hours=24, seconds=1)).validity is Validity.EXPIRED


def test_what_a_check_gives_is_the_exit_code() -> None:
    """As the contract has them."""
    assert [(item.name, item.value) for item in Validity] == [("VALID", 0), ("INVALID", 3), ("EXPIRED", 4)]


def test_what_was_made_later_than_now_does_not_hold(tmp_path: Path) -> None:
    """A clock that was set back would bring an ended certificate back; five minutes are nothing."""
    path = write(tmp_path)
    assert check_certificate(path, now=NOW - timedelta(minutes=5)).validity is Validity.VALID
    early = check_certificate(path, now=NOW - timedelta(minutes=5, seconds=1))
    assert early.validity is Validity.INVALID
    assert "later than now" in early.problems[0]


def test_the_hash_is_that_of_the_canonical_json(tmp_path: Path) -> None:
    """Anybody can make it: keys sorted, no spaces, as RFC 8785 has it for what is in a certificate."""
    content = json.loads(write(tmp_path).read_text())
    own = json.dumps(content["certificate"], sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert hashlib.sha256(own).hexdigest() == content["hash"]
    assert canonicalize({"b": [1, "é"], "a": None}) == '{"a":null,"b":[1,"é"]}'.encode()


def test_what_was_altered_does_not_hold(tmp_path: Path) -> None:
    """A ledger, the end, the cluster, the hash: each."""
    path = write(tmp_path)

    def put(name: str, value: object) -> Callable[[dict[str, Any]], None]:
        return lambda content: content["certificate"].__setitem__(name, value)

    changes = (
        put("not_after", "2036-01-01T00:00:00+00:00"),
        put("cluster", {"instance_id": "two", "root": "/ledgers"}),
        lambda content: content["certificate"]["ledgers"].pop(),
        lambda content: content.__setitem__("hash", "0" * 64),
    )
    for change in changes:
        assert check_certificate(alter(path, change), now=NOW).validity is Validity.INVALID


def test_it_must_name_the_ledgers(tmp_path: Path) -> None:
    """Of the scope that was asked for."""
    path = write(tmp_path)
    assert check_certificate(path, ledgers=["10", LedgerId(7, 9)], now=NOW).validity is Validity.VALID
    assert check_certificate(path, ledgers=["9"], now=NOW).problems == ("it does not name ledger 9",)


def test_signatures(tmp_path: Path) -> None:
    """Only the key that signed is taken; an altered one, another's, and none at all where a key is named, are not."""
    private, public = make_keys(tmp_path, "own")
    _, other = make_keys(tmp_path, "other")
    path = write(tmp_path, private)
    assert check_certificate(path, key=public, now=NOW).validity is Validity.VALID
    assert check_certificate(path, key=other, now=NOW).problems == ("another key signed it",)

    def resign(content: dict[str, Any]) -> None:
        content["certificate"]["cluster"]["root"] = "/other"
        content["hash"] = hashlib.sha256(canonicalize(content["certificate"])).hexdigest()

    assert check_certificate(alter(path, resign), key=public, now=NOW).problems == ("its signature does not hold",)
    assert check_certificate(write(tmp_path), key=public, now=NOW).validity is Validity.INVALID
    with pytest.raises(InputError, match="private key"):
        write(tmp_path, public)


def test_without_a_time_it_is_the_clocks(tmp_path: Path) -> None:
    """One that is made now holds now; one of long ago ended."""
    path = tmp_path / "c.json"
    for issued, validity in ((datetime.now(UTC), Validity.VALID), (datetime(2020, 1, 1, tzinfo=UTC), Validity.EXPIRED)):
        path.write_bytes(encode_certificate(make_certificate("one", "/ledgers", LEDGERS, {}, {}, issued)))
        assert check_certificate(path).validity is validity


def test_what_was_altered_and_ended_is_invalid(tmp_path: Path) -> None:
    """Nobody takes it for one that was good once."""
    path = alter(write(tmp_path), lambda content: content.__setitem__("hash", "0" * 64))
    late = check_certificate(path, now=NOW + timedelta(days=9))
    assert (late.validity, late.problems) == (
        Validity.INVALID, ("its hash is not that of what it says: it was altered",)
    )  # fmt: skip


def test_a_check_says_whether_it_is_signed(tmp_path: Path) -> None:
    """Without a key nobody looked by whom; a file of another kind of key is named by what was wanted."""
    private, public = make_keys(tmp_path, "own")
    path = write(tmp_path, private)
    assert check_certificate(path, now=NOW).is_signed
    with pytest.raises(InputError, match="is not a PEM file of a public key"):
        check_certificate(path, key=private, now=NOW)
    with pytest.raises(InputError, match="is not a PEM file of a private key"):
        write(tmp_path, public)
    assert not check_certificate(write(tmp_path), now=NOW).is_signed


@pytest.mark.parametrize("name", ["value", "public_key"])
def test_a_signature_is_base64_and_nothing_else(name: str, tmp_path: Path) -> None:
    """A sign that base64 does not have is not passed over."""
    private, _ = make_keys(tmp_path, "own")

    def spoil(content: dict[str, Any]) -> None:
        content["signature"][name] = "!" + content["signature"][name]

    with pytest.raises(InputError, match="is not a certificate of deletes"):
        check_certificate(alter(write(tmp_path, private), spoil), now=NOW)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"certificate": {}, "hash": ""}', "null"])
def test_what_is_no_certificate_is_refused(content: str, tmp_path: Path) -> None:
    """With the file, and what to name instead."""
    path = tmp_path / "no.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"no\.json"):
        check_certificate(path)
