"""What a library changes in the process that it is loaded into, put back: a service may live in the same process."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def keep_process_state() -> Iterator[None]:
    """Put the environment and the search path of modules back as they were, at the end."""
    environment = dict(os.environ)
    path = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = path
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        for name, value in environment.items():
            if os.environ.get(name) != value:
                os.environ[name] = value


@contextmanager
def defer_signals() -> Iterator[Callable[[], None]]:
    """Defer SIGINT and SIGTERM until the function that is given is called; a second signal is not deferred.

    A Java process that is left while PySpark waits for its first word never ends. The function also removes PySpark's
    own handler: that one calls Java, which may be what is being waited for.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    deferred: list[int] = []
    handlers = {number: signal.getsignal(number) or signal.SIG_DFL for number in (signal.SIGINT, signal.SIGTERM)}

    def defer(number: int, _frame: object) -> None:
        if deferred:
            release()
        deferred.append(number)

    def release() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        while deferred:
            signal.raise_signal(deferred.pop())

    for number in handlers:
        signal.signal(number, defer)
    try:
        yield release
    finally:
        release()
