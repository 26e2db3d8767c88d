"""What is beside the files of entries counts, and what contradicts them is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.datasets.catalogue import Catalogue
from app.datasets.files.buffers import BufferPool
from app.datasets.files.roots import FileMissingError, Roots
from app.datasets.opened import MAX_POSITIONS, OpenDataset
from app.datasets.spec import parse_dataset, read_catalogue
from app.errors import DataChangedError, InvalidOptionError, problem_of
from app.http.identity import SINGLE_USER, Identity
from app.state.ownership import Namespaces
from app.tiles.views import OpenView, Views
from app.tokens import KeyRing, new_key
from core.errors import AmbiguousFormatError, CoreError, SelectionError, ShapeError
from tests.app.state.memory import MemoryStateStore
from tests.core.tiles import writers

FRAME = (8, 9)
ROLES = ("dark", "gain", "excluded")
CONTENT = {"dark": 0, "gain": 1, "excluded": 0}


class Desk:
    """A catalogue with views, and the directory that it serves."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.keys = KeyRing([new_key()])
        self.store = MemoryStateStore()
        self.catalogue = self.start()

    def start(self) -> Catalogue:
        """Another process over the same store."""
        self.catalogue = Catalogue(self.store, Roots([self.root]), {}, BufferPool(4))
        self.views = Views(self.catalogue, self.store, self.keys)
        return self.catalogue

    def save(self, name: str, array: Any) -> None:  # noqa: ANN401 - an array
        np.save(self.root / name, array)

    def register(self, **entry: Any) -> OpenDataset:  # noqa: ANN401 - JSON
        opened = self.catalogue.register(SINGLE_USER, {"files": ["scan.npy"], **entry})[0]
        assert isinstance(opened, OpenDataset)
        opened.close()
        return opened

    def open(self, ident: str) -> OpenView:
        opened = self.views.open(SINGLE_USER, ident, {"dtype": "<f8"})
        opened.close()
        return opened


def is_open(root: Path) -> bool:
    """Whether this process has a file of a directory open."""
    found = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
    return any(name.startswith(f"{root}/") for name in found)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    made.save("scan.npy", np.full((4, *FRAME), 1000, "<u2"))
    yield made
    made.catalogue.close()
    assert not is_open(tmp_path)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("role", ROLES)
def test_a_correction_that_changes_is_another_version(
    desk: Desk, role: str, restarted: bool
) -> None:
    desk.save("image.npy", np.full(FRAME, CONTENT[role], "<f8"))
    desk.register(id="a", corrections={role: "image.npy"})
    before = desk.open("a")
    token, tag = before.tokens.token(1), before.etag("0")
    desk.save("image.npy", np.eye(*FRAME) + CONTENT[role])
    if restarted:
        desk.catalogue.close()
        desk.start()
    after = desk.open("a")
    assert after.etag("0") != tag
    with pytest.raises(DataChangedError):
        after.tokens.read(token, 4)
    (desk.root / "image.npy").unlink()
    with pytest.raises(DataChangedError, match=r"image\.npy"):
        after.dataset.files.verify()


def test_what_a_file_is_used_for_counts(desk: Desk) -> None:
    desk.save("ones.npy", np.ones(FRAME))
    desk.save("zeros.npy", np.zeros(FRAME))
    entries: list[dict[str, Any]] = [{}, {"dark": "ones.npy"}, {"gain": "ones.npy"}]
    entries += [{"dark": "zeros.npy"}, {"dark": "zeros.npy", "gain": "ones.npy"}]
    prints = [
        desk.register(id=f"d{k}", corrections=entry).fingerprint for k, entry in enumerate(entries)
    ]
    assert len(set(prints)) == len(prints)
    assert desk.register(id="plain").fingerprint == prints[0]


@pytest.mark.parametrize("shape", [(9, 8), (4, 18), (72, 1), (1, 72), (2, 4, 9), (8, 9, 1)])
@pytest.mark.parametrize("role", ROLES)
def test_a_correction_of_another_shape_is_refused(
    desk: Desk, role: str, shape: tuple[int, ...]
) -> None:
    desk.save("image.npy", np.full(shape, CONTENT[role], "<f8"))
    with pytest.raises(ShapeError, match=rf"{role} .*but a frame has \[8, 9\]"):
        desk.register(corrections={role: "image.npy"})
    assert not desk.catalogue.ids(SINGLE_USER)
    assert not is_open(desk.root)


