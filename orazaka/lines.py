"""A form field for a list of names: one a line, nothing for no list."""

from typing import Any

from django import forms
from unfold.widgets import UnfoldAdminTextareaWidget

Json = Any


class Lines(forms.CharField):
    """Gives a list without doubles and blanks, or None when nothing is written."""

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, widget=UnfoldAdminTextareaWidget({"rows": 3}), **options)

    def prepare_value(self, value: Json) -> Json:
        return "\n".join(map(str, value)) if isinstance(value, list) else value

    def to_python(self, value: Json) -> Json:
        lines = (line.strip() for line in (value or "").splitlines())
        return list(dict.fromkeys(line for line in lines if line)) or None

    def has_changed(self, initial: Json, data: Json) -> bool:
        return bool((initial or None) != self.to_python(data))
