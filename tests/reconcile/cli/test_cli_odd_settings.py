"""What the environment and manifests say is checked: an error with its place, never a fault of the program."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from backends.errors import AccessDeniedError
from backends.protocols import Versioned
from reconcile.check.verify import verify
from reconcile.check.verify_results import RecordInStore, VerifyOutcome
from reconcile.cli.access import EnvironmentAccess, tls_from_environment
from reconcile.stores import open_store
from recovery.dataset import MANIFEST, open_dataset
from recovery.errors import DatasetError, InputError
from recovery.manifest import require_shape
from tests.support.command import environment
from tests.support.memory_store import MemoryStore
from tests.support.plan_folder import Ledger, write_plan

ROOT = "/other"


@pytest.mark.parametrize("given", ["1e308", "inf", "nan", "-1", "0", "soon", "604801"])
def test_patience_is_a_time_that_a_clock_can_wait(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a week is nobody's patience, and no timer takes 1e308 seconds."""
    monkeypatch.setenv("BKMETA_PATIENCE_S", given)
    with pytest.raises(InputError, match="BKMETA_PATIENCE_S"):
        open_store("zk://127.0.0.1:1/ledgers", EnvironmentAccess())


@pytest.mark.parametrize("name", ["CA", "CERT", "KEY"])
@pytest.mark.parametrize("content", [b"", b"not PEM", b"\x30\x82\x01\x0a", None])
def test_a_file_that_is_no_pem_is_named(
    name: str, content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it holds instead, be it a pipe: the variable and the file are named."""
    path = tmp_path / "file.pem"
    if content is None:
        os.mkfifo(path)
    else:
        path.write_bytes(content)
    monkeypatch.setenv(f"BKMETA_TLS_{name}", str(path))
    with pytest.raises(InputError, match=f"BKMETA_TLS_{name}.*file.pem"):
        tls_from_environment()


def test_a_ca_whose_certificate_is_broken_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lines are those of PEM, and what is between them is none."""
    path = tmp_path / "ca.pem"
    path.write_text("-----BEGIN CERTIFICATE-----\nbm90IG9uZQ==\n-----END CERTIFICATE-----\n")
    monkeypatch.setenv("BKMETA_TLS_CA", str(path))
    with pytest.raises(InputError, match="holds no certificate"):
        tls_from_environment()


@pytest.mark.parametrize("value", [{"b1": 1}, "b1", 7, [1], [["b1"]]])
@pytest.mark.parametrize("name", ["not_complete", "not_scanned", "scanned", "not_named"])
def test_lists_of_a_plans_coverage_are_lists(name: str, value: object, tmp_path: Path) -> None:
    """An object in the place of one is a manifest that is none of ours."""
    dataset = write_plan(tmp_path / "plan", [Ledger(5, [(0, ("b1",))], last=0, length=1)])
    path = Path(dataset.path) / MANIFEST
    manifest = json.loads(path.read_text())
    require_shape(manifest, "plan")
    manifest["coverage"][name] = value
    with pytest.raises(TypeError, match=name):
        require_shape(manifest, "plan")
    path.write_text(json.dumps(manifest))
    with pytest.raises(DatasetError):
        open_dataset(dataset.path, "plan")


class _Refusing(MemoryStore):
    """Shows one key to nobody."""

    secret = ""

    def get(self, key: str) -> Versioned | None:
        if key == self.secret:
            raise AccessDeniedError(key)
        return super().get(key)

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Versioned | None]]:
        for key in keys:
            yield key, self.get(key)


def test_a_record_that_the_store_does_not_show_costs_itself_only(tmp_path: Path) -> None:
    """All others are looked at; it is one that could not be."""
    ledgers = [Ledger(n, [(0, ("b1", "b2"))], last=0, length=1) for n in range(5, 9)]
    dataset = write_plan(tmp_path / "plan", ledgers)
    store = _Refusing()
    for row in dataset.read("actions").to_pylist():
        if row["ledger"] == 6:
            store.secret = f"{ROOT}{row['key']}"
    assert store.secret
    found = verify(dataset, store, ROOT, {}, sample=None)
    assert found.records[RecordInStore.DENIED] == found.denied == 1
    assert found.outcomes[VerifyOutcome.UNCHECKED] == 1
    assert found.looked_at == 4
    assert found.adds_up
    assert [str(problem.ledger) for problem in found.problems if "does not show" in problem.detail] == ["6"]


def test_with_json_a_warning_is_an_event() -> None:
    """Programs that read stderr line by line never meet plain text there."""
    code = (
        "import logging; from reconcile.cli.log_formats import start_log; start_log(as_json=True)\n"
        "logging.getLogger('reconcile.some').warning('a %s', 'b\\n\\x1b')"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    [line] = done.stderr.splitlines()
    event = json.loads(line)
    assert datetime.fromisoformat(event.pop("time")).tzinfo is not None
    assert event == {"event": "log", "level": "warning", "message": "a b\n\x1b", "logger": "reconcile.some"}
