"""What the app does to a database that was migrated or flushed."""

import pytest
from django.contrib.auth.models import Group, Permission
from django.core.management import call_command


@pytest.mark.django_db(transaction=True)
def test_a_flushed_database_gets_its_administrators_back() -> None:
    Group.objects.all().delete()
    call_command("flush", interactive=False, verbosity=0)
    group = Group.objects.get()
    assert group.name == "Administrators"
    assert group.permissions.count() == Permission.objects.count() > 0
