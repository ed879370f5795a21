"""The program, that uses Spark for the smallest of stores where $BKMETA_FAKE has a file `spark`, as service.py says."""

import os
from pathlib import Path

from reconcile import estimates
from reconcile.cli.main import main

if __name__ == "__main__":
    if (Path(os.environ.get("BKMETA_FAKE", "/nowhere")) / "spark").exists():
        estimates.HERE_S = -1  # type: ignore[misc]  # a constant of the program, for this process
    main()
