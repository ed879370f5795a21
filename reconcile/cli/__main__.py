"""The door of the program: while it loads, Ctrl-C ends it without words, as it ends a program in C."""

import signal

from recovery.pandas_guard import keep_pandas_out

# Not in main(): the processes that collect starts load this module, and nothing else of it.
keep_pandas_out()


def main() -> None:
    """Load the program, then run it; it says itself what being stopped means."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from reconcile.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
