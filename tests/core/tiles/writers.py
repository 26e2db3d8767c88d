"""Files of every format, written from its layout in plain numpy and struct.

Nothing here uses the readers' tables: a mistake in one is not repeated in the other.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Order = Literal["<", ">"]


def parts(frames: Array, splits: list[int]) -> list[Array]:
    """Frames, divided into files after these numbers of frames."""
    return np.split(frames, np.cumsum(splits)[:-1]) if splits else [frames]


# -- raw and npy ------------------------------------------------------------------


def raw(
    frames: Array,
    *,
    file_header: int = 0,
    frame_header: int = 0,
    frame_footer: int = 0,
    splits: list[int] | None = None,
    trailing: int = 0,
) -> dict[str, bytes]:
    files = {}
    for number, part in enumerate(parts(frames, splits or [])):
        body = b"".join(
            b"h" * frame_header + frame.tobytes() + b"f" * frame_footer for frame in part
        )
        files[f"scan_{number}.raw"] = b"H" * file_header + body + b"t" * trailing
    return files


def npy(array: Array, version: int = 1, *, fortran: bool = False) -> bytes:
    descr = array.dtype.str
    shape = "(" + "".join(f"{n}, " for n in array.shape) + ")"
    text = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}"
    prefix = 10 if version == 1 else 12
    text += " " * (-(prefix + len(text) + 1) % 64) + "\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    values = array.tobytes("F" if fortran else "C")
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode() + values


# -- EMPAD ------------------------------------------------------------------------


def empad(
    frames: Array,
    scan: tuple[int, int] | None = None,
    *,
    series: int | None = None,
    modes: tuple[tuple[str, tuple[int, int]], ...] | None = None,
    raw_name: str = "scan.raw",
) -> dict[str, bytes]:
    body = b""
    for frame in frames:
        rows = np.zeros((130, 128), "<f4")
        rows[:128] = frame
        rows[128:] = -1.0
        body += rows.tobytes()
    files = {"scan.raw": body}
    if scan is not None:
        modes = (("search", (4, 4)), ("acquire", scan))
    if modes is not None or series is not None:
        inner = "".join(
            f'<scan_parameters mode="{mode}"><scan_resolution_x>{x}</scan_resolution_x>'
            f"<scan_resolution_y>{y}</scan_resolution_y></scan_parameters>"
            for mode, (y, x) in modes or ()
        )
        if series is not None:
            inner += f"<type>series</type><count>{series}</count>"
        files["scan.xml"] = (
            f'<?xml version="1.0" encoding="UTF-8"?>\n<root><raw_file filename="C:\\data\\'
            f'{raw_name}"/>{inner}</root>'
        ).encode()
    return files


# -- Merlin -----------------------------------------------------------------------


def mib_header(
    sequence: int,
    size: int,
    chips: int,
    width: int,
    height: int,
    pixels: str,
    layout: str,
    depth: int,
) -> bytes:
    fields = [
        "MQ1",
        f"{sequence:06}",
        f"{size:05}",
        f"{chips:02}",
        f"{width:04}",
        f"{height:04}",
        pixels,
        f"{layout:>6}",
        "01",
        "2020-05-18 16:51:49.971626",
        "0.000555",
        *["0"] * 4,
        "1.200000E+2",
        *["511"] * (30 if size > 300 else 3),
        "MQ1A",
        "2020-05-18T14:51:49.971626178Z",
        "555000ns",
        str(depth),
    ]
    text = (",".join(fields) + ",").encode()
    assert len(text) <= size
    return text.ljust(size, b"\0")


def medipix(picture: Array, depth: int) -> bytes:
    """The words a chip sends for rows of pixels: 64 bits, highest byte first."""
    flat = picture.reshape(-1)
    if depth == 1:
        octets = np.packbits(flat.reshape(-1, 64).astype(np.uint8), axis=1, bitorder="little")
        return octets[:, ::-1].tobytes()
    if depth == 6:
        return flat.astype(np.uint8).reshape(-1, 8)[:, ::-1].tobytes()
    return flat.astype(">u2").reshape(-1, 4)[:, ::-1].tobytes()


def quad(picture: Array) -> Array:
    """The four chips of a picture, side by side as they are sent."""
    side = picture.shape[0] // 2
    one, two = picture[:side, :side], picture[:side, side:]
    three, four = picture[side:, :side], picture[side:, side:]
    return np.hstack([four[::-1, ::-1], three[::-1, ::-1], two, one])


def mib_frame(picture: Array, pixels: str, depth: int, chips: int) -> bytes:
    if pixels != "R64":
        return picture.astype(f">u{int(pixels[1:]) // 8}").tobytes()
    sent = quad(picture) if chips == 4 else picture
    if depth == 24:
        return medipix(sent >> 12, 12) + medipix(sent & 0xFFF, 12)
    return medipix(sent, depth)


def mib(
    frames: Array,
    pixels: str,
    depth: int = 12,
    *,
    chips: int = 1,
    layout: str | None = None,
    header: int | None = None,
    splits: list[int] | None = None,
    first: int = 1,
    restart: bool = False,
    names: list[str] | None = None,
    hdr: Mapping[str, object] | None = None,
) -> dict[str, bytes]:
    layout = layout or ("1x1" if chips == 1 else "2x2")
    size = header or 384 * (1 if chips == 1 else 2)
    height, width = frames.shape[1:]
    if pixels == "R64" and chips == 4:
        height, width = height // 2, width * 2
    if pixels == "R64" and depth == 24:
        width *= 2
    files = {}
    sequence = first
    for number, part in enumerate(parts(frames, splits or [])):
        body = b""
        if restart:
            sequence = first
        for frame in part:
            body += mib_header(sequence, size, chips, width, height, pixels, layout, depth)
            body += mib_frame(frame, pixels, depth, chips)
            sequence += 1
        files[names[number] if names else f"default{number + 1}.mib"] = body
    if hdr is not None:
        lines = "".join(f"{key}:\t{value}\r\n" for key, value in hdr.items())
        files["default.hdr"] = f"HDR,\t\r\n{lines}End\t\r\n".encode()
    return files


# -- TVIPS ------------------------------------------------------------------------


def tvips(
    frames: Array,
    version: int = 2,
    *,
    header: int = 108,
    scan: list[tuple[float, float]] | None = None,
    splits: list[int] | None = None,
    counter: int = 1,
) -> dict[str, bytes]:
    """``scan`` has the (row, column) of every frame."""
    bits = frames.dtype.itemsize * 8
    values = [256, version, frames.shape[2], frames.shape[1], bits, 1, 2, 4, 8, 15, 200, 50, header]
    if version == 1:
        header = 12
    files = {}
    index = 0
    for number, part in enumerate(parts(frames, splits or [])):
        body = struct.pack("<13i", *values).ljust(256, b"\0") if not number else b""
        for frame in part:
            one = bytearray(header)
            struct.pack_into("<III", one, 0, counter + index, 1600000000, 7)
            if version > 1 and header >= 76:
                row, column = scan[index] if scan else (float("nan"), -1.0)
                struct.pack_into("<ff", one, 68, column, row)
            body += bytes(one) + frame.astype(frame.dtype.newbyteorder("<")).tobytes()
            index += 1
        files[f"rec_{number:03}.tvips"] = body
    return files


# -- SEQ --------------------------------------------------------------------------


def seq(
    frames: Array,
    version: int = 5,
    *,
    footer: int = 8,
    allocated: int | None = None,
    **changes: int,
) -> bytes:
    count, height, width = frames.shape
    bits = frames.dtype.itemsize * 8
    fields = {
        "width": (548, width),
        "height": (552, height),
        "bit_depth": (556, bits),
        "bit_depth_real": (560, bits),
        "image_size": (564, height * width * bits // 8),
        "image_format": (568, 100),
        "allocated_frames": (572, count if allocated is None else allocated),
        "true_image_size": (580, height * width * bits // 8 + footer),
        "compression_format": (620, 0),
        "reference_time_s": (624, 1600000000),
    }
    start = 8192 if version >= 5 else 1024
    head = bytearray(start)
    head[:4] = b"\xed\xfe\x00\x00"
    head[4:24] = "Norpix seq".encode("utf-16-le")
    struct.pack_into("<ii", head, 28, version, 1024)
    head[36:50] = "a title".encode("utf-16-le")
    struct.pack_into("<d", head, 584, 100.0)
    for name, (offset, value) in fields.items():
        struct.pack_into("<I", head, offset, changes.get(name, value))
    little = frames.astype(frames.dtype.newbyteorder("<"))
    return bytes(head) + b"".join(frame.tobytes() + b"T" * footer for frame in little)


def seq_camera(rows: int, columns: int, top: int = 0, left: int = 0, binning: int = 1) -> bytes:
    return bytes(282) + struct.pack("<11i?", 200, 1, columns, rows, left, top, binning, *[0] * 4, 0)


# -- BLO --------------------------------------------------------------------------


def blo(
    frames: Array,
    scan: tuple[int, int],
    order: Order = "<",
    *,
    magic: int | None = None,
    text: str | None = None,
    steps: tuple[float, float] = (2.0, 3.0),
    **changes: int,
) -> bytes:
    rows, columns = scan
    bits = frames.dtype.itemsize * 8
    if magic is None:
        magic = 258 if bits == 8 else 259
    if text is None:
        text = "" if bits == 8 else f"Software: x\r\nBlo Bit Depth: {bits} bits\r\n"
    first = changes.get("offset_1", 0x1000)
    second = changes.get("offset_2", first + rows * columns)
    size = changes.get("size", frames.shape[1])
    head = b"IMGBLO" + struct.pack(f"{order}HIII", magic, first, second, 0)
    head += struct.pack(f"{order}HHHHH", size, 0, columns, rows, 100)
    head += struct.pack(f"{order}ddIHId", *steps, 200000, 50, 12, 43000.5)
    assert len(head) == 64
    head = head.ljust(240, b"\0") + text.encode()
    head = head.ljust(first, b"\0").ljust(second, b"V")
    swapped = frames.astype(frames.dtype.newbyteorder(order))
    return head + b"".join(
        struct.pack(f"{order}HI", 0x55AA, i) + frame.tobytes() for i, frame in enumerate(swapped)
    )


# -- FRMS6 ------------------------------------------------------------------------


def fold(picture: Array) -> Array:
    """Half of a picture beside the other, which is upside down and mirrored."""
    half = len(picture) // 2
    return np.hstack([picture[:half], picture[half:][::-1, ::-1]])


def frms6_file(frames: Array, *, counted: bool = True) -> bytes:
    folded = [fold(frame).astype("<u2") for frame in frames]
    rows, columns = folded[0].shape
    head = bytearray(1024)
    struct.pack_into("<HH", head, 0, 1024, 64)
    head[7] = 6
    struct.pack_into("<HH", head, 88, columns, rows)
    struct.pack_into("<I", head, 1020, len(frames) if counted else 0)
    body = b"".join(
        struct.pack("<4xIII", 1, 2, i).ljust(64, b"\0") + f.tobytes() for i, f in enumerate(folded)
    )
    return bytes(head) + body


def frms6(
    frames: Array,
    dark: Array,
    scan: tuple[int, int],
    *,
    binning: int = 1,
    splits: list[int] | None = None,
    counted: bool = True,
    **changes: str,  # of the .hdr file
) -> dict[str, bytes]:
    """``frames`` and ``dark`` are as the detector counted them, rows binned."""
    files = {"m_000.frms6": frms6_file(dark, counted=counted)}
    for number, part in enumerate(parts(frames, splits or []), 1):
        files[f"m_{number:03}.frms6"] = frms6_file(part, counted=counted)
    files["m.hdr"] = frms6_hdr(len(frames), len(dark), scan, binning, **changes)
    return files


def frms6_hdr(
    frames: int, darks: int, scan: tuple[int, int], binning: int, **changes: str
) -> bytes:
    values = {
        "DarkFrames": str(darks),
        "DwellTimeMicroSeconds": "1000",
        "Gain": "4",
        "SignalFrames": str(frames),
        "ReadoutMode": f'"bin: {binning}, windowing: 264 x 264"',
        "STEMImageSize": f"{scan[0]}x{scan[1]}",
        **changes,
    }
    lines = "".join(f"{key} = {value}\n" for key, value in values.items() if value)
    return f"[measurementInfo]\n{lines}".encode()


# -- MRC --------------------------------------------------------------------------


def mrc(
    frames: Array,
    mode: int,
    order: Order = "<",
    *,
    extended: int = 0,
    stamp: bytes | None = None,
    imod: tuple[int, int] = (0, 0),
    sections: int | None = None,
    word: bytes = b"MAP ",
    cell: float = 0.0,
) -> bytes:
    count, rows, columns = frames.shape
    head = bytearray(1024)
    struct.pack_into(f"{order}4i", head, 0, columns, rows, sections or count, mode)
    struct.pack_into(f"{order}3i", head, 28, columns, rows, count)
    struct.pack_into(f"{order}3f", head, 40, columns * cell, rows * cell, count * cell)
    struct.pack_into(f"{order}i", head, 92, extended)
    struct.pack_into(f"{order}2i", head, 152, *imod)
    head[208:212] = word
    head[212:214] = stamp or (b"\x44\x44" if order == "<" else b"\x11\x11")
    values = frames.astype(frames.dtype.newbyteorder(order)).tobytes()
    return bytes(head) + b"E" * extended + values


# -- K2IS -------------------------------------------------------------------------


def twelve_bits(values: Array) -> bytes:
    """Pairs of 12-bit values in three bytes, the first in the lower bits."""
    pairs = values.reshape(-1, 2).astype(np.uint32)
    words = (pairs[:, 0] | pairs[:, 1] << 12).astype("<u4")
    return words.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()


def k2is_sector(
    frames: Array, *, count: int = 1000, frame: int = 50, opens: int = 0, skip: int = 0
) -> bytes:
    """A sector's file; the first ``skip`` blocks were not written."""
    body = b""
    for index, picture in enumerate(frames):
        for block in range(32):
            x, y = 256 - 16 * (block % 16 + 1), 930 * (block // 16)
            pixels = picture[y : y + 930, x : x + 16]
            flags = int(index >= opens)
            body += struct.pack(
                ">I4xBB6xIHHIHHHHI",
                0xFFFF0055,
                1,
                flags,
                count + 32 * index + block,
                256,
                1860,
                frame + index,
                x,
                y,
                x + 15,
                y + 929,
                0x5758,
            ) + twelve_bits(pixels)
    return body[0x5758 * skip :]
