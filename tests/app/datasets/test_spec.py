"""What an entry declares counts in the fingerprint of its dataset."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from app.datasets.files.backends import BACKENDS
from app.datasets.spec import CorrectionSpec, DatasetSpec, parse_dataset
from app.errors import InvalidOptionError
from core.tiles.recording import Axis

CONTENTS = bytes(range(8))
PACKED = {"format": "raw", "dtype": "<u2", "sig_shape": [4, 4], "decoder": "a:b", "frame_bytes": 9}
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "format": ({}, {"format": "mib"}),
    "array": ({}, {"array": "a/b"}),
    "dtype": (PACKED, {"dtype": ">u2"}),
    "nav_shape": ({"nav_shape": [2, 3]}, {"nav_shape": [3, 2]}),
    "sig_shape": ({"sig_shape": [2, 3]}, {"sig_shape": [3, 2]}),
    "sync_offset": ({}, {"sync_offset": 0}),
    "file_header": ({}, {"file_header": 1}),
    "frame_header": ({}, {"frame_header": 1}),
    "frame_footer": ({}, {"frame_footer": 1}),
    "growing": ({}, {"growing": True}),
    "decoder": (PACKED, {"decoder": "a:c"}),
    "frame_bytes": (PACKED, {"frame_bytes": 8}),
    "float_width": ({"format": "loss"}, {"float_width": 8}),
    "axes.name": ({"axes": [{"name": "x"}]}, {"axes": [{"name": "y"}]}),
    "axes.size": ({"axes": [{"name": "x"}]}, {"axes": [{"name": "x", "size": 2}]}),
    "axes.unit": ({"axes": [{"name": "x"}]}, {"axes": [{"name": "x", "unit": "m"}]}),
    "axes.scale": ({"axes": [{"name": "x"}]}, {"axes": [{"name": "x", "scale": 2}]}),
    "axes.offset": ({"axes": [{"name": "x"}]}, {"axes": [{"name": "x", "offset": 2}]}),
    "corrections.dark": ({}, {"corrections": {"dark": "a.npy"}}),
    "corrections.gain": ({}, {"corrections": {"gain": "a.npy"}}),
    "corrections.excluded": ({}, {"corrections": {"excluded": []}}),
}
"""By each member of an entry, one entry and what makes it another one."""
ELSEWHERE: dict[str, dict[str, Any]] = {
    "id": {"id": "other"},
    "files": {"files": ["b.npy"]},
    "glob": {"files": [], "glob": "a.*"},
    "immutable": {"immutable": True},
    "backend": {"backend": BACKENDS[0]},
    "partial": {"partial": True},
}
"""Members that change no byte: tokens have the id, and files a fingerprint of their own."""


def members() -> list[str]:
    """All members of entries, and of what they consist of."""
    inner = {"axes": Axis, "corrections": CorrectionSpec}
    names = [field.name for field in fields(DatasetSpec) if field.name != "registered"]
    nested = [f"{name}.{field.name}" for name, kind in inner.items() for field in fields(kind)]
    return [name for name in names if name not in inner] + nested


def fingerprint(entry: dict[str, Any]) -> bytes:
    spec = parse_dataset({"id": "a", "files": ["a.npy"], **entry}, operator=True)
    return spec.fingerprint(CONTENTS)


@pytest.mark.parametrize("name", members())
def test_a_member_counts_or_changes_no_byte(name: str) -> None:
    if name in ELSEWHERE:
        assert fingerprint(ELSEWHERE[name]) == CONTENTS
        return
    entry, change = CHANGES[name]
    assert fingerprint(entry) != fingerprint(entry | change)


def test_entries_of_defaults_have_the_fingerprint_of_their_files() -> None:
    entry: dict[str, Any] = {"growing": False, "axes": [], "corrections": {}, "dtype": None}
    assert fingerprint({}) == fingerprint(entry) == CONTENTS
    assert fingerprint({"nav_shape": [2, 3]}).hex() == "a486c6b7af22c3cf"


def test_corrections_are_not_members_of_the_entry() -> None:
    with pytest.raises(InvalidOptionError, match="dark is unknown") as caught:
        parse_dataset({"files": ["a"], "dark": "d.npy"})
    assert caught.value.hint == 'Put it in corrections: "corrections": {"dark": …}'
    with pytest.raises(InvalidOptionError) as caught:
        parse_dataset({"files": ["a"], "corrections": {"__pydantic_config__": {}}})
    assert caught.value.hint == "Use dark, excluded, gain"


@pytest.mark.parametrize(
    ("member", "said", "hint"),
    [
        ({"offset": 16}, "offset is unknown", "file_header"),
        ({"shape": [4, 4, 8, 8]}, "shape is unknown", "nav_shape"),
        ({"labels": ["a"]}, "labels is unknown", '"labels": "labels1"'),
        ({"registered": "<u2 [4]"}, "registered is unknown", "files"),
        ({"axes": [{"name": "y"}, {"name": "x", "units": "nm"}]}, r"axes\[1\] has no", "unit?"),
        ({"axes": [{"name": "x", "scale": "0.5 nm"}]}, r"axes\[0\]\.scale is '0\.5 nm'", "unit"),
        ({"axes": [{"name": "x", "scale": 1e300}]}, r"axes\[0\] has coordinates beyond", "scale"),
        ({"axes": [{"scale": 2}]}, r"axes\[0\] has no name", "name"),
        ({"axes": ["x"]}, r"axes\[0\] is 'x', not an object", "name"),
        ({"id": ""}, "id is empty", "Omit id"),
        ({"corrections": {"dark_frame": "d"}}, "no member 'dark_frame'", "dark"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(
    member: dict[str, Any], said: str, hint: str
) -> None:
    with pytest.raises(InvalidOptionError, match=said) as caught:
        parse_dataset({"files": ["a"], **member})
    assert hint in str(caught.value.hint)
