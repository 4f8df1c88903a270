"""TensorFlow Serving's JSON, to arrays and back (its REST API: row and column format, `{"b64": ...}` for bytes)."""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from serving.failures import InvalidRequest


def parse(body: bytes) -> dict[str, Any]:
    """A request's body.

    Raises:
      InvalidRequest: it is no JSON object.
    """
    try:
        parsed = json.loads(body)
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    except ValueError as error:  # such as a number of more digits than Python converts
        raise InvalidRequest(f"the body cannot be read: {error}") from None
    if not isinstance(parsed, dict):
        raise InvalidRequest("the body must be a JSON object")
    return parsed


def inputs_of(request: Mapping[str, Any], specs: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], bool]:
    """Arrays by name, and whether the request came in rows (`instances`), so that its answer does, too.

    Raises:
      InvalidRequest: it has neither or both, or values of another type.
    """
    if ("instances" in request) == ("inputs" in request):
        raise InvalidRequest('give either "instances" (a list of rows) or "inputs" (lists by name)')
    if "inputs" in request:
        given = request["inputs"]
        columns = given if isinstance(given, dict) and not _is_bytes(given) else {_only(specs): given}
        return _arrays(columns, specs), False
    rows = request["instances"]
    if not isinstance(rows, list) or not rows:
        raise InvalidRequest('"instances" must be a list of one or more rows')
    rows = [row if isinstance(row, dict) and not _is_bytes(row) else {_only(specs): row} for row in rows]
    names = rows[0].keys()
    for number, row in enumerate(rows):
        if row.keys() != names:
            raise InvalidRequest(f"row {number} of the instances has other inputs than row 0")
    return _arrays({name: [row[name] for row in rows] for name in names}, specs), True


def answer(outputs: Mapping[str, np.ndarray], by_rows: bool) -> dict[str, Any]:
    """The body of an answer; an only output comes without its name."""
    values = {name: _plain(value) for name, value in outputs.items()}
    only = next(iter(values)) if len(values) == 1 else None
    if not by_rows:
        return {"outputs": values[only] if only else values}
    if only:
        return {"predictions": values[only]}
    rows = len(next(iter(values.values())))
    return {"predictions": [{name: value[row] for name, value in values.items()} for row in range(rows)]}


def array(name: str, value: Any, dtype: Any) -> np.ndarray:
    """A value of JSON as an array of a TensorFlow dtype.

    Raises:
      InvalidRequest: it is of another type, ragged, or out of range.
    """
    kind = dtype.name
    try:
        if kind == "string":
            return _strings(name, value)
        found = np.array(value)
        if kind == "bool":
            fits = found.dtype == np.bool_
        elif kind.startswith("int"):
            fits = found.dtype.kind in "iu"
        else:
            fits = found.dtype.kind in "iuf"
    except (ValueError, OverflowError):
        fits = False
    if fits and kind.startswith("int") and found.size:
        limits = np.iinfo(dtype.as_numpy_dtype)
        if found.min() < limits.min or found.max() > limits.max:
            raise InvalidRequest(f"{name}: beyond what {kind} holds. Received: {_short(value)}")
    if not fits:
        if found_empty(value):
            return np.zeros(np.shape(value), dtype.as_numpy_dtype)
        raise InvalidRequest(f"{name}: must be {kind}, each row of one shape. Received: {_short(value)}")
    return found.astype(dtype.as_numpy_dtype)


def found_empty(value: Any) -> bool:
    """Whether a list has no values, so that its type is open."""
    return isinstance(value, list) and all(found_empty(part) for part in value)


def _strings(name: str, value: Any) -> np.ndarray:
    shape: tuple[int, ...] = ()
    flat = value
    if isinstance(value, list):
        shape, flat = (len(value),), value
    else:
        flat = [value]
    texts = np.empty(len(flat), object)
    for row, text in enumerate(flat):
        texts[row] = _text(name, row, text)
    return texts.reshape(shape)


def _text(name: str, row: int, value: Any) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidRequest(f"{name}: row {row} holds half of a surrogate pair, which is no text") from None
    if _is_bytes(value):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise InvalidRequest(f"{name}: row {row} is no base64") from None
    raise InvalidRequest(f"{name}: row {row} must be a string. Received: {_short(value)}")


def _is_bytes(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"b64"}


def _arrays(columns: Mapping[str, Any], specs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    unknown = sorted(columns.keys() - specs.keys())
    if unknown:
        raise InvalidRequest(f"not known: {', '.join(unknown)}; the signature's inputs are: {', '.join(sorted(specs))}")
    return {name: array(name, value, specs[name].dtype) for name, value in columns.items()}


def _only(specs: Mapping[str, Any]) -> str:
    if len(specs) != 1:
        raise InvalidRequest(f"each row must name its inputs: {', '.join(sorted(specs))}")
    return next(iter(specs))


def _plain(values: np.ndarray) -> Any:
    if values.dtype != object:
        return values.tolist()
    return [text.decode("utf-8", "replace") for text in values.ravel()] if values.ndim else values.item().decode()


def _short(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= 80 else f"{said[:77]}..."
