"""Report pages in a real browser: they fit narrow screens and paper, name what they draw, and fetch nothing."""

import itertools
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command import process
from tests.golden.cases import case_dir

pytestmark = [pytest.mark.real, pytest.mark.spark]

MEASURE = """<script>
const root = document.documentElement;
document.body.dataset.overflow = root.scrollWidth - root.clientWidth;
document.body.dataset.fetched = performance.getEntriesByType("resource").length;
document.body.dataset.unnamed = [...document.querySelectorAll("svg")].filter(s => !s.getAttribute("aria-label")).length;
document.body.dataset.headings = [...document.querySelectorAll("h1, h2, h3")].map(h => h.tagName[1]).join("");
</script></body>"""


@pytest.fixture(scope="module")
def browse(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Run headless Chromium on a page with more options; give back what it prints."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "no Chromium: scripts/test installs it, or: apt-get install chromium"

    def run(page: Path, *options: str) -> str:
        quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
        quiet += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
        profile = f"--user-data-dir={tmp_path_factory.mktemp('profile')}"
        line = [program, *quiet, profile, *options, page.as_uri()]
        return subprocess.run(line, capture_output=True, text=True, timeout=120, check=True).stdout

    return run


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The pages of one inventory and of a plan with restored and with held ledgers."""
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


def measured(page: Path, browse: Callable[..., str], width: int) -> dict[str, str]:
    """Lay a page out in a window so wide, everything unfolded, and measure it."""
    copy = page.with_name("measured.html")
    text = page.read_text(encoding="utf-8").replace("<details>", "<details open>")
    copy.write_text(text.replace("</body>", MEASURE), encoding="utf-8")
    dom = browse(copy, f"--window-size={width},900", "--dump-dom")
    (body,) = re.findall(r"<body([^>]*)>", dom)
    return dict(re.findall(r'data-(\w+)="([^"]*)"', body))


@pytest.mark.parametrize("width", [500, 1400])
def test_a_page_fits_its_window_and_names_what_it_draws(
    pages: list[Path], browse: Callable[..., str], width: int
) -> None:
    """No sideways scrolling, nothing fetched, each drawing named, headings without a gap in their levels."""
    for page in pages:
        found = measured(page, browse, width)
        assert found["overflow"] == "0", page
        assert found["fetched"] == "0"
        assert found["unnamed"] == "0"
        levels = [1, *map(int, found["headings"])]
        assert all(deeper - level <= 1 for level, deeper in itertools.pairwise(levels))


def test_a_page_prints(pages: list[Path], browse: Callable[..., str], tmp_path: Path) -> None:
    """On paper it is a document of its own: Chromium makes a PDF of it."""
    for number, page in enumerate(pages):
        paper = tmp_path / f"{number}.pdf"
        browse(page, f"--print-to-pdf={paper}", "--no-pdf-header-footer")
        assert paper.read_bytes().startswith(b"%PDF")
