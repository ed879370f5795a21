"""Where the checkout is, and the files that tests read."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DATA: Final = ROOT / "tests" / "data"
"""Files of real servers, each folder with its provenance."""
SUPPORT: Final = ROOT / "tests" / "support"
