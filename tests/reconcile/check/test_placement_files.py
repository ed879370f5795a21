"""Where bookies stand and what clients demand, from the files that say it: each wrong line is named."""

import json
from pathlib import Path

import pytest

from reconcile.check.placement_files import decode_rack_info, read_placement, read_topology
from reconcile.rules.segments.placement import PlacementPolicy, PlacementSettings
from recovery.errors import FormatError, InputError


def test_a_topology_names_bookies_or_hosts(tmp_path: Path) -> None:
    """Comments and empty lines are passed over; a line may stand twice."""
    file = tmp_path / "topology"
    file.write_text("# racks\n\nbk1:3181 /a/r1\nhost2\t/a/r2  # left\nhost2 /a/r2\n")
    assert read_topology(file) == {"bk1:3181": "/a/r1", "host2": "/a/r2"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("bk1 /a\nbk2\n", "line 2: has 1 words"),
        ("bk1 /a /b\n", "line 1: has 3 words"),
        ("bk1 rack\n", "rack is not a location"),
        ("bk1 /\n", "/ is not a location"),
        ("bk1 /a\nbk1 /b\n", "bk1 is at /a, too"),
    ],
)
def test_a_wrong_line_of_a_topology_is_named(tmp_path: Path, text: str, says: str) -> None:
    """With the file and the line's number."""
    file = tmp_path / "topology"
    file.write_text(text)
    with pytest.raises(InputError, match=says) as raised:
        read_topology(file)
    assert str(file) in str(raised.value)


def test_a_topology_that_is_no_text_is_named(tmp_path: Path) -> None:
    """A file of bytes, and one that is not there."""
    (tmp_path / "bytes").write_bytes(b"bk1 /a\xff")
    for name, says in (("bytes", "no UTF-8 at byte 6"), ("none", "cannot be read")):
        with pytest.raises(InputError, match=says):
            read_topology(tmp_path / name)


def test_pulsar_s_racks_are_read(tmp_path: Path) -> None:
    """Groups are passed over; a rack without its slash has one for Pulsar; without a rack a bookie has no location."""
    groups = {
        "default": {"bk1:3181": {"rack": "/east/r1", "hostname": "bk1"}, "bk2:3181": {"rack": "r2"}},
        "group2": {"bk3:3181": {"rack": ""}, "bk4:3181": {"rack": "/"}, "bk5:3181": {"hostname": "bk5"}},
    }
    assert decode_rack_info(json.dumps(groups).encode()) == {"bk1:3181": "/east/r1", "bk2:3181": "/r2"}
    assert decode_rack_info(b"") == {}
    for raw in (b"[1]", b"{", b'{"default": 3}', b'{"default": {"bk1": 3}}', b'{"default": {"bk1": {"rack": 3}}}'):
        with pytest.raises(FormatError):
            decode_rack_info(raw)


def test_settings_are_read_by_bookkeeper_s_keys(tmp_path: Path) -> None:
    """All of them; of a key that stands twice the last value counts, as variables do."""
    file = tmp_path / "bk_server.conf"
    file.write_text(
        "ensemblePlacementPolicy=org.apache.bookkeeper.client.RegionAwareEnsemblePlacementPolicy\n"
        "minNumRacksPerWriteQuorum=3\nenforceMinNumRacksPerWriteQuorum=TRUE\nreppRegionsToWrite=east;west;north\n"
        "least=3\nreppMinimumRegionsForDurability=${least}\nreppEnableDurabilityEnforcementInReplace=false\n"
        "minNumZonesPerWriteQuorum=1\ndesiredNumZonesPerWriteQuorum=5\nenforceStrictZoneawarePlacement=no\n"
    )
    assert read_placement(file) == PlacementSettings(
        PlacementPolicy.REGION_AWARE, 3, True, ("east", "west", "north"), 3, False, 1, 5, False
    )


def test_an_empty_configuration_is_bookkeeper_s_defaults(tmp_path: Path) -> None:
    """Rack-aware, two racks, nothing enforced."""
    file = tmp_path / "bk_client.conf"
    file.write_text("")
    assert read_placement(file) == PlacementSettings(PlacementPolicy.RACK_AWARE, 2, False, (), 2, True, 2, 3, True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ensemblePlacementPolicy=com.example.Mine\n", "com.example.Mine is not known"),
        ("minNumRacksPerWriteQuorum=two\n", "two is not a number"),
        ("enforceMinNumRacksPerWriteQuorum=perhaps\n", "neither true nor false"),
        ("ensemblePlacementPolicy=a.ZoneawareEnsemblePlacementPolicy\nminNumZonesPerWriteQuorum=4\n", "above desired"),
        ("reppRegionsToWrite=east\n", "fewer regions"),
    ],
)
def test_a_value_that_bookkeeper_would_not_take_is_named(tmp_path: Path, text: str, says: str) -> None:
    """With the file."""
    file = tmp_path / "bk_client.conf"
    file.write_text(text)
    with pytest.raises(InputError, match=says) as raised:
        read_placement(file)
    assert str(file) in str(raised.value)
