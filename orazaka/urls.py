"""What answers where. `/v1` and the probes are reached by the short chain (`orazaka.asgi`)."""

from django.contrib import admin
from django.urls import include, path, re_path
from django.views.generic import RedirectView

from orazaka.faces import nothing
from orazaka.health import healthz, readyz
from orazaka.metrics import metrics
from orazaka.openapi import Docs, Schema

urlpatterns = [
    path("", RedirectView.as_view(url="/admin/")),
    path("v1/", include("gateway.urls")),
    path("healthz", healthz),
    path("readyz", readyz),
    path("metrics", metrics),
    path("admin/", admin.site.urls),
    path("api/schema", Schema.as_view(), name="schema"),
    path("api/docs", Docs.as_view()),
    path("api/v1/", include("orazaka.rest")),
    path("api/v1/", include("gateway.rest")),
    re_path(r"^api(?:/|$)", nothing),
]
handler400 = "orazaka.faces.bad_request"
handler403 = "orazaka.faces.forbidden"
handler404 = "orazaka.faces.not_found"
handler500 = "orazaka.faces.failed"
