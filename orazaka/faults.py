"""The ways in which an HTTP exchange of ours fails, in types and in words for anyone's eyes.

aiohttp's own messages won't do: they hold the address that was dialled, and some reprs the
request's headers.
"""

import os

import aiohttp

from orazaka.urlsafety import UnsafeURL


class Blocked(OSError):
    """Raised inside a connect that the guard refuses; `unsafe` is the answer for the caller."""

    def __init__(self, unsafe: UnsafeURL) -> None:
        super().__init__(unsafe.message)
        self.unsafe = unsafe


class Redirected(aiohttp.ClientError):
    """The peer answered with a redirect, which no session of ours follows."""

    def __init__(self, status: int) -> None:
        super().__init__(f"answered with a redirect (HTTP {status}); redirects are not followed")
        self.status = status


def refused(error: BaseException) -> UnsafeURL | None:
    """The guard's refusal inside an exception, its causes or its group; None if it is none."""
    if isinstance(error, UnsafeURL):
        return error
    if isinstance(unsafe := getattr(error, "unsafe", None), UnsafeURL):
        return unsafe
    inside = [error.__cause__, *getattr(error, "exceptions", ())]
    return next((found for each in inside if each and (found := refused(each))), None)


_WORDS: list[tuple[type[Exception], str]] = [  # the first that fits, from special to general
    (aiohttp.ConnectionTimeoutError, "connecting to it took too long"),
    (aiohttp.ClientConnectorCertificateError, "its TLS certificate is not accepted"),
    (aiohttp.ClientSSLError, "TLS with it failed"),
    (aiohttp.ClientConnectorDNSError, "its name does not resolve"),
    (aiohttp.ClientConnectorError, "it can't be reached"),
    (TimeoutError, "it sent nothing for too long"),
    (aiohttp.ClientPayloadError, "the connection broke in the middle of its answer"),
    (aiohttp.ServerDisconnectedError, "it closed the connection without an answer"),
    (OSError, "it closed the connection without an answer"),
    (aiohttp.ClientResponseError, "its answer is not valid HTTP"),
]


def explain(error: Exception) -> str:
    """A clause about the peer of a failed exchange, such as "it can't be reached"."""
    if unsafe := refused(error):
        return unsafe.message
    if isinstance(error, Redirected):
        return f"it {error}"
    words = next((words for kind, words in _WORDS if isinstance(error, kind)), "it can't be asked")
    return f"{words}: {reason}" if (reason := _reason(error)) else words


def _reason(error: Exception) -> str:
    """What the system or TLS says of a failed connect, as far as it names no address."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(getattr(error.certificate_error, "verify_message", "")).rstrip(".")
    if isinstance(error, aiohttp.ClientSSLError | aiohttp.ClientConnectorDNSError):
        return ""
    return (
        os.strerror(error.errno) if isinstance(error, aiohttp.ClientOSError) and error.errno else ""
    )
