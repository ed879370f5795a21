"""`conf/`: what runs and watches the service names only what is there: options, keys, paths, figures, labels."""

import configparser
import importlib.util
import json
import re
import shutil
import subprocess
import textwrap
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped] # no types come with it

from reconcile.cli.rescue.hosts import Host, Transport
from reconcile.cli.rescue.transports import make_command
from reconcile.service.api.metrics import format_service
from reconcile.service.config import read_config
from reconcile.service.runs import schedule
from reconcile.service.runs.folders import OUT
from reconcile.service.runs.leader import Instance
from reconcile.service.runs.schedule import Gate, ServiceState
from recovery.spark import has_executors
from tests.support.backups import make_backup
from tests.support.command import ROOT, commands
from tests.support.service import make_context, write_config, write_findings

CONF: Final = ROOT / "conf"
RULES: Final = CONF / "prometheus-rules.yml"
BOARD: Final = CONF / "grafana-dashboard.json"
KUBERNETES: Final = CONF / "kubernetes"
_SELECTOR: Final = re.compile(r"\b((?:bookkeeper|process)_[a-z_]+)(?:\{([a-z_]+)=\"([^\"]*)\"\})?")
_GROUPED: Final = re.compile(r"\b(?:by|ignoring) \(([a-z_, ]*)\)")
_OF_PROMETHEUS: Final = {"instance"}


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, set[str]]]:
    """What /metrics of a service says that has run everything: name → label → values."""
    folder = tmp_path_factory.mktemp("service")
    make_backup(folder / "backup")
    jobs = f'[jobs.scrutinize]\nevery = "1h"\n[backup]\nto = "{folder}/backup"\n'
    config = read_config(write_config(folder, "etcd://127.0.0.1:1/ledgers", "one", folder / "data", jobs))
    instance = Instance(config, make_context())
    now = instance.now_ms()
    state = schedule.take_over(ServiceState(), "one", "h:1", now)
    state = schedule.start(state, config.timings["scrutinize"], now)
    state = schedule.end(state, "scrutinize", now, 3, "found", "scrutinize/first")
    state = schedule.open_gate(state, Gate("reboot", ("bk1:3181",), (), "down", "ops", now))
    write_findings(config.data / "scrutinize/first" / OUT, [4])
    instance._take(state)
    figures: dict[str, dict[str, set[str]]] = {}
    for line in format_service(instance).splitlines():
        if not line.startswith("#"):
            match = re.fullmatch(r"([a-z_]+)(?:\{([a-z_]+)=\"([^\"]*)\"\})? \S+", line)
            assert match is not None, line
            labels = figures.setdefault(match[1], {})
            if match[2]:
                labels.setdefault(match[2], set()).add(match[3])
    return figures


def list_expressions() -> Iterator[tuple[str, str]]:
    """Yield the expressions of the alerts and of the dashboard, each with its name."""
    alerts = re.findall(r"(?m)- alert: (\S+)\n\s+expr: '?(.*?)'?$", RULES.read_text(encoding="utf-8"))
    assert len(alerts) >= 10
    yield from alerts
    board: dict[str, Any] = json.loads(BOARD.read_text(encoding="utf-8"))
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


@pytest.mark.parametrize(("name", "expression"), list(list_expressions()))
def test_an_expression_names_figures_that_are_exposed(
    exposed: dict[str, dict[str, set[str]]], name: str, expression: str
) -> None:
    """With labels that they have, and values that these can have."""
    used = _SELECTOR.findall(expression)
    assert used, f"{name} watches nothing"
    labels: set[str] = set(_OF_PROMETHEUS)
    for figure, label, value in used:
        assert figure in exposed, f"{name}: nobody exposes {figure}"
        labels |= set(exposed[figure])
        if label:
            assert value in exposed[figure].get(label, ()), f"{name}: {figure} never has {label}={value}"
    for group in _GROUPED.findall(expression):
        assert set(group.replace(" ", "").split(",")) <= labels, name


