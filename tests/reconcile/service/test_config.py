"""The configuration: what ships says the defaults, and what cannot be used is refused with its place."""

import re
import subprocess
import tomllib
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconcile.service.config import COMMANDS, Caller, Config, Job, TokenRole, list_missing, read_config, read_tokens
from reconcile.service.runs.commands import ON_SPARK
from recovery.errors import InputError
from tests.support import certificates
from tests.support.command import Done, commands, run
from tests.support.paths import ROOT

SHIPPED = ROOT / "conf" / "serve.toml"
_ALONE = 'metadata = "etcd://127.0.0.1:2379/bk"\ndata = "/d"\n'


def _list_keys(kind: Any, values: dict[str, Any]) -> set[str]:
    """Return the keys of a type that a table does not have, with those below."""
    types = typing.get_type_hints(kind)
    missing = set()
    for field in msgspec.structs.fields(kind):
        if field.name not in values:
            missing.add(field.name)
        elif hasattr(types[field.name], "__struct_fields__"):
            missing |= {f"{field.name}.{name}" for name in _list_keys(types[field.name], values[field.name])}
    return missing


def test_the_shipped_file_can_be_used() -> None:
    """As it is, and with everything that is commented out."""
    config = read_config(SHIPPED)
    assert set(config.jobs) == {"capture", "scrutinize", "orphans", "drill"}
    assert (config.jobs["scrutinize"].shares, config.jobs["capture"].keep.weekly) == (24, 8)


def test_what_is_commented_out_is_every_default(tmp_path: Path) -> None:
    """No key is forgotten, and none has another value than it says."""
    text = re.sub(r"(?m)^# ([a-z_]+ = )", r"\1", SHIPPED.read_text())
    (tmp_path / "all.toml").write_text(text)
    assert read_config(tmp_path / "all.toml") == read_config(SHIPPED)
    values = tomllib.loads(text)
    assert _list_keys(Config, values) == set()
    written = set(values["jobs"]["capture"]) | set(values["jobs"]["scrutinize"])
    assert written == set(Job.__struct_fields__)


def test_every_job_is_a_command_and_what_is_told_of_spark_is_what_takes_it() -> None:
    """Each has the options that the service gives it."""
    known = commands()
    for name in COMMANDS:
        options = {option for parameter in known[name].params for option in parameter.opts}
        assert {"--metadata", "--out"} <= options
        assert ("--master" in options) == (name in ON_SPARK), name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('data = "/d"', "metadata: is missing"),
        (_ALONE + "interval = 3", "interval: is unknown"),
        (_ALONE + '[election]\nsession = "1h"', r"election\.session: is too short or too long"),
        (_ALONE + "[election]\nsession = 15", r"election\.session: 15 is not a duration"),
        (_ALONE + '[listen]\nhttp = "8080"', r"listen\.http: '8080' is not an address"),
        (_ALONE + '[listen]\ngrpc = "h:99999"', r"listen\.grpc"),
        (_ALONE + '[access]\ntls_cert = "c"', r"access\.tls_cert: and tls_key go together"),
        (_ALONE + "[access]\nanonymous = 1", r"access\.anonymous: expected a text, got a whole number; fix it"),
        (_ALONE + '[access]\nanonymous = "all"', r"access\.anonymous: 'all' is unknown; write \"none\" or \"read\""),
        (_ALONE + '[listen]\nnames = ["bk:80"]', r"listen\.names: 'bk:80' is not a host name; write it without a port"),
        (_ALONE + '[jobs.apply]\nevery = "1h"', r"jobs\.apply: is not a job; known are scrutinize"),
        (
            _ALONE + '[jobs.capture]\nevery = "1h"\nonly = ["22-06"]',
            r"jobs\.capture\.only: '22-06' is not a time of day",
        ),
        (_ALONE + '[jobs.capture]\nevery = "1h"\nonly = ["05:00-05:00"]', r"jobs\.capture\.only: .* not a time"),
        (_ALONE + "[jobs.capture]\njitter = 0.1", r"jobs\.capture\.every: is missing"),
        (_ALONE + '[jobs.capture]\nevery = "1h"\nshares = 2', r"jobs\.capture\.shares"),
        (_ALONE + '[jobs.capture]\nevery = "1h"\narguments = ["--out=/x"]', "--out=/x is given by the service"),
        (
            _ALONE + '[jobs.scrutinize]\nevery = "1h"\narguments = ["--baseline", "/x"]',
            "--baseline is given by the service",
        ),
        (
            _ALONE + '[jobs.capture]\nevery = "1h"\narguments = "--wire"',
            r"jobs\.capture\.arguments: expected a list, got a text",
        ),
        (_ALONE + '[requests]\nexplain = ["--json"]', r"requests\.explain: --json is given by the service"),
        (_ALONE + "[requests]\nat_once = 0", r"requests\.at_once"),
        ("metadata = ", "Invalid value"),
    ],
)
def test_what_cannot_be_used_is_named(text: str, said: str, tmp_path: Path) -> None:
    """The file, the key, and what to write."""
    path = tmp_path / "serve.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as refused:
        read_config(path)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("ops 0123456789abcdef\n", 0o644, "mode 0644"),
        ("ops short\n", 0o600, "line 1: is not a name and token"),
        ("0123456789abcdef\n", 0o600, "line 1"),
        ("ops 0123456789abcdef\npipeline 0123456789abcdef\n", 0o600, "line 2: has the token of ops"),
        ("ops 0123456789abcdef write\n", 0o600, "line 1: has an unknown role"),
        ("ops 0123456789abcdef run\nops fedcba9876543210\n", 0o600, "line 2: gives ops other roles"),
    ],
)
def test_a_file_of_tokens_that_cannot_be_used_is_named(text: str, mode: int, said: str, tmp_path: Path) -> None:
    """And no token is in the message."""
    path = tmp_path / "tokens"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(InputError, match=said) as refused:
        read_tokens(str(path))
    assert "0123456789abcdef" not in str(refused.value)


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ('grpc = "10.0.0.1:8481"', "10.0.0.1:8481"),
        ('grpc = "0.0.0.0:8481"', "bk-1:8481"),
        ('grpc = "[::]:8481"', "bk-1:8481"),
        ('grpc = "0.0.0.0:8481"\nadvertise = "{instance}.bkmeta:443"', "bk-1.bkmeta:443"),
    ],
)
def test_others_are_told_an_address_that_they_can_ask(listen: str, address: str, tmp_path: Path) -> None:
    """All addresses are none."""
    path = tmp_path / "serve.toml"
    path.write_text(f'{_ALONE}instance = "bk-1"\n[listen]\n{listen}')
    assert read_config(path).address == address


