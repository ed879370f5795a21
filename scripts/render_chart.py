"""Lint conf/helm/bkmeta by Helm's own code, and render it with little and with all set.

    python -m scripts.render_chart OUT

Needs the packages helm-python-sdk, which is Helm's SDK, and pyyaml; `scripts/soak manifests` brings them. What it wrote
is held against Kubernetes' schemas there. The service is that of conf/kubernetes/serve.yaml, object by object, and a
bookie's Job that of collect-claims.yaml beside it.
"""

import sys
from pathlib import Path
from typing import Any

import helm_python as helm  # type: ignore[import-not-found] # brought by scripts/soak
import yaml  # type: ignore[import-untyped] # no types come with it

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "conf/helm/bkmeta"
SERVICE = ROOT / "conf/kubernetes/serve.yaml"
JOB = ROOT / "conf/kubernetes/collect-claims.yaml"
DISKS = [
    {"claim": "journal-bookie-0", "path": "/bookkeeper/data/journal"},
    {"claim": "ledgers-bookie-0", "path": "/bookkeeper/data/ledgers"},
]
BOOKIE = {"name": "bookie-0", "pod": "bookie-0", "conf": "bookie-conf", "volumes": DISKS}
ALL: dict[str, Any] = {
    "credentials": "bkmeta-credentials",
    "capture": {"enabled": True, "options": ["--pulsar"]},
    "collect": {"credentials": "bkmeta-store", "bookies": [BOOKIE, {**BOOKIE, "name": "bookie-1"}]},
}
REMOTE: dict[str, Any] = {
    "service": {"enabled": False},
    "capture": {"enabled": True, "out": "s3://bookkeeper/captures"},
    "collect": {"out": "s3://bookkeeper/inventories", "bookies": [BOOKIE]},
}
WRONG: tuple[dict[str, Any], ...] = (
    {"colect": {}},
    {"collect": {"bookies": [{"name": "bookie-0"}]}},
    {"collect": {"round": 0}},
)
CLAIMS: dict[str, Any] = {"service": {"enabled": False}, "collect": {"bookies": [BOOKIE]}}
KINDS = {
    "claims": ["Job"],
    "least": ["ConfigMap", "Service", "StatefulSet"],
    "all": ["ConfigMap", "CronJob", "Job", "Job", "Service", "StatefulSet"],
    "remote": ["CronJob", "Job"],
}


def main(out: Path) -> None:
    """Lint, render, compare; end with an error where something is not as it should be."""
    out.mkdir(parents=True, exist_ok=True)
    for name, values in (("least", {}), ("all", ALL), ("remote", REMOTE), ("claims", CLAIMS)):
        report = helm.lint(CHART, values, strict=True)
        bad = [message for message in report["messages"] if message["severity"] > 1]
        require(not (bad or report["errors"]), f"helm lint, {name}: {bad or report['errors']}")
        objects = render(values)
        require(sorted(one["kind"] for one in objects) == KINDS[name], f"{name}: {[one['kind'] for one in objects]}")
        (out / f"{name}.yaml").write_text(yaml.safe_dump_all(objects))
        if name == "least":
            compare_service(objects)
        if name == "claims":
            objects[0]["metadata"]["name"] = objects[0]["metadata"]["name"].removesuffix("-1")
            require(objects == list(yaml.safe_load_all(JOB.read_text())), f"the Job is not that of {JOB.name}")
    for values in WRONG:
        try:
            render(values)
        except Exception as error:  # noqa: BLE001 - of another's library, which has kinds of its own
            print(f"refused, as it should be: {str(error).splitlines()[0]}")
        else:
            require(fine=False, problem=f"{values} was not refused")
    print(f"helm {helm.__version__}: linted and rendered to {out}")


def render(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects that Helm makes of the chart."""
    with helm.Chart.load(CHART) as chart:
        texts = chart.render(values, name="bkmeta", namespace="default")
    made = (one for path, text in texts.items() if path.endswith(".yaml") for one in yaml.safe_load_all(text))
    return [one for one in made if one]


def compare_service(objects: list[dict[str, Any]]) -> None:
    """Require that the service is that of the plain manifests, but for what an operator sets."""
    plain = {one["kind"]: one for one in yaml.safe_load_all(SERVICE.read_text())}
    for one in objects:
        if one["kind"] == "ConfigMap":
            continue
        pod = one["spec"].get("template")
        if pod is not None:
            pod["metadata"]["annotations"].pop("checksum/config")
            plain[one["kind"]]["spec"]["template"]["spec"]["containers"][0].pop("envFrom")
        require(one == plain[one["kind"]], f"{one['kind']} is not that of {SERVICE.name}")


def require(fine: bool, problem: str) -> None:  # noqa: FBT001 - what must be so
    """End with a problem where something is not so."""
    if not fine:
        sys.exit(problem)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