def test_each_alert_says_what_to_do() -> None:
    """A severity, a summary and a remedy; Prometheus' own check, where it is installed, takes the file."""
    text = RULES.read_text(encoding="utf-8")
    count = text.count("- alert:")
    for key in ("for", "severity", "summary", "remedy"):
        assert len(re.findall(rf"(?m)^ +{key}: \S", text)) == count, key
    promtool = shutil.which("promtool")
    if promtool is not None:
        done = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def check_words(words: list[str]) -> None:
    """Demand that a command line names a command, and options that it has."""
    command = commands()[words[1] if words[0].endswith("bkmeta") else words[0]]
    known = {option for parameter in command.params for option in parameter.opts}
    given = {word for word in words if word.startswith("--")}
    assert given <= known, given - known


def test_the_unit_is_what_systemd_takes(tmp_path: Path) -> None:
    """It names the program with options that it has; systemd's own check, where it is installed, has nothing to say."""
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment, method-assign] # the way that configparser documents
    file = CONF / "bkmeta-serve.service"
    unit.read(file)
    for key in ("ExecStart", "ExecStartPre"):
        check_words(unit["Service"][key].split())
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        here = tmp_path / file.name
        here.write_text(file.read_text().replace("/usr/local/bin/bkmeta", "/bin/true"))
        done = subprocess.run([analyze, "verify", here], capture_output=True, text=True, check=False, timeout=60)
        said = [line for line in done.stderr.splitlines() if "bkmeta-serve" in line]
        assert (done.returncode, said) == (0, []), done.stderr


def test_the_image_has_what_the_service_needs() -> None:
    """Extras of the distribution that are there, and a command line that the program takes."""
    text = (CONF / "Containerfile").read_text(encoding="utf-8")
    [extras] = re.findall(r"/src\[([a-z,]+)\]", text)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {"service", "spark"} <= set(extras.split(",")) <= set(known)
    [words] = re.findall(r"(?m)^CMD (\[.*\])$", text)
    check_words(json.loads(words))


def test_the_service_s_manifest_has_a_configuration_that_can_be_used(tmp_path: Path) -> None:
    """Listening where its ports, its probes and its volumes are."""
    text = (KUBERNETES / "serve.yaml").read_text(encoding="utf-8")
    [inner] = re.findall(r"serve\.toml: \|\n((?:    .*\n|\n)+)", text)
    (tmp_path / "serve.toml").write_text(textwrap.dedent(inner))
    config = read_config(tmp_path / "serve.toml")
    ports = {name: int(port) for name, port in re.findall(r"name: (http|grpc), containerPort: (\d+)", text)}
    assert ports == {name: int(getattr(config.listen, name).rpartition(":")[2]) for name in ("http", "grpc")}, (
        "the ports of the container are those that it listens at"
    )
    mounted = re.findall(r"mountPath: ([^,}]+)", text)
    for needed in (config.data, Path(config.access.tokens).parent):
        assert str(needed) in mounted
    served = (ROOT / "reconcile/service/api/http_server.py").read_text(encoding="utf-8")
    for path in re.findall(r"httpGet: \{path: ([^,]+)", text):
        assert f'case "{path}"' in served
    [words] = re.findall(r"(?m)^ +args: (\[.*\])$", text)
    check_words(json.loads(words))


def test_the_manifest_that_collects_runs_a_command_that_is_there() -> None:
    """And mounts what bookies own for reading only."""
    text = (KUBERNETES / "collect.yaml").read_text(encoding="utf-8")
    [line] = re.findall(r"(?m)^ +(bkmeta collect .*) \|\| code=", text)
    check_words(line.replace('"', "").split())
    for mount in re.findall(r"- \{name: (?:conf|journal|ledgers), mountPath: .*\}", text):
        assert "readOnly: true" in mount


