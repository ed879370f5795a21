"""The program, that uses Spark for the smallest of stores where $BKMETA_FAKE has a file `spark`, as service.py says."""

import os
from pathlib import Path

from reconcile.cli.main import main
from reconcile.jobs.scrutiny import scrutinize

if __name__ == "__main__":
    if (Path(os.environ.get("BKMETA_FAKE", "/nowhere")) / "spark").exists():
        scrutinize.WITHOUT_SPARK = -1  # type: ignore[misc]  # a constant of the program, for this process
    main()
