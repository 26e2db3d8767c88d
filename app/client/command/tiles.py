"""The commands ``datasets``, ``tiles``, ``frame``, ``reduce`` and ``image`` of ``thalweg``."""

from __future__ import annotations

import argparse
import io
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..client import Client
from ..errors import ProblemError, StateError, ThalwegError, data_changed
from ..files.outputs import check_target, write_file
from ..tiles.requests import ViewOptions
from . import arguments
from .arguments import Options, add_options, count, given, new_command, ranges, size, spec_of
from .console import Reducing, is_stale, make_bar, print_json, say, stopped

_INDICES = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_SLICE = re.compile(r" ?(?:(-?\d+)?:(-?\d+)?(?::(0*[1-9]\d*)?)?|(?P<index>-?\d+))")
_FOREIGN = {
    b"\x1f\x8b": "compressed with gzip",
    b"PK\3\4": "a zip archive, as .npz files are",
    b"\x89PNG": "a PNG picture",
    b"II*\0": "a TIFF picture",
    b"MM\0*": "a TIFF picture",
}
"""How files begin that people take for arrays of numpy."""
_MASK = "--mask takes what numpy.save wrote, bool and in the shape of the scan"
_WEIGHTS = "weights:"
_DATASET = (
    "To register a data file below the dataset roots of the service, describe it: thalweg datasets"
    """ register '{"files": ["scan.raw"], "dtype": "<u2", "sig_shape": [256, 256]}'"""
)
"""An example of a description."""
_ID: Options = {"dataset DATASET": "id of the dataset"}
_PICTURES: Options = {
    "--result NAME": "one of several, such as com_1",
    "--low P": ("percentile that is darkest (default 1)", float),
    "--high P": ("percentile that is brightest (default 99)", float),
    "--map NAME": "gray (default), viridis, magma, inferno, plasma ...",
    "--scale {linear,log}": "of values, or of their logarithms",
}


def add_commands(commands: Any) -> None:  # noqa: ANN401 - argparse has no public type for it
    """Add the commands to a command line."""
    text = "list, show, register and delete datasets"
    action = {"nargs": "?", "choices": tuple(_NEEDS), "default": "list"}
    registered: Options = {
        "action": ("default: list", action),
        "value ID|JSON": ("to show or delete, or to register", {"nargs": "?"}),
        "--view ID": "delete this view, not the dataset",
        "--file F": ("JSON of the dataset to register", Path),
    }
    new_command(commands, "datasets", _datasets, text, registered, _DATASET)
    tiles = new_command(
        commands,
        "tiles",
        _tiles,
        "read a view of a dataset into a file",
        {**_ID, **_out("FILE", "ends in .npy or .raw")},
        "Read a view of a dataset into a .npy file, or a .raw file without header.",
    )
    _add_view(tiles)
    shape: Options = {
        "--tile-shape N,N": ("of a tile", _lengths),
        "--target-bytes SIZE": ("of a tile", size),
    }
    add_options(tiles.add_mutually_exclusive_group(), shape)
    add_options(tiles, {"--state STATE": "state file (default: --out with .thalweg-state)"})
    add_options(tiles, arguments.PROGRESS)
    where: Options = {
        "position INDEX": ("in the scan, such as 5,7 or 5 7", _position, {"nargs": "+"})
    }
    text = "read one frame of a dataset into a file"
    new_command(commands, "frame", _frame, text, {**_ID, **where, **_out("FILE.npy", "to write")})
    text = "reduce frames to an image, or pixels to a map of the scan"
    reduce = new_command(commands, "reduce", _reduce, text, {**_ID, **_reduction_option(None)})
    _add_view(reduce)
    add_options(reduce, {**_out("FILE", "ends in .npy or .npz"), **arguments.PROGRESS})
    text = "draw a reduction as a picture"
    image = new_command(commands, "image", _image, text, {**_ID, **_reduction_option("?")})
    _add_view(image)
    add_options(image, {**_out("FILE.png", "to write"), **_PICTURES})


def _out(metavar: str, text: str) -> Options:
    return {
        f"-o --out {metavar}": (text, {"required": True}),
        "--force": "replace a finished file, or what is unfinished of changed data",
    }


def _check_out(args: argparse.Namespace, *endings: str) -> None:
    """Check before anything is asked for that the output can be written.

    Raises:
        OSError, ValueError: it has another ending, cannot be there, or is there.
    """
    if Path(args.out).suffix == ".png" and ".png" not in endings:
        wanted = " or ".join(endings)
        raise ValueError(f"{args.out} must end in {wanted}: thalweg image draws pictures")
    check_target(Path(args.out), *endings)
    if Path(args.out).exists() and not args.force:
        raise ValueError(f"{args.out} exists, perhaps of another view: --force replaces it")


