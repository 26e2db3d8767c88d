"""EMPAD: frames of 128 x 128 float32 pixels, each followed by a footer of two rows."""

from __future__ import annotations

import math
from xml.etree import ElementTree as ET

import numpy as np

from ..recording import FileInfo, Hints
from .files import File, Files, only, read_xml
from .format import Format, Found

SIG_SHAPE = (128, 128)
PIXELS = np.dtype("<f4")
FOOTER = 2 * 128 * 4
STRIDE = 128 * 128 * 4 + FOOTER
SCAN_MODES = ("acquire", "search")
"""Scans an XML file can describe, the likelier one of the data first."""

_LONGEST = 9
"""Digits of a number in the XML file."""
_HINT = "Leave the XML file out, and give nav_shape"


def data_name(root: ET.Element) -> str | None:
    """Return the name of the data file in an XML file."""
    element = root.find("raw_file")
    path = None if element is None else element.get("filename")
    return path and path.replace("\\", "/").rpartition("/")[2]


def _scans(file: File, root: ET.Element) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the scans in an XML file, the likeliest first."""
    kind = root.findtext("type", "scan")
    if kind.strip() == "series":
        return {"series": (_integer(file, root.find("count"), "the series count"),)}
    if kind.strip() != "scan":
        raise file.fault(f"a measurement of type {kind[:40]!r}", hint=_HINT)
    shapes: dict[str, tuple[int, ...]] = {}
    for mode in SCAN_MODES:
        for scan in root.findall(f"scan_parameters[@mode='{mode}']"):
            sizes = ((axis, scan.find(f"scan_resolution_{axis}")) for axis in "yx")
            shape = tuple(_integer(file, size, f"the {axis} size") for axis, size in sizes)
            shapes.setdefault(mode, shape)
    if not shapes:
        raise file.fault("the XML describes no scan", hint=_HINT)
    return shapes


def _integer(file: File, element: ET.Element | None, label: str) -> int:
    """Return the content of an element as a number; ``label`` names it in the error."""
    text = "" if element is None else (element.text or "").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST):
        raise file.fault(
            f"{label} is missing" if element is None else f"{label} is {text[:40]!r}, not a number",
            hint="Leave the file out, and give nav_shape",
        )
    return int(text)


class Empad(Format):
    """One .raw file, with or without the accompanying .xml file."""

    name = "empad"
    extensions = ("raw",)
    description = "xml"
    names_its_files = True

    def looks_like(self, file: FileInfo, head: bytes) -> bool:
        """Recognise the XML file; the frames themselves have no header."""
        return self.is_companion(file.name) and b"<raw_file" in head

    def find(self, files: Files, hints: Hints) -> Found:
        """Count the frames, and choose the scan of the XML file with as many positions.

        Raises:
            FormatError: the last frame is truncated, or the number of frames matches no scan
                in the XML file.
        """
        data = only(files.frames, ".raw file")
        extent = data.extent(0, STRIDE)
        nav_shape, metadata = None, {}
        if files.companions:
            companion = only(files.companions, ".xml file")
            root = read_xml(companion)
            scans = _scans(companion, root)
            mode = next((m for m in scans if math.prod(scans[m]) == extent.frames), None)
            if mode is None and not hints.growing and hints.nav_shape is None:
                raise data.fault(
                    f"the file has {extent.frames} frames, but {companion.name} describes "
                    + " or ".join(f"{shape} ({m})" for m, shape in scans.items()),
                    data.size,
                    "If the scan was stopped early, give nav_shape",
                )
            mode = mode or next(iter(scans))
            nav_shape, metadata = scans[mode], {"scan": mode}
            named = data_name(root)
            if named is not None and named != data.name:
                files.notes.append(f"{companion.name} calls the data file {named}")
        return Found(
            extents=[extent],
            sig_shape=SIG_SHAPE,
            stored=PIXELS,
            nav_shape=nav_shape,
            frame_footer=FOOTER,
            metadata=metadata,
        )
