"""What an installation must have: each thing that is missing is named with its remedy, and nothing else is."""

import csv
import importlib.metadata
import io
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import UnavailableError
from backends.protocols import Write
from backends.registry import OpenStore
from reconcile.jobs.diagnose import doctor
from reconcile.jobs.diagnose.doctor import Check, CheckState
from tests.support.command import run
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.long


def _by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_this_installation_is_complete() -> None:
    """Where the tests run everything is there, and no check has a remedy then."""
    found = doctor.examine(spark=True)
    assert [check for check in found if check.state is CheckState.MISSING] == []
    assert {"Python", "bkmeta", "pyarrow", "Java", "import recovery", "open files"} <= set(_by_name(found))
    assert [check.remedy for check in found if check.state is CheckState.OK and check.remedy] == []


@pytest.mark.parametrize(
    ("line", "name", "extra", "good", "bad"),
    [
        ("click>=8.2", "click", None, ["8.2", "8.10", "9", "8.2.1rc1"], ["8.1.9", "7"]),
        ("protobuf<8,>=5.29", "protobuf", None, ["5.29.0", "7.36.2"], ["8.0", "5.28.9"]),
        ("pyspark<5,>=4.0; extra == 'spark'", "pyspark", "spark", ["4.0", "4.3.0"], ["3.5.1", "5.0.0"]),
        ('x==1.0; extra == "dev"', "x", "dev", ["1", "1.0.0"], ["1.0.1"]),
        ("y", "y", None, ["0", "99"], []),
        ("z!=2.1,<=3", "z", None, ["2.0", "3.0"], ["2.1.0", "3.0.1"]),
    ],
)
def test_requirements_are_read_as_installers_read_them(
    line: str, name: str, extra: str | None, good: list[str], bad: list[str]
) -> None:
    """Name, extra and limits of a requirement, compared number by number."""
    requirement = doctor.parse_requirement(line)
    assert requirement is not None
    assert (requirement.name, requirement.extra) == (name, extra)
    assert [version for version in good if not doctor.satisfies(version, requirement.limits)] == []
    assert [version for version in bad if doctor.satisfies(version, requirement.limits)] == []


@given(st.text(max_size=40), st.text(max_size=20))
def test_any_text_is_a_requirement_or_none(line: str, version: str) -> None:
    """Odd metadata of some package never ends the examination."""
    requirement = doctor.parse_requirement(line)
    if requirement is not None:
        assert doctor.satisfies(version, requirement.limits) in (True, False)


