"""Where the program begins: while it loads, Ctrl-C ends it without words, as it ends a program in C.

It ends here, too. What libraries in C++ do when a process ends may abort it, after all is done and said:
Arrow's threads do on a busy machine (https://github.com/apache/arrow/issues/34314). That part of the end is left out.
"""

import atexit
import gc
import os
import signal
import sys

from recovery.pandas_guard import keep_pandas_out

# Not in main(): the processes that collect starts load this module, and nothing else of it.
keep_pandas_out()
# Modules are some hundred thousand objects that stay: at Python's own threshold, to look for garbage among them takes a
# sixth of the time in which they load.
gc.set_threshold(50_000, 20, 50)


def main() -> None:
    """Load the program, then run it; it says itself what being stopped means."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    codes: list[int] = []
    # Registered first, so run last: whatever else wants to tidy up has done so.
    atexit.register(_leave, codes)
    from reconcile.cli.main import main as run

    try:
        run()
    except SystemExit as ended:
        if isinstance(ended.code, int):
            codes.append(ended.code)
        raise


def _leave(codes: list[int]) -> None:
    """End the process with the code that the program ended with; without one, or with unwritten output, do nothing."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return
    if codes:
        os._exit(codes[-1])


if __name__ == "__main__":
    main()
