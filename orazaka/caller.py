"""Who is asking: a value that travels with a turn, never looked up again."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The one on whose behalf a turn or a tool runs.

    `user_id` is None only for a caller whose key another platform judges (spec 3.8); `principal`
    is what caches, pooled sessions, tails and records are kept under: two callers never share one.
    `models` limits the models that the key may use (None = all); `rate` is requests a minute.
    """

    principal: str
    user_id: int | None = None
    username: str = ""
    is_staff: bool = False
    permissions: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    key_id: int | None = None
    models: frozenset[str] | None = None
    rate: int | None = None
    request_id: str = ""
    job: str | None = None

    def may(self, permission: str) -> bool:
        """Whether the caller has a Django permission (`app_label.codename`)."""
        return permission in self.permissions
