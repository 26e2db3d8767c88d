"""Pipelines over datasets without a server: sources, pins, tokens, growth and change."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.datasets.catalogue import Catalogue
from app.datasets.files.buffers import BufferPool
from app.datasets.files.roots import Roots
from app.errors import (
    DataChangedError,
    InvalidOptionError,
    NotFoundError,
    TokenForeignError,
    TokenForgedError,
    TokenMalformedError,
    TokenRetiredError,
)
from app.http.identity import SINGLE_USER
from app.pipelines.opened import OpenPipeline
from app.pipelines.registry import KIND, Pipelines
from app.state.ownership import Namespaces
from app.tiles.views import Views
from app.tokens import KIND_BATCHES, KIND_TILES, Key, KeyRing, Token
from core.errors import CoreError, OptionError, PipelineError, PositionError, StateError
from core.iterate.base import Block, Ragged, State
from core.losses.reader import LossReader
from tests.app.state.memory import MemoryStateStore
from tests.decoders import DECODERS
from tests.scale import examples
from tests.streams import random_stream

Array = npt.NDArray[Any]
SECRET = secrets.token_bytes(32)
IMMUTABLE_FIELDS = ("event", "item", "sidx", "loss")


class Place:
    """A service without HTTP, and the directory it serves."""

    def __init__(self, root: Path, keys: KeyRing | None = None) -> None:
        self.root = root
        self.store = MemoryStateStore()
        self.keys = KeyRing([Key(1, "sign", SECRET)]) if keys is None else keys
        self.catalogue = Catalogue(self.store, Roots([root]), {}, BufferPool(4), DECODERS)
        self.tiles = Views(self.catalogue, self.store, self.keys)
        self.pipelines = Pipelines(self.catalogue, self.tiles, self.store, self.keys)

    def restart(self) -> None:
        """Forget all that is in memory."""
        self.close()
        self.catalogue = Catalogue(self.store, Roots([self.root]), {}, BufferPool(4), DECODERS)
        self.tiles = Views(self.catalogue, self.store, self.keys)
        self.pipelines = Pipelines(self.catalogue, self.tiles, self.store, self.keys)

    def close(self) -> None:
        self.pipelines.close()
        self.catalogue.close()

    def dataset(self, ident: str, content: bytes | None, **entry: Any) -> None:  # noqa: ANN401
        if content is not None:
            (self.root / ident).write_bytes(content)
        values = {"id": ident, "files": [ident], **entry}
        self.catalogue.register(SINGLE_USER, values)[0].close()

    def register(self, *stages: Mapping[str, Any]) -> dict[str, Any]:
        opened, created = self.pipelines.register(SINGLE_USER, {"order": 1, "stages": stages})
        about = {**opened.describe(), "created": created}
        opened.close()
        return about

    def batches(self, ident: str, after: str | None = None, most: int = 1000) -> list[Block]:
        opened = self.pipelines.open(SINGLE_USER, ident, after)
        try:
            return [step[0] for step in steps(opened, most)]
        finally:
            opened.close()


def steps(opened: OpenPipeline, most: int = 1000) -> Iterator[tuple[Block, State]]:
    state = opened.start
    for _ in range(most):
        step = opened.pipeline.step(state)
        if step is None:
            return
        state = step.state
        yield step.block, state


def source(dataset: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"op": "source", "dataset": dataset, **options}


BATCH = {"op": "batch", "size": 4}
SHUFFLED = ({"op": "permute", "seed": 7, "epochs": 2}, BATCH)


def joined(batches: list[Block], name: str) -> list[Any]:
    return [item for block in batches for item in np.asarray(block[name]).tolist()]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()
    assert not open_files(tmp_path)


def open_files(directory: Path) -> list[str]:
    """Files below a directory that this process has open."""
    found = []
    for link in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):
            found.append(str(link.readlink()))
    return [name for name in found if name.startswith(f"{directory}/")]


def text(first: int, last: int) -> bytes:
    return b"".join(b"line %d\n" % k for k in range(first, last))


def lines(batches: list[Block]) -> list[int]:
    return [int(bytes(item).split()[1]) for block in batches for item in _items(block["text"])]


def _items(column: Any) -> list[Array]:  # noqa: ANN401
    assert isinstance(column, Ragged)
    return [column[k] for k in range(len(column))]


# -- sources ---------------------------------------------------------------------------


@pytest.mark.parametrize("sync", [0, 3, -3])
def test_frames_of_an_array(place: Place, sync: int) -> None:
    frames = np.arange(30 * 6, dtype=">u2").reshape(30, 2, 3)
    place.dataset(
        "frames",
        frames.tobytes(),
        format="raw",
        dtype=">u2",
        nav_shape=[5, 6],
        sig_shape=[2, 3],
        sync_offset=sync,
    )
    about = place.register(source("frames"), BATCH)
    expected = frames[max(sync, 0) : 30 + min(sync, 0)].tolist()
    assert about["schema"] == [{"name": "data", "dtype": "<u2", "shape": [2, 3], "ragged": False}]
    assert about["sources"][0]["count"] == len(expected)
    assert joined(place.batches(about["id"]), "data") == expected
    shuffled = place.register(source("frames"), *SHUFFLED)
    found = joined(place.batches(shuffled["id"]), "data")
    assert found != expected * 2
    assert sorted(found) == sorted(expected * 2)
    part = place.register(source("frames", range=[2, 9]), BATCH)
    assert joined(place.batches(part["id"]), "data") == expected[2:9]


def test_tiles_of_a_view(place: Place) -> None:
    frames = np.random.default_rng(1).integers(0, 99, (5, 4, 6)).astype("<i4")
    np.save(place.root / "scan.npy", frames)
    place.catalogue.register(SINGLE_USER, {"id": "scan", "files": ["scan.npy"]})[0].close()
    view = {"tile_shape": [2, 4, 4], "dtype": "<f4"}
    ident, opened, _ = place.tiles.register(SINGLE_USER, "scan", view)
    opened.close()
    by_id = place.register(source("scan", view=ident), BATCH)
    assert place.register(source("scan", view={"id": ident}), BATCH)["id"] == by_id["id"]
    inline = place.register(source("scan", view=view, unit="tile"), BATCH)
    for about in (by_id, inline):
        assert [field["name"] for field in about["schema"]] == ["data", "origin", "shape"]
        (first, second) = place.batches(about["id"])
        filled = np.zeros((6, 4, 8), "f4")
        for block in (first, second):
            pairs = zip(np.asarray(block["data"]), np.asarray(block["origin"]), strict=True)
            for data, origin in pairs:
                box = tuple(slice(o, o + n) for o, n in zip(origin, data.shape, strict=True))
                filled[box] = data
        np.testing.assert_array_equal(filled[:5, :, :6], frames)
        assert not filled[5:].any()
        assert not filled[:, :, 6:].any()
        assert np.asarray(second["shape"])[-1].tolist() == [1, 4, 2]
    only = place.register(source("scan", view=view, fields=["shape"]), BATCH)
    assert [field["name"] for field in only["schema"]] == ["shape"]


SELECTED: list[tuple[dict[str, Any], list[int]]] = [
    ({}, list(range(30))),
    ({"select": {"nav": [[1, 5, 3], [0, 6, 4]]}}, [6, 10, 24, 28]),
    ({"select": {"nav": [[1, 5, 3], [0, 6, 4]]}, "tile_shape": [3, 2, 3]}, [6, 10, 24, 28]),
    ({"select": {"frames": [7, 29, 7]}}, [7, 29, 7]),
    ({"select": {"mask": base64.b64encode(np.packbits(np.arange(30) % 7 == 2).tobytes()).decode()}},
     [2, 9, 16, 23]),
    ({"sync_offset": 4}, list(range(26))),
    ({"sync_offset": -4, "missing": "zero"}, list(range(30))),
]  # fmt: skip


@pytest.mark.parametrize(("view", "expected"), SELECTED)
def test_frames_of_a_view(place: Place, view: dict[str, Any], expected: list[int]) -> None:
    frames = np.random.default_rng(2).integers(0, 99, (5, 6, 4, 5)).astype("<u2")
    np.save(place.root / "scan.npy", frames)
    place.catalogue.register(SINGLE_USER, {"id": "scan", "files": ["scan.npy"]})[0].close()
    cut = {**view, "sig": [[1, 3], [1, 4]], "dtype": "<f4"}
    fields = ["index", "data", "nav"]
    about = place.register(source("scan", view=cut, unit="frame", fields=fields), BATCH)
    assert [field["name"] for field in about["schema"]] == fields
    assert [field["shape"] for field in about["schema"]] == [[], [2, 3], [2]]
    batches = place.batches(about["id"])
    assert joined(batches, "index") == expected
    assert joined(batches, "nav") == [[place // 6, place % 6] for place in expected]
    sync = view.get("sync_offset", 0)
    padded = np.concatenate([np.zeros((max(-sync, 0), 4, 5)), frames.reshape(30, 4, 5)])
    found = np.concatenate([np.asarray(block["data"]) for block in batches])
    assert found.dtype == np.dtype("<f4")
    np.testing.assert_array_equal(found, padded[max(sync, 0) :][expected, 1:3, 1:4])


LABELS = np.random.default_rng(4).integers(0, 9, 30)


@pytest.mark.parametrize(
    ("labels", "form"),
    [
        (LABELS.reshape(5, 6), {}),
        (LABELS.reshape(5, 6), {"nav_shape": [5, 6], "sig_shape": [1]}),
        (LABELS, {}),
        (np.stack([LABELS, -LABELS], axis=1), {}),
        (np.stack([LABELS, -LABELS], axis=1).reshape(5, 6, 2), {}),
        (LABELS, {"format": "parquet"}),
    ],
)
def test_labels_stay_with_their_frames(place: Place, labels: Array, form: dict[str, Any]) -> None:
    np.save(place.root / "scan.npy", np.arange(30 * 4, dtype="<u2").reshape(5, 6, 2, 2))
    place.dataset("scan", None, files=["scan.npy"])
    if form:
        pq.write_table(pa.table({"label": LABELS, "other": LABELS}), place.root / "parquet")
    with (place.root / "labels").open("wb") as file:
        np.save(file, labels)
    form = {"files": ["parquet"], **form} if "format" in form else form
    place.dataset("labels", None, **form)
    view = {"sig": [[0, 1], [0, 1]], "select": {"nav": [[0, 5, 2], [1, 6, 1]]}}
    for options in ({}, {"view": view, "unit": "frame"}):
        about = place.register(source("scan", labels="labels", **options), *SHUFFLED)
        whole = place.batches(about["id"])
        places = np.array(joined(whole, "data")).reshape(-1, *([2, 2] if not options else [1, 1]))
        places = places[:, 0, 0] // 4
        assert len(places) == 2 * (30 if not options else 15)
        expected = labels.reshape(30, -1).squeeze(1) if labels.size == 30 else labels.reshape(30, 2)
        assert joined(whole, "label") == expected[places].tolist()
        # From any token, the rest comes; and each rank has its rows.
        opened = place.pipelines.open(SINGLE_USER, about["id"])
        tokens = [opened.tokens.token(state) for _, state in steps(opened)]
        halves = [opened.pipeline.step(opened.start, rank, 2) for rank in (0, 1)]
        opened.close()
        for done, token in enumerate(tokens, 1):
            rest = place.batches(about["id"], token)
            assert joined(rest, "label") == joined(whole[done:], "label")
        assert joined([half.block for half in halves if half], "label") == joined(
            whole[:1], "label"
        )
        only = place.register(source("scan", labels="labels", fields=["label"], **options), BATCH)
        assert [field["name"] for field in only["schema"]] == ["label"]
        assert len(joined(place.batches(only["id"]), "label")) == len(places) // 2
    with (place.root / "labels").open("wb") as file:
        np.save(file, labels + 1)
    pq.write_table(pa.table({"label": LABELS + 1}), place.root / "parquet")
    with pytest.raises(DataChangedError):
        place.batches(about["id"], tokens[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"labels": "turned"},
            r"'turned' have the shape \[6, 5, 1\], but the scan \[5, 6\] has 30 positions",
        ),
        ({"labels": "lines"}, "the labels 'lines' are lines of text"),
        ({"labels": {"y": "table"}}, "labels ask 'table' for 'y', of which it has no field"),
        ({"labels": "few"}, r"have 10 items, but the scan \[5, 6\] has 30 positions"),
        ({"labels": "packed"}, r"of \[5, 6\], cannot be divided into parts of \[1\]"),
        ({"labels": "late"}, r"have 28 frames, but the scan \[5, 6\] has 30 positions"),
        ({"labels": "grows"}, "'grows' may grow"),
        ({"labels": {"data": "turned"}}, "labels name 'data', a field of the frames"),
        ({"labels": {"index": "turned"}, "fields": ["data", "index"]}, "labels name 'index'"),
        ({"labels": "turned", "view": {}}, "labels need frames"),
        ({"labels": 5}, "labels name no dataset"),
        ({"labels": {}}, "labels name no dataset"),
        ({"labels": {"a": 1}}, "labels is 1"),
        ({"dataset": "grows", "labels": "turned"}, "of an array that does not grow"),
    ],
)
def test_labels_that_do_not_fit_are_refused(
    place: Place, options: dict[str, Any], message: str
) -> None:
    raw = {"format": "raw", "sig_shape": [2, 2], "dtype": "u1"}
    place.dataset("scan", bytes(120), nav_shape=[5, 6], **raw)
    place.dataset("lines", text(0, 30), format="lines")
    pq.write_table(pa.table({"label": LABELS[:10]}), place.root / "parquet")
    place.dataset("few", None, files=["parquet"], format="parquet")
    pq.write_table(pa.table({"label": LABELS}), place.root / "table")
    place.dataset("table", None, format="parquet")
    place.dataset("grows", bytes(120), growing=True, **raw)
    one = {"format": "raw", "sig_shape": [1], "dtype": "u1"}
    place.dataset("turned", bytes(30), nav_shape=[6, 5], **one)
    place.dataset("late", bytes(30), nav_shape=[5, 6], partial=True, sync_offset=2, **one)
    gaps = {**raw, "sig_shape": [5, 6], "frame_header": 3}
    place.dataset("packed", bytes(33), nav_shape=[1], **gaps)
    with pytest.raises(PipelineError, match=message) as caught:
        place.register({**source("scan"), **options}, BATCH)
    assert caught.value.hint


def test_losses_rows_and_lines(place: Place) -> None:
    stream = random_stream(np.random.default_rng(3), kind="loss", samples=9, events=7)
    place.dataset("losses", stream.encode(), format="loss")
    reader = LossReader()
    reader.receive(stream.encode())
    reader.close()
    events = reader.drain()
    about = place.register(source("losses", unit="event"), BATCH)
    assert [field["name"] for field in about["schema"]] == [*IMMUTABLE_FIELDS]
    batches = place.batches(about["id"])
    assert joined(batches, "event") == [event.event_id for event in events]
    found = [item.tolist() for block in batches for item in _items(block["loss"])]
    assert found == [event.losses.tolist() for event in events]
    blocks = place.register(source("losses", unit="block", fields=["item"]), BATCH)
    assert joined(place.batches(blocks["id"]), "item") == [
        k for event in events for k in event.block_ids.tolist()
    ]

    pq.write_table(pa.table({"x": range(10), "name": list("abcdefghij")}), place.root / "rows")
    place.dataset("rows", None, format="parquet")
    rows = place.register(source("rows", fields=["x"]), BATCH)
    assert joined(place.batches(rows["id"]), "x") == list(range(10))

    place.dataset("lines", text(0, 10), format="lines")
    told = place.register(source("lines"), BATCH)
    assert lines(place.batches(told["id"])) == list(range(10))


def test_several_sources(place: Place) -> None:
    place.dataset("a", text(0, 10), format="lines")
    place.dataset("b", text(100, 110), format="lines")
    spec = {"op": "zip", "inputs": [[source("a")], [source("b")], [source("a")]]}
    about = place.register({**spec, "names": ["one", "two", "three"]}, BATCH)
    assert [each["dataset"] for each in about["sources"]] == ["a", "b"]
    (block, *_) = place.batches(about["id"])
    assert len(block) == 3


@pytest.mark.parametrize(
    ("stage", "error"),
    [
        (source("nothing"), NotFoundError),
        (source("text", fields=["colour"]), CoreError),
        (source("text", unit="event"), CoreError),
        (source("text", range=[3, 11]), CoreError),
        (source("text", view={}), CoreError),
        (source("scan", unit="tile"), CoreError),
        (source("scan", unit="frame", view={"bin": {"nav": 5}}), PipelineError),
        (source("scan", unit="tile", view={}, fields=["index"]), PipelineError),
        (source("scan", view={"id": "0123"}), NotFoundError),
        (source("scan", view="0123"), NotFoundError),
        (source("scan", view={"colour": 1}), PipelineError),
        (source("grows", view={}), PipelineError),
    ],
)
def test_sources_that_cannot_be_are_refused(
    place: Place, stage: dict[str, Any], error: type[Exception]
) -> None:
    place.dataset("text", text(0, 10), format="lines")
    raw = {"format": "raw", "dtype": "<u2", "sig_shape": [2, 2]}
    place.dataset("scan", bytes(80), **raw)
    place.dataset("grows", bytes(80), growing=True, **raw)
    with pytest.raises(error):
        place.register(stage, BATCH)
    assert place.pipelines.ids(SINGLE_USER) == []


def test_an_item_dataset_has_no_tiles(place: Place) -> None:
    place.dataset("text", text(0, 10), format="lines")
    with pytest.raises(InvalidOptionError, match="lines items"):
        place.tiles.open(SINGLE_USER, "text", {})


# -- registration ----------------------------------------------------------------------


def test_a_pipeline_is_found_again_by_what_it_says(place: Place) -> None:
    place.dataset("text", text(0, 10), format="lines")
    first = place.register(source("text"), *SHUFFLED)
    second = place.register(source("text", fields=None), *SHUFFLED)
    assert (first.pop("created"), second.pop("created")) == (True, False)
    assert first == second
    assert place.pipelines.ids(SINGLE_USER) == [first["id"]]
    other = place.register(source("text"), BATCH)
    assert other["id"] != first["id"]
    assert place.pipelines.ids(SINGLE_USER, limit=1) == [min(first["id"], other["id"])]
    place.restart()
    third = place.register(source("text"), *SHUFFLED)
    assert not third.pop("created")
    assert third == first
    with pytest.raises(NotFoundError):
        place.pipelines.open(SINGLE_USER, "0" * 32)
    with pytest.raises(NotFoundError):
        place.pipelines.open(SINGLE_USER, "../etc")


def test_what_a_pipeline_says(place: Place) -> None:
    place.dataset("text", text(0, 10), format="lines")
    about = place.register(source("text"), *SHUFFLED)
    assert (about["batches"], about["batches_per_epoch"], about["batch_size"]) == (6, 3, 4)
    assert len(about["token"]) < 100
    assert (len(about["id"]), len(about["fingerprint"])) == (32, 16)
    assert about["memory"] > 0
    assert about["resume_work"] >= 0


def test_a_pipeline_of_an_earlier_version_is_not_served(place: Place) -> None:
    place.dataset("text", text(0, 10), format="lines")
    about = place.register(source("text"), BATCH)
    records = Namespaces(place.store, KIND)
    records.create("admin", "ab" * 16, records.get("admin", about["id"]).value)
    with pytest.raises(NotFoundError, match="version"):
        place.pipelines.open(SINGLE_USER, "ab" * 16)


# -- tokens ----------------------------------------------------------------------------


def test_every_token_goes_on_where_it_says(place: Place) -> None:
    place.dataset("text", text(0, 23), format="lines")
    about = place.register(source("text"), *SHUFFLED)
    opened = place.pipelines.open(SINGLE_USER, about["id"])
    whole = lines([block for block, _ in steps(opened)])
    assert sorted(whole) == sorted([*range(23), *range(23)])
    done = 0
    places = list(steps(opened))
    opened.close()
    for block, state in places:
        done += len(lines([block]))
        place.restart()
        token = opened.tokens.token(state)
        assert lines(place.batches(about["id"], token)) == whole[done:]


def test_equal_places_have_equal_tokens(place: Place) -> None:
    place.dataset("text", text(0, 23), format="lines")
    about = place.register(source("text"), *SHUFFLED)
    ways = []
    for first in (None, about["token"]):
        opened = place.pipelines.open(SINGLE_USER, about["id"], first)
        ways.append([opened.tokens.token(state) for _, state in steps(opened)])
        opened.close()
    assert ways[0] == ways[1]


def resigned(place: Place, text: str, **change: Any) -> str:  # noqa: ANN401
    return place.keys.sign(dataclasses.replace(place.keys.verify(text).token, **change))


def test_tokens_that_do_not_fit_are_refused(place: Place) -> None:
    place.dataset("text", text(0, 10), format="lines")
    about = place.register(source("text"), *SHUFFLED)
    other = place.register(source("text"), BATCH)
    token = about["token"]
    foreign = KeyRing([Key(1, "sign", secrets.token_bytes(32))])
    cases: list[tuple[str, type[Exception]]] = [
        (other["token"], TokenForeignError),
        (resigned(place, token, kind=KIND_TILES), TokenForeignError),
        (resigned(place, token, fingerprint=bytes(8)), DataChangedError),
        (resigned(place, token, state=()), TokenMalformedError),
        (resigned(place, token, state=(7,)), StateError),
        (resigned(place, token, state=(2**63,)), StateError),
        (resigned(place, token, state=(1, 2)), StateError),
        (token[:-1], TokenMalformedError),
        (token[:-4] + "AAAA", TokenForgedError),
        (foreign.sign(place.keys.verify(token).token), TokenForgedError),
        ("", TokenMalformedError),
    ]
    for text_, error in cases:
        with pytest.raises(error):
            place.pipelines.open(SINGLE_USER, about["id"], text_)
    with pytest.raises(DataChangedError) as changed:
        place.pipelines.open(SINGLE_USER, about["id"], cases[2][0])
    assert changed.value.members == {"was": "0" * 16, "now": about["fingerprint"]}
    assert place.batches(about["id"], resigned(place, token, state=(6,))) == []


def test_a_token_of_a_retired_key_has_to_be_refreshed(place: Place) -> None:
    place.dataset("text", text(0, 10), format="lines")
    about = place.register(source("text"), BATCH)
    keys = KeyRing([Key(1, "refresh-only", SECRET), Key(2, "sign", secrets.token_bytes(32))])
    renewed = Place(place.root, keys)
    renewed.dataset("text", None, format="lines")
    renewed.register(source("text"), BATCH)
    with pytest.raises(TokenRetiredError):
        renewed.pipelines.open(SINGLE_USER, about["id"], about["token"])
    fresh = keys.sign(keys.verify(about["token"], refresh=True).token)
    assert lines(renewed.batches(about["id"], fresh)) == list(range(10))
    renewed.close()


def test_the_end_and_what_lies_behind_it(place: Place) -> None:
    place.dataset("text", text(0, 10), format="lines")
    about = place.register(source("text"), BATCH)
    opened = place.pipelines.open(SINGLE_USER, about["id"])
    end = opened.pipeline.skip(opened.start, 3)
    assert opened.pipeline.step(end) is None
    assert opened.is_over(end)
    with pytest.raises(PositionError):
        opened.pipeline.skip(opened.start, 4)
    for rank, world in ((1, 1), (2, 2), (0, 5), (4, 5)):
        with pytest.raises((InvalidOptionError, OptionError)):
            opened.check_rank(rank, world)
    opened.close()


# -- data that changes -----------------------------------------------------------------


def test_a_dataset_that_changed_is_told_and_can_be_registered_anew(place: Place) -> None:
    place.dataset("text", text(0, 10), format="lines")
    about = place.register(source("text"), BATCH)
    (place.root / "text").write_bytes(text(50, 60))
    for after in (None, about["token"]):
        with pytest.raises(DataChangedError) as error:
            place.batches(about["id"], after)
        assert error.value.members["was"] == about["fingerprint"]
        assert error.value.members["now"] != about["fingerprint"]
    again = place.register(source("text"), BATCH)
    assert again["created"]
    assert again["id"] == about["id"]
    assert again["fingerprint"] != about["fingerprint"]
    assert lines(place.batches(again["id"], again["token"])) == list(range(50, 60))
    with pytest.raises(DataChangedError):
        place.batches(about["id"], about["token"])


def test_of_several_datasets_those_that_changed_are_named(place: Place) -> None:
    for name in "abc":
        place.dataset(name, text(0, 10), format="lines")
    inputs = [[source(name)] for name in "abc"]
    about = place.register({"op": "zip", "inputs": inputs, "names": ["a", "b", "c"]}, BATCH)
    for changed in ("b", "bc"):
        (place.root / changed[-1]).write_bytes(text(50, 60))
        named = " and ".join(map(repr, changed))
        with pytest.raises(DataChangedError, match=f"the data of {named} has changed"):
            place.batches(about["id"])
    place.register(about["spec"]["stages"][0], BATCH)
    with pytest.raises(DataChangedError, match="the data of 'a' or 'b' or 'c' has changed"):
        place.batches(about["id"], about["token"])


def test_data_that_cannot_be_what_it_was_is_told_as_changed(place: Place) -> None:
    pq.write_table(pa.table({"x": range(10)}), place.root / "rows")
    place.dataset("rows", None, format="parquet")
    about = place.register(source("rows", fields=["x"]), BATCH)
    pq.write_table(pa.table({"y": range(10)}), place.root / "rows")
    with pytest.raises(DataChangedError) as error:
        place.batches(about["id"])
    assert error.value.members["was"] == about["fingerprint"]


GROWING: dict[str, dict[str, Any]] = {
    "lines": {"format": "lines"},
    "loss": {"format": "loss"},
    "raw": {"format": "raw", "dtype": "<i8", "sig_shape": [3]},
}


def growing_content(form: str, rng: np.random.Generator) -> tuple[bytes, str]:
    """Bytes of which any prefix that is long enough can be registered, and a field."""
    if form == "lines":
        return text(0, 300), "text"
    if form == "raw":
        return rng.integers(0, 1 << 40, (200, 3)).tobytes(), "data"
    return random_stream(rng, kind="gul", samples=5, events=60).encode(), "loss"


def values_of(batches: list[Block], name: str) -> list[Any]:
    if isinstance(batches[0][name], Ragged) if batches else False:
        return [item.tolist() for block in batches for item in _items(block[name])]
    return joined(batches, name)


@pytest.mark.parametrize("form", GROWING)
@pytest.mark.parametrize("seed", range(examples(3)))
def test_growth_keeps_tokens_and_batches(place: Place, form: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    content, name = growing_content(form, rng)
    path = place.root / "live"
    cuts = np.sort(rng.integers(len(content) // 2, len(content), 4, endpoint=True)).tolist()
    path.write_bytes(content[: cuts[0]])
    place.dataset("live", None, growing=True, **GROWING[form])
    about = place.register(source("live"), *SHUFFLED)
    assert about["sources"][0]["growing"]
    # The dataset's own changes with every growth.
    assert about["sources"][0]["fingerprint"] is None
    assert len(about["token"]) < 100
    opened = place.pipelines.open(SINGLE_USER, about["id"])
    expected = values_of([block for block, _ in steps(opened)], name)
    tokens = [about["token"], *(opened.tokens.token(state) for _, state in steps(opened, 3))]
    opened.close()
    for cut in cuts[1:]:
        with path.open("ab") as file:
            file.write(content[path.stat().st_size : cut])
        if rng.random() < 0.5:
            place.restart()
        for number, token in enumerate(tokens):
            assert values_of(place.batches(about["id"], token), name) == expected[4 * number :]
        assert values_of(place.batches(about["id"]), name) == expected
        again = place.register(source("live"), *SHUFFLED)
        assert (again["token"], again["created"]) == (about["token"], False)
        # More of it is another pipeline, or another server's registration.
        other = Place(place.root)
        other.dataset("live", None, growing=True, **GROWING[form])
        fresh = other.register(source("live"), *SHUFFLED)
        assert fresh["sources"][0]["count"] >= about["sources"][0]["count"]
        assert values_of(other.batches(about["id"], tokens[-1]), name) == expected[4 * 3 :]
        other.close()


@pytest.mark.parametrize("form", GROWING)
def test_a_growing_dataset_that_changes_otherwise_is_told(place: Place, form: str) -> None:
    content, _ = growing_content(form, np.random.default_rng(8))
    path = place.root / "live"
    path.write_bytes(content[: len(content) * 3 // 4])
    place.dataset("live", None, growing=True, **GROWING[form])
    about = place.register(source("live"), BATCH)
    place.batches(about["id"])
    changed = bytearray(content)
    changed[40] ^= 1
    path.write_bytes(changed)
    for restart in (False, True):
        if restart:
            place.restart()
        with pytest.raises(DataChangedError):
            place.batches(about["id"], about["token"])
    path.write_bytes(content)
    place.restart()
    place.batches(about["id"], about["token"])
    path.write_bytes(content[: len(content) // 4])
    with pytest.raises(DataChangedError):
        place.batches(about["id"], about["token"])


def test_a_header_behind_the_frames_of_a_growing_dataset_counts(place: Place) -> None:
    frame = bytes(130 * 128 * 4)
    header = '<s><raw_file filename="a.raw"/><type>series</type><count>{}</count></s>'
    (place.root / "a.raw").write_bytes(5 * frame)
    (place.root / "a.xml").write_text(header.format(7))
    place.dataset("a", None, files=["a.raw", "a.xml"], growing=True)
    about = place.register(source("a"), BATCH)
    place.batches(about["id"], about["token"])
    place.restart()
    place.batches(about["id"], about["token"])
    (place.root / "a.xml").write_text(header.format(8))
    with pytest.raises(DataChangedError):
        place.batches(about["id"], about["token"])


@pytest.mark.parametrize("growing", [False, True])
def test_a_dark_image_is_part_of_the_data(place: Place, growing: bool) -> None:
    np.save(place.root / "scan.npy", np.full((6, 8, 9), 1000, "<u2"))
    np.save(place.root / "dark.npy", np.zeros((8, 9)))
    corrections = {"dark": "dark.npy"}
    place.dataset("a", None, files=["scan.npy"], corrections=corrections, growing=growing)
    about = place.register(source("a"), BATCH)
    place.batches(about["id"], about["token"])
    np.save(place.root / "dark.npy", np.full((8, 9), 7.0))
    for restart in (False, True):
        if restart:
            place.restart()
        for token in (None, about["token"]):
            with pytest.raises(DataChangedError):
                place.batches(about["id"], token)


def test_what_an_entry_means_is_part_of_the_data(tmp_path: Path) -> None:
    (tmp_path / "raw").write_bytes(bytes(range(240)))
    tokens = []
    for sig_shape in ([2, 3], [3, 2]):
        one = Place(tmp_path)
        one.dataset("raw", None, format="raw", dtype="<u2", sig_shape=sig_shape)
        tokens.append((one, one.register(source("raw"), BATCH)))
    (first, about), (second, _) = tokens
    with pytest.raises(DataChangedError):
        second.pipelines.open(SINGLE_USER, about["id"], about["token"])
    for each in (first, second):
        each.close()


def test_identity_is_of_pipeline_and_kind(place: Place) -> None:
    place.dataset("text", text(0, 10), format="lines")
    about = place.register(source("text"), BATCH)
    token = place.keys.verify(about["token"]).token
    assert token == Token(
        KIND_BATCHES,
        bytes.fromhex(about["id"])[:8],
        bytes.fromhex(about["fingerprint"]),
        (0,),
    )


def test_a_broken_spec_points_at_stage_and_field(place: Place) -> None:
    place.dataset("text", text(0, 10), format="lines")
    with pytest.raises(PipelineError) as error:
        place.register(source("text"), {"op": "batch", "size": 0})
    assert (error.value.stage, error.value.field) == (1, "size")


def test_dark_frames_are_filtered_by_what_they_were_reduced_to(place: Place) -> None:
    frames = np.arange(30 * 4, dtype="<u2").reshape(5, 6, 2, 2)
    np.save(place.root / "scan.npy", frames)
    np.save(place.root / "means.npy", frames.mean((2, 3)))
    place.dataset("scan", None, files=["scan.npy"])
    place.dataset("means", None, files=["means.npy"])
    bright = {"op": "filter", "pred": "greater", "args": {"field": "mean", "value": 60}}
    about = place.register(source("scan", labels={"mean": "means"}), bright, BATCH)
    found = np.array(joined(place.batches(about["id"]), "data"))
    assert np.array_equal(found, frames.reshape(30, 2, 2)[15:])
