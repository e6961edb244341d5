"""Clients of REST, by whose they are, and what an error of REST looks like."""

from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client

from tests.factories import UserFactory, issue

Json = Any


class Rest:
    """One caller of REST: with a key, signed in, or nobody."""

    def __init__(self, *, key: str = "", user: User | None = None, csrf: bool = False) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.client = Client(
            headers=headers, enforce_csrf_checks=csrf, raise_request_exception=False
        )
        if user:
            self.client.force_login(user)

    def get(self, path: str, **query: Json) -> Any:
        return self.client.get(f"/api/v1/{path}", query)

    def post(self, path: str, body: Json) -> Any:
        return self.client.post(f"/api/v1/{path}", body, content_type="application/json")

    def delete(self, path: str) -> Any:
        return self.client.delete(f"/api/v1/{path}")


def by_key(user: User | None = None, **fields: Json) -> Rest:
    """A caller with a new key."""
    return Rest(key=issue(user, **fields)[1])


def staff(*permissions: str) -> User:
    """A member of staff with these permissions, by codename."""
    user: User = UserFactory.create(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return user


def problem(response: Any, status: int) -> Json:
    """The problem that the response holds, after a look at whether it is whole (RFC 9457)."""
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    body = response.json()
    assert set(body) == {"type", "title", "status", "detail", "code", "requestId", "errors"}
    assert body["status"] == status
    assert body["title"] and body["detail"] and body["code"]
    assert body["requestId"] == response["X-Request-ID"]
    return body
