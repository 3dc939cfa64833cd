"""The JSON Schema of penstock.yaml. It is made from the models that read the file, so that both know the same keys."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from penstock.operations.config.model import Config

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _Schema(GenerateJsonSchema):
    """Sizes, times and secrets are read by code: in the file they are a text or a number."""

    def is_instance_schema(self, schema: core_schema.IsInstanceSchema) -> JsonSchemaValue:
        return {"type": "string"}

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        inner = super().function_before_schema(schema)
        if inner.get("type") in ("integer", "number"):
            return {"anyOf": [inner, {"type": "string"}]}
        return inner

    def function_plain_schema(self, schema: core_schema.PlainValidatorFunctionSchema) -> JsonSchemaValue:
        return {}


def config_schema() -> dict[str, Any]:
    """The schema. `${NAME}` may stand for every text, so a text is allowed wherever one is read into something else."""
    made = Config.model_json_schema(by_alias=True, mode="validation", schema_generator=_Schema)
    return {"$schema": DIALECT, "title": "penstock.yaml", **{k: v for k, v in made.items() if k != "title"}}