@pytest.mark.parametrize("shape", [FRAME, (1, *FRAME), (1, 1, *FRAME)])
def test_leading_axes_of_one_change_no_shape(desk: Desk, shape: tuple[int, ...]) -> None:
    desk.save("image.npy", np.arange(72.0).reshape(shape))
    desk.register(id="a", corrections={"dark": "image.npy"})
    view = desk.views.open(SINGLE_USER, "a", {"dtype": "<f8", "tile_shape": [1, *FRAME]})
    np.testing.assert_array_equal(
        view.read(view.plan.tile(0))[0], 1000 - np.arange(72.0).reshape(FRAME)
    )
    view.close()


@pytest.mark.parametrize("pixels", [1, 3])
def test_frames_of_one_axis_are_corrected(desk: Desk, pixels: int) -> None:
    np.full((4, pixels), 9, "<u2").tofile(desk.root / "scan.raw")
    for shape in ((pixels,), (1, pixels)):
        desk.save("image.npy", np.arange(pixels).reshape(shape) == 2)
        corrections = {"dark": "image.npy", "excluded": "image.npy"}
        desk.register(
            id="a", files=["scan.raw"], dtype="<u2", sig_shape=[pixels], corrections=corrections
        )
        assert bool(desk.open("a").dataset.corrections)
        desk.catalogue.delete(SINGLE_USER, "a")
    desk.save("image.npy", np.zeros(pixels + 1))
    with pytest.raises(ShapeError, match="dark has"):
        desk.register(
            files=["scan.raw"], dtype="<u2", sig_shape=[pixels], corrections={"dark": "image.npy"}
        )


WRONG: list[tuple[list[dict[str, Any]], str]] = [
    ([{"name": "y", "unit": "nm", "scale": 0.5}], "'y'"),
    ([{"name": name} for name in "abcd"], "'a', 'b', 'c', 'd'"),
    ([{"name": "n"}, {"name": "y", "size": 99}, {"name": "x"}], "'y'.*99.*8"),
    ([{"name": "n"}, {"name": "y"}, {"name": "x", "scale": 0}], "'x'"),
    ([{"name": "n"}, {"name": "y"}, {"name": "y"}], "the name 'y' twice"),
]


def test_a_scan_that_is_cut_is_no_scan_recorded_in_part(desk: Desk) -> None:
    path = desk.root / "cut.raw"
    np.zeros((6, 4, 5), "<u2").tofile(path)
    entry = {"files": ["cut.raw"], "format": "raw", "dtype": "<u2", "sig_shape": [4, 5]}
    desk.register(id="cut", **entry, nav_shape=[2, 3])
    os.truncate(path, 5 * 40)
    with pytest.raises(DataChangedError, match="6 positions, but the files have 5 frames"):
        desk.catalogue.open(SINGLE_USER, "cut")
    desk.register(id="part", **entry, nav_shape=[2, 3], partial=True)
    desk.catalogue.open(SINGLE_USER, "part").close()


@pytest.mark.parametrize(("axes", "named"), WRONG)
def test_axes_that_contradict_the_array_are_refused(
    desk: Desk, axes: list[dict[str, Any]], named: str
) -> None:
    with pytest.raises(InvalidOptionError, match=named) as caught:
        desk.register(axes=axes)
    assert caught.value.members == {"option": "axes"}


def test_axes_that_were_stored_earlier_stay_valid(desk: Desk) -> None:
    spec = parse_dataset({"id": "old", "files": ["scan.npy"], "axes": WRONG[0][0]})
    Namespaces(desk.store, "dataset").create(SINGLE_USER.owner, "old", spec.to_json())
    assert [axis.name for axis in desk.open("old").dataset.axes] == ["nav_0", "sig_0", "sig_1"]