def _reduction_option(nargs: str | None) -> Options:
    text = (
        "sum, mean, std, min or max over the frames, com, point:Y,X, disk:Y,X,RADIUS,"
        " annulus:Y,X,INNER,OUTER, rectangle:Y0,Y1,X0,X1, com:disk:Y,X,RADIUS (of the pixels of a"
        " detector), weights:FILE.npy (a value, or true or false, per pixel of a frame), or JSON;"
        " several detectors are "
        """'{"op": "virtual", "detectors": [{"disk": {"centre": [64, 64], "radius": 20}}, """
        """{"rectangle": [[0, 32], [0, 64]]}]}'"""
    )
    return {"reduction REDUCTION": (text, {"nargs": nargs})}


def _indices(text: str) -> list[int]:
    if not _INDICES.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list such as 3,1,5-9")
    return ranges(text)


def _slices(text: str) -> list[slice]:
    slices = []
    for part in text.split(","):
        match = _SLICE.fullmatch(part)
        if not match:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a list such as 5,0:10,5:50:5, with steps from 1"
            )
        start, stop, step, index = (int(n) if n else None for n in match.groups())
        if index is not None:
            start, stop = index, index + 1 or None  # no slice that begins at -1 ends at 0
        slices.append(slice(start, stop, step))
    return slices


_FRAMES: Options = {
    "--frames LIST": ("such as 3,1,5-9", _indices),
    "--nav SLICES": ("such as 5,0:10 or 0:50:5", _slices),
    "--mask FILE.npy": ("bool, in the shape of the scan", Path),
    "--shuffle SEED": ("all, in random order", count),
}
"""Which frames a view has: by one of these."""
_VIEW: Options = {
    "--sig SLICES": ("of frames, such as 0:32,8:40", _slices),
    "--bin-nav N": ("sum N positions per axis", count),
    "--bin-sig N": ("sum N pixels per axis", count),
    "--dtype DTYPE": "such as <f4",
    "--casting {safe,wrap,clip}": "values that --dtype does not hold (default safe: an error)",
    "--no-corrections": "no dark, gain, exclusions",
    "--sync-offset N": ("frame at which the scan begins", int),
    "--missing {skip,zero,nan}": "positions without a frame (default skip)",
}


def _add_view(parser: argparse.ArgumentParser) -> None:
    add_options(parser.add_mutually_exclusive_group(), _FRAMES)
    add_options(parser, _VIEW)


