"""Report pages in a real browser: they fit narrow screens and paper, name what they draw, and fetch nothing."""

import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from reconcile.check.impact.names import DomainLevel, Impact
from reconcile.report.impact_page import impact_page
from tests.support.browser import answered, browse, list_obstacles
from tests.support.cases import case_dir, truth
from tests.support.cluster import bookies_of
from tests.support.command import process
from tests.support.impact_judge import Ledger
from tests.support.impact_question import ask
from tests.support.impacts import write_catalog
from tests.support.scrutinized_disks import CASE, scrutinize_disks

__all__ = ["browse"]  # a fixture

pytestmark = [pytest.mark.real, pytest.mark.spark]

MEASURE: Final = """<script>
const root = document.documentElement;
const say = parent.document.body.dataset;
say.width = innerWidth;
say.overflow = root.scrollWidth - root.clientWidth;
say.fetched = performance.getEntriesByType("resource").length;
say.unnamed = [...document.querySelectorAll("svg")].filter(s => !s.getAttribute("aria-label")).length;
say.headings = [...document.querySelectorAll("h1, h2, h3")].map(h => h.tagName[1]).join("");
</script>"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The pages of one inventory and of a plan with restored and with guarded ledgers."""
    work = tmp_path_factory.mktemp("pages")
    bookies = case_dir("c05-unclosed") / "bookies"
    inventories = []
    for disks in sorted(bookies.iterdir()):
        out = work / disks.name
        folders = [f"--{'journal' if 'journal' in d.name else 'ledger'}-dir={d}" for d in sorted(disks.iterdir())]
        assert process("collect", *folders, "--out", out).code == 0
        inventories.append(f"--inventory={out}")
    recovered = process("recover", *inventories, "--layout", "hierarchical", "--out", work / "plan")
    assert recovered.code == 3, recovered.err
    return [work / "b0" / "report.html", work / "plan" / "report.html"]


@pytest.mark.parametrize("width", [390, 1400])
def test_a_page_fits_its_window_and_names_what_it_draws(
    pages: list[Path], browse: Callable[..., str], width: int
) -> None:
    """No sideways scrolling, nothing fetched, each drawing named, headings without a gap in their levels."""
    for page in pages:
        found = answered(page, MEASURE, browse, width)
        assert found["width"] == str(width)
        assert found["overflow"] == "0", page
        assert found["fetched"] == "0"
        assert found["unnamed"] == "0"
        levels = [1, *map(int, found["headings"])]
        assert all(deeper - level <= 1 for level, deeper in itertools.pairwise(levels))


@pytest.mark.parametrize("scheme", [0, 1], ids=["dark", "light"])
def test_nothing_keeps_anyone_from_reading_a_page(pages: list[Path], browse: Callable[..., str], scheme: int) -> None:
    """By a keyboard, a screen reader, or with another sense of colours."""
    for page in pages:
        assert not list_obstacles(page, browse, f"--blink-settings=preferredColorScheme={scheme}"), page


WORDS: Final = """<script>
const say = parent.document.body.dataset;
const sizes = [...document.querySelectorAll(".matrix thead th")].map(cell => cell.getBoundingClientRect());
say.cells = sizes.length;
say.tallest = Math.max(...sizes.map(size => size.height));
say.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
</script>"""


@pytest.mark.parametrize("width", [390, 1400])
def test_names_of_impacts_are_cut_between_words_only(tmp_path: Path, browse: Callable[..., str], width: int) -> None:
    """A matrix too wide for its window scrolls in its own box; no heading stands letter under letter."""
    racks = {f"bk{number}:3181": f"/region/rack{number}" for number in range(3)}
    ledgers = [Ledger(1, (2, 2, 2), "CLOSED", 9, ((0, tuple(racks)[:2]),))]
    answer = ask(write_catalog(tmp_path / "catalog", racks, ledgers), drill=DomainLevel.RACK, topology=racks)
    page = tmp_path / "impact.html"
    page.write_text(impact_page(answer, summary="UNSAFE", target="down", made=datetime(2026, 1, 2, tzinfo=UTC)))
    found = answered(page, WORDS, browse, width)
    assert int(found["cells"]) >= len(Impact)
    assert float(found["tallest"]) < 5 * 1.55 * 16  # lines of a name of four words, and one more
    assert found["overflow"] == "0"


