"""`conf/prometheus-rules.yml`: Prometheus' own tool says which alerts fire on which figures."""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.support.paths import ROOT

RULES: Final = ROOT / "conf" / "prometheus-rules.yml"
PROMTOOL: Final = shutil.which("promtool") or str(ROOT / ".cache" / "bin" / "promtool")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path(PROMTOOL).exists(), reason="scripts/test fetches promtool where apt-get can"),
]

HOURS: Final = 52
"""Two days and more: until alerts have fired that wait for a day, or for a verdict of yesterday."""
SOON: Final = 8
"""Hours until all others have fired."""
STEPS: Final = HOURS * 15
SERVICE: Final = "bookkeeper_metadata_service_"
SCRUTINY: Final = "bookkeeper_metadata_scrutiny_"
BACKUP: Final = "bookkeeper_metadata_backup_"
LATER: Final = f"{60 * 10**6}x{STEPS}"
"""Always due, and looked at, in a time to come."""
HEALTHY: Final = {
    f'{SERVICE}leads{{instance="one"}}': f"1x{STEPS}",
    f'{SERVICE}leads{{instance="two"}}': f"0x{STEPS}",
    f'{SERVICE}store_seen_seconds_ago{{instance="one"}}': f"2x{STEPS}",
    f'{SERVICE}failures{{instance="one",command="capture"}}': f"0x{STEPS}",
    f'{SERVICE}missed_total{{instance="one",command="capture"}}': f"7x{STEPS}",
    f'{SERVICE}due_seconds{{instance="one",command="capture"}}': LATER,
    f'{SERVICE}verdict_seconds{{instance="one",command="scrutinize"}}': LATER,
    f'{SERVICE}maintenances{{instance="one",state="RELEASED"}}': f"0x{STEPS}",
    f'{SCRUTINY}failing{{instance="one"}}': f"0x{STEPS}",
    f'{SCRUTINY}adds_up{{instance="one"}}': f"1x{STEPS}",
    f'{SCRUTINY}copies{{instance="one",state="asked"}}': f"100x{STEPS}",
    f'{SCRUTINY}copies{{instance="one",state="judged"}}': f"99x{STEPS}",
    f'{SCRUTINY}bookies{{instance="one",state="silent"}}': f"0x{STEPS}",
    f'{BACKUP}readable{{instance="one"}}': f"1x{STEPS}",
    f'{BACKUP}rpo_seconds{{instance="one"}}': f"4x{STEPS}",
    f'{BACKUP}gaps{{instance="one"}}': f"1x{STEPS}",
}
"""Figures each four minutes, for two days and more, of a cluster that nobody need look at."""
BAD: Final[Mapping[str, Mapping[str, str]]] = {
    "BkmetaNobodyLeads": {f'{SERVICE}leads{{instance="one"}}': f"0x{STEPS}"},
    "BkmetaTwoLead": {f'{SERVICE}leads{{instance="two"}}': f"1x{STEPS}"},
    "BkmetaStoreNotSeen": {f'{SERVICE}store_seen_seconds_ago{{instance="one"}}': f"0+240x{STEPS}"},
    "BkmetaFindings": {f'{SCRUTINY}failing{{instance="one"}}': f"3x{STEPS}"},
    "BkmetaScrutinyInvalid": {f'{SCRUTINY}adds_up{{instance="one"}}': f"0x{STEPS}"},
    "BkmetaCopiesNotJudged": {f'{SCRUTINY}copies{{instance="one",state="judged"}}': f"50x{STEPS}"},
    "BkmetaBookiesSilent": {f'{SCRUTINY}bookies{{instance="one",state="silent"}}': f"1x{STEPS}"},
    "BkmetaRunsFail": {f'{SERVICE}failures{{instance="one",command="capture"}}': f"3x{STEPS}"},
    "BkmetaRunOverdue": {f'{SERVICE}due_seconds{{instance="one",command="capture"}}': f"0x{STEPS}"},
    "BkmetaRunsMissed": {f'{SERVICE}missed_total{{instance="one",command="capture"}}': f"0+1x{STEPS}"},
    "BkmetaVerdictOld": {f'{SERVICE}verdict_seconds{{instance="one",command="scrutinize"}}': f"0x{STEPS}"},
    "BkmetaBackupBehind": {f'{BACKUP}rpo_seconds{{instance="one"}}': f"600x{STEPS}"},
    "BkmetaBackupUnreadable": {f'{BACKUP}readable{{instance="one"}}': f"0x{STEPS}"},
    "BkmetaBackupGap": {f'{BACKUP}gaps{{instance="one"}}': f"0+1x{STEPS}"},
    "BkmetaMaintenanceReleased": {f'{SERVICE}maintenances{{instance="one",state="RELEASED"}}': f"1x{STEPS}"},
}


LATE: Final = frozenset({"BkmetaMaintenanceReleased", "BkmetaVerdictOld"})
"""Alerts that are looked for after all hours."""


def list_firing(folder: Path, series: Mapping[str, str], *, hours: int = HOURS) -> set[str]:
    """Return the alerts that fire after so many hours: those that promtool found where none were said to be."""
    names = re.findall(r"(?m)- alert: (\S+)$", RULES.read_text(encoding="utf-8"))
    given = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "4m",
        "tests": [
            {
                "interval": "4m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "alert_rule_test": [{"eval_time": f"{hours}h", "alertname": name, "exp_alerts": []} for name in names],
            }
        ],
    }
    path = folder / "alerts.yml"
    path.write_text(json.dumps(given))
    done = subprocess.run([PROMTOOL, "test", "rules", path], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    firing = set(re.findall(r"alertname: (\S+?),", said))
    assert (done.returncode == 0) == (firing == set()), said
    return firing


def test_every_alert_has_figures_that_it_fires_on() -> None:
    """Here; promtool takes the file."""
    done = subprocess.run([PROMTOOL, "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(re.findall(r"(?m)- alert: (\S+)$", RULES.read_text(encoding="utf-8"))) == set(BAD)


def test_a_healthy_cluster_gives_no_alert(tmp_path: Path) -> None:
    """Whose runs are missed now and then, long ago."""
    assert list_firing(tmp_path, HEALTHY) == set()


@pytest.mark.parametrize("name", sorted(BAD))
def test_an_alert_fires_on_what_it_is_for(name: str, tmp_path: Path) -> None:
    """And no other one does."""
    assert list_firing(tmp_path, {**HEALTHY, **BAD[name]}, hours=HOURS if name in LATE else SOON) == {name}


def test_nobody_there_is_an_alert_too(tmp_path: Path) -> None:
    """No figures at all: no instance is there."""
    assert list_firing(tmp_path, {}, hours=SOON) == {"BkmetaNobodyLeads"}