def test_files_of_tls_that_cannot_be_used_are_named_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of another key, one with a password, and none at all; a pair is taken."""
    certificates.authority(tmp_path, "ca")
    for name in ("one", "other"):
        certificates.signed(tmp_path, name, "ca")
    locked = ["openssl", "rsa", "-aes256", "-passout", "pass:secret", "-in", str(tmp_path / "one.key")]
    subprocess.run([*locked, "-out", str(tmp_path / "locked.key")], check=True, capture_output=True)
    path = tmp_path / "serve.toml"

    def check(certificate: str, key: str) -> Done:
        given = f'tls_cert = "{tmp_path / certificate}"\ntls_key = "{tmp_path / key}"\n'
        path.write_text(f"{_ALONE}[access]\n{given}")
        return run(capsys, "serve", "--config", path, "--check")

    assert check("one.crt", "one.key").code == 0
    for certificate, key in (("one.crt", "other.key"), ("one.crt", "locked.key"), ("none.crt", "one.key")):
        done = check(certificate, key)
        assert (done.code, certificate in done.err) == (2, True), done


def test_tokens_are_read_by_line(tmp_path: Path) -> None:
    """Empty lines and comments are passed over; no file has none."""
    path = tmp_path / "tokens"
    path.write_text("# who may act\n\nops 0123456789abcdef\npipeline fedcba9876543210 run,delete\n")
    path.chmod(0o600)
    assert read_tokens(str(path)) == {
        "0123456789abcdef": Caller("ops", frozenset(TokenRole)),
        "fedcba9876543210": Caller("pipeline", frozenset({TokenRole.RUN, TokenRole.DELETE})),
    }
    assert read_tokens("") == {}


def test_what_a_configuration_names_and_this_host_lacks_is_listed(tmp_path: Path) -> None:
    """Hosts of the store, and files among further arguments."""
    there = tmp_path / "there"
    there.touch()
    path = tmp_path / "serve.toml"
    path.write_text(
        f'metadata = "zk+hierarchical://127.0.0.1:2181;no-such-host.invalid:2181/ledgers"\ndata = "{tmp_path}/data"\n'
        f'[requests]\ncheck_impact = ["--topology", "{there}"]\n'
        f'[jobs.drill]\nevery = "1h"\narguments = ["--inventory-dir={tmp_path}/gone", "--wire"]\n'
    )
    host, folder = list_missing(read_config(path))
    assert host.startswith("metadata: host no-such-host.invalid is not known here")
    assert folder == f"jobs.drill.arguments: {tmp_path}/gone does not exist"
