"""The program, that uses Spark for the smallest of stores where the environment has SPARK_ALWAYS."""

import os

from reconcile.cli.main import main
from reconcile.jobs.scrutiny import scrutinize

if __name__ == "__main__":
    if os.environ.get("SPARK_ALWAYS"):
        scrutinize.WITHOUT_SPARK = -1  # type: ignore[misc]
    main()
