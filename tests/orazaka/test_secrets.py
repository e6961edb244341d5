"""Secrets at rest: what the column holds, what comes out, and changing keys.

`gateway.Provider.api_key` stands for every encrypted field.
"""

from io import StringIO

import pytest
from cryptography.fernet import Fernet
from django.core import serializers
from django.core.exceptions import FieldError
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import Q
from django.forms import modelform_factory

from gateway.models import Provider
from orazaka.secrets import EncryptedTextField, NoSecretKey, WrongSecretKey

pytestmark = pytest.mark.django_db
OLD, NEW, OTHER = (Fernet.generate_key().decode() for _ in range(3))
SECRET = "s3cret ✓ of some length"


@pytest.fixture(autouse=True)
def under_the_old_key(settings) -> None:
    settings.ORAZAKA_SECRET_KEYS = [OLD]


def stored(name: str = "p") -> str:
    """What the column really holds."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT api_key FROM gateway_provider WHERE name = %s", [name])
        value: str = cursor.fetchone()[0]
    return value


def test_the_column_holds_a_token_and_the_field_gives_the_text() -> None:
    Provider.objects.create(name="p", api_key=SECRET)
    assert SECRET not in stored()
    assert Fernet(OLD).decrypt(stored()).decode() == SECRET
    assert Provider.objects.get().api_key == SECRET


def test_one_secret_is_never_encrypted_to_the_same_token_twice() -> None:
    for name in "pq":
        Provider.objects.create(name=name, api_key=SECRET)
    assert stored("p") != stored("q")


def test_every_way_to_write_encrypts() -> None:
    provider = Provider(name="p", api_key="1")
    Provider.objects.bulk_create([provider])
    assert Provider.objects.get().api_key == "1"
    Provider.objects.update(api_key="2")
    assert Provider.objects.get().api_key == "2"
    provider.api_key = "3"
    Provider.objects.bulk_update([provider], ["api_key"])
    assert Provider.objects.get().api_key == "3"
    Provider.objects.update_or_create(name="p", defaults={"api_key": "4"})
    assert Provider.objects.get().api_key == "4"
    assert Fernet(OLD).decrypt(stored()) == b"4"


def test_no_secret_stays_no_secret() -> None:
    Provider.objects.create(name="p", api_key="")
    assert stored() == ""
    assert Provider.objects.get().api_key == ""


def test_a_row_can_be_read_without_its_secret() -> None:
    Provider.objects.create(name="p", api_key=SECRET)
    assert Provider.objects.defer("api_key").get().name == "p"


@pytest.mark.parametrize(
    "lookup",
    [
        Q(api_key=SECRET),
        Q(api_key__in=[SECRET]),
        Q(api_key__contains="s3"),
        Q(api_key__startswith="s"),
        Q(api_key__gt="a"),
        Q(api_key__regex="."),
        Q(api_key__length=3),
        ~Q(api_key=""),
    ],
)
def test_a_secret_cant_be_searched(lookup: Q) -> None:
    with pytest.raises(FieldError, match="api_key"):
        Provider.objects.filter(lookup)


def test_whether_there_is_a_secret_can_be_asked() -> None:
    Provider.objects.create(name="p", api_key=SECRET)
    assert Provider.objects.filter(api_key__isnull=False).count() == 1


def test_a_value_under_an_unlisted_key_is_an_error_without_the_value(settings) -> None:
    Provider.objects.create(name="p", api_key=SECRET)
    settings.ORAZAKA_SECRET_KEYS = [OTHER]
    with pytest.raises(WrongSecretKey, match=r"gateway\.Provider\.api_key") as raised:
        Provider.objects.get()
    assert stored() not in str(raised.value)


@pytest.mark.parametrize("keys", [[], [""], ["short"], [OLD, "é" * 44], [OLD[:-2]]])
def test_without_a_sound_key_nothing_is_stored_and_the_error_says_what_to_set(
    keys: list[str], settings
) -> None:
    settings.ORAZAKA_SECRET_KEYS = keys
    with pytest.raises(NoSecretKey, match="ORAZAKA_SECRET_KEYS must hold") as raised:
        Provider.objects.create(name="p", api_key=SECRET)
    assert SECRET not in str(raised.value)
    assert OLD not in str(raised.value)


def test_fixtures_leave_secrets_out() -> None:
    Provider.objects.create(name="p", api_key=SECRET)
    dump = serializers.serialize("json", Provider.objects.all())
    assert '"name": "p"' in dump
    assert "api_key" not in dump


def test_migrations_see_a_plain_declaration() -> None:
    field = EncryptedTextField(blank=True, max_length=1000)
    _, path, args, kwargs = field.deconstruct()
    assert path == "orazaka.secrets.EncryptedTextField"
    assert (list(args), kwargs) == ([], {"blank": True, "max_length": 1000})


def test_a_form_limits_the_plain_text() -> None:
    form = modelform_factory(Provider, fields=["api_key"])({"api_key": SECRET})
    assert form.is_valid()
    assert form.cleaned_data == {"api_key": SECRET}


# --- Rotation -------------------------------------------------------------------------------------
def rotate() -> str:
    out = StringIO()
    call_command("rotatesecrets", stdout=out)
    return out.getvalue()


def test_rotation_brings_every_secret_to_the_first_key(settings) -> None:
    for n in range(7):
        Provider.objects.create(name=f"p{n}", api_key=f"{SECRET} {n}")
    Provider.objects.create(name="empty", api_key="")
    settings.ORAZAKA_SECRET_KEYS = [NEW, OLD]
    assert "7 secrets" in rotate()
    settings.ORAZAKA_SECRET_KEYS = [NEW]
    secrets = dict(Provider.objects.values_list("name", "api_key"))
    assert secrets == {f"p{n}": f"{SECRET} {n}" for n in range(7)} | {"empty": ""}


def test_rotation_goes_on_beyond_one_batch(settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orazaka.management.commands.rotatesecrets.BATCH", 2)
    for n in range(5):
        Provider.objects.create(name=f"p{n}", api_key=SECRET)
    settings.ORAZAKA_SECRET_KEYS = [NEW, OLD]
    assert "5 secrets" in rotate()
    settings.ORAZAKA_SECRET_KEYS = [NEW]
    assert list(Provider.objects.values_list("api_key", flat=True)) == [SECRET] * 5


def test_rotation_stops_at_a_secret_that_no_key_opens_and_changes_nothing(settings) -> None:
    Provider.objects.create(name="a", api_key=SECRET)
    settings.ORAZAKA_SECRET_KEYS = [OTHER]
    lost = Provider.objects.create(name="b", api_key=SECRET)
    before = stored("a"), stored("b")
    settings.ORAZAKA_SECRET_KEYS = [NEW, OLD]
    with pytest.raises(CommandError, match=rf"gateway\.Provider {lost.pk} \(api_key\)") as raised:
        rotate()
    assert (stored("a"), stored("b")) == before
    assert not any(token in str(raised.value) for token in before)


def test_rotation_without_a_key_says_what_to_set(settings) -> None:
    settings.ORAZAKA_SECRET_KEYS = []
    with pytest.raises(CommandError, match="ORAZAKA_SECRET_KEYS must hold"):
        rotate()


def test_rotation_of_nothing_is_fine() -> None:
    assert "0 secrets" in rotate()
