"""The Helm chart: what can be set, what the schema takes, and what the templates read are the same.

That Helm itself lints and renders it, and that Kubernetes takes what it made, `scripts/soak manifests` shows.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml  # type: ignore[import-untyped] # no types come with it

from tests.support.command import ROOT

CHART = ROOT / "conf" / "helm" / "bkmeta"


def list_keys(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the keys that somebody sets, with those above; what Kubernetes takes as it is counts as one."""
    for name, value in values.items():
        if isinstance(value, Mapping) and name != "resources":
            yield from list_keys(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def list_properties(schema: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the same of a schema."""
    for name, value in schema["properties"].items():
        if "properties" in value:
            assert value["additionalProperties"] is False, name
            yield from list_properties(value, f"{above}{name}.")
        elif name != "global":
            yield f"{above}{name}"


def test_every_value_is_in_the_schema_and_in_a_template() -> None:
    """None that does nothing, none that nobody can set."""
    keys = set(list_keys(yaml.safe_load((CHART / "values.yaml").read_text())))
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert keys == set(list_properties(schema))
    texts = [path.read_text() for path in sorted((CHART / "templates").iterdir())]
    read = set(re.findall(r"\.Values\.([A-Za-z.]+)", " ".join(texts)))
    # Below `with .Values.collect` its keys are read by a name of their own.
    read |= {f"collect.{name}" for name in re.findall(r"\$collect\.([A-Za-z]+)", " ".join(texts))}
    assert read - {"collect"} == keys
    of_bookie = schema["properties"]["collect"]["properties"]["bookies"]["items"]["properties"]
    [collect] = [text for text in texts if "range .bookies" in text]
    assert all(re.search(rf"[ (]\.{name}\b|\$volume\.{name}\b", collect) for name in of_bookie)


def test_the_example_of_values_fits_the_schema() -> None:
    """The lines that are commented out are what somebody copies."""
    text = (CHART / "values.yaml").read_text()
    example = "\n".join(
        line.removeprefix("  # ") for line in text.splitlines() if line.startswith(("  # - ", "  #   "))
    )
    [bookie] = yaml.safe_load(example)
    items = json.loads((CHART / "values.schema.json").read_text())["properties"]["collect"]["properties"]["bookies"]
    assert set(items["items"]["required"]) <= set(bookie) <= set(items["items"]["properties"])
    for volume in bookie["volumes"]:
        assert volume.keys() == {"claim", "path"}
