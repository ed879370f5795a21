"""A real browser, headless: what a page looks like at a width, and what a script says of it there."""

import html
import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

NARROWEST_WINDOW: Final = 500
_ASK_AXE: Final = """<script>
axe.run(document, {resultTypes: ["violations"]}).then(said => {
  const grave = said.violations.filter(one => one.impact === "serious" || one.impact === "critical");
  const say = document.body.dataset;
  say.obstacles = JSON.stringify(grave.map(one => `${one.id}: ${one.nodes[0].html} (${one.nodes[0].failureSummary})`));
  say.passes = said.passes.length;
});
</script>"""


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


def answered(page: Path, script: str, browse: Callable[..., str], width: int, *options: str) -> dict[str, str]:
    """Lay a page out so wide, everything unfolded, and return what a script says of it there.

    A window of Chromium is no narrower than 500; a frame is, but links do not work in it. The page itself lets no
    script run: that is taken out here.
    """
    text = page.read_text(encoding="utf-8").replace("<details>", "<details open>")
    text, count = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    assert count == 1
    text = text.replace("</body>", f"{script}</body>")
    if width < NARROWEST_WINDOW:
        style = f"border: 0; width: {width}px; height: 900px"
        text = f'<!doctype html><body><iframe style="{style}" srcdoc="{html.escape(text)}"></iframe></body>'
    copy = page.with_name("looked-at.html")
    copy.write_text(text, encoding="utf-8")
    size = f"--window-size={max(width, NARROWEST_WINDOW)},900"
    body = re.search(r"<body([^>]*)>", browse(copy, size, "--virtual-time-budget=5000", "--dump-dom", *options))
    assert body is not None
    return {name: html.unescape(value) for name, value in re.findall(r'data-(\w+)="([^"]*)"', body[1])}


def list_obstacles(page: Path, browse: Callable[..., str], *options: str) -> list[str]:
    """Return what axe calls serious or critical for who uses a keyboard, a screen reader or other colours.

    Args:
        page: to look at; all of it is unfolded.
        browse: the browser.
        options: more of the browser's.
    """
    package = importlib.util.find_spec("axe_playwright_python")
    assert package is not None
    assert package.origin is not None
    axe = Path(package.origin).with_name("axe.min.js").read_text(encoding="utf-8")
    found = answered(page, f"<script>{axe}</script>{_ASK_AXE}", browse, 1400, *options)
    assert int(found["passes"]) > 0, "axe looked at nothing"
    obstacles: list[str] = json.loads(found["obstacles"])
    return obstacles