def test_a_package_that_is_missing_or_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has the command that brings it; an absent extra is optional, unless asked for or too old."""
    lines = ["no-such-package>=1", "click>=99", "no-such-spark>=4; extra == 'spark'", "no-such-signer; extra == 'x'"]
    lines.append("rich>=999; extra == 'x'")
    monkeypatch.setattr(importlib.metadata, "requires", lambda _name: lines)
    found = _by_name(doctor.examine(spark=False))
    assert found["no-such-package"] == Check(
        "no-such-package", CheckState.MISSING, "not installed, needed: >=1", "pip install 'no-such-package>=1'"
    )
    assert (found["click"].state, found["click"].remedy) == (CheckState.MISSING, "pip install 'click>=99'")
    for name, extra in (("no-such-spark", "spark"), ("no-such-signer", "x")):
        optional = Check(name, CheckState.SKIPPED, f"not installed, and optional: bkmeta[{extra}]")
        assert found[name] == optional
    assert (found["rich"].state, found["rich"].remedy) == (CheckState.MISSING, "pip install 'bkmeta[x]'")
    wanted = _by_name(doctor.examine(spark=True))
    assert wanted["no-such-signer"].state is CheckState.SKIPPED
    assert wanted["no-such-spark"].state is CheckState.MISSING
    assert wanted["no-such-spark"].remedy == "pip install 'bkmeta[spark]'"


def test_a_client_library_that_does_not_work_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its version is right, and still it does not load: as etcd3 with a protobuf that its own stubs do not know."""
    whole = _by_name(doctor.examine(spark=False))
    assert {whole[f"client of {kind}"].state for kind in ("ZooKeeper", "etcd")} == {CheckState.OK}
    (tmp_path / "etcd3.py").write_text("raise TypeError('Descriptors cannot be created directly')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = _by_name(doctor.examine(spark=False))
    assert found["client of ZooKeeper"].state is CheckState.OK
    broken = found["client of etcd"]
    assert (broken.state, broken.found) == (CheckState.MISSING, "TypeError: Descriptors cannot be created directly")
    assert "pipx" in broken.remedy
    assert found["etcd3"].state is CheckState.OK


def test_a_name_that_somebody_else_owns_too_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution that brings a package `reconcile` overwrites ours silently; it is named."""
    monkeypatch.setattr(
        importlib.metadata,
        "packages_distributions",
        lambda: {"reconcile": ["reconcile", "bkmeta"], "recovery": ["bkmeta"]},
    )
    found = _by_name(doctor.examine(spark=False))
    assert found["import reconcile"].state is CheckState.MISSING
    assert "pip uninstall reconcile" in found["import reconcile"].remedy
    assert found["import recovery"].state is found["import backends"].state is CheckState.OK


def test_no_java_is_missing_only_where_spark_is_wanted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A bookie's host has no Java and is complete; a host that recovers is not."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert _by_name(doctor.examine(spark=False))["Java"].state is CheckState.SKIPPED
    missing = _by_name(doctor.examine(spark=True))["Java"]
    assert missing.state is CheckState.MISSING
    assert "Java 17" in missing.remedy


def test_few_open_files_are_found() -> None:
    """A limit below what RocksDB's table files need is named with the command that raises it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    try:
        found = _by_name(doctor.examine(spark=False))["open files"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert (found.state, found.remedy) == (CheckState.MISSING, "ulimit -n 1024")


def test_a_folder_that_cannot_be_written_is_found(tmp_path: Path) -> None:
    """Temporary files that cannot be made are found before a long run finds them."""
    found = doctor._temporary(tmp_path / "gone")
    assert found.state is CheckState.MISSING
    assert "TMPDIR" in found.remedy


def test_a_store_answers_or_is_missing() -> None:
    """A store that answers is said with what its root holds; one that does not is missing, and no error."""
    store = MemoryStore()

    def connect() -> OpenStore:
        return OpenStore(store, "/ledgers", None, "memory")

    assert "has no /ledgers" in _by_name(doctor.examine(spark=False, connect=connect))["store memory"].found
    store = MemoryStore()
    store.write([Write("/ledgers/LAYOUT", b"1")])
    assert "with LAYOUT" in _by_name(doctor.examine(spark=False, connect=connect))["store memory"].found

    def refuse() -> OpenStore:
        raise UnavailableError("zk1:2181", "no answer")

    down = _by_name(doctor.examine(spark=False, connect=refuse))["store"]
    assert (down.state, "zk1:2181" in down.found) == (CheckState.MISSING, True)


def test_ways_in_are_said_before_a_disaster() -> None:
    """The supported ones and the others; a root that belongs to SASL's users has a remedy, others none."""

    def look(acl: str) -> Check:
        store = MemoryStore()
        store.write([Write("/ledgers", b"", acl=acl)])

        def connect() -> OpenStore:
            return OpenStore(store, "/ledgers", None, "memory")

        return _by_name(doctor.examine(spark=False, connect=connect))["ways in"]

    anybody = look("world:anyone:cdrwa")
    assert (anybody.state, anybody.remedy) == (CheckState.OK, "")
    assert "ZooKeeper: digest, SASL with DIGEST-MD5 or Kerberos (keytab, ticket cache)" in anybody.found
    assert "bookies: SASL with DIGEST-MD5 or Kerberos" in anybody.found
    assert "not supported: SASL that signs or encrypts" in anybody.found
    principals = look("sasl:bookkeeper:cdrwa,world:anyone:r")
    assert "/ledgers belongs to sasl:bookkeeper" in principals.found
    assert "BKMETA_ZK_KERBEROS" in principals.remedy
    plugin = look("world:anyone:r,ourtokens:bob:cdrwa")
    assert (plugin.state, "scheme ourtokens, which is not supported" in plugin.found) == (CheckState.MISSING, True)
    assert "digest" in plugin.remedy
    assert look("digest:us:hash:cdrwa,ourtokens:bob:cdrwa").state is CheckState.OK

    def refuse() -> OpenStore:
        raise UnavailableError("zk1:2181", "the session needs SASL")

    unknown = _by_name(doctor.examine(spark=False, connect=refuse))["ways in"]
    assert (unknown.state, "Kerberos" in unknown.found, "etcd: user" in unknown.found) == (
        CheckState.SKIPPED,
        True,
        True,
    )


def test_executors_that_differ_are_named() -> None:
    """A host with another Python or package is named with both versions."""
    here = {"host": "a", "python": "3.11.7", "versions": {"bkmeta": "1", "numpy": "2"}}
    same = {**here, "host": "b"}
    other = {"host": "c", "python": "3.12.0", "versions": {"bkmeta": None, "numpy": "2"}}
    assert [check.state for check in doctor._differences(here, [same])] == [CheckState.OK]
    found = doctor._differences(here, [same, other])[0]
    assert found.state is CheckState.MISSING
    assert "c: Python 3.12.0, here 3.11.7" in found.found
    assert "c: bkmeta missing, here 1" in found.found


def test_doctor_ends_with_0_or_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Complete is exit code 0, something missing 3, and a store URI that is misspelt is usage."""
    good = run(capsys, "doctor", "--json")
    assert (good.code, good.result["counts"]["missing"]) == (0, 0)
    assert good.result["checks"][0]["name"] == "Python"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    bad = run(capsys, "doctor")
    assert bad.code == 3
    assert bad.out.startswith("1 of ")
    assert run(capsys, "doctor", "--no-spark").code == 0
    with monkeypatch.context() as without:
        without.setattr(
            doctor, "_version", lambda name: None if name == "pyspark" else importlib.metadata.version(name)
        )
        bare = run(capsys, "doctor")
        assert bare.code == 0
        assert "not installed, and optional: bkmeta[spark]" in bare.out
    rows = list(csv.DictReader(io.StringIO(run(capsys, "doctor", "--no-spark", "--csv").out)))
    assert [row.keys() for row in rows] == [check.keys() for check in good.result["checks"]]
    assert run(capsys, "doctor", "--metadata", "nonsense://x").code == 2
    assert run(capsys, "doctor", "--spark", "--no-spark").code == 2
