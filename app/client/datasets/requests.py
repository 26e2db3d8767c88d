"""Requests about the catalogue of datasets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import numpy as np

from ..tiles.options import plain
from ..tiles.requests import dataset_path
from ..transport.requests import Request, json_request


def dataset_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The description of a dataset as JSON values."""
    content: dict[str, Any] = plain({name: v for name, v in spec.items() if v is not None})
    if "dtype" in content:
        content["dtype"] = np.dtype(content["dtype"]).str
    return content


def listing(after: str) -> Request:
    """Ask for the ids after one."""
    query = {"limit": "1000"} | ({"after": after} if after else {})
    return Request("GET", f"/v1/datasets?{urlencode(query)}")


def registration(spec: Mapping[str, Any]) -> Request:
    """Register files as a dataset."""
    return json_request("/v1/datasets", dataset_spec(spec))


def description(ident: str) -> Request:
    """Ask for the description of a dataset."""
    return Request("GET", dataset_path(ident))


def deletion(ident: str) -> Request:
    """Delete a dataset."""
    return Request("DELETE", dataset_path(ident))


def image(ident: str, options: Mapping[str, Any]) -> Request:
    """Ask for a picture; options that are objects become JSON."""
    query = {
        name: json.dumps(plain(value)) if isinstance(value, Mapping) else str(value)
        for name, value in options.items()
        if value is not None
    }
    text = f"?{urlencode(query)}" if query else ""
    return Request("GET", f"{dataset_path(ident)}/image.png{text}")
