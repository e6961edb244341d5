"""The APIs that LLM clients speak."""

from django.urls import path

from gateway import views

urlpatterns = [
    path("chat/completions", views.chat_completions),
    path("models", views.models),
    path("models/<path:name>", views.model),
]
