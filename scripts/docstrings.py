"""What griffe has to be told about our code: classes of attrs, and doctests outside any section."""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"(?m)^>>> .*(?:\n(?!\s*$).*)*")


class Ours(griffe.Extension):
    """Gives a class of attrs its arguments, and puts doctests into code blocks."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the doctests, which Markdown takes for quotations."""
        if obj.docstring:
            text = obj.docstring.value
            obj.docstring.value = DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```", text)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Make the arguments of the fields, as attrs does."""
        if not any(str(each.value).startswith("attrs.") for each in cls.decorators):
            return
        fields = [each for each in cls.attributes.values() if each.annotation is not None]
        cls["__init__"] = griffe.Function(
            "__init__",
            parameters=griffe.Parameters(
                griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword),
                *(
                    griffe.Parameter(
                        field.name.lstrip("_"),
                        annotation=field.annotation,
                        default=None if _is_required(field) else "...",
                        kind=griffe.ParameterKind.positional_or_keyword,
                    )
                    for field in fields
                    if not str(field.annotation).startswith("ClassVar")
                ),
            ),
            parent=cls,
        )


def _is_required(field: griffe.Attribute) -> bool:
    """Whether a field of attrs has no default."""
    value = field.value
    if isinstance(value, griffe.ExprCall):  # attrs.field(...)
        return not any(
            isinstance(each, griffe.ExprKeyword) and each.name in ("default", "factory")
            for each in value.arguments
        )
    return value is None