@pytest.mark.parametrize("size", [True, 6.5, "6", None])
def test_sizes_of_axes_are_integers(size: object) -> None:
    with pytest.raises(InvalidOptionError, match=r"axes\[0\]\.size"):
        parse_dataset({"files": ["scan.npy"], "axes": [{"name": "y", "size": size}]})


def test_axes_of_a_growing_scan_have_no_lasting_size(desk: Desk) -> None:
    axes = [{"name": "n", "size": 3}, {"name": "y", "size": 8}, {"name": "x", "size": 9}]
    desk.register(id="a", growing=True, axes=axes)
    with pytest.raises(InvalidOptionError, match="'n'"):
        desk.register(id="b", axes=axes)


PICTURES = np.arange(6 * 128 * 128, dtype="<u2").reshape(6, 128, 128)
RAW = {"format": "raw", "dtype": "<u2", "sig_shape": [128, 128]}
WRITTEN: dict[str, tuple[dict[str, bytes], dict[str, Any]]] = {
    "raw": (writers.raw(PICTURES, trailing=2), RAW),
    "npy": ({"a.npy": writers.npy(PICTURES)}, {}),
    "empad": (writers.empad(PICTURES.astype("<f4"), (2, 3)), {}),
    "mib": (writers.mib(PICTURES, "U16"), {}),
    "tvips": (writers.tvips(PICTURES, scan=[(-1, -1), *[(0, k) for k in range(5)]]), {}),
    "seq": ({"a.seq": writers.seq(PICTURES)}, {}),
    "blo": ({"a.blo": writers.blo(PICTURES.astype("u1"), (2, 3))}, {}),
    "frms6": (writers.frms6(PICTURES, PICTURES[:2], (2, 3)), {}),
    "mrc": ({"a.mrc": writers.mrc(PICTURES, 6)}, {}),
}
CHANGES: list[dict[str, Any]] = [
    {"sync_offset": 0},
    {"sync_offset": 1},
    {"sync_offset": -1},
    {"nav_shape": [3, 1]},
    {"sig_shape": [64, 256]},
    {"dtype": ">u2"},
    {"file_header": 2},
    {"growing": True},
    *({"axes": [{"name": name} for name in names]} for names in ("abc", "abcd")),
    {"corrections": {"excluded": [[1, 1]]}},
    {"corrections": {"dark": "dark.npy"}},
    {"immutable": True},
]


def answers(desk: Desk, entry: dict[str, Any]) -> tuple[OpenView, object]:
    """Register a dataset, read what depends on its declarations, and delete it."""
    desk.register(id="a", **entry)
    # Read as it is stored.
    view = desk.views.open(SINGLE_USER, "a", {"missing": "zero", "dtype": "<f8"})
    about = view.dataset.describe()
    shown = {name: about[name] for name in ("nav_shape", "sync_offset", "axes")}
    tiles = [view.read(view.plan.tile(k)).tobytes() for k in range(view.plan.tiles)]
    view.close()
    desk.catalogue.delete(SINGLE_USER, "a")
    return view, (shown, view.plan.shape, tiles)


@pytest.mark.parametrize("form", WRITTEN)
def test_other_values_have_another_fingerprint_in_every_format(desk: Desk, form: str) -> None:
    files, base = WRITTEN[form]
    for name, content in files.items():
        (desk.root / name).write_bytes(content)
    desk.save("dark.npy", np.ones((128, 128)))
    entry = {"files": sorted(files), **base}
    before, known = answers(desk, entry)
    token, changed = before.tokens.token(0), 0
    assert before.dataset.recording.format == form
    for change in CHANGES:
        try:
            after, found = answers(desk, entry | change)
        except (CoreError, InvalidOptionError):
            continue
        if found != known:
            changed += 1
            assert after.etag("0") != before.etag("0"), change
            with pytest.raises(DataChangedError):
                after.tokens.read(token, 9)
    assert changed >= 4


