"""Files with the places of bookies and the demands of a client: topology, Pulsar's rack information, configuration.

    source                        form
    topology file                 a line a bookie: ``id-or-host location``; ``#`` begins a comment
    Pulsar's node ``/bookies``    JSON: group → bookie id → {"rack": location, …}
    configuration                 Java properties of a client or a bookie, with the keys below

    key                                       default
    ensemblePlacementPolicy                   …RackawareEnsemblePlacementPolicy
    minNumRacksPerWriteQuorum                 2
    enforceMinNumRacksPerWriteQuorum          false
    reppRegionsToWrite                        none; ``;`` between regions
    reppMinimumRegionsForDurability           2
    reppEnableDurabilityEnforcementInReplace  true
    minNumZonesPerWriteQuorum                 2
    desiredNumZonesPerWriteQuorum             3
    enforceStrictZoneawarePlacement           true

Source: apache/bookkeeper 9590a97, conf/ClientConfiguration, client/RegionAwareEnsemblePlacementPolicy;
apache/pulsar, BookieRackAffinityMapping, BookiesRackConfiguration.
"""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reconcile.operator_files import read_operator_text
from reconcile.rules.segments.placement import PlacementPolicy, PlacementSettings
from recovery.codecs.store_kind import kind_of
from recovery.collect.disk.bookie_conf import read_values
from recovery.errors import FormatError, InputError, Reason

if TYPE_CHECKING:
    from backends.registry import OpenStore

_POLICIES: Final = {
    "RackawareEnsemblePlacementPolicy": PlacementPolicy.RACK_AWARE,
    "RegionAwareEnsemblePlacementPolicy": PlacementPolicy.REGION_AWARE,
    "ZoneawareEnsemblePlacementPolicy": PlacementPolicy.ZONE_AWARE,
    "DefaultEnsemblePlacementPolicy": PlacementPolicy.DEFAULT,
    # Pulsar's; it chooses groups of bookies, and within them as the one that it extends.
    "IsolatedBookieEnsemblePlacementPolicy": PlacementPolicy.RACK_AWARE,
}
_POLICY: Final = "ensemblePlacementPolicy"
_NUMBERS: Final = {
    "minNumRacksPerWriteQuorum": "min_racks",
    "reppMinimumRegionsForDurability": "min_regions",
    "minNumZonesPerWriteQuorum": "min_zones",
    "desiredNumZonesPerWriteQuorum": "desired_zones",
}
_SWITCHES: Final = {
    "enforceMinNumRacksPerWriteQuorum": "enforce_min_racks",
    "reppEnableDurabilityEnforcementInReplace": "enforce_regions_in_replace",
    "enforceStrictZoneawarePlacement": "enforce_zones",
}
_REGIONS: Final = "reppRegionsToWrite"
_TRUTHS: Final = {**dict.fromkeys(("true", "yes", "on", "y", "t"), True),
                  **dict.fromkeys(("false", "no", "off", "n", "f"), False)}  # fmt: skip
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_RACK_INFO: Final = "/bookies"
_FORM: Final = "give a line for each bookie: its id or host, a space, its location, as in: bk1:3181 /region/rack"


def read_topology(path: Path) -> dict[str, str]:
    """Return bookie id, or host, to location.

    Raises:
        InputError: the file cannot be read, or a line is not two words, names no location, or contradicts another.
    """
    text = read_operator_text(path, _FORM)
    topology: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"{path}, line {number}"
        if len(words) != 2:
            raise InputError(where, f"has {len(words)} words instead of two", _FORM)
        bookie, location = words
        if not location.startswith("/") or not location.strip("/"):
            raise InputError(where, f"{location} is not a location", _FORM)
        if topology.setdefault(bookie, location) != location:
            raise InputError(where, f"{bookie} is at {topology[bookie]}, too", "give each bookie one location")
    return topology


def decode_rack_info(raw: bytes) -> dict[str, str]:
    """Return bookie id to location, as Pulsar's rack information has it; bookies without a rack are left out.

    Raises:
        FormatError: it is not JSON of groups of bookies.
    """
    try:
        groups: Any = json.loads(raw or b"{}")
        racks = {
            str(bookie): (details.get("rack") or "").strip()
            for group in (groups or {}).values()
            for bookie, details in group.items()
        }
    except (ValueError, AttributeError) as error:
        raise FormatError(Reason.BAD_VALUE, "rack information", 0, "not JSON: group, bookie, rack") from error
    return {bookie: rack if rack.startswith("/") else f"/{rack}" for bookie, rack in racks.items() if rack.strip("/")}


def read_rack_info(opened: "OpenStore") -> dict[str, str]:
    """Return the places of bookies from Pulsar's node in the store; nothing without such a node.

    Raises:
        AccessDeniedError: we may not read it.
        FormatError: it is not of Pulsar's form.
        UnavailableError: the store does not answer.
    """
    if not kind_of(opened.layout_hint).has_pulsar:
        return {}
    node = opened.store.get(opened.root.rpartition("/")[0] + _RACK_INFO)
    return {} if node is None or not node.value else decode_rack_info(node.value)


def read_placement(path: Path) -> PlacementSettings:
    """Return the demands of a client, from its configuration file or a bookie's.

    Raises:
        InputError: the file cannot be read, or a value is none that BookKeeper takes.
    """
    remedy = "give the configuration file that clients or auto-recovery run with"
    named = read_values(path, [_POLICY, _REGIONS, *_NUMBERS, *_SWITCHES], remedy)
    given: dict[str, Any] = {}
    for key, values in named.items():
        if not values:
            continue
        value = values[-1].strip()
        if key == _POLICY:
            policy = _POLICIES.get(value.rpartition(".")[2])
            if policy is None:
                raise InputError(str(path), f"{key}: {value} is not known here", f"known are {', '.join(_POLICIES)}")
            given["policy"] = policy
        elif key == _REGIONS:
            given["regions_to_write"] = tuple(region for part in values for region in part.split(";") if region)
        elif key in _NUMBERS:
            if not _NUMBER.fullmatch(value):
                raise InputError(str(path), f"{key}: {value} is not a number", remedy)
            given[_NUMBERS[key]] = int(value)
        else:
            if value.lower() not in _TRUTHS:
                raise InputError(str(path), f"{key}: {value} is neither true nor false", remedy)
            given[_SWITCHES[key]] = _TRUTHS[value.lower()]
    settings = PlacementSettings(**given)
    if settings.policy is PlacementPolicy.ZONE_AWARE and settings.min_zones > settings.desired_zones:
        raise InputError(
            str(path), f"minNumZonesPerWriteQuorum {settings.min_zones} is above desiredNumZonesPerWriteQuorum", remedy
        )
    if settings.regions_to_write and len(settings.regions_to_write) < settings.min_regions:
        raise InputError(
            str(path), f"{_REGIONS} names fewer regions than reppMinimumRegionsForDurability {settings.min_regions}",
            remedy,
        )  # fmt: skip
    return settings