def test_the_manifest_that_collects_claims_runs_a_command_that_is_there() -> None:
    """It mounts what the bookie owns for reading only, claims too, and gets no token."""
    job = yaml.safe_load((KUBERNETES / "collect-claims.yaml").read_text(encoding="utf-8"))["spec"]["template"]["spec"]
    [container] = job["containers"]
    [line] = re.findall(r"(?m)^(bkmeta collect .*) \|\| code=", container["args"][0])
    check_words(line.replace('"', "").split())
    own = [mount for mount in container["volumeMounts"] if mount["mountPath"].startswith(("/bookie/", "/bookkeeper/"))]
    assert [mount["readOnly"] for mount in own] == [True] * 3
    names = {mount["name"] for mount in own}
    claims = [volume for volume in job["volumes"] if volume["name"] in names and "persistentVolumeClaim" in volume]
    assert [volume["persistentVolumeClaim"]["readOnly"] for volume in claims] == [True] * 2
    assert job["automountServiceAccountToken"] is False


def test_rescue_may_find_pods_and_run_scripts_in_those_that_are_named() -> None:
    """It calls `kubectl exec` and nothing else: a right more would be one too many."""
    role, binding = yaml.safe_load_all((KUBERNETES / "rescue.yaml").read_text(encoding="utf-8"))
    rules = {resource: rule for rule in role["rules"] for resource in rule["resources"]}
    assert {name: sorted(rule["verbs"]) for name, rule in rules.items()} == {
        "pods": ["get"],
        "pods/exec": ["create", "get"],
    }
    assert rules["pods/exec"]["resourceNames"]
    assert (role["kind"], binding["roleRef"]["name"]) == ("Role", role["metadata"]["name"])
    command = make_command(Host("bk1", Transport.KUBECTL, "pulsar/bk-0/bookie", ""), "true")
    assert command[:4] == ["kubectl", "-n", "pulsar", "exec"]


@pytest.mark.parametrize(("code", "ends"), [(0, 0), (1, 1), (2, 2), (3, 0), (4, 0), (143, 143)])
def test_a_pod_collects_once_whatever_it_finds(code: int, ends: int, tmp_path: Path) -> None:
    """What is there is not collected again, and again, until the disk of the node is full; what failed is."""
    text = (KUBERNETES / "collect.yaml").read_text(encoding="utf-8")
    [block] = re.findall(r"(?m)^            - \|\n((?: {14}.*\n)+)", text)
    out, program = tmp_path / "node-pod", tmp_path / "bkmeta"
    manifest = f"mkdir -p {out}; touch {out}/manifest.json" if code in (0, 3, 4) else ":"
    program.write_text(f"#!/bin/sh\necho run >> {tmp_path}/runs\n{manifest}\nexit {code}\n")
    program.chmod(0o755)
    script = textwrap.dedent(block).replace('"/out/$NODE-$POD"', f'"{tmp_path}/$NODE-$POD"')
    names = {"PATH": f"{tmp_path}:/usr/bin:/bin", "NODE": "node", "POD": "pod"}
    ended = [subprocess.run(["sh", "-c", script], env=names, check=False).returncode for _ in range(2)]
    assert ended == [ends, ends]
    assert (tmp_path / "runs").read_text().count("run") == (2 if ends else 1)


def test_the_manifest_that_recovers_has_settings_that_spark_has() -> None:
    """Its command line is one of ours, its secrets are those that it makes, and Spark's jars name each property."""
    text = (KUBERNETES / "recover.yaml").read_text(encoding="utf-8")
    [args] = re.findall(r"(?m)^ +args:\n((?: +- .*\n)+)", text)
    words = re.findall(r"- (\S+)", args)
    check_words([word.partition("=")[0] for word in words])
    assert has_executors(dict(word.partition("=")[::2] for word in words)["--master"])
    assert set(re.findall(r"secret(?:Name|Ref): \{?(?:name: )?(bkmeta-[a-z]+)", text)) <= set(
        re.findall(r"create secret generic (\S+)", text)
    )
    properties = re.findall(r"(?m)^    (spark\.[A-Za-z.]+?)(?:\.AWS_[A-Z_]+)? \S+", text)
    assert len(properties) > 8
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    named = b""
    for kind in ("core", "kubernetes"):
        [jar] = (Path(spec.origin).parent / "jars").glob(f"spark-{kind}_*.jar")
        with zipfile.ZipFile(jar) as classes:
            named += b"".join(
                classes.read(name) for name in classes.namelist() if "/config/" in name or "Config" in name
            )
    assert [name for name in properties if name.encode() not in named] == []
