"""The one kind of value the core is made of: frozen, built by keyword, short when stored.

What the stored form leaves out means its default, for ever: the defaults of everything that events are made of
are part of the event format and never change. Two equal values may be stored in two ways, one of them spelling a
default out, so what is compared is the value and never its text.

What never changes cannot come to hold itself: the garbage collector need not look at it.
"""

from typing import Any, dataclass_transform

from msgspec import Struct, StructMeta, field


class _FrozenMeta(StructMeta):
    """Hand the settings of `Frozen` down to every subclass; msgspec alone would not hand down `kw_only`."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **settings: Any) -> "_FrozenMeta":
        settings = {"frozen": True, "kw_only": True, "omit_defaults": True, "gc": False, **settings}
        return super().__new__(mcls, name, bases, namespace, **settings)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Frozen(Struct, metaclass=_FrozenMeta, frozen=True):
    """A frozen value."""
