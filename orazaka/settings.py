"""Every setting, read once, each with its reason. `.env.example` documents the same names."""

from pathlib import Path
from typing import Any

import environ

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.Env()
# Where the variables may be written down; the real environment wins. Empty: nowhere (tests).
if dotenv := env.str("ORAZAKA_DOTENV", default=str(BASE_DIR / ".env")):
    environ.Env.read_env(dotenv)

TRUE, FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}


def flag(name: str, *, default: bool) -> bool:
    """A yes or no (spec 2.6): 1/0, true/false, yes/no, on/off in any case.

    Anything else stops the start: a safety switch with a typo must not mean its default.
    """
    word = env.str(name, default="true" if default else "false").strip().lower()
    if word in TRUE or word in FALSE:
        return word in TRUE
    raise environ.ImproperlyConfigured(f"{name} must be a yes or no, not {word!r}")


def hand_down(name: str, value: str) -> None:
    """Set a variable for child processes: what `manage.py serve` decided holds in its workers."""
    env.ENVIRON[name] = value


# --- Django ---------------------------------------------------------------------------------------
DEBUG = flag("DEBUG", default=False)
SECRET_KEY = env.str("SECRET_KEY", default="")  # empty: system check E001 says what to do
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
# Where people and clients reach this deployment; https here turns secure cookies and HSTS on.
ORAZAKA_PUBLIC_URL = env.str("ORAZAKA_PUBLIC_URL", default="http://127.0.0.1:8000").rstrip("/")
HTTPS = ORAZAKA_PUBLIC_URL.startswith("https://")

INSTALLED_APPS = [
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",  # Swagger's files, so that nothing is loaded from elsewhere
    "orazaka",
    "tools",
    "mcp_servers",
    "sandbox",
    "gateway",
]
MIDDLEWARE = [
    "orazaka.requestid.RequestIdMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "orazaka.cors.CorsMiddleware",
    "orazaka.bodies.BodyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "orazaka.urls"
ASGI_APPLICATION = "orazaka.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE, TIME_ZONE, USE_TZ, USE_I18N = "en", "UTC", True, False
STATIC_URL, STATIC_ROOT = "static/", BASE_DIR / "static"
WHITENOISE_USE_FINDERS = True  # no collectstatic needed to try it
LOGIN_URL, LOGIN_REDIRECT_URL = "/admin/login/", "/admin/"
UNFOLD = {
    "SITE_TITLE": "Orazaka",
    "SITE_HEADER": "Orazaka",
    "SITE_SYMBOL": "hub",
    "SIDEBAR": {"navigation": "orazaka.sidebar.navigation"},
}
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("MinimumLengthValidator", "CommonPasswordValidator", "NumericPasswordValidator")
]
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
CSRF_TRUSTED_ORIGINS = [ORAZAKA_PUBLIC_URL]
# Web pages elsewhere whose scripts may call /v1 and /api, with keys only; "*" is any page.
ORAZAKA_CORS_ORIGINS = env.list("ORAZAKA_CORS_ORIGINS", default=[])
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "orazaka.auth.KeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["orazaka.jsonbody.JSONParser"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "orazaka.jsonbody.OneForm",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_THROTTLE_CLASSES": ["orazaka.ratelimit.KeyThrottle"],
    "EXCEPTION_HANDLER": "orazaka.api.exception_handler",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Orazaka",
    "DESCRIPTION": "Tools for any LLM client. Every answer has an `X-Request-ID`: the one that was "
    "sent, or a fresh one; errors and logs repeat it.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.1",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "validatorUrl": None},  # no call to swagger.io
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "orazaka.openapi.with_problems",
        "gateway.reference.with_v1",
    ],
}

