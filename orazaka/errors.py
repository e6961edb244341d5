"""The errors that are answers: what they carry, and nothing of how they are shown.

    OrazakaError        an answer for the caller, with an HTTP status and a code
      └─ (each module's own, beside the function that raises it)

`tools.base.ToolError` is not one of them: it is text for the model. Anything else that is raised
is a fault of ours: logged with the request id, shown as one neutral sentence (design, decision 10).
"""


class OrazakaError(Exception):
    """An error that the caller gets as an answer.

    `status` is the HTTP status, `code` a stable snake_case word, `param` the path of the request
    field at fault (`mcp_servers[0].name`), `retry_after` seconds for the Retry-After header.
    The message is shown as it is: it must never hold a secret or an address that was resolved.
    """

    status = 500
    code = "server_error"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status or self.status
        self.code = code or self.code
        self.param = param
        self.retry_after = retry_after
