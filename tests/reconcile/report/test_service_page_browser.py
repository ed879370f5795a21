"""The page of the service in a real browser: narrow and wide, light and dark; it fetches nothing."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from reconcile.service.api.page import make_page
from reconcile.service.config import read_config
from reconcile.service.runs import schedule
from reconcile.service.runs.folders import OUT, make_private
from reconcile.service.runs.history import RunPoint, add_point
from reconcile.service.runs.leader import Instance
from reconcile.service.runs.schedule import Gate, ServiceState
from tests.support.browser import answered, browse, list_obstacles
from tests.support.service import make_context, write_config, write_findings

__all__ = ["browse"]  # a fixture

pytestmark = pytest.mark.real

MEASURE: Final = """<script>
const root = document.documentElement;
const say = parent.document.body.dataset;
const light = (colour) => colour.match(/\\d+/g).slice(0, 3).map(Number).reduce((sum, one) => sum + one, 0) / 3;
say.width = innerWidth;
say.overflow = root.scrollWidth - root.clientWidth;
say.fetched = performance.getEntriesByType("resource").length;
say.bars = [...document.querySelectorAll("figure rect")].filter(bar => bar.getBoundingClientRect().width > 1).length;
say.tallest = Math.max(...[...document.querySelectorAll("th")].map(one => one.getBoundingClientRect().height));
const right = (cell) => cell.getBoundingClientRect().right;
say.beyond = [...document.querySelectorAll("td")].filter(cell => right(cell) > innerWidth + 1).length;
say.paper = light(getComputedStyle(document.body).backgroundColor);
say.ink = light(getComputedStyle(document.body).color);
</script>"""
SCHEMES: Final = {"dark": "--blink-settings=preferredColorScheme=0", "light": "--blink-settings=preferredColorScheme=1"}
SCRUTINIES: Final = 24


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a service that has run for a day, found something, and has a maintenance that waits."""
    folder = tmp_path_factory.mktemp("service")
    jobs = '[jobs.scrutinize]\nevery = "1h"\n[jobs.capture]\nevery = "1h"\n[jobs.drill]\nevery = "7d"\n'
    config = read_config(write_config(folder, "etcd://127.0.0.1:1/ledgers", "bkmeta-0", folder / "data", jobs))
    instance = Instance(config, make_context())
    now = instance.now_ms()
    state = schedule.take_over(ServiceState(), "bkmeta-0", "bkmeta-0.example.org:8481", now - 86_400_000)
    for name, code, verdict in (
        ("scrutinize", 3, "3 findings to act on: ENTRIES_MISSING 3"),
        ("capture", 0, "captured 13 ledgers"),
        ("drill", 1, "no inventory of bk3.example.org:3181 is younger than a day"),
    ):
        state = schedule.start(state, config.timings[name], now - 60_000)
        state = schedule.end(state, name, now - 30_000, code, verdict, f"{name}/first")
    state = state.with_job("capture", replace(state.job("capture"), missed=2, broken_off=1))
    gate = Gate("reboot-rack-7", ("bk1.example.org:3181", "bk2.example.org:3181"), (), "down", "ops", now)
    state = schedule.open_gate(state, gate)
    said = "2 segments would have no copy: UNSAFE"
    instance._take(schedule.take_check(state, gate.id, is_safe=False, verdict=said, now_ms=now))
    write_findings(config.data / "scrutinize/first" / OUT, [4, 8, 15])
    make_private(config.data / "scrutinize")
    for hour in range(SCRUTINIES):
        failing = None if hour == 5 else max(0, hour - 18) % 4
        add_point(
            config.data / "scrutinize", RunPoint(f"2026-01-02T{hour:02}:00:00+00:00", 0, "said", 1, failing, 99.5)
        )
    path = folder / "page.html"
    path.write_text(make_page(instance), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_fits_and_has_the_colours_that_are_wanted(
    page: Path, browse: Callable[..., str], width: int, scheme: str
) -> None:
    """No sideways scrolling, a bar for each scrutiny, nothing fetched, ink that stands out from paper."""
    found = answered(page, MEASURE, browse, width, SCHEMES[scheme])
    assert found["width"] == str(width)
    assert found["overflow"] == "0"
    assert found["beyond"] == "0", "what to do is not out of sight"
    assert found["fetched"] == "0"
    assert found["bars"] == str(SCRUTINIES)
    assert float(found["tallest"]) < 3.5 * 1.55 * 16, "no letter stands under a letter"
    paper, ink = float(found["paper"]), float(found["ink"])
    assert (paper < ink) == (scheme == "dark")
    assert abs(paper - ink) > 150


def test_the_page_says_what_is_wrong(page: Path) -> None:
    """Findings with what to do, a maintenance with why it waits, runs that failed or were missed."""
    text = page.read_text(encoding="utf-8")
    for said in (
        "3 findings to act on",
        "ENTRIES_",
        "reboot-rack-7",
        "2 segments would have no copy",
        "no inventory of",
    ):
        assert said in text


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_nothing_keeps_anyone_from_reading_the_page(page: Path, browse: Callable[..., str], scheme: str) -> None:
    """By a keyboard, a screen reader, or with another sense of colours."""
    assert not list_obstacles(page, browse, SCHEMES[scheme])
