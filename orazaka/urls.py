"""What answers where. `/v1` and the probes are reached by the short chain (`orazaka.asgi`)."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from orazaka.health import healthz, readyz

urlpatterns = [
    path("", RedirectView.as_view(url="/admin/")),
    path("v1/", include("gateway.urls")),
    path("healthz", healthz),
    path("readyz", readyz),
    path("admin/", admin.site.urls),
]
