"""Which configuration changed: seen at once in this process, counted for all others.

In this process a wrapper around every statement sees writes to watched tables, whatever made them
(save, update, bulk, cascade, many-to-many). Other processes see triggers' counts in `Revision`,
bumped in the same transaction (design, decision 5).
"""

import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connection, connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from orazaka.models import Revision

CHANNEL = "orazaka_revision"  # what PostgreSQL notifies on
# A count begins anywhere: after a flush of the table no old number comes again.
FIRST_BELOW = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Watch:
    """A table whose rows are configuration; an UPDATE of `ignore`d columns alone is no change.

    For tables that are not ours: our own keep run-time columns in a table apart.
    """

    model: type[models.Model]
    ignore: frozenset[str] = frozenset()

    @property
    def table(self) -> str:
        return self.model._meta.db_table


WATCHED: dict[str, Watch] = {}


def watch(model: type[models.Model] | Watch) -> str:
    """Watch a table from the next `migrate` on. Gives its name."""
    new = model if isinstance(model, Watch) else Watch(model)
    known = WATCHED.get(new.table, new)
    WATCHED[new.table] = Watch(new.model, new.ignore & known.ignore)
    return new.table


def numbers() -> Mapping[str, int]:
    """How often each watched table changed so far; a table that never did is missing."""
    sums = Revision.objects.values_list("watched").annotate(models.Sum("number"))
    return {watched: int(number) for watched, number in sums}


# --- In this process ------------------------------------------------------------------------------
_WRITE = re.compile(
    r"\s*(?:INSERT\s+(?:OR\s+\w+\s+)?INTO|REPLACE\s+INTO|UPDATE|DELETE\s+FROM|TRUNCATE(?:\s+TABLE)?)"
    r'\s+"?(\w+)',
    re.IGNORECASE,
)
_told: set[Callable[[], None]] = set()


@contextmanager
def telling(changed: Callable[[], None]) -> Iterator[None]:
    """Call `changed`, on whatever thread writes, when this process changed a watched table.

    In a transaction it is called twice: at the statement, for readers on the same connection, and
    after the commit, for all others.
    """
    _told.add(changed)
    try:
        yield
    finally:
        _told.discard(changed)


def _tell() -> None:
    for changed in tuple(_told):
        changed()


def _see[T](execute: Callable[..., T], sql: Any, params: Any, many: bool, context: Any) -> T:
    """A Django execute_wrapper."""
    result = execute(sql, params, many, context)
    written = _WRITE.match(sql) if isinstance(sql, str) else None
    if written and written[1] in WATCHED:
        _tell()
        database = context["connection"]
        if database.in_atomic_block:
            transaction.on_commit(_tell, using=database.alias)
    return result


def listen_to(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Receiver of `connection_created`: see this connection's statements."""
    if _see not in connection.execute_wrappers:
        connection.execute_wrappers.append(_see)


# --- For other processes --------------------------------------------------------------------------
def install(*, using: str, **_: Any) -> None:
    """Receiver of `post_migrate`: (re)make the triggers of every watched table that exists.

    Rows changed by the migrations themselves were perhaps not counted: every table counts as
    changed.
    """
    database = connections[using]
    existing = set(database.introspection.table_names())
    if Revision._meta.db_table not in existing:
        return
    statements = _postgresql if database.vendor == "postgresql" else _sqlite
    for table in sorted(WATCHED.keys() & existing):
        with transaction.atomic(using=using), database.cursor() as cursor:
            for statement in statements(WATCHED[table]):
                cursor.execute(statement)
            _bump(table, using=using)


def missing() -> set[str]:
    """Watched tables that have no triggers: `migrate` was not run since they are watched."""
    if connection.vendor == "postgresql":
        sql = """SELECT relname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
            WHERE tgname = 'orazaka_changed'"""
    else:
        sql = "SELECT tbl_name FROM sqlite_master WHERE type = 'trigger'"
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return WATCHED.keys() - {table for (table,) in cursor.fetchall()}


def _bump(table: str, *, using: str) -> None:
    rows = Revision.objects.using(using)
    if not rows.filter(watched=table).update(number=models.F("number") + 1):
        rows.create(watched=table, number=secrets.randbelow(FIRST_BELOW))


def _sqlite(watched: Watch) -> Iterator[str]:
    table = watched.table
    columns = [
        f'"{field.column}"'
        for field in watched.model._meta.local_concrete_fields
        if field.column not in watched.ignore
    ]
    bump = f"""
        UPDATE orazaka_revision SET number = number + 1 WHERE watched = '{table}';
        INSERT INTO orazaka_revision (watched, number)
            SELECT '{table}', abs(random() % {FIRST_BELOW})
            WHERE NOT EXISTS (SELECT 1 FROM orazaka_revision WHERE watched = '{table}');"""
    for verb in ("INSERT", "DELETE", f"UPDATE OF {', '.join(columns)}"):
        name = f"orazaka_{verb.split()[0].lower()}_{table}"
        yield f'DROP TRIGGER IF EXISTS "{name}"'
        yield f'CREATE TRIGGER "{name}" AFTER {verb} ON "{table}" BEGIN {bump} END'


def _postgresql(watched: Watch) -> Iterator[str]:
    yield f"""
        CREATE OR REPLACE FUNCTION orazaka_changed() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF TG_LEVEL = 'ROW' THEN
                IF to_jsonb(OLD) - TG_ARGV = to_jsonb(NEW) - TG_ARGV THEN RETURN NULL; END IF;
            END IF;
            -- SKIP LOCKED: two transactions that change one table never wait for each other here
            UPDATE orazaka_revision SET number = number + 1 WHERE id = (
                SELECT id FROM orazaka_revision WHERE watched = TG_TABLE_NAME
                ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED);
            IF NOT FOUND THEN
                INSERT INTO orazaka_revision (watched, number)
                VALUES (TG_TABLE_NAME, floor(random() * {FIRST_BELOW}));
            END IF;
            PERFORM pg_notify('{CHANNEL}', TG_TABLE_NAME);
            RETURN NULL;
        END $$"""
    table, ignored = watched.table, ", ".join(f"'{column}'" for column in sorted(watched.ignore))
    whole = "" if watched.ignore else "UPDATE OR "
    # No `UPDATE OF columns`: such a trigger forbids migrations to change those columns.
    yield f"""
        CREATE OR REPLACE TRIGGER orazaka_changed AFTER {whole}INSERT OR DELETE OR TRUNCATE
        ON "{table}" FOR EACH STATEMENT EXECUTE FUNCTION orazaka_changed()"""
    yield f'DROP TRIGGER IF EXISTS orazaka_updated ON "{table}"'
    if watched.ignore:
        yield f"""
            CREATE TRIGGER orazaka_updated AFTER UPDATE
            ON "{table}" FOR EACH ROW EXECUTE FUNCTION orazaka_changed({ignored})"""
