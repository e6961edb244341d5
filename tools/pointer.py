"""References within a document."""

from urllib.parse import unquote

from tools.base import Json


def pointed(document: Json, fragment: str) -> Json:
    """What a JSON pointer in a URI fragment (RFC 6901, section 6) points to; None for nothing."""
    node = document
    for word in unquote(fragment).split("/")[1:]:
        word = word.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and word.isdecimal() and int(word) < len(node):
            node = node[int(word)]
        else:
            node = node.get(word) if isinstance(node, dict) else None
    return node
