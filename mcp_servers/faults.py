"""What can go wrong with somebody else's server, and how it is told.

Fault                   between us and a server; a clause that names neither server nor tool,
  │                     since one session may serve several labels
  ├─ Unreachable        no connection, refused credentials, an HTTP error
  ├─ Late               a limit passed
  ├─ NotProtocol        the reply is not MCP, is a redirect or is too large
  ├─ Blocked            the URL guard refused the address
  ├─ Lost               the session is gone and the request was not accepted: safe to send again
  └─ Refusal            the server answered with a JSON-RPC error
ServerError             an answer for the caller of a turn; names the server's label
  └─ ServerUnreachable 502, ServerLate 504, NotMCP 502, ServerBlocked 400, ServerRefusal 502,
     NoAllowedTool 400
"""

from collections.abc import Mapping
from typing import Any, Self

from mcp_servers.exchange import HTTP_STATUS
from orazaka.errors import OrazakaError
from orazaka.sdk_transport import Code

SHOWN_MAX = 1000  # characters of a server's own error message
CONNECTION_CLOSED, PARSE_ERROR, INVALID_REQUEST = -32000, -32700, -32600
# What servers say with a 400 or 404 to the id of a session that they don't know.
NO_SESSION = frozenset({CONNECTION_CLOSED, -32001, INVALID_REQUEST})


class ServerError(OrazakaError):
    """An MCP server that a turn needs can't serve it. The message names its label."""

    status = 502
    code = "mcp_server_error"


class ServerUnreachable(ServerError):
    """No connection, refused credentials ("401" is said) or an HTTP error."""

    code = "mcp_server_unreachable"


class ServerLate(ServerError):
    """No answer within a limit."""

    status = 504
    code = "mcp_server_late"


class NotMCP(ServerError):
    """HTML, garbage, a redirect, a foreign JSON-RPC id, an answer over the limit."""

    code = "mcp_server_not_mcp"


class ServerBlocked(ServerError):
    """The URL guard refused the address at connect: the caller's fault (spec 2.6)."""

    status = 400
    code = "unsafe_url"


class ServerRefusal(ServerError):
    """A JSON-RPC error in answer to what every server must answer."""

    code = "mcp_server_refusal"


class NoAllowedTool(ServerError):
    """`allowed_tools` is not empty and matches none of the server's tools (spec 3.4)."""

    status = 400
    code = "mcp_no_allowed_tool"


class Fault(Exception):
    """Something went wrong between us and a server.

    `reason` is a clause ("it answered with HTTP 500"). `ran`: a call that met it may have been
    carried out, so nobody may send it again. `status` is the HTTP status, if that is what it was.
    """

    ran = True
    answer: type[ServerError] = ServerError

    def __init__(self, reason: str, *, ran: bool | None = None, status: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.ran = type(self).ran if ran is None else ran
        self.status = status

    def again(self) -> Self:
        """The same fault for one more waiter, with a traceback of its own."""
        return type(self)(self.reason, ran=self.ran, status=self.status)


class Unreachable(Fault):
    """No connection, refused credentials, an HTTP error."""

    answer = ServerUnreachable


class Late(Fault):
    """A limit passed."""

    answer = ServerLate


class NotProtocol(Fault):
    """The reply is not MCP."""

    answer = NotMCP


class Blocked(Fault):
    """The URL guard refused the address."""

    ran = False
    answer = ServerBlocked


class Lost(Fault):
    """The session is gone and the request was not accepted."""

    ran = False
    answer = ServerUnreachable


class Refusal(Fault):
    """The server answered with a JSON-RPC error: the request was judged, not lost."""

    ran = False
    answer = ServerRefusal


def rpc_fault(code: int, message: str, data: Any, *, way: str | None) -> Fault:
    """The fault that a JSON-RPC error stands for, the codes of `orazaka.sdk_transport` included.

    `way` is how an open connection speaks (modern, legacy, sse); None while it is being opened,
    when there is no session to lose.
    """
    data = data if isinstance(data, dict) else {}
    status = data.get("status" if code in tuple(Code) else HTTP_STATUS)
    session = way in ("legacy", "sse")
    gone = status == 404 or (status == 400 and code in {*NO_SESSION, Code.STATUS})
    reason = message[:SHOWN_MAX]
    if session and gone:
        return Lost(f"it does not know our session any more ({reason})", status=status)
    if status in (401, 403):
        words = "it refused our credentials" if status == 401 else "it refused us access"
        return Unreachable(f"{words} (HTTP {status})", ran=False, status=status)
    if code in tuple(Code):
        return _own_fault(Code(code), reason, data, status=status, opened=way is not None)
    if code == CONNECTION_CLOSED and status is None:
        return Unreachable(f"the connection ended before its answer came ({reason})")
    if code == PARSE_ERROR:
        return NotProtocol("it answered with something that is not MCP", status=status)
    return Refusal(f'it answered with an error: "{reason}" ({code})', status=status)


def _own_fault(
    code: Code, reason: str, data: Mapping[str, Any], *, status: int | None, opened: bool
) -> Fault:
    match code:
        case Code.TRANSPORT if data.get("sent") is False:
            return Lost(reason) if opened else Unreachable(reason, ran=False)
        case Code.TRANSPORT:
            return Unreachable(reason)
        case Code.STATUS:
            return Unreachable(reason, ran=status is None or status >= 500, status=status)
        case Code.REDIRECT:
            return NotProtocol(reason, ran=False, status=status)
        case Code.BLOCKED:
            return Blocked(reason)
        case _:
            return NotProtocol(reason)


def server_error(label: str, fault: Fault) -> ServerError:
    """The answer for a caller whose turn needs the server `label`."""
    return fault.answer(f'MCP server "{label}" failed: {fault.reason}.')


def call_error(*, label: str, tool: str, fault: Fault, elapsed: float) -> str:
    """The words for a model whose call of `tool` failed (case B33): tool, server, reason, seconds.

    When the call may have run, they say that its outcome is unknown (case B69).
    """
    text = f'Tool "{tool}" of MCP server "{label}" failed after {elapsed:.1f} s: {fault.reason}.'
    if fault.ran:
        text += " The call may have been carried out: its outcome is unknown."
    return text
