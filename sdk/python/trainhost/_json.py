"""From the JSON objects of docs/cli.md to dataclasses. The field of a dataclass has the name of the key, unless its
metadata give another one; keys without a field are left out; a field with a default may be absent."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from typing import Any, TypeVar

T = TypeVar("T")


def named(key: str, **arguments: Any) -> Any:
    """A field whose key in the JSON object is `key`."""
    return dataclasses.field(metadata={"json": key}, **arguments)


@functools.cache
def _types(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _value(kind: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):  # T | None
        return None if value is None else _value(arguments[0], value)
    if origin is list:
        return [_value(arguments[0], item) for item in value]
    return from_json(kind, value) if isinstance(kind, type) and dataclasses.is_dataclass(kind) else value


def from_json(cls: type[T], data: dict[str, Any], **more: Any) -> T:
    """`data` as an instance of the dataclass `cls`. `more`: fields that are not in the object."""
    values = dict(more)
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        key = field.metadata.get("json", field.name)
        if key in data and field.name not in values:
            values[field.name] = _value(_types(typing.cast(Any, cls))[field.name], data[key])
    return cls(**values)
