"""The program that bookies' hosts get as one file: what needs no Spark (`COMMANDS` of collect.spec)."""

import multiprocessing
import sys

from backends.rocks_trial import TRIAL
from reconcile.cli.__main__ import main

if __name__ == "__main__":
    multiprocessing.freeze_support()
    if sys.argv[1:2] == [TRIAL]:
        from backends.rocks_trial import main as try_opening

        del sys.argv[1]
        try_opening()
    main()
