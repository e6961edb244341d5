"""The MCP client: connections in the official SDK's hands. Only this package imports `mcp`.

The SDK keeps the protocol; here era and transport are picked (`dial`), results stay verbatim
(`verbatim`), and every failure becomes a `Fault` (`connection`).
"""

import logging

from mcp_servers.client.connection import Connection, Listing
from mcp_servers.client.dial import Connector
from mcp_servers.endpoint import BadCredentials, Endpoint, Key
from mcp_servers.faults import Fault, ServerError

__all__ = [
    "BadCredentials",
    "Connection",
    "Connector",
    "Endpoint",
    "Fault",
    "Key",
    "Listing",
    "ServerError",
]

# They log what servers sent, and URLs with what callers put into the query.
for _name, _level in {
    "mcp": logging.CRITICAL,
    "client": logging.CRITICAL,
    "httpx2": logging.WARNING,
}.items():
    logging.getLogger(_name).setLevel(_level)
