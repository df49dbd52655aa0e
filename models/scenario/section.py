"""Sections of a document: mappings with known keys, and pydantic's complaints turned into one line with a place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

from truenorth.models.scenario.errors import FieldError, Source, Where, allowed, quote

_ALLOWED = {
    "tuple_type": "a list",
    "list_type": "a list",
    "sequence_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
}
"""What pydantic's own complaints allow."""


def problem(text: str, key: str | int | None = None) -> PydanticCustomError:
    """Return the error that a validator raises; `key` names the entry at fault inside the value."""
    return PydanticCustomError("input", "{problem}", {"problem": text, "key": key})


class Section(BaseModel):
    """A mapping with known keys; any other key is an error that names the nearest known one.

    Attributes
    ----------
    one_of
        Keys of which exactly one must be given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
    one_of: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: object) -> object:
        keys = {field.alias or name: field for name, field in cls.model_fields.items()}
        known = list(keys)
        if isinstance(value, BaseModel):
            return value
        if not isinstance(value, Mapping):
            raise problem(f"{kind_of(value)} stands here; allowed is a mapping with keys {', '.join(known)}")
        for key in value:
            if key not in known and cls.model_config.get("extra") == "forbid":
                raise problem(f"unknown key, {allowed(str(key), known)}", str(key))
        missing = [key for key, field in keys.items() if field.is_required() and key not in value]
        if missing:
            raise problem(f"key {missing[0]!r} is missing; allowed are the keys {', '.join(known)}")
        cls._check_forms(value)
        return value

    @classmethod
    def _check_forms(cls, value: Mapping[str, object]) -> None:
        """Refuse none or several of the keys of which exactly one must be given."""
        given = [name for name in cls.one_of if value.get(name) is not None]
        if cls.one_of and len(given) != 1:
            found = f"has {' and '.join(given)}" if given else f"has none of {', '.join(cls.one_of)}"
            raise problem(f"{found}; allowed is exactly one of {', '.join(cls.one_of)}")

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Add to the schema that exactly one of some keys is required."""
        schema = handler(core)
        if cls.one_of:
            handler.resolve_ref_schema(schema)["oneOf"] = [{"required": [name]} for name in cls.one_of]
        return schema


class Record(BaseModel):
    """An entry of a file that others write: keys that it does not know say nothing here."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


def kind_of(value: object) -> str:
    """Return what a value is, in the words of a message."""
    kinds = {list: "a list", tuple: "a list", type(None): "nothing", dict: "a mapping"}
    return kinds.get(type(value)) or f"the value {quote(value)}"


def refuse_empty(what: str) -> BeforeValidator:
    """Return a validator that refuses an empty list or mapping."""

    def validate(value: object) -> object:
        if isinstance(value, (list, tuple, Mapping)) and not value:
            raise problem(f"is empty; allowed is at least one {what}")
        return value

    return BeforeValidator(validate)


Document = TypeVar("Document", bound=BaseModel)


def validate(document: type[Document], data: object, source: Source) -> Document:
    """Return the document of plain data: mappings, lists, text and numbers.

    Raises
    ------
    InputError
        For the first thing that is wrong, in the order of the lines.
    """
    try:
        return document.model_validate(data)
    except ValidationError as refused:
        errors = [source.error(fault.where, fault.problem) for fault in faults_of(refused)]
        raise min(errors, key=lambda error: error.line or 0) from None


def faults_of(refused: ValidationError) -> list[FieldError]:
    """Return pydantic's complaints, each with the way to the value at fault, what is wrong and what is allowed."""
    return [_fault(dict(error)) for error in refused.errors(include_url=False)]


def _fault(error: dict[str, Any]) -> FieldError:
    where: Where = tuple(error["loc"])
    if error["type"] == "missing":
        return FieldError(where[:-1], f"key {where[-1]!r} is missing; allowed is a mapping that has it")
    if error["type"] != "input":
        what = _ALLOWED.get(error["type"]) or error["msg"].removeprefix("Input should be ")
        return FieldError(where, f"{kind_of(error['input'])} stands here; allowed is {what}")
    key = error["ctx"]["key"]
    return FieldError(where if key is None else (*where, key), error["ctx"]["problem"])