def test_an_offset_of_0_is_declared_where_the_files_have_another(desk: Desk) -> None:
    files, _ = WRITTEN["tvips"]
    for name, content in files.items():
        (desk.root / name).write_bytes(content)
    offsets = {}
    for ident, declared in (("none", {}), ("zero", {"sync_offset": 0})):
        desk.register(id=ident, files=list(files), **declared)
        offsets[ident] = desk.open(ident).dataset.sync_offset
    assert offsets == {"none": 1, "zero": 0}
    # Elsewhere it is what an entry without it declares, as ever.
    entry: dict[str, Any] = {"id": "plain", "files": ["scan.npy"]}
    desk.register(**entry)
    opened, created = desk.catalogue.register(SINGLE_USER, {**entry, "sync_offset": 0})
    opened.close()
    assert not created


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ({"nav_shape": [4, 4]}, "16 positions, but there are 12 frames"),
        ({"nav_shape": [2, 4]}, "8 positions, but there are 12 frames"),
        ({"nav_shape": [3, 4], "dtype": "<u4", "format": "raw"}, "but there are 6 frames"),
        ({"nav_shape": [9], "sync_offset": 1}, "9 positions, but there are 12 frames"),
    ],
)
def test_a_scan_has_a_position_for_each_frame(
    desk: Desk, entry: dict[str, Any], found: str
) -> None:
    if "format" in entry:
        np.zeros((12, *FRAME), "<u2").tofile(desk.root / "scan.npy")
        entry = {**entry, "sig_shape": list(FRAME)}
    else:
        desk.save("scan", np.zeros((3, 4, *FRAME), "<u2"))
    with pytest.raises(InvalidOptionError, match=found) as e:
        desk.register(id="a", **entry)
    assert e.value.members["option"] == "nav_shape"
    described = desk.register(id="a", partial=True, **entry).describe()
    assert described["notes"]


def test_a_declared_scan_has_so_many_positions(desk: Desk) -> None:
    with pytest.raises(InvalidOptionError, match=f"positions, more than {MAX_POSITIONS:,}"):
        desk.register(id="a", nav_shape=[1 << 17, 1 + (1 << 15)], partial=True)
    assert desk.register(id="a", nav_shape=[1 << 17, 1 << 15], partial=True).describe()["notes"]


def test_a_file_that_can_no_longer_be_read_has_changed(desk: Desk) -> None:
    desk.register(id="a")
    os.truncate(desk.root / "scan.npy", 100)
    for _ in ("the one that had it open", "another process"):
        with pytest.raises(DataChangedError, match=r"was registered, <u2 .*: scan.npy: the"):
            desk.open("a")
        desk.catalogue.close()
        desk.start()


def test_frames_before_the_scan_are_left_out_by_sync_offset(desk: Desk) -> None:
    desk.save("scan", np.zeros((12, *FRAME), "<u2"))
    described = desk.register(id="a", nav_shape=[2, 5], sync_offset=2).describe()
    assert described["notes"] == ["2 frames before the scan are not used"]
    described = desk.register(id="b", nav_shape=[3, 4], sync_offset=2).describe()
    assert described["notes"][1:] == ["2 positions at the end of the scan have no frame"]
    described = desk.register(id="c", nav_shape=[3, 3], partial=True).describe()
    assert described["notes"] == ["3 frames after the scan are not used"]


@pytest.mark.parametrize("offset", [-5, -4, -1, 0, 1, 2, 10**9])
def test_a_scan_has_a_position_with_a_frame(desk: Desk, offset: int) -> None:
    frames = np.arange(1, 3, dtype="<u2")[:, None, None]
    desk.save("scan", frames)
    entry = {"id": "a", "nav_shape": [5], "partial": True, "sync_offset": offset}
    if not -5 < offset < 2:
        with pytest.raises(SelectionError, match=r"no position of \[5\] with a frame, of 2") as e:
            desk.register(**entry)
        assert problem_of(e.value).status == 422
        return
    desk.register(**entry)
    view = desk.views.open(SINGLE_USER, "a", {"missing": "zero"})
    values = view.read(view.plan.tile(0)).ravel()
    view.close()
    expected = [frames[p + offset, 0, 0] if 0 <= p + offset < 2 else 0 for p in range(5)]
    assert values.tolist() == expected


def test_frames_of_an_array_are_not_cut_anew(desk: Desk) -> None:
    desk.save("scan", np.zeros((4, 4, 8, 8), "<u2"))
    for other in ([16, 16], [64], [4, 16]):
        with pytest.raises(ShapeError, match="does not consist of frames of sig_shape"):
            desk.register(sig_shape=other)
    assert desk.register(sig_shape=[8]).nav_shape == (4, 4, 8)