# --- Where state lives ----------------------------------------------------------------------------
DATABASES: dict[str, dict[str, Any]] = {
    "default": env.db("DATABASE_URL", default=f"sqlite:///{BASE_DIR / 'db.sqlite3'}")
}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # WAL alone makes read-modify-write worse; with IMMEDIATE writers queue instead of failing.
    DATABASES["default"].setdefault("OPTIONS", {}).update(
        timeout=20,
        transaction_mode="IMMEDIATE",
        init_command="PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    )
else:
    # Under ASGI a connection belongs to a thread: a pool bounds them, CONN_MAX_AGE would leak them.
    DATABASES["default"].setdefault("OPTIONS", {}).update(
        pool={"min_size": 1, "max_size": 16, "timeout": 5},
        # A host that fell silent is noticed in seconds, not in the system's two hours.
        connect_timeout=5,
        keepalives_idle=4,
        keepalives_interval=2,
        keepalives_count=3,
    )
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True  # of pooled ones, after a restart
CACHES = {"default": env.cache("CACHE_URL", default="locmemcache://")}
# Several processes on this host, or several hosts: SQLite and local memory can't serve them.
WEB_CONCURRENCY = env.int("WEB_CONCURRENCY", default=1)
ORAZAKA_SEVERAL_HOSTS = flag("ORAZAKA_SEVERAL_HOSTS", default=False)

# --- Secrets at rest ------------------------------------------------------------------------------
# Fernet keys: the first encrypts, all decrypt (`manage.py rotatesecrets`). Not derived from
# SECRET_KEY, so that one can be changed without losing the other.
ORAZAKA_SECRET_KEYS = env.list("ORAZAKA_SECRET_KEYS", default=[])

# --- Providers ------------------------------------------------------------------------------------
# The SDKs' own names: a variable that is set makes a provider appear without a row.
OPENAI_API_KEY = env.str("OPENAI_API_KEY", default="")
OPENAI_BASE_URL = env.str("OPENAI_BASE_URL", default="") or "https://api.openai.com/v1"
ANTHROPIC_API_KEY = env.str("ANTHROPIC_API_KEY", default="")
ANTHROPIC_BASE_URL = env.str("ANTHROPIC_BASE_URL", default="") or "https://api.anthropic.com"
# Where `manage.py servelocalmodel` listens; makes the provider `local` appear.
ORAZAKA_LOCAL_MODEL_URL = env.str("ORAZAKA_LOCAL_MODEL_URL", default="")
ORAZAKA_DEMO = flag("ORAZAKA_DEMO", default=True)  # the built-in model `demo:demo`
# Only for URLs that the operator set; caller-chosen ones never go through a proxy.
ORAZAKA_HTTP_PROXY = env.str("ORAZAKA_HTTP_PROXY", default="")
ORAZAKA_CA_BUNDLE = env.str("ORAZAKA_CA_BUNDLE", default="")

# --- Limits of a turn -----------------------------------------------------------------------------
ORAZAKA_MAX_BODY_BYTES = env.int("ORAZAKA_MAX_BODY_BYTES", default=20 * 2**20)
DATA_UPLOAD_MAX_MEMORY_SIZE = ORAZAKA_MAX_BODY_BYTES
ORAZAKA_MAX_TOOLS_PER_TURN = env.int("ORAZAKA_MAX_TOOLS_PER_TURN", default=128)
ORAZAKA_TOOL_RESULT_MAX_CHARS = env.int("ORAZAKA_TOOL_RESULT_MAX_CHARS", default=100_000)
# Turns that a stop waits for before it cancels them, in seconds.
ORAZAKA_DRAIN_SECONDS = env.float("ORAZAKA_DRAIN_SECONDS", default=30)
# Silence on a stream after which a sign of life is sent, in seconds.
ORAZAKA_KEEPALIVE_SECONDS = env.float("ORAZAKA_KEEPALIVE_SECONDS", default=15)
# Lead-in of the hint block; the seed's name.
OTARI_TOOLS_HEADER = env.str("OTARI_TOOLS_HEADER", default="")

# --- MCP ------------------------------------------------------------------------------------------
OTARI_MCP_ALLOW_LOOPBACK = flag("OTARI_MCP_ALLOW_LOOPBACK", default=True)
OTARI_MCP_ALLOW_PRIVATE_HOSTS = flag("OTARI_MCP_ALLOW_PRIVATE_HOSTS", default=False)
# How long a server's tool list is kept when it gives no ttlMs, in seconds; 0 = list every turn.
ORAZAKA_MCP_LIST_TTL_SECONDS = env.float("ORAZAKA_MCP_LIST_TTL_SECONDS", default=60)

# --- What is recorded -----------------------------------------------------------------------------
# Argument values and results in turn records; names alone by default, since values are private.
ORAZAKA_RECORD_PAYLOADS = flag("ORAZAKA_RECORD_PAYLOADS", default=False)
# Days that turn records are kept; 0: for ever.
ORAZAKA_TURN_RETENTION_DAYS = env.int("ORAZAKA_TURN_RETENTION_DAYS", default=30)

# --- Metrics and traces ---------------------------------------------------------------------------
# A token that opens /metrics, next to the keys of staff users; empty: those only.
ORAZAKA_METRICS_TOKEN = env.str("ORAZAKA_METRICS_TOKEN", default="")
# Where several workers put their measurements to be summed up; `manage.py serve` makes one.
PROMETHEUS_MULTIPROC_DIR = env.str("PROMETHEUS_MULTIPROC_DIR", default="")
# A collector of OpenTelemetry spans, such as http://127.0.0.1:4318 (OTLP over HTTP); empty: none.
OTEL_EXPORTER_OTLP_ENDPOINT = env.str("OTEL_EXPORTER_OTLP_ENDPOINT", default="")

# --- Logs -----------------------------------------------------------------------------------------
ORAZAKA_LOG_LEVEL = env.str("ORAZAKA_LOG_LEVEL", default="INFO").upper()
LOGGING_CONFIG = "orazaka.logs.configure"
LOGGING = {"level": ORAZAKA_LOG_LEVEL}
