"""
Requests to one of a registry's URLs, with fail-over, retried until a deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pykafka.registry.errors import RegistryUnavailableError
from pyspark_pykafka.registry.http import MIN_SECONDS, HttpClient
from pyspark_pykafka.retry import Backoff, Deadline, retry_until, without_wait_log

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from pyspark_pykafka.options import RegistryOptions
    from pyspark_pykafka.registry.http import Request, Response

_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 2.0


class RegistryTransport:
    """
    Sends each request to one URL after the other until a response is accepted.

    The first URL is the one whose response was accepted last. Threads may share an instance.
    """

    def __init__(
        self,
        options: RegistryOptions,
        new_deadline: Callable[[float], Deadline] = Deadline.after,
    ) -> None:
        self._options = options
        self._client = HttpClient(options)
        self._new_deadline = new_deadline
        self._preferred = 0

    def all_urls_match(self, pattern: re.Pattern[str]) -> bool:
        """
        Return whether every URL of the options contains a match of a pattern.
        """
        return all(map(pattern.search, self._options.urls))

    def send(
        self,
        request: Request,
        is_accepted: Callable[[Response], bool] = lambda _: True,
        rebase: Callable[[str], str] = str,
    ) -> Response:
        """
        Return the registry's response, which may have an error status such as 404.

        A response that ``is_accepted`` rejects is returned only if all URLs respond and all of
        their responses are rejected. ``rebase`` maps a URL of the options to the URL of another API
        of the same registry.

        Raises :class:`RegistryUnavailableError` if no response can be returned before the deadline,
        and :class:`AuthenticationError`, :class:`AuthorizationError` or :class:`TlsError` at once.
        """
        deadline = self._new_deadline(self._options.timeout_ms / 1000)
        backoff = Backoff(_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
        last: RegistryUnavailableError | None = None

        def attempt() -> Response:
            nonlocal last
            if last is not None and deadline.remaining() < MIN_SECONDS:
                # Too little time is left for a request: the last failure says more than a timeout.
                deadline.pause(MIN_SECONDS)
                raise last
            try:
                with without_wait_log():
                    return self._send_to_any_url(request, is_accepted, rebase, deadline)
            except RegistryUnavailableError as failure:
                last = failure
                raise

        return retry_until(attempt, deadline, backoff)

    def _send_to_any_url(
        self,
        request: Request,
        is_accepted: Callable[[Response], bool],
        rebase: Callable[[str], str],
        deadline: Deadline,
    ) -> Response:
        second_best: Response | None = None
        failures: list[str] = []
        count = len(self._options.urls)
        first = self._preferred
        for index in range(first, first + count):
            url = self._options.urls[index % count]
            try:
                response = self._client.exchange(rebase(url), request, deadline)
            except RegistryUnavailableError as failure:
                failures.append(str(failure))
                continue
            if is_accepted(response):
                self._preferred = index % count
                return response
            second_best = second_best or response
        if second_best is not None and not failures:
            return second_best
        raise RegistryUnavailableError(_unavailable(failures, second_best))


def _unavailable(failures: list[str], second_best: Response | None) -> str:
    """
    Return the error text for URLs that did not respond; ``second_best`` is the rejected response of
    another URL, if there is one.
    """
    advice = (
        "Check schema.registry.url, and that the registry runs and can be reached from the driver "
        "and the executors"
    )
    if second_best is None:
        return f"no schema registry responds: {'; '.join(failures)}. {advice}"
    return (
        "not every URL of the schema registry responds, and those that do lack what was requested "
        f"({second_best.message}): {'; '.join(failures)}. {advice}"
    )