@pytest.mark.parametrize(("form", "magic"), [("parquet", b"PAR1"), ("arrow", b"ARROW1")])
def test_files_of_items_are_recognised(desk: Desk, form: str, magic: bytes) -> None:
    (desk.root / "table").write_bytes(magic + bytes(100))
    with pytest.raises(CoreError, match=f"a {form} file") as e:
        desk.register(files=["table"])
    assert e.value.hint == f'Add "format": "{form}"'
    (desk.root / "table").write_bytes(b"nothing that is known")
    with pytest.raises(CoreError, match="files of items are loss, parquet, arrow, lines"):
        desk.register(files=["table"])


@pytest.mark.parametrize(
    ("head", "entry", "found"),
    [
        (b"\x1f\x8b\x08", {}, "it is compressed with gzip"),
        (b"PK\3\4", {"format": "raw"}, "it is a zip archive, as npz files are"),
        (b"PK\3\4", {"file_header": 4}, "it is a zip archive, as npz files are"),
        (b"\x93NUMPY\1\0", {"format": "raw"}, "it is a file of the format npy"),
        (b"II*\0", {}, "it is a TIFF picture"),
        (b"\x89HDF", {"format": "raw"}, "it is a file of the format hdf5"),
        (b"PAR1", {}, "it is a file of the format parquet"),
        (b"\x1f\x8b\x07", {}, None),
        (b"II*\0", {"format": "raw", "file_header": 8}, None),
        (b"II*\0", {"format": "raw", "file_header": 0}, None),
    ],
)
def test_files_of_other_kinds_are_headerless_only_on_purpose(
    desk: Desk, head: bytes, entry: dict[str, Any], found: str | None
) -> None:
    (desk.root / "x").write_bytes(head + bytes(300))
    entry = {"id": "a", "files": ["x"], "dtype": "u1", "sig_shape": list(FRAME), **entry}
    if found is None:
        assert desk.register(**entry).recording.format == "raw"
        desk.catalogue.close()
        desk.start().open(SINGLE_USER, "a").close()
        return
    with pytest.raises(AmbiguousFormatError, match=found) as e:
        desk.register(**entry)
    problem = problem_of(e.value)
    assert problem.status == 422
    assert problem.detail == f"x: {found}"
    assert '"format": "raw" and "file_header"' in str(e.value.hint)


@pytest.mark.parametrize("head", [b"", b"PK\3\4", b"\x1f\x8b\x08"])
@pytest.mark.parametrize("role", ROLES)
def test_a_correction_that_does_not_tell_its_shape_is_named(
    desk: Desk, role: str, head: bytes
) -> None:
    (desk.root / "image.raw").write_bytes(head + bytes(4 * 72))
    with pytest.raises(AmbiguousFormatError) as e:
        desk.register(corrections={role: "image.raw"})
    assert problem_of(e.value).detail.startswith("image.raw: ")
    assert f"it cannot be the image {role}" in str(e.value)
    assert "numpy.save" in str(e.value.hint)


def test_corrected_values_have_a_type_of_their_own(desk: Desk) -> None:
    desk.save("gain.npy", np.ones(FRAME))
    plain, corrected = (desk.register(id="a"), desk.register(corrections={"gain": "gain.npy"}))
    types = [(d["dtype"], d["corrected_dtype"]) for d in (plain.describe(), corrected.describe())]
    assert types == [("<u2", None), ("<u2", "<f4")]


def test_names_are_listed_by_how_they_begin_whoever_declared_them(desk: Desk) -> None:
    shapes = {"nav_shape": [2, 2], "sig_shape": list(FRAME)}
    for ident in ("ab", "abc", "b"):
        desk.register(id=ident, **shapes)
    entries = [parse_dataset({"id": name, "files": ["scan.npy"]}) for name in ("abd", "bc")]
    fixed = {entry.id: entry for entry in entries}
    catalogue = Catalogue(desk.store, Roots([desk.root]), fixed, BufferPool(1))
    alice = Identity("alice", frozenset({"read:ab*"}), "0" * 12)
    assert catalogue.ids(SINGLE_USER, prefix="ab") == ["ab", "abc", "abd"]
    assert catalogue.ids(alice, prefix="ab") == ["abd"]
    assert catalogue.ids(alice, prefix="b") == []
    assert catalogue.ids(SINGLE_USER, "ab", 2, prefix="ab") == ["abc", "abd"]
    assert catalogue.ids(SINGLE_USER, owner=SINGLE_USER.owner, prefix="b") == ["b"]
    catalogue.close()


