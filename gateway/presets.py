"""What is publicly known of providers, to fill the form of a new one (spec 3.1).

Only wires that every current version of a service speaks; where newer versions speak more, `hint`
says so. No key is needed where `keys_at` is empty.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Headers = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A provider before it has a key. URLs are bases, with their version."""

    name: str
    title: str
    chat: str = ""
    messages: str = ""
    responses: str = ""
    headers: Headers = field(default_factory=dict)
    keys_at: str = ""
    hint: str = ""

    @property
    def local(self) -> bool:
        """Whether it runs on one's own machine."""
        return not self.keys_at

    @property
    def initial(self) -> dict[str, object]:
        """The values of the form's fields."""
        return {
            "name": self.name,
            "chat_url": self.chat,
            "messages_url": self.messages,
            "responses_url": self.responses,
            "default_headers": dict(self.headers),
        }


_ALL = (
    Preset(
        name="openai",
        title="OpenAI",
        chat="https://api.openai.com/v1",
        responses="https://api.openai.com/v1",
        keys_at="platform.openai.com/api-keys",
    ),
    Preset(
        name="anthropic",
        title="Anthropic",
        chat="https://api.anthropic.com/v1",
        messages="https://api.anthropic.com/v1",
        keys_at="console.anthropic.com/settings/keys",
        hint="Chat goes through Anthropic's own OpenAI-compatible endpoint.",
    ),
    Preset(
        name="gemini",
        title="Google Gemini",
        chat="https://generativelanguage.googleapis.com/v1beta/openai",
        keys_at="aistudio.google.com/apikey",
        hint="Gemini's OpenAI-compatible endpoint.",
    ),
    Preset(
        name="mistral",
        title="Mistral",
        chat="https://api.mistral.ai/v1",
        keys_at="console.mistral.ai/api-keys",
    ),
    Preset(
        name="groq",
        title="Groq",
        chat="https://api.groq.com/openai/v1",
        keys_at="console.groq.com/keys",
    ),
    Preset(
        name="openrouter",
        title="OpenRouter",
        chat="https://openrouter.ai/api/v1",
        keys_at="openrouter.ai/keys",
        hint="Name the models that you use: it has hundreds.",
    ),
    Preset(
        name="together",
        title="Together",
        chat="https://api.together.xyz/v1",
        keys_at="api.together.ai/settings/api-keys",
    ),
    Preset(
        name="deepseek",
        title="DeepSeek",
        chat="https://api.deepseek.com/v1",
        messages="https://api.deepseek.com/anthropic/v1",
        keys_at="platform.deepseek.com/api_keys",
    ),
    Preset(
        name="xai",
        title="xAI",
        chat="https://api.x.ai/v1",
        responses="https://api.x.ai/v1",
        keys_at="console.x.ai",
    ),
    Preset(
        name="ollama",
        title="Ollama",
        chat="http://127.0.0.1:11434/v1",
        hint="Newer versions speak responses and messages too: put the same URL there.",
    ),
    Preset(
        name="vllm",
        title="vLLM",
        chat="http://127.0.0.1:8000/v1",
        responses="http://127.0.0.1:8000/v1",
        hint="Its usual port 8000 is this gateway's too: start one of them on another. It needs "
        "--enable-auto-tool-choice and --tool-call-parser for tools.",
    ),
    Preset(
        name="llamacpp",
        title="llama.cpp",
        chat="http://127.0.0.1:8080/v1",
        hint="Start llama-server with --jinja, else it calls no tools.",
    ),
    Preset(
        name="lmstudio",
        title="LM Studio",
        chat="http://127.0.0.1:1234/v1",
        hint="Start its server in the Developer tab. Newer versions speak responses too.",
    ),
)
PRESETS: Mapping[str, Preset] = {preset.name: preset for preset in _ALL}
