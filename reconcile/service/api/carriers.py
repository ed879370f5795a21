"""The shared parts of gRPC and HTTP: one event loop, which never waits, and the threads that answer.

A connection or a call that sends nothing holds no thread. Callers without a token have a few threads of their own, so
they never keep callers with a token from an answer.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from reconcile.service.api.answers import Api
from reconcile.service.api.methods import ApiError, Method, Why

T = TypeVar("T")
_THREADS: Final = 16
_MOST_CALLS: Final = 64
"""Calls with a token that are answered or wait for a thread."""
_ANONYMOUS_THREADS: Final = 4
_TOGETHER: Final = 200
"""Messages of a stream that are made together."""


class EventLoop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="carriers", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop):
            self._loop.run_forever()

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, and return its result."""
        return self.begin(coroutine).result()

    def stop(self) -> None:
        """End the loop; its running tasks are cancelled."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class _Share:
    """Threads for one kind of caller.

    Args:
        name: of the threads.
        threads: their number.
        most: calls that run or wait at a time; more are refused.
    """

    def __init__(self, name: str, threads: int, most: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._places = threading.BoundedSemaphore(most)
        self._most = most

    async def run(self, function: Callable[[], T]) -> T:
        """Run a function in a thread.

        Raises:
            ApiError: too many calls are under way.
        """
        if not self._places.acquire(blocking=False):
            raise ApiError(Why.TOO_MANY, f"{self._most} calls are under way: ask again")
        running = self._executor.submit(function)
        running.add_done_callback(lambda _: self._places.release())
        return await asyncio.wrap_future(running)

    def submit(self, function: Callable[[], T]) -> "Future[T]":
        """Run the next piece of a call that was admitted."""
        return self._executor.submit(function)

    def stop(self) -> None:
        """Take no more calls."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class AnswerPool:
    """Threads that answer requests of carriers.

    Args:
        api: it answers.
    """

    def __init__(self, api: Api) -> None:
        self.api = api
        self._known = _Share("known", _THREADS, _MOST_CALLS)
        self._anonymous = _Share("anonymous", _ANONYMOUS_THREADS, _ANONYMOUS_THREADS)

    def stop(self) -> None:
        """Take no more calls."""
        self._known.stop()
        self._anonymous.stop()

    def _choose(self, by: str) -> _Share:
        return self._known if by else self._anonymous

    async def run(self, by: str, function: Callable[[], T]) -> T:
        """Run a function in a thread of the caller's share.

        Args:
            by: name of the caller's token; empty: no token.
            function: the function to run.

        Raises:
            ApiError: too many calls are under way.
        """
        return await self._choose(by).run(function)

    async def answer(
        self, method: Method, request: Message, by: str, *, given_s: float | None, given_up: threading.Event
    ) -> Any:  # noqa: ANN401 - a message of the method's type, or an iterator of them
        """Return the result of `Api.answer`.

        Raises:
            ApiError: the call is refused.
        """
        call = partial(self.api.answer, method, request, by, given_s=given_s, given_up=given_up)
        return await self.run(by, call)

    async def list_batches(self, answers: Iterator[T], by: str) -> AsyncIterator[list[T]]:
        """Yield the messages of a stream, some at a time; between two batches the stream holds no thread.

        Raises:
            ApiError: the stream broke off.
            RecoveryError: damaged input.
        """
        share = self._choose(by)
        running: Future[list[T]] | None = None
        try:
            while True:
                running = share.submit(lambda: list(islice(answers, _TOGETHER)))
                batch = await asyncio.wrap_future(running)
                if not batch:
                    return
                yield batch
        finally:
            close = getattr(answers, "close", None)
            if close is not None and running is not None:
                # A generator is closed where nothing runs it: after the piece that is under way.
                running.add_done_callback(lambda _: close())