@pytest.mark.parametrize(
    ("nav", "partial"), [([4, 3], False), ([2, 6], False), ([2, 2, 3], False), ([4, 2], True)]
)
def test_rows_of_an_array_are_not_cut_anew(desk: Desk, nav: list[int], partial: bool) -> None:
    desk.save("scan", np.zeros((3, 4, *FRAME), "<u2"))
    with pytest.raises(InvalidOptionError, match=r"the files have a scan of \[3, 4\]"):
        desk.register(id="a", nav_shape=nav, partial=partial)


@pytest.mark.parametrize("nav", [[3, 4], [12], [1, 3, 4], [3, 4, 1]])
def test_a_scan_may_be_stated_as_it_is_or_as_a_list(desk: Desk, nav: list[int]) -> None:
    desk.save("scan", np.zeros((3, 4, *FRAME), "<u2"))
    assert desk.register(id="a", nav_shape=nav).describe()["notes"] == []
    desk.save("scan", np.zeros((12, *FRAME), "<u2"))
    assert desk.register(id="b", nav_shape=[2, 6]).describe()["notes"] == []


@pytest.mark.parametrize("other", [np.zeros((4, *FRAME), "<f4"), np.zeros((2, *FRAME), "<u2")])
def test_other_contents_are_not_what_was_registered(desk: Desk, other: Any) -> None:  # noqa: ANN401
    desk.register(id="a")
    desk.register(id="list", files=[], glob="sc*.npy")
    desk.save("scan.npy", np.ones((4, *FRAME), "<u2"))
    desk.open("a")
    desk.save("scan.npy", other)
    with pytest.raises(DataChangedError, match=r"but <u2 \[4, 8, 9\] was registered"):
        desk.open("a")
    with pytest.raises(DataChangedError, match="was registered"):
        desk.register(id="a")
    if other.dtype == "<u2":
        assert desk.open("list").plan.nav_shape == (2,)
    (desk.root / "scan.npy").unlink()
    with pytest.raises(FileMissingError, match="there when the dataset 'a' was registered"):
        desk.open("a")


def test_entries_of_earlier_servers_state_no_contents(desk: Desk) -> None:
    entry = parse_dataset({"id": "a", "files": ["scan.npy"]}).to_json()
    Namespaces(desk.store, "dataset").create(SINGLE_USER.owner, "a", entry)
    opened, created = desk.catalogue.register(SINGLE_USER, entry)
    opened.close()
    assert not created
    desk.save("scan.npy", np.zeros((2, *FRAME), "<f4"))
    assert desk.open("a").plan.nav_shape == (2,)


def test_a_stored_entry_is_one_that_earlier_servers_read(desk: Desk) -> None:
    """What the files held stands beside it, as do members of later servers."""
    entry = {"id": "a", "files": ["scan.npy"]}
    desk.register(**entry)
    things = Namespaces(desk.store, "dataset")
    owned = things.get(SINGLE_USER.owner, "a")
    assert owned.value == entry
    assert owned.beside == {"registered": "<u2 [4, 8, 9]"}
    desk.catalogue.delete(SINGLE_USER, "a")
    things.insert(SINGLE_USER.owner, "a", entry, beside={**owned.beside, "later": 1})
    opened, created = desk.catalogue.register(SINGLE_USER, entry)
    opened.close()
    assert not created
    assert things.get(SINGLE_USER.owner, "a").beside["later"] == 1
    desk.save("scan.npy", np.zeros((2, *FRAME), "<f4"))
    with pytest.raises(DataChangedError, match="was registered"):
        desk.open("a")


