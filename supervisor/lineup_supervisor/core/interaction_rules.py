"""What a standard interaction may ask and what may be answered. Pure functions over JSON values; no rows.

Shapes follow the four primitives: ``notice``, ``choice``, ``confirm``, ``input``. Every fault names its path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.ids import is_id
from lineup_protocol.messages import INTERACTION_KINDS
from lineup_supervisor.core.canonical import canonical

CHOICE_MODES = ("single-choice", "multi-choice", "button")
FIELD_TYPES = ("text", "textarea", "number")


def _refuse(path: str, rule: str) -> NoReturn:
    raise LineUpError("interaction_invalid", f"{path}: {rule}", detail={"path": path, "rule": rule})


def check_request(request: dict[str, Any]) -> dict[str, Any]:
    """Check a request as a MiniApp or an agent sends it; returns it unchanged.

    Raises:
        LineUpError: ``interaction_invalid`` with ``{path, rule}``.
    """
    kind = request.get("kind")
    if kind not in INTERACTION_KINDS:
        _refuse("/kind", f"must be one of {', '.join(INTERACTION_KINDS)}")
    _keys(request, "", _KEYS[kind][0], _KEYS[kind][1])
    for name in ("title", "message", "prompt", "acknowledge_label", "approve_label", "cancel_label", "submit_label"):
        if name in request:
            _text(request[name], f"/{name}")
    if not request["title"].strip():
        _refuse("/title", "must not be empty")
    if kind == "choice":
        _check_actions(request)
    elif kind == "input":
        _check_fields(request)
    _check_size(request)
    return request


_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "notice": (("kind", "title", "message"), ("acknowledge_label",)),
    "choice": (("kind", "title", "prompt", "mode", "actions"), ()),
    "confirm": (("kind", "title", "prompt"), ("approve_label", "cancel_label")),
    "input": (("kind", "title", "prompt", "fields"), ("submit_label", "cancel_label")),
}
_FIELD_KEYS = (
    ("id", "label", "type"),
    ("required", "placeholder", "min_length", "max_length", "minimum", "maximum"),
)


def _keys(value: dict[str, Any], path: str, required: tuple[str, ...], optional: tuple[str, ...]) -> None:
    for name in value:
        if name not in required and name not in optional:
            _refuse(f"{path}/{name}", "unknown field")
    for name in required:
        if name not in value:
            _refuse(f"{path}/{name}", "is required")


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        _refuse(path, "must be a string")
    if len(value) > limits.TEXT_LENGTH_MAX:
        _refuse(path, f"at most {limits.TEXT_LENGTH_MAX} characters")
    return value


def _check_actions(request: dict[str, Any]) -> None:
    if request["mode"] not in CHOICE_MODES:
        _refuse("/mode", f"must be one of {', '.join(CHOICE_MODES)}")
    actions = request["actions"]
    if not isinstance(actions, list) or not 1 <= len(actions) <= limits.INTERACTION_ACTIONS_MAX:
        _refuse("/actions", f"must be a list of 1 to {limits.INTERACTION_ACTIONS_MAX}")
    seen: set[str] = set()
    for n, action in enumerate(actions):
        path = f"/actions/{n}"
        if not isinstance(action, dict):
            _refuse(path, "must be an object")
        _keys(action, path, ("id", "label"), ("description",))
        _identifier(action["id"], f"{path}/id", seen)
        _text(action["label"], f"{path}/label")
        if "description" in action:
            _text(action["description"], f"{path}/description")


def _identifier(value: object, path: str, seen: set[str]) -> None:
    if not is_id(value):
        _refuse(path, "must be an id: 1 to 128 characters of A-Z a-z 0-9 . _ : -")
    if value in seen:
        _refuse(path, "is used twice")
    seen.add(value)


def _check_fields(request: dict[str, Any]) -> None:
    fields = request["fields"]
    if not isinstance(fields, list) or not 1 <= len(fields) <= limits.INTERACTION_FIELDS_MAX:
        _refuse("/fields", f"must be a list of 1 to {limits.INTERACTION_FIELDS_MAX}")
    seen: set[str] = set()
    for n, field in enumerate(fields):
        path = f"/fields/{n}"
        if not isinstance(field, dict):
            _refuse(path, "must be an object")
        _keys(field, path, *_FIELD_KEYS)
        _identifier(field["id"], f"{path}/id", seen)
        _text(field["label"], f"{path}/label")
        if field["type"] not in FIELD_TYPES:
            _refuse(f"{path}/type", f"must be one of {', '.join(FIELD_TYPES)}")
        if not isinstance(field.get("required", False), bool):
            _refuse(f"{path}/required", "must be true or false")
        if "placeholder" in field:
            _text(field["placeholder"], f"{path}/placeholder")
        _check_bounds(field, path)


def _check_bounds(field: dict[str, Any], path: str) -> None:
    number = field["type"] == "number"
    for low, high, fits in (("min_length", "max_length", not number), ("minimum", "maximum", number)):
        for name in (low, high):
            if name not in field:
                continue
            if not fits:
                _refuse(f"{path}/{name}", f"does not apply to type {field['type']}")
            value = field[name]
            whole = isinstance(value, int) and not isinstance(value, bool)
            if name.endswith("_length") and not (whole and value >= 0):
                _refuse(f"{path}/{name}", "must be a whole number from 0")
            if not _is_number(value):
                _refuse(f"{path}/{name}", "must be a finite number")
        if low in field and high in field and field[low] > field[high]:
            _refuse(f"{path}/{low}", f"is greater than {high}")


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and value == value
        and value not in (float("inf"), float("-inf"))
    )


def check_result(request: dict[str, Any], result: object) -> dict[str, Any]:
    """Check a person's answer against what was asked; returns it in its normal form.

    Raises:
        LineUpError: ``interaction_invalid`` with ``{path, rule}``.
    """
    if not isinstance(result, dict):
        _refuse("/", "must be an object")
    answer = _RESULT_CHECKS[request["kind"]](request, result)
    _check_size(answer)
    return answer


def _check_size(value: dict[str, Any]) -> None:
    """All of it together; each text in it has its own length."""
    size = len(canonical(value))
    if size > limits.INTERACTION_BYTES_MAX:
        _refuse("/", f"has {size} bytes, at most {limits.INTERACTION_BYTES_MAX} are allowed")


def _notice_result(request: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    _keys(result, "", ("acknowledged",), ())
    if result["acknowledged"] is not True:
        _refuse("/acknowledged", "must be true")
    return {"acknowledged": True}


def _confirm_result(request: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    _keys(result, "", ("approved",), ())
    if not isinstance(result["approved"], bool):
        _refuse("/approved", "must be true or false")
    return {"approved": result["approved"]}


def _choice_result(request: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    _keys(result, "", ("action_ids",), ())
    chosen = result["action_ids"]
    if not isinstance(chosen, list):
        _refuse("/action_ids", "must be a list")
    known = {action["id"] for action in request["actions"]}
    for n, action_id in enumerate(chosen):
        if not isinstance(action_id, str) or action_id not in known:
            _refuse(f"/action_ids/{n}", "is not one of the offered actions")
    distinct = list(dict.fromkeys(chosen))
    if request["mode"] != "multi-choice" and len(distinct) != 1:
        _refuse("/action_ids", "exactly one action must be chosen")
    return {"action_ids": distinct}


def _input_result(request: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    _keys(result, "", ("values",), ())
    values = result["values"]
    if not isinstance(values, dict):
        _refuse("/values", "must be an object")
    fields = {field["id"]: field for field in request["fields"]}
    for name in values:
        if name not in fields:
            _refuse(f"/values/{name}", "is not one of the asked fields")
    answer: dict[str, Any] = {}
    for name, field in fields.items():
        if name in values and values[name] is None:
            _refuse(f"/values/{name}", "must not be null; a field that has no answer is left out")
        value = values.get(name)
        if value is None or value == "":
            if field.get("required", False):
                _refuse(f"/values/{name}", "is required")
            if value == "" and field["type"] != "number" and not field.get("min_length"):
                answer[name] = ""
            continue
        _check_value(field, value, f"/values/{name}")
        answer[name] = value
    return {"values": answer}


def _check_value(field: dict[str, Any], value: object, path: str) -> None:
    if field["type"] == "number":
        if not _is_number(value):
            _refuse(path, "must be a finite number")
        assert isinstance(value, int | float)
        if "minimum" in field and value < field["minimum"]:
            _refuse(path, f"must be at least {field['minimum']}")
        if "maximum" in field and value > field["maximum"]:
            _refuse(path, f"must be at most {field['maximum']}")
        return
    if not isinstance(value, str):
        _refuse(path, "must be a string")
    if "min_length" in field and len(value) < field["min_length"]:
        _refuse(path, f"must have at least {field['min_length']} characters")
    if len(value) > field.get("max_length", limits.TEXT_LENGTH_MAX):
        _refuse(path, f"must have at most {field.get('max_length', limits.TEXT_LENGTH_MAX)} characters")
    if field["type"] == "text" and ("\n" in value or "\r" in value):
        _refuse(path, "must be a single line")


_RESULT_CHECKS: dict[str, Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]] = {
    "notice": _notice_result,
    "confirm": _confirm_result,
    "choice": _choice_result,
    "input": _input_result,
}