CLICK: Final = """<script>
const say = document.body.dataset;
const said = [];
const seen = (name) => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const box = target.getBoundingClientRect();
  said.push([name, location.hash, box.height > 0 && box.top < innerHeight && box.bottom > 0, target.innerText]);
  return target;
};
const click = async (link) => { link.click(); await new Promise(done => setTimeout(done, 50)); };
(async () => {
  const share = [...document.querySelectorAll(".stack a.guarded")][0];
  await click(share); seen("share");
  const reason = document.querySelector("#reasons").closest("section").querySelector("th a");
  await click(reason); const heading = seen("reason");
  const ledger = heading.nextElementSibling.querySelector("a");
  await click(ledger); const grid = seen("ledger");
  said.push(["grid", "", [...grid.querySelectorAll("svg rect")].some(r => r.getBoundingClientRect().width > 0), ""]);
  say.clicked = JSON.stringify(said);
})();
</script>"""


@pytest.mark.parametrize("width", [500, 1400])
def test_a_click_leads_from_a_share_to_reasons_to_ledgers_to_grids(
    pages: list[Path], browse: Callable[..., str], width: int
) -> None:
    """Each is one click away, and in sight after it."""
    _, plan = pages
    steps = json.loads(answered(plan, CLICK, browse, width)["clicked"])
    assert [step[0] for step in steps] == ["share", "reason", "ledger", "grid"]
    assert all(in_sight for _, _, in_sight, _ in steps)
    assert steps[1][1].startswith("#list-guarded-")
    assert steps[2][3].startswith(f"ledger {steps[2][1].removeprefix('#ledger-')}")


COLOURS: Final = """<script>{
const light = (text) => {
  const [r, g, b] = text.match(/[0-9.]+/g).slice(0, 3).map(part => {
    const one = part / 255;
    return one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const say = parent.document.body.dataset;
const paper = light(getComputedStyle(document.body).backgroundColor);
const ratio = (element) => {
  const ink = light(getComputedStyle(element).color);
  return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
};
say.paper = paper;
say.contrast = Math.min(...[...document.querySelectorAll("p, li, th, td, a, summary, .soft, .notback")].map(ratio));
}</script>"""


@pytest.fixture(scope="module")
def scrutinies(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The page of a scrutiny with findings, and that of a bookie of which others lack entries."""
    work = tmp_path_factory.mktemp("scrutinies")
    out, bookie = scrutinize_disks(work)[-1], bookies_of(truth(CASE))[1]
    store = ["--metadata", f"catalog://{out / 'store'}", "--inventory", work / "inventories" / str(bookie.n)]
    assert process("explain", "--bookie", bookie.id, *store, "--out", work / "bookie").code == 3
    return [out / "report.html", work / "bookie" / "report.html"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_a_scrutiny_fits_its_window_and_is_read_by_day_and_by_night(
    scrutinies: list[Path], browse: Callable[..., str], width: int, scheme: str
) -> None:
    """No sideways scrolling, each drawing named; text stands out from its paper, which is dark where that is wanted."""
    wanted = f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"

    def look(page: Path, *options: str) -> str:
        return browse(page, wanted, *options)

    for page in scrutinies:
        found = answered(page, MEASURE + COLOURS, look, width)
        assert (found["overflow"], found["fetched"], found["unnamed"]) == ("0", "0", "0")
        assert float(found["contrast"]) >= 4.5
        assert (float(found["paper"]) < 0.2) == (scheme == "dark")


def test_a_page_prints(pages: list[Path], browse: Callable[..., str], tmp_path: Path) -> None:
    """On paper it is a document of its own: Chromium makes a PDF of it."""
    for number, page in enumerate(pages):
        paper = tmp_path / f"{number}.pdf"
        browse(page, f"--print-to-pdf={paper}", "--no-pdf-header-footer")
        assert paper.read_bytes().startswith(b"%PDF")
