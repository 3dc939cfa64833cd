"""Whether a program can read what another one wrote into a store: as it is, after migrations, or not at all.

The registry has the codecs and schemas of the writers. The bytes of a key must never change, so another key codec is
never compatible. A value of an older schema version is migrated when it is read, by one registered step for each
version; a newer schema version is refused.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from penstock.errors import NotSupported
from penstock.state.types.codecs import Codec
from penstock.state.types.descriptor import StateDescriptor
from penstock.state.types.registry import Registration, Schema


class Compatibility(Enum):
    AS_IS = "as is"
    AFTER_MIGRATION = "after migration"
    INCOMPATIBLE = "incompatible"


class Verdict(NamedTuple):
    """`reason` says what is incompatible, and `hint` what to do about it; both are empty otherwise."""

    compatibility: Compatibility
    reason: str = ""
    hint: str = ""


def judge(descriptor: StateDescriptor[Any, Any], written: Registration) -> Verdict:
    """Whether a store that was written as the registry says can be opened with this descriptor."""
    store = descriptor.namespace
    if written.key != descriptor.key.name:
        return _incompatible(
            f"store {store} was written as {written.key} → {written.value},"
            f" not as {descriptor.key.name} → {descriptor.value.name}",
            "keys must stay byte-stable; give the new store another name",
        )
    steps = {step.version: step for step in descriptor.migrations}
    older = False
    for version, schema in sorted(written.schemas.items()):
        if version == descriptor.schema_version:
            problem = _difference(schema, descriptor.value)
            if problem is not None:
                return _incompatible(
                    f"store {store} was written as {written.key} → {schema.value} in schema {version},"
                    f" not as {descriptor.key.name} → {descriptor.value.name}{problem}",
                    "raise schema_version and register a migration from the old one",
                )
            continue
        if version > descriptor.schema_version:
            return _incompatible(
                f"store {store} was written with schema {version}; this program knows it up to {descriptor.schema_version}",
                "a newer program wrote it: use that one",
            )
        older = True
        for step in range(version, descriptor.schema_version):
            if step not in steps:
                return _incompatible(
                    f"store {store} holds schema {version}, and there is no migration from schema {step} to {step + 1}",
                    f"register the migration of schema {step}",
                )
        problem = _difference(schema, steps[version].value)
        if problem is not None:
            return _incompatible(
                f"store {store}: schema {version} was written as {schema.value}, and its migration reads"
                f" {steps[version].value.name}{problem}",
                "give the migration the codec that wrote it",
            )
    return Verdict(Compatibility.AFTER_MIGRATION if older else Compatibility.AS_IS)


def refuse(verdict: Verdict) -> None:
    """Raises `NotSupported` if the verdict is `INCOMPATIBLE`."""
    if verdict.compatibility is Compatibility.INCOMPATIBLE:
        raise NotSupported(verdict.reason, hint=verdict.hint)


def _difference(written: Schema, codec: Codec[Any]) -> str | None:
    """None where the codec writes as `written` says; else what an error adds after their two names."""
    if written.value != codec.name:
        return ""
    fields = getattr(codec, "schema", None)
    if written.fields is None or fields is None or written.fields == fields:
        return None
    then, now = written.fields.get("properties", {}), fields.get("properties", {})
    changed = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
    return f": fields {', '.join(changed)} changed" if changed else ": its schema changed"


def _incompatible(reason: str, hint: str) -> Verdict:
    return Verdict(Compatibility.INCOMPATIBLE, reason, hint)