def _position(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as e:
        raise argparse.ArgumentTypeError(f"{text!r} is not a position such as 5,7") from e


def _lengths(text: str) -> list[int]:
    return [count(part) for part in text.split(",")]


def _options(args: argparse.Namespace) -> ViewOptions:
    """The view that the arguments describe.

    Raises:
        OSError, ValueError: the mask cannot be read.
    """
    binning = {"nav": args.bin_nav, "sig": args.bin_sig}
    options: Any = given(args, ViewOptions.__annotations__)
    if args.mask is not None:
        options["mask"] = _mask(args.mask)
    if any(n is not None for n in binning.values()):
        options["bin"] = {name: n for name, n in binning.items() if n is not None}
    if args.no_corrections:
        options["corrections"] = False
    view: ViewOptions = options
    return view


def _mask(path: Path) -> npt.NDArray[Any]:
    mask = _load(path, _MASK)
    if mask.dtype != np.bool_:
        raise ValueError(f"{path} holds {mask.dtype}: {_MASK}")
    return mask


def _load(path: Path, wanted: str) -> npt.NDArray[Any]:
    with path.open("rb") as file:
        head = file.read(6)
    if head != np.lib.format.MAGIC_PREFIX:
        found = next((name for magic, name in _FOREIGN.items() if head.startswith(magic)), "")
        raise ValueError(f"{path} is {found or 'no .npy file'}: {wanted}")
    try:
        array: npt.NDArray[Any] = np.load(path, allow_pickle=False)
    except ValueError as e:
        raise ValueError(f"{path}: {e}: {wanted}") from e
    return array


def _tiles(args: argparse.Namespace, client: Client) -> None:
    _check_out(args, ".npy", ".raw")
    state = str(args.state or f"{args.out}.thalweg-state")
    bar = make_bar(args)
    view = client.datasets[args.dataset].view(**_options(args))
    save = partial(view.to_npy, args.out, state=state, progress=bar)
    try:
        save()
    except (ProblemError, StateError) as error:
        if not is_stale(error):
            raise
        if not args.force:
            raise _with_force(error) from None
        Path(state).unlink(missing_ok=True)
        save()
    finally:
        stopped(bar, state, error_tells=True)
    if not args.quiet:
        shape = " x ".join(map(str, view.shape))
        say(f"{args.out}: {shape} of {view.dtype.str}, {view.nbytes} bytes")


def _with_force(error: ProblemError | StateError) -> ThalwegError:
    """The error of a state file of something else, in the words of the command."""
    if isinstance(error, ProblemError):
        return data_changed(error.detail, "--force starts over")
    return StateError(f"{str(error).rpartition(': remove ')[0]}: --force starts over")


def _frame(args: argparse.Namespace, client: Client) -> None:
    _check_out(args, ".npy", ".npz")
    position = [index for part in args.position for index in part]
    if max(map(len, args.position)) > 1 < len(args.position):
        raise ValueError("frame reads one position, such as 5,7: tiles --nav reads several")
    _write_arrays(args.out, {"frame": client.datasets[args.dataset].frame(*position)})


def _reduce(args: argparse.Namespace, client: Client) -> None:
    if args.dtype or args.casting:
        raise ValueError("--dtype and --casting are of tiles: results of reductions are float64")
    _check_out(args, ".npy", ".npz")
    dataset = client.datasets[args.dataset]
    view, bar = dataset.view(**_options(args)), make_bar(args)
    watch = None if bar is None else lambda done, total: bar(Reducing(done, total))
    try:
        arrays = dataset.reduce(_reduction(args), view, watch)
    finally:
        stopped(bar, None)
    _write_arrays(args.out, arrays)


def _image(args: argparse.Namespace, client: Client) -> None:
    _check_out(args, ".png")
    dataset = client.datasets[args.dataset]
    view, options = dataset.view(**_options(args)), given(args, _PICTURES)
    dataset.image(args.out, None if args.reduction is None else _reduction(args), view, **options)


def _reduction(args: argparse.Namespace) -> Any:  # noqa: ANN401 - JSON, or a name
    text = args.reduction.lstrip()
    wanted = f"{_WEIGHTS}FILE.npy takes what numpy.save wrote, a value per pixel of a frame"
    if text in {_WEIGHTS, _WEIGHTS[:-1]} or (text.endswith(".npy") and ":" not in text):
        raise ValueError(f"{text!r} is no reduction: {wanted}")
    if text.startswith(_WEIGHTS):
        weights = _load(Path(text.removeprefix(_WEIGHTS)), wanted)
        return {"op": "virtual", "detectors": [{"weights": weights}]}
    is_json = text.startswith("{")
    example = """Such as '{"op": "mean", "over": "pixels"}'"""
    return spec_of(args.reduction, example) if is_json else args.reduction


def _write_arrays(path: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays as one npz file, or a single one as an npy file."""
    ending, content = Path(path).suffix, io.BytesIO()
    if ending == ".npz":
        np.savez(content, allow_pickle=False, **arrays)
    elif ending == ".npy" and len(arrays) == 1:
        np.save(content, next(iter(arrays.values())))
    else:
        names = ", ".join(arrays)
        raise ValueError(f"--out must end in .npy for one array, in .npz for several ({names})")
    write_file(Path(path), content.getvalue())


def _datasets(args: argparse.Namespace, client: Client) -> None:
    if (args.file is not None) and (args.action != "register" or args.value is not None):
        raise ValueError("--file goes with register, instead of JSON")
    if (args.value is not None) is (args.action == "list" or args.file is not None):
        raise ValueError(f"datasets {args.action} needs {_NEEDS[args.action]}")
    if args.view is not None and args.action != "delete":
        raise ValueError("--view goes with delete")
    if args.action == "list":
        sys.stdout.writelines(f"{ident}\n" for ident in client.datasets.list())
        return
    if args.action == "delete":
        dataset = client.datasets[args.value]
        dataset.delete() if args.view is None else dataset.delete_view(args.view)
        return
    if args.action == "show":
        info = client.datasets[args.value].info
    else:
        spec = spec_of(args.value or str(args.file), _DATASET)
        info = client.datasets.register(spec).info
    print_json(info)
    for note in info.get("notes", ()):
        say(f"note: {note}")


_NEEDS = {"list": "nothing", "show": "an ID", "register": "JSON or --file", "delete": "an ID"}
