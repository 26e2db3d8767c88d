"""Routes of pipelines on a real server: answers, limits, caching, and what is refused."""

from __future__ import annotations

import base64
import gzip
import hashlib
import hmac
import io
import json
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from backports.zstd import decompress as zstd_decompress

from app.tokens import KIND_BATCHES, KIND_TILES, Key, KeyRing, Token
from tests.app.harness import Answer, Service, check_problem, head, wait_until
from tests.frames import Frame, read_frames

Array = npt.NDArray[Any]
SECRETS = {1: "11" * 32, 2: "22" * 32, 3: "33" * 32}
USES = {1: "refresh-only", 2: "accept", 3: "sign"}
ROWS, SHAPE = 50, (3, 2)
BATCH = {"op": "batch", "size": 8}


class Place:
    """A server, and what it serves."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self.root.mkdir()
        keys = ",".join(f"{k}:{USES[k]}:{secret}" for k, secret in SECRETS.items())
        self.service = Service(
            directory, dataset_roots=self.root, token_keys=keys, write_seconds=1.5
        )
        self.values = np.arange(ROWS * 6, dtype="<u2").reshape(ROWS, *SHAPE)
        np.save(self.root / "values.npy", self.values)
        self.dataset("values", ["values.npy"])
        text = b"".join(b"x" * (k % 5) + b"\n" for k in range(ROWS))
        (self.root / "text").write_bytes(text)
        self.dataset("text", ["text"], format="lines")

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        data = b"" if body is None else json.dumps(body).encode()
        kind = [("Content-Type", "application/json")] if body is not None else []
        sent = [*kind, ("Content-Length", str(len(data))), *(headers or {}).items()]
        with self.service.connect() as client:
            client.sendall(head(method, path, sent) + data)
            return Answer(client, method)

    def dataset(self, ident: str, files: list[str], **entry: object) -> None:
        answer = self.ask("POST", "/v1/datasets", {"id": ident, "files": files, **entry})
        assert answer.status == 201, answer.body

    def pipeline(self, *stages: Mapping[str, Any]) -> dict[str, Any]:
        answer = self.ask("POST", "/v1/pipelines", {"order": 1, "stages": stages})
        assert answer.status in {200, 201}, answer.body
        about: dict[str, Any] = answer.json()
        return about

    def problem(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        answer = self.ask(method, path, body)
        found: dict[str, Any] = answer.json()
        check_problem(found, answer)
        return found

    def frames(self, ident: str, **options: object) -> list[Frame]:
        query = "&".join(f"{name}={value}" for name, value in options.items())
        answer = self.ask("GET", f"/v1/pipelines/{ident}/batches?{query}")
        assert answer.status == 200, answer.body
        return read_frames(answer.body)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("pipelines"))
    try:
        yield made
        wait_until(made.service.is_idle)
        assert made.service.stop() == 0
        assert not made.service.failures()
    finally:
        made.service.kill()


def source(dataset: str, **options: object) -> dict[str, Any]:
    return {"op": "source", "dataset": dataset, **options}


@pytest.fixture(scope="module")
def plain(place: Place) -> dict[str, Any]:
    """Values in order, once: 7 batches, the last of 2 rows."""
    return place.pipeline(source("values"), BATCH)


def array_of(frame: Frame) -> Array:
    (array,) = frame.header["arrays"]
    assert (array["name"], array["offset"], array["nbytes"]) == ("data", 0, len(frame.payload))
    assert (array["dtype"], array["shape"]) == (frame.header["dtype"], frame.header["shape"])
    return np.frombuffer(frame.payload, array["dtype"]).reshape(array["shape"])


def kinds(frames: list[Frame]) -> list[str]:
    return [frame.kind for frame in frames]


# -- registering -----------------------------------------------------------------------


def test_a_pipeline_is_registered_and_found_again(place: Place) -> None:
    spec = {"order": 1, "stages": [source("values", range=[0, 20]), BATCH]}
    first, second = (place.ask("POST", "/v1/pipelines", spec) for _ in range(2))
    assert (first.status, second.status) == (201, 200)
    about = first.json()
    assert second.json() == about
    assert first.getheader("Location") == f"/v1/pipelines/{about['id']}"
    assert place.ask("GET", f"/v1/pipelines/{about['id']}").json() == about
    assert place.ask("HEAD", f"/v1/pipelines/{about['id']}").status == 200
    assert about["id"] in place.ask("GET", "/v1/pipelines").json()["pipelines"]
    page = place.ask("GET", "/v1/pipelines?limit=1").json()
    assert page["after"] == page["pipelines"][0]
    assert (about["batches"], about["batch_size"], about["batches_per_epoch"]) == (3, 8, 3)


@pytest.mark.parametrize(
    ("stages", "stage", "field"),
    [
        ([source("values"), {"op": "explode"}, BATCH], 1, "op"),
        ([source("values"), {"op": "batch", "size": 0}], 1, "size"),
        ([source("values"), {"op": "batch", "size": -3}], 1, "size"),
        ([source("values"), {"op": "batch", "size": 4, "colour": 1}], 1, "colour"),
        ([source("values"), {"op": "permute", "seed": -1}, BATCH], 1, "seed"),
        ([source("values"), {"op": "permute", "seed": 2**70}, BATCH], 1, "seed"),
        ([source("values"), {"op": "window", "width": 60}, BATCH], 1, "width"),
        ([source("values", fields=["colour"]), BATCH], 0, "fields"),
        ([source("text", unit="event"), BATCH], 0, "unit"),
        ([source("text", view={}), BATCH], 0, "view"),
        ([source("values", view={"sgi": 1}, unit="frame"), BATCH], 0, "view"),
        ([source("values"), {"op": "delay", "seconds": 1}, BATCH], 1, "seconds"),
        ([BATCH], 0, None),
    ],
)
def test_pipelines_that_cannot_be_point_at_stage_and_field(
    place: Place, stages: list[dict[str, Any]], stage: int, field: str | None
) -> None:
    found = place.problem("POST", "/v1/pipelines", {"order": 1, "stages": stages})
    assert (found["code"], found["status"], found["stage"]) == ("pipeline", 422, stage)
    assert field is None or found["field"] == field


def test_a_view_that_selects_nothing_points_at_it(place: Place) -> None:
    cut = source("values", view={"sig": [[0, 20], [0, 2]]}, unit="frame")
    mix = {"op": "mix", "inputs": [[source("values")], [cut]]}
    for stage, field in ((cut, "view"), (mix, "inputs[1][0].view")):
        found = place.problem("POST", "/v1/pipelines", {"stages": [stage, BATCH]})
        assert (found["code"], found["stage"], found["field"]) == ("selection", 0, field)


def test_bodies_and_datasets_that_are_none(place: Place) -> None:
    for body in ({}, {"order": 2, "stages": [source("values"), BATCH]}, {"stages": 7}):
        assert place.problem("POST", "/v1/pipelines", body)["code"] == "pipeline"
    assert place.problem("POST", "/v1/pipelines", [1])["code"] == "bad-request"
    nothing = {"order": 1, "stages": [source("nothing"), BATCH]}
    assert place.problem("POST", "/v1/pipelines", nothing)["code"] == "not-found"
    labelled = source("values", labels="vales")
    for field, wrong in {"dataset": source("value"), "labels": labelled}.items():
        found = place.problem("POST", "/v1/pipelines", {"stages": [wrong, BATCH]})
        assert (found["code"], found["stage"], found["field"]) == ("not-found", 0, field)
        assert found["detail"].startswith(f"source: {field}: there is no dataset")
        assert "did you mean 'values'?" in found["detail"]
    assert place.problem("POST", "/v1/pipelines")["detail"] == "the body is empty"
    assert place.problem("POST", "/v1/pipelines", {"stages": []})["detail"] == "stages is empty"
    for path in ("", "/batches", "/batch"):
        assert place.problem("GET", f"/v1/pipelines/{'0' * 32}{path}")["code"] == "not-found"


@pytest.mark.parametrize(
    "entry",
    [
        {"format": "lines", "dtype": "<u2"},
        {"format": "lines", "float_width": 8},
        {"format": "loss", "float_width": 5},
        {"format": "loss", "nav_shape": [3]},
        {"format": "parquet", "growing": True},
        {"format": "arrow", "growing": True},
        {"format": "raw", "dtype": "<u2", "sig_shape": [2], "float_width": 4},
    ],
)
def test_datasets_of_items_have_no_options_of_arrays(place: Place, entry: dict[str, Any]) -> None:
    found = place.problem("POST", "/v1/datasets", {"files": ["text"], **entry})
    assert (found["code"], found["status"]) == ("option", 422)


def test_a_dataset_of_items_is_described_and_has_its_files(place: Place) -> None:
    about = place.ask("GET", "/v1/datasets/text").json()
    assert about["items"]["line"]["count"] == ROWS
    raw = place.ask("GET", "/v1/datasets/text/files/0")
    assert raw.body == (place.root / "text").read_bytes()
    assert place.problem("POST", "/v1/datasets/text/tiles", {})["code"] == "option"


# -- streams ---------------------------------------------------------------------------


def test_a_stream_is_every_batch_with_its_token(place: Place, plain: dict[str, Any]) -> None:
    frames = place.frames(plain["id"])
    assert kinds(frames) == ["DATA"] * 7 + ["EPOCH", "END"]
    data = frames[:7]
    np.testing.assert_array_equal(np.concatenate([*map(array_of, data)]), place.values)
    assert [f.header["seq"] for f in data] == list(range(7))
    assert [f.header["count"] for f in data] == [8] * 6 + [2]
    end = frames[-1].header
    assert (end["reason"], end["data_finished"]) == ("exhausted", True)
    assert end["token"] == frames[-2].header["token"] == data[-1].header["token"]
    assert end["profile"]["batches"] == 7
    assert end["profile"]["stages"]["0.source"]["items"] == ROWS
    for number, frame in enumerate(data):
        rest = place.frames(plain["id"], after=frame.header["token"])
        assert [f.payload for f in rest if f.kind == "DATA"] == [
            f.payload for f in data[number + 1 :]
        ]
        assert max(len(f.header["token"]) for f in rest) < 100


@pytest.mark.parametrize("order", [[], [{"op": "shuffle", "kind": "reservoir", "size": 5}]])
def test_one_of_so_many(place: Place, order: list[dict[str, Any]]) -> None:
    ident = place.pipeline(source("values"), *order, BATCH)["id"]
    whole = [frame for frame in place.frames(ident) if frame.kind == "DATA"]
    for every in (1, 2, 3, 9):
        for offset in (0, 1, 2, 6, 7, 50):
            *data, end = place.frames(ident, offset=offset, every=every)
            payloads = [frame.payload for frame in data if frame.kind == "DATA"]
            assert payloads == [frame.payload for frame in whole[offset::every]]
            assert (end.header["reason"], end.header["data_finished"]) == ("exhausted", True)
    second = place.frames(ident, offset=1, every=2, max_batches=1)[0]
    rest = place.frames(ident, after=second.header["token"], offset=1, every=2, rank=1, world=2)
    assert [frame.header["seq"] for frame in rest if frame.kind == "DATA"] == [3, 5]


NONE = {"op": "filter", "pred": "length_between", "args": {"field": "text", "low": 9, "high": 10}}
FEW = ", too few for a batch, and last is drop"
FOURS = {**NONE, "args": {"field": "text", "low": 4, "high": 5}}


@pytest.mark.parametrize(
    ("stages", "note"),
    [
        ([NONE], "50 items came in, none came out of filter (stage 1)"),
        ([{"op": "permute"}, FOURS, NONE],
         "50 items came in, none came out of filter (stage 2) and filter (stage 3)"),
        ([FOURS, {**BATCH, "size": 11, "last": "drop"}],
         f"50 items came in, 10 came out of filter (stage 1){FEW}"),
        ([NONE, {"op": "bucket_batch", "read_ahead": 8, "key": "text", "size": 4}],
         "50 items came in, none came out of filter (stage 1)"),
        ([{"op": "split", "part": "train", "fraction": 0.999999, "key": "text"},
          {"op": "bucket_batch", "read_ahead": 8, "key": "text", "size": 4}],
         "0 items came in, none came out"),
    ],
)  # fmt: skip
def test_an_end_without_batches_says_why(
    place: Place, stages: list[dict[str, Any]], note: str
) -> None:
    ends = [] if any("size" in stage for stage in stages) else [BATCH]
    about = place.pipeline(source("text"), *stages, *ends)
    for after in ({}, {"after": about["token"]}):
        (only,) = place.frames(about["id"], **after)
        assert (only.kind, only.header["reason"]) == ("END", "exhausted")
        assert only.header["notes"] == [f"there is no batch: {note}"]
    past = place.problem("GET", f"/v1/pipelines/{about['id']}/batch")
    assert past["hint"].endswith(note)


@pytest.mark.parametrize(
    ("stages", "leaves"),
    [([NONE, BATCH], "leaves no item"),
     ([NONE, {"op": "bucket_batch", "read_ahead": 8, "key": "text", "size": 4}], "leaves no item"),
     ([FOURS, {**BATCH, "size": 11, "last": "drop"}],
      "leaves 10 items, too few for one, and last is drop")],
)  # fmt: skip
def test_an_epoch_without_batches_names_the_stage(
    place: Place, stages: list[dict[str, Any]], leaves: str
) -> None:
    about = place.pipeline(source("text"), {"op": "permute", "epochs": 3}, *stages)
    problem = place.problem("GET", f"/v1/pipelines/{about['id']}/batches")
    stated = {name: about["spec"]["stages"][2][name] for name in ("op", "args", "pred")}
    assert problem["detail"] == (
        f"epoch 0 has no batch: filter (stage 2, {json.dumps(stated)}) {leaves}"
    )
    assert (problem["code"], problem["stage"]) == ("pipeline", 2)


def test_zip_notes_the_items_that_it_leaves_out(place: Place) -> None:
    short = {**source("text"), "range": [0, 7]}
    zipped = {"op": "zip", "inputs": [[source("text")], [short]], "names": ["a", "b"]}
    note = "zip (stage 0) uses 7 of the 50 items of its longest input"
    about = place.pipeline(zipped, BATCH)
    assert about["notes"] == place.frames(about["id"])[-1].header["notes"] == [note]
    zipped["inputs"] = [[short], [short]]
    assert place.pipeline(zipped, BATCH)["notes"] == []


def test_mix_notes_the_inputs_that_it_leaves_out(place: Place) -> None:
    mix = {"op": "mix", "inputs": [[source("text")]] * 3, "weights": [0, 2, 0], "stop": "all"}
    note = "mix (stage 0) takes nothing of input 0, 2, whose weight is 0"
    assert place.pipeline(mix, BATCH)["notes"] == [note]
    assert place.pipeline({**mix, "weights": [1, 2, 1]}, BATCH)["notes"] == []


def test_split_notes_that_the_fraction_is_of_validation(place: Place) -> None:
    def notes(**options: Any) -> list[str]:  # noqa: ANN401
        split = {"op": "split", "part": "train", **options}
        about = place.pipeline(source("text"), split, BATCH)
        return list(about["notes"])

    (note,) = notes(fraction=0.8)
    assert re.fullmatch(
        r"split \(stage 1\) gives train \d+ of 50 items: validation, or fraction, is the share of"
        r" the others, 80%",
        note,
    )
    assert notes(fraction=0.8, part="validation") == notes(validation=0.2) == notes() == []


def test_an_end_after_batches_has_no_notes(place: Place) -> None:
    about = place.pipeline(source("text"), FOURS, BATCH)
    frames = place.frames(about["id"])
    assert "notes" not in frames[-1].header
    (end,) = place.frames(about["id"], after=frames[-1].header["token"])
    assert "notes" not in end.header


def test_ranks_share_every_batch(place: Place, plain: dict[str, Any]) -> None:
    for world in (1, 2, 3, 8):
        shares = [place.frames(plain["id"], rank=rank, world=world) for rank in range(world)]
        for number, together in enumerate(zip(*(share[:7] for share in shares), strict=True)):
            assert len({frame.header["token"] for frame in together}) == 1
            parts = [array_of(frame) for frame in together]
            np.testing.assert_array_equal(
                np.concatenate(parts), place.values[8 * number : 8 * number + 8]
            )
            rows = [frame.header["rows"] for frame in together]
            assert [stop - start for start, stop in rows] == [len(part) for part in parts]


@pytest.mark.parametrize(
    ("options", "batches", "reason", "finished"),
    [
        ({"max_batches": 3}, 3, "count", False),
        ({"max_batches": 0}, 0, "count", False),
        ({"max_batches": 7}, 7, "count", True),
        ({"max_batches": 8}, 7, "exhausted", True),
        ({"max_batches": 10**40}, 7, "exhausted", True),
        ({"max_bytes": 0}, 0, "bytes", False),
        ({"max_bytes": 1}, 1, "bytes", False),
        ({"max_bytes": 96 * 2 + 1}, 3, "bytes", False),
        ({"max_bytes": 10**40}, 7, "exhausted", True),
        ({"max_seconds": 0}, 0, "time", False),
        ({"max_seconds": "1e300"}, 7, "exhausted", True),
        ({"max_epochs": 1}, 7, "epoch", True),
        ({"max_epochs": 0}, 0, "epoch", False),
    ],
)
def test_limits(
    place: Place,
    plain: dict[str, Any],
    options: dict[str, Any],
    batches: int,
    reason: str,
    finished: bool,
) -> None:
    frames = place.frames(plain["id"], **options)
    assert kinds(frames).count("DATA") == batches
    end = frames[-1].header
    assert (end["reason"], end["data_finished"]) == (reason, finished)
    rest = place.frames(plain["id"], after=end["token"])
    assert kinds(rest).count("DATA") == 7 - batches


def test_epochs_end_where_they_should(place: Place) -> None:
    about = place.pipeline(source("values"), {"op": "permute", "seed": 1, "epochs": None}, BATCH)
    assert about["batches"] is None
    frames = place.frames(about["id"], max_epochs=2)
    assert [k for k, frame in enumerate(frames) if frame.kind == "EPOCH"] == [7, 15]
    assert frames[-1].header["reason"] == "epoch"
    assert not frames[-1].header["data_finished"]
    epochs = [np.concatenate([array_of(f) for f in part]) for part in (frames[:7], frames[8:15])]
    assert not np.array_equal(epochs[0], epochs[1])
    for epoch in epochs:
        np.testing.assert_array_equal(np.sort(epoch[:, 0, 0]), place.values[:, 0, 0])


def test_ragged_fields(place: Place) -> None:
    about = place.pipeline(source("text"), BATCH)
    for rank in range(3):
        frames = place.frames(about["id"], rank=rank, world=3)
        for frame in frames[:7]:
            values, offsets = frame.header["arrays"]
            assert (values["name"], offsets["name"]) == ("text", "text.offsets")
            assert offsets["offset"] % 64 == 0
            assert offsets["offset"] + offsets["nbytes"] == len(frame.payload)
            ends = np.frombuffer(frame.payload, offsets["dtype"], offset=offsets["offset"])
            start, stop = frame.header["rows"]
            first = 8 * frame.header["seq"]
            assert np.diff(ends).tolist() == [k % 5 for k in range(first + start, first + stop)]
            assert ends[-1] == values["nbytes"]


DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "zstd": zstd_decompress,
}


@pytest.mark.parametrize("coding", DECODERS)
def test_compressed_answers(place: Place, plain: dict[str, Any], coding: str) -> None:
    for what in ("batches", f"batch?after={plain['token']}"):
        path = f"/v1/pipelines/{plain['id']}/{what}"
        answer = place.ask("GET", path, headers={"Accept-Encoding": coding})
        assert answer.getheader("Content-Encoding") == coding
        found = read_frames(DECODERS[coding](answer.body))
        expected = read_frames(place.ask("GET", path).body)
        assert [f.payload for f in found] == [f.payload for f in expected]


# -- one batch -------------------------------------------------------------------------


def test_one_batch_at_an_address_that_never_changes(place: Place, plain: dict[str, Any]) -> None:
    streamed = place.frames(plain["id"])
    etags = set()
    for offset in range(7):
        path = f"/v1/pipelines/{plain['id']}/batch?after={plain['token']}&offset={offset}"
        answer = place.ask("GET", path)
        assert "immutable" in str(answer.getheader("Cache-Control"))
        data, *_, end = read_frames(answer.body)
        assert data == streamed[offset]
        assert (end.kind, end.header["data_finished"]) == ("END", offset == 6)
        assert answer.getheader("Thalweg-Token") == data.header["token"]
        etag = str(answer.getheader("ETag"))
        etags.add(etag)
        again = place.ask("GET", path, headers={"If-None-Match": etag})
        assert (again.status, again.body) == (304, b"")
        assert again.getheader("ETag") == etag
        head_only = place.ask("HEAD", path)
        assert (head_only.status, head_only.body) == (200, b"")
        assert head_only.getheader("Content-Length") == str(len(answer.body))
        later = place.ask("GET", path).body
        assert later == answer.body
        rank = place.ask("GET", f"{path}&rank=1&world=2")
        etags.add(str(rank.getheader("ETag")))
    assert len(etags) == 14
    bare = place.ask("GET", f"/v1/pipelines/{plain['id']}/batch")
    assert bare.getheader("Cache-Control") == "no-cache"


def test_one_batch_as_npy_and_arrow(place: Place, plain: dict[str, Any]) -> None:
    path = f"/v1/pipelines/{plain['id']}/batch?offset=2"
    loaded = np.load(io.BytesIO(place.ask("GET", f"{path}&format=npy").body))
    np.testing.assert_array_equal(loaded, place.values[16:24])
    accept = {"Accept": "application/vnd.apache.arrow.stream"}
    table = pa.ipc.open_stream(place.ask("GET", path, headers=accept).body).read_all()
    assert table["data"].to_pylist() == place.values[16:24].tolist()
    assert table.schema.metadata[b"seq"] == b"2"
    text = place.pipeline(source("text"), BATCH)
    path = f"/v1/pipelines/{text['id']}/batch?offset=1"
    table = pa.ipc.open_stream(place.ask("GET", f"{path}&format=arrow").body).read_all()
    assert [len(item or ()) for item in table["text"].to_pylist()] == [k % 5 for k in range(8, 16)]
    assert place.problem("GET", f"{path}&format=npy")["code"] == "not-acceptable"
    answer = place.ask("GET", path, headers={"Accept": "image/png"})
    assert answer.status == 406


# -- what is refused -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ("rank=1", 422),
        ("rank=3&world=3", 422),
        ("world=9", 422),
        ("world=0", 422),
        ("rank=-1&world=2", 422),
        ("world=1000000000000000000000000", 422),
        ("rank=x", 422),
        ("max_batches=-1", 422),
        ("max_bytes=-1", 422),
        ("max_seconds=-0.5", 422),
        ("max_seconds=nan", 422),
        ("max_seconds=inf", 422),
        ("max_epochs=-1", 422),
        ("max_batch=1", 422),
        ("offset=-1", 422),
        ("every=0", 422),
        ("every=2&max_epochs=1", 422),
        ("world=2&world=2", 422),
        ("after=", 400),
        ("after=%00", 400),
        ("after=" + "A" * 600, 400),
    ],
)
def test_options_that_cannot_be(
    place: Place, plain: dict[str, Any], options: str, status: int
) -> None:
    found = place.problem("GET", f"/v1/pipelines/{plain['id']}/batches?{options}")
    assert found["status"] == status


@pytest.mark.parametrize(
    ("options", "status", "code"),
    [
        ("offset=7", 416, "position"),
        ("offset=4611686018427387904", 416, "position"),
        ("offset=-1", 422, "option"),
        ("offset=99999999999999999999999", 422, "option"),
        ("max_batches=1", 422, "option"),
        ("rank=1", 422, "option"),
        ("world=9", 422, "option"),
        ("format=csv", 422, "option"),
    ],
)
def test_single_batches_that_cannot_be(
    place: Place, plain: dict[str, Any], options: str, status: int, code: str
) -> None:
    found = place.problem("GET", f"/v1/pipelines/{plain['id']}/batch?{options}")
    assert (found["status"], found["code"]) == (status, code)


def test_the_token_at_the_end(place: Place, plain: dict[str, Any]) -> None:
    end = place.frames(plain["id"])[-1].header["token"]
    (only,) = place.frames(plain["id"], after=end)
    assert (only.header["reason"], only.header["data_finished"]) == ("exhausted", True)
    (only,) = place.frames(plain["id"], after=end, max_batches=0)
    assert (only.header["reason"], only.header["data_finished"]) == ("count", True)
    found = place.problem("GET", f"/v1/pipelines/{plain['id']}/batch?after={end}")
    assert found["status"] == 416


def ring(signer: int) -> KeyRing:
    uses = {key: "sign" if key == signer else "accept" for key in SECRETS}
    return KeyRing([Key(k, uses[k], bytes.fromhex(SECRETS[k])) for k in SECRETS])  # type: ignore[arg-type]


def made_token(about: Mapping[str, Any], signer: int = 3, **change: Any) -> str:  # noqa: ANN401
    values: dict[str, Any] = {
        "kind": KIND_BATCHES,
        "identity": bytes.fromhex(about["id"])[:8],
        "fingerprint": bytes.fromhex(about["fingerprint"]),
        "state": (0,),
    }
    return ring(signer).sign(Token(**(values | change)))


def of_version(token: str, version: int) -> str:
    """A token of another version, rightly signed."""
    octets = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))[:-16]
    octets = bytes([version]) + octets[1:]
    octets += hmac.digest(bytes.fromhex(SECRETS[3]), octets, hashlib.sha256)[:16]
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


def test_tokens_that_are_refused(place: Place, plain: dict[str, Any]) -> None:
    other = place.pipeline(source("text"), BATCH)
    good = made_token(plain)
    forged = good[:-8] + ("AAAAAAAA" if good[-8:] != "AAAAAAAA" else "BBBBBBBB")
    cases = {
        other["token"]: (409, "token-foreign"),
        made_token(plain, kind=KIND_TILES): (409, "token-foreign"),
        made_token(plain, fingerprint=bytes(8)): (412, "data-changed"),
        made_token(plain, state=(99,)): (409, "state"),
        made_token(plain, state=(1, 1)): (409, "state"),
        forged: (403, "token-forged"),
        made_token(plain, signer=1): (410, "token-retired"),
        of_version(good, 2): (400, "token-malformed"),
        good[:-1]: (400, "token-malformed"),
        "nonsense": (400, "token-malformed"),
    }
    for token, (status, code) in cases.items():
        for path in ("batches", "batch"):
            found = place.problem("GET", f"/v1/pipelines/{plain['id']}/{path}?after={token}")
            assert (found["status"], found["code"]) == (status, code)
            if status == 412:
                assert (found["was"], found["now"]) == ("0" * 16, plain["fingerprint"])
    assert kinds(place.frames(plain["id"], after=made_token(plain, signer=2)))[-1] == "END"
    found = place.problem("GET", f"/v1/pipelines/{plain['id']}/batch?after={good}%0A")
    assert found["hint"] == "Remove the space or line end around it"


def test_tokens_are_inspected_and_refreshed(place: Place, plain: dict[str, Any]) -> None:
    old = made_token(plain, signer=1, state=(3,))
    told = place.ask("POST", "/v1/tokens/inspect", {"token": old}).json()
    assert (told["kind"], told["batch"], told["state"]) == ("batches", 3, [3])
    assert told["fingerprint"] == plain["fingerprint"]
    fresh = place.ask("POST", "/v1/tokens/refresh", {"token": old}).json()["token"]
    frames = place.frames(plain["id"], after=fresh)
    assert frames[0].header["seq"] == 3


@pytest.mark.parametrize("entry", [{}, {"dtype": "<u2"}], ids=["plain", "declared"])
def test_a_dataset_has_one_fingerprint_wherever_it_is_shown(
    place: Place, entry: dict[str, object]
) -> None:
    ident = f"shown{len(entry)}"
    place.dataset(ident, ["values.npy"], **entry)
    path = f"/v1/datasets/{ident}"
    view = place.ask("POST", f"{path}/views", {"sig": [[0, 1], [0, 2]]}).json()
    zarr = place.service.get(f"/zarr/{view['id']}/data/zarr.json").json()
    about = place.pipeline(source(ident), BATCH)
    shown = [
        place.service.get(path).json(),
        view,
        place.service.get(f"{path}/views/{view['id']}").json(),
        place.ask("POST", f"{path}/plan", {}).json(),
        place.ask("POST", "/v1/tokens/inspect", {"token": view["token"]}).json(),
        zarr["attributes"],
        about["sources"][0],
    ]
    assert len({each["fingerprint"] for each in shown}) == 1
    told = place.ask("POST", "/v1/tokens/inspect", {"token": about["token"]}).json()
    assert told["fingerprint"] == about["fingerprint"]


def test_data_that_changes_is_told_and_registered_anew(place: Place) -> None:
    (place.root / "changing").write_bytes(b"a\n" * 20)
    place.dataset("changing", ["changing"], format="lines")
    about = place.pipeline(source("changing"), BATCH)
    (place.root / "changing").write_bytes(b"bb\n" * 20)
    for path in ("", "/batches", "/batch", f"/batches?after={about['token']}"):
        found = place.problem("GET", f"/v1/pipelines/{about['id']}{path}")
        assert (found["status"], found["was"]) == (412, about["fingerprint"])
        assert found["now"] != about["fingerprint"]
    again = place.ask("POST", "/v1/pipelines", about["spec"])
    assert (again.status, again.json()["id"]) == (201, about["id"])
    assert again.json()["fingerprint"] != about["fingerprint"]


def test_a_transform_that_fails_is_named(place: Place) -> None:
    text = b"".join(b"x" * (9 if k == 21 else 2) + b"\n" for k in range(40))
    (place.root / "long").write_bytes(text)
    place.dataset("long", ["long"], format="lines")
    about = place.pipeline(source("long"), BATCH, {"op": "pad", "length": 4})
    frames = place.frames(about["id"])
    assert kinds(frames) == ["DATA", "DATA", "ERROR"]
    problem, token = frames[-1].header["problem"], frames[-1].header["token"]
    check_problem({**problem, "resume_offset": 0, "token": token})
    assert problem["code"] == "transform"
    assert token == frames[1].header["token"]
    for path in ("batches", "batch"):
        found = place.problem("GET", f"/v1/pipelines/{about['id']}/{path}?after={token}")
        assert (found["code"], found["status"]) == ("transform", 422)
        assert (found["stage"], found["field"], found["position"]) == (2, "length", 5)
    path = f"/v1/pipelines/{about['id']}/batch?after={token}&offset=1"
    assert place.ask("GET", path).status == 200


def test_a_client_that_stops_reading_is_given_up(place: Place) -> None:
    big = np.zeros((64, 256, 1024), "<f4")
    np.save(place.root / "big.npy", big)
    place.dataset("big", ["big.npy"])
    about = place.pipeline(
        source("big"), {"op": "permute", "seed": 1, "epochs": None}, {"op": "batch", "size": 4}
    )
    before = place.service.private()  # without the file, which each process maps
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        client.connect(("127.0.0.1", place.service.port))
        client.sendall(head("GET", f"/v1/pipelines/{about['id']}/batches"))
        client.recv(1000)
        time.sleep(0.5)
        assert place.service.private() - before < 60 << 20
        wait_until(place.service.is_idle)
    assert place.frames(about["id"], max_batches=1)[0].kind == "DATA"


def test_a_client_that_leaves_ends_the_work(place: Place, plain: dict[str, Any]) -> None:
    endless = place.pipeline(source("values"), {"op": "permute", "seed": 3, "epochs": None}, BATCH)
    for _ in range(5):
        with place.service.connect() as client:
            client.sendall(head("GET", f"/v1/pipelines/{endless['id']}/batches"))
            client.recv(5000)
    wait_until(place.service.is_idle)
    assert place.frames(plain["id"])[-1].kind == "END"
