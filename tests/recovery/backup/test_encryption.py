"""A backup that is encrypted by the system's gpg: nothing of it can be read without the key, and all of it with it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from recovery.backup.chain import BackupWriter, open_backup
from recovery.backup.encryption import Recipient
from recovery.backup.store import BackupStore
from recovery.errors import DatasetError, InputError
from tests.support.backups import BINDING, FollowedMemory, list_states, name_ledger, seal_all, write_base

pytestmark = pytest.mark.skipif(shutil.which("gpg") is None, reason="there is no gpg here")

NAME = "backup@example.org"


@pytest.fixture
def recipient(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recipient]:
    """Return somebody with a key."""
    # Its agent's socket has no room for a long path.
    home = Path(tempfile.mkdtemp(prefix="gpg-", dir="/tmp"))
    monkeypatch.setenv("GNUPGHOME", str(home))
    words = ["gpg", "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]
    subprocess.run([*words, "--quick-gen-key", NAME, "rsa2048", "encr", "never"], check=True, capture_output=True)
    yield Recipient.parse(f"gpg:{NAME}")
    subprocess.run(["gpgconf", "--kill", "gpg-agent"], check=True, env=os.environ, capture_output=True)
    shutil.rmtree(home, ignore_errors=True)


def test_it_is_read_with_the_key_and_not_without(
    recipient: Recipient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bases and segments; a follower merges what it still knows, and goes on without the key."""
    place, store = tmp_path / "b", FollowedMemory()
    store.put(name_ledger(0), b"the-first-record")
    writer = BackupWriter(place, BINDING, recipient)
    write_base(writer, store)
    for number in range(1, 18):
        store.put(name_ledger(number), b"a-later-record-%d" % number)
        seal_all(writer, store)
    backup = open_backup(place)
    assert [link.seals for link in backup.manifest.segments] == [16, 1]
    assert list_states(BackupStore(backup)) == list_states(store)
    raws = [path.read_bytes() for path in place.rglob("*") if path.is_file()]
    assert not any(b"record" in raw or b"PAR1" in raw for raw in raws)
    with pytest.raises(DatasetError, match="encrypted with gpg"):
        BackupWriter(place, BINDING)

    monkeypatch.setenv("GNUPGHOME", str(tmp_path))
    with pytest.raises(InputError, match="gpg refuses"):
        list(BackupStore(open_backup(place)).scan("/"))


def test_what_was_altered_is_not_decrypted(recipient: Recipient, tmp_path: Path) -> None:
    """Its hash is compared first."""
    place, store = tmp_path / "b", FollowedMemory()
    writer = BackupWriter(place, BINDING, recipient)
    write_base(writer, store)
    store.put(name_ledger(1), b"x")
    seal_all(writer, store)
    file = place / writer.manifest.segments[0].part.file
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DatasetError, match="is not the file that the backup sealed"):
        list(BackupStore(open_backup(place)).scan("/"))


def test_a_base_that_cannot_be_encrypted_does_not_stay_in_the_clear(
    recipient: Recipient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No key of the recipient is known any longer: what was captured has passwords of ledgers."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    writer = BackupWriter(tmp_path / "b", BINDING, replace(recipient, name="nobody@example.org"))
    with pytest.raises(InputError, match="gpg"):
        write_base(writer, FollowedMemory())
    assert list(temporary.iterdir()) == []
    assert list((tmp_path / "b" / "bases").iterdir()) == []


def test_recipients_are_written_in_two_forms() -> None:
    """Anything else is refused, and so is a tool that is not there."""
    assert Recipient.parse("gpg:me") == Recipient("gpg", "me")
    for text in ("me", "gpg:", "rsa:me"):
        with pytest.raises(InputError, match="names no recipient"):
            Recipient.parse(text)
    if shutil.which("age") is None:
        with pytest.raises(InputError, match="is not on this machine"):
            Recipient.parse("age1abc")
