# mypy: disable-error-code="import-not-found, misc, no-untyped-call"
"""Batches for PyTorch: exact resumption, whatever the number of workers.

Wants torch and torchdata, and nothing of the engine: ``pytest --confcutdir=tests/torch``
runs it where numba is not installed.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: these are not run")
pytest.importorskip("torchdata", reason="torchdata is not installed: these are not run")

from torch.utils.data import DataLoader  # noqa: E402
from torchdata.nodes import Loader, Prefetcher  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

from app.client import Batch, ProblemError, ProtocolError, Ragged, StateError  # noqa: E402
from app.client.torch import IterableDataset, PipelineNode, Sample, tensors_of  # noqa: E402
from app.client.transport import retry as _retry  # noqa: E402
from tests.client.fakes.exchange import Fault  # noqa: E402
from tests.client.fakes.pipelines import SPEC  # noqa: E402
from tests.client.fakes.service import FakeService  # noqa: E402

pytestmark = [
    # What torch says of a machine with few cores, and torchdata to newer torches.
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]
ALL = list(range(7))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_retry, "_FIRST_DELAY", 0.001)
    monkeypatch.setattr(_retry, "_LONGEST_DELAY", 0.002)


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService() as fake:
        fake.pipeline.items, fake.pipeline.epochs = 26, 1
        yield fake


def number(sample: Any) -> int:  # noqa: ANN401
    """Which batch a sample is, by its token."""
    return int(sample[1].split(".")[0]) - 1


def check(service: FakeService, sample: Any, rank: int = 0, world: int = 1) -> None:  # noqa: ANN401
    tensors, _ = sample
    wanted = service.pipeline.columns(number(sample), rank, world)
    assert torch.equal(tensors["x"], torch.from_numpy(wanted["x"]))
    assert torch.equal(tensors["m"], torch.from_numpy(wanted["m"]))
    values, offsets = wanted["r"]
    assert torch.equal(tensors["r"], torch.from_numpy(values.astype("f8")))
    assert torch.equal(tensors["r.offsets"], torch.from_numpy(offsets))


def take(loader: Any, count: int) -> list[Any]:  # noqa: ANN401
    iterator = iter(loader)
    return [next(iterator) for _ in range(count)]


def plain(service: FakeService, workers: int, **more: Any) -> DataLoader[Any]:  # noqa: ANN401
    dataset = IterableDataset(service.url, SPEC, **more)
    return DataLoader(dataset, batch_size=None, num_workers=workers)


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_order_does_not_depend_on_workers(service: FakeService, workers: int) -> None:
    for rank, world in ((0, 1), (1, 3)):
        got = list(plain(service, workers, rank=rank, world=world))
        assert [number(sample) for sample in got] == ALL
        for sample in got:
            check(service, sample, rank, world)


@pytest.mark.parametrize(("before", "behind"), [(0, 2), (2, 0), (2, 3), (3, 1), (0, 0)])
def test_the_token_goes_on_with_other_workers(
    service: FakeService, before: int, behind: int
) -> None:
    for cut in range(len(ALL) + 1):
        got = take(plain(service, before), cut)
        token = got[-1][1] if got else None
        loader = plain(service, behind, rank=1, world=2)
        loader.dataset.load_state_dict(json.loads(json.dumps({"token": token})))
        rest = list(loader)
        assert [number(sample) for sample in got + rest] == ALL
        for sample in rest:
            check(service, sample, 1, 2)


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_at_every_cut(service: FakeService, workers: int, prefetch: int) -> None:
    def loader() -> Any:  # noqa: ANN401
        dataset = IterableDataset(service.url, SPEC, prefetch=prefetch)
        return StatefulDataLoader(dataset, batch_size=None, num_workers=workers)

    for cut in range(len(ALL) + 1) if not prefetch else (0, 3, 7):
        first = loader()
        iterator = iter(first)
        got = [next(iterator) for _ in range(cut)]
        state = json.loads(json.dumps(first.state_dict()))
        second = loader()
        second.load_state_dict(state)
        rest = list(second)
        assert [number(sample) for sample in got + rest] == ALL
        for sample in rest:
            check(service, sample)
        # The iteration behind it begins at the beginning.
        assert [number(sample) for sample in second] == ALL


def test_a_stateful_loader_after_other_workers(service: FakeService) -> None:
    token = take(plain(service, 3), 2)[-1][1]
    dataset = IterableDataset(service.url, SPEC)
    dataset.load_state_dict({"token": token})
    first = StatefulDataLoader(dataset, batch_size=None, num_workers=2)
    iterator = iter(first)
    got = [number(next(iterator)) for _ in range(2)]
    state = json.loads(json.dumps(first.state_dict()))
    second = StatefulDataLoader(IterableDataset(service.url, SPEC), batch_size=None, num_workers=2)
    second.load_state_dict(state)
    assert got + [number(sample) for sample in second] == ALL[2:]


def test_states_of_the_dataset(service: FakeService) -> None:
    dataset = IterableDataset(service.url, SPEC)
    assert dataset.state_dict() == {"token": None}
    iterator = iter(dataset)
    assert dataset.state_dict() == {"token": None}
    for place in ALL:
        assert number(next(iterator)) == place
        assert dataset.state_dict() == {"token": f"{place + 1}.f0.k"}
    assert next(iterator, None) is None
    dataset.load_state_dict({"token": "5.f0.k"})
    assert dataset.state_dict() == {"token": "5.f0.k"}
    assert [number(sample) for sample in dataset] == [5, 6]
    assert [number(sample) for sample in dataset] == ALL
    wrong: Any
    for wrong in (
        {},
        {"token": 3},
        {"token": None, "x": 1},
        {"token": None, "skip": 1},
        {"token": None, "skip": 0, "workers": 2},
    ):
        with pytest.raises(StateError):
            dataset.load_state_dict(wrong)


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_iterations_after_the_one_that_resumes_are_whole(
    service: FakeService, workers: int, persistent: bool
) -> None:
    dataset = IterableDataset(service.url, SPEC)
    loader = DataLoader(
        dataset, batch_size=None, num_workers=workers, persistent_workers=persistent
    )

    def read() -> list[int]:
        torch.manual_seed(1)  # iterations are told apart without luck
        return [number(sample) for sample in loader]

    dataset.load_state_dict({"token": "4.f0.k"})
    assert [read() for _ in range(3)] == [ALL[4:], ALL, ALL]
    dataset.load_state_dict({"token": "6.f0.k"})
    dataset.load_state_dict({"token": "5.f0.k"})
    assert [read() for _ in range(2)] == [ALL[5:], ALL]
    dataset.load_state_dict({"token": None})
    assert read() == ALL


def test_one_loader_takes_a_state_and_no_other(service: FakeService) -> None:
    dataset = IterableDataset(service.url, SPEC)
    dataset.load_state_dict({"token": "4.f0.k"})
    loaders = [DataLoader(dataset, batch_size=None, num_workers=n) for n in (2, 3, 0)]
    assert [[number(sample) for sample in loader] for loader in loaders] == [ALL[4:], ALL, ALL]
    dataset.load_state_dict({"token": "4.f0.k"})
    assert [[number(sample) for sample in each] for each in (dataset, loaders[0])] == [ALL[4:], ALL]


def test_a_state_outlives_a_start_that_fails(service: FakeService) -> None:
    dataset = IterableDataset(service.url, SPEC)
    dataset.load_state_dict({"token": "4.f0.k"})
    service.pipeline.change = {"schema": None}
    with pytest.raises(ProtocolError):
        iter(dataset)
    service.pipeline.change = {}
    assert [number(sample) for sample in dataset] == ALL[4:]


def test_a_state_that_only_workers_know_is_warned_of(service: FakeService) -> None:
    dataset = IterableDataset(service.url, SPEC)
    dataset.load_state_dict({"token": None})
    take(DataLoader(dataset, batch_size=None, num_workers=2), 3)
    with pytest.warns(UserWarning, match="keep the token of the last batch"):
        dataset.state_dict()
    dataset.load_state_dict({"token": None})
    assert dataset.state_dict() == {"token": None}
    states: list[Any] = ["token", None, {}]
    for wrong in states:
        with pytest.raises(StateError, match="a state of batches"):
            dataset.load_state_dict(wrong)


@pytest.mark.parametrize("begun", [0, 1])
def test_it_is_warned_of_after_an_iteration_here_too(service: FakeService, begun: int) -> None:
    dataset = IterableDataset(service.url, SPEC)
    take(dataset, begun)
    take(DataLoader(dataset, batch_size=None, num_workers=2), 3)
    with pytest.warns(UserWarning, match="keep the token of the last batch"):
        dataset.state_dict()
    assert number(take(dataset, 1)[0]) == 0
    assert dataset.state_dict() == {"token": "1.f0.k"}


@pytest.mark.parametrize("wrong", [
    ({"url": SPEC}, TypeError, "the URL of a service is a text, not dict"),
    ({"url": "127.0.0.1:8000"}, ValueError, "is not the URL of a service"),
    ({"spec": "abc"}, TypeError, r"not a str: of a file json"),
    ({"spec": {"stages": [print]}}, TypeError, r"stages\[0\] cannot be <built-in"),
    ({"rank": 1}, ValueError, "rank 1 needs world: how many readers"),
    ({"rank": "1", "world": 2}, TypeError, "rank cannot be '1': give an integer"),
    ({"prefetch": None}, TypeError, "prefetch cannot be None"),
    ({"convert": 5}, TypeError, "convert is 5: give a function"),
])  # fmt: skip
def test_wrong_arguments_are_told_at_once(wrong: tuple[dict[str, Any], type, str]) -> None:
    arguments, kind, text = wrong
    with pytest.raises(kind, match=text):
        IterableDataset(**{"url": "http://127.0.0.1:1", "spec": SPEC, **arguments})


@pytest.mark.parametrize("size", [1, 2])
def test_batches_of_batches_are_warned_of(service: FakeService, size: int) -> None:
    dataset = IterableDataset(service.url, SPEC, convert=lambda batch: batch.count)
    with pytest.warns(UserWarning, match="give it batch_size=None"):
        counts, tokens = next(iter(DataLoader(dataset, batch_size=size)))
    assert (counts.tolist(), len(tokens)) == ([4] * size, size)


def test_lengths(service: FakeService) -> None:
    loader = plain(service, 2)
    assert (len(loader), len(loader.dataset)) == (7, 7)
    assert len([*loader]) == 7
    service.pipeline.tells_length = False
    with pytest.raises(TypeError, match="number of batches is not known"):
        len(IterableDataset(service.url, SPEC))
    assert IterableDataset(service.url, SPEC)
    assert len([*IterableDataset(service.url, SPEC)]) == 7


def test_samples_reach_the_main_process_as_they_are() -> None:
    tensors = {
        "small": torch.arange(6).to(torch.uint16).reshape(2, 3).T,
        "large": torch.arange(1 << 18),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "alone": torch.tensor(True),
        "empty": torch.zeros(0, 3),
        "complex": torch.tensor([1 + 2j]),
        "trained": torch.ones(2, requires_grad=True),
        "text": np.array(["a", "b"]),
        "fields": {"x": torch.ones(2)},
    }
    sent: Any
    for sent in (tensors, [torch.ones(1)], 3):
        got, token = ForkingPickler.loads(ForkingPickler.dumps(Sample(sent, "t")))
        assert token == "t"  # noqa: S105 - not a password
        assert type(got) is type(sent)
        if sent is tensors:
            assert list(got) == list(tensors)
            for name, value in tensors.items():
                if isinstance(value, torch.Tensor):
                    assert (got[name].dtype, got[name].shape) == (value.dtype, value.shape)
                    assert torch.equal(got[name], value)
                    assert got[name].requires_grad == value.requires_grad


@pytest.mark.parametrize("workers", [0, 2])
def test_connections_that_break(service: FakeService, workers: int) -> None:
    for cut in range(0, 4000, 370):
        service.script[:] = [Fault(cut=cut), None, Fault(cut=cut // 2)]
        got = list(plain(service, workers))
        assert [number(sample) for sample in got] == ALL
        for sample in got:
            check(service, sample)


@pytest.mark.parametrize("workers", [0, 2])
def test_refusals_reach_the_loop(service: FakeService, workers: int) -> None:
    loader = plain(service, workers)
    loader.dataset.load_state_dict({"token": "3.f1.k"})
    with pytest.raises(ProblemError, match="data-changed") as caught:
        list(loader)
    assert (caught.value.code, caught.value.status) == ("data-changed", 412)
    assert isinstance(caught.value, RuntimeError) == bool(workers)
    assert "problem:" not in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - made here
    assert (str(again), again.problem) == (str(caught.value), caught.value.problem)


def test_workers_that_are_spawned(service: FakeService) -> None:
    dataset = IterableDataset(service.url, SPEC)
    assert number(next(iter(dataset))) == 0
    loader = DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    assert [number(sample) for sample in loader] == ALL


def test_a_node_at_every_cut(service: FakeService) -> None:
    def loader() -> Any:  # noqa: ANN401
        node = Prefetcher(PipelineNode(service.url, SPEC), prefetch_factor=2)
        return Loader(node, restart_on_stop_iteration=False)

    for cut in range(len(ALL) + 1):
        first = loader()
        iterator = iter(first)
        got = [next(iterator) for _ in range(cut)]
        state = json.loads(json.dumps(first.state_dict()))
        second = loader()
        second.load_state_dict(state)
        rest = list(second)
        assert [number(sample) for sample in got + rest] == ALL
        assert [number(sample) for sample in second] == ALL


def test_a_node_by_itself(service: FakeService) -> None:
    node = PipelineNode(service.url, SPEC, prefetch=2, rank=1, world=2)
    assert node.state_dict() == {"token": None}
    for place, sample in enumerate(node):
        check(service, sample, 1, 2)
        assert node.state_dict() == {"token": sample[1]} == {"token": f"{place + 1}.f0.k"}
    node.reset({"token": "5.f0.k"})
    assert [number(sample) for sample in node] == [5, 6]


def test_values_of_every_type() -> None:
    packed = np.zeros(3, [("a", "<i2"), ("b", ">f8"), ("c", "<f4", (2,))])
    packed["b"] = [1, 2, 3]
    times = np.array([1, 2], "<M8[s]")
    columns: dict[str, Any] = {
        "u": np.arange(3, dtype="<u2"),
        "big": np.arange(3, dtype=">i4"),
        "flag": np.array([True, False]),
        "z": np.array([1 + 2j], "<c8"),
        "text": np.array(["a", "b"], "S3"),
        "when": times,
        "packed": packed,
        "bags": Ragged(np.arange(3.0), np.array([0, 1, 3])),
    }
    batch = Batch(columns, token="t", sequence=0, epoch=0, count=3, rows=(0, 3))  # noqa: S106
    got = tensors_of(batch)
    assert got["u"].dtype == torch.uint16
    assert got["u"].data_ptr() == columns["u"].ctypes.data
    assert got["big"].tolist() == [0, 1, 2]
    assert got["flag"].tolist() == [True, False]
    assert got["z"].dtype == torch.complex64
    assert got["text"] is columns["text"]
    assert got["when"].tolist() == [1, 2]
    assert got["packed"]["b"].tolist() == [1.0, 2.0, 3.0]
    assert got["packed"]["c"].shape == (3, 2)
    assert got["bags"].tolist() == [0.0, 1.0, 2.0]
    assert got["bags.offsets"].tolist() == [0, 1, 3]


def test_what_is_handed_out_can_be_something_else(service: FakeService) -> None:
    dataset = IterableDataset(service.url, SPEC, convert=lambda batch: batch.count)
    counts: list[Any] = [count for count, _ in dataset]
    assert counts == [4, 4, 4, 4, 4, 4, 2]


def test_names() -> None:
    import app.client.torch as module

    with pytest.raises(AttributeError, match="no attribute"):
        _ = module.nothing