def test_what_the_files_held_was_a_member_of_the_entry(desk: Desk) -> None:
    entry = {"id": "a", "files": ["scan.npy"], "registered": "<u2 [4, 8, 9]"}
    Namespaces(desk.store, "dataset").create(SINGLE_USER.owner, "a", entry)
    desk.register(id="a")
    desk.save("scan.npy", np.zeros((2, *FRAME), "<f4"))
    with pytest.raises(DataChangedError, match="was registered"):
        desk.open("a")


def test_what_is_doubtful_is_noted(desk: Desk) -> None:
    desk.save("near.npy", np.full(FRAME, 1.02))
    desk.save("far.npy", np.full(FRAME, 40.0))
    right = {"dark": "far.npy", "gain": "near.npy"}
    assert desk.register(id="a", corrections=right).describe()["notes"] == []
    wrong = {"gain": "far.npy", "dark": "near.npy"}
    (note,) = desk.register(id="b", corrections=wrong).describe()["notes"]
    assert "interchanged" in note
    desk.save("scan.npy", np.zeros((3, 4, *FRAME), "<u2"))
    (note,) = desk.register(id="c", sig_shape=[3, 4, *FRAME]).describe()["notes"]
    assert "no scan" in note


@pytest.mark.parametrize("role", ["dark", "gain", "excluded"])
def test_a_correction_that_is_not_finite_is_told_where(desk: Desk, role: str) -> None:
    image = np.ones(FRAME, "<f4")
    image[3, 4] = image[5, 6] = np.nan
    desk.save("image.npy", image)
    with pytest.raises(ShapeError) as caught:
        desk.register(id="a", corrections={role: "image.npy"})
    assert f"{role} is nan at [3, 4], and not finite at 2 pixels" in str(caught.value)
    assert caught.value.source == "image.npy"


def test_files_of_which_each_tells_one_axis_of_a_scan_are_noted(desk: Desk) -> None:
    for row in range(3):
        desk.save(f"row_{row}", np.zeros((4, *FRAME), "<u2"))
        desk.save(f"one_{row}", np.zeros(FRAME, "<u2"))
        desk.save(f"map_{row}", np.zeros((2, 5, *FRAME), "<u2"))
    (note,) = desk.register(id="a", files=[], glob="row_*.npy").describe()["notes"]
    assert note == "the frames of 3 files are a list: for a scan, give nav_shape, such as [3, 4]"
    scan = desk.register(id="b", files=[], glob="row_*.npy", nav_shape=[3, 4]).describe()
    assert (scan["nav_shape"], scan["notes"]) == ([3, 4], [])
    maps = desk.register(id="c", files=[], glob="map_*.npy").describe()
    assert (maps["nav_shape"], maps["notes"]) == ([6, 5], [])
    assert desk.register(id="d", files=[], glob="one_*.npy").describe()["notes"] == []
    desk.save("map_0", np.zeros((5, 2, *FRAME), "<u2"))
    (note,) = desk.register(id="e", files=["map_0.npy", "row_0.npy"]).describe()["notes"]
    assert note.endswith("2 files are a list: for a scan, give nav_shape")


@pytest.mark.parametrize(("name", "near"), [("NPY", "npy"), ("hdf", "hdf5"), ("zar", "zarr")])
def test_a_format_that_is_near_is_told(desk: Desk, name: str, near: str) -> None:
    with pytest.raises(InvalidOptionError, match="no format is named") as caught:
        desk.register(format=name)
    assert f"Did you mean {near}?" in str(caught.value.hint)


def test_a_format_that_does_not_fit_is_doubted(desk: Desk) -> None:
    with pytest.raises(CoreError, match=r"Is the format empad\?"):
        desk.register(format="empad")


def test_a_catalogue_that_is_refused_is_named(tmp_path: Path) -> None:
    path = tmp_path / "sets.toml"
    for text, message in (
        ("[scan]\nfoo = 1\n", rf"\[scan\] in the catalogue {path}: foo is unknown"),
        ("scan = 1\n", "'scan' in the catalogue is not a table"),
        ("[scan\n", f"the catalogue {path} cannot be read"),
    ):
        path.write_text(text)
        with pytest.raises(InvalidOptionError, match=message):
            read_catalogue(path)
