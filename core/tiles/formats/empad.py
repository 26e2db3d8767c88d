"""EMPAD: frames of 128 x 128 float32 pixels, each followed by a footer of two rows."""

from __future__ import annotations

import math

import numpy as np

from ..recording import Extent, FileInfo, Hints
from .format import Format
from .layout import Found, count_frames
from .markup import integer, read_xml
from .source import Source, only

SIG_SHAPE = (128, 128)
PIXELS = np.dtype("<f4")
FRAME_BYTES = 128 * 128 * 4
FOOTER = 2 * 128 * 4
STRIDE = FRAME_BYTES + FOOTER
SCAN_MODES = ("acquire", "search")
"""Scans an XML file can describe, the likelier one of the data first."""


def _scans(source: Source, file: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the scans in an XML file, the likeliest first."""
    root = read_xml(source, file)
    kind = root.find("type")
    if kind is not None and (kind.text or "").strip() == "series":
        return {"series": (integer(source, file, root.find("count"), "the series count"),)}
    if kind is not None and (kind.text or "").strip() != "scan":
        raise source.fault(
            file,
            f"a measurement of type {(kind.text or '')[:40]!r}",
            hint="Leave the XML file out, and give nav_shape",
        )
    shapes: dict[str, tuple[int, ...]] = {}
    for mode in SCAN_MODES:
        for scan in root.findall("scan_parameters"):
            if scan.get("mode") == mode:
                shape = tuple(
                    integer(source, file, scan.find(f"scan_resolution_{axis}"), f"the {axis} size")
                    for axis in "yx"
                )
                shapes.setdefault(mode, shape)
    if not shapes:
        raise source.fault(
            file,
            "the XML describes no scan",
            hint="Leave the XML file out, and give nav_shape",
        )
    return shapes


def _named(source: Source, file: int) -> str | None:
    element = read_xml(source, file).find("raw_file")
    named = None if element is None else element.get("filename")
    return None if named is None else named.replace("\\", "/").rpartition("/")[2]


class Empad(Format):
    """One .raw file, with or without the accompanying .xml file."""

    name = "empad"
    extensions = ("raw",)
    description = "xml"
    names_its_files = True
    series = True

    def looks_like(self, file: FileInfo, head: bytes) -> bool:
        """Recognise the XML file; the frames themselves have no header."""
        return self.is_companion(file.name) and b"<raw_file" in head

    def find(self, source: Source, hints: Hints) -> Found:
        """Count the frames, and choose the scan of the XML file with as many positions.

        Raises:
            FormatError: the last frame is truncated, or the number of frames matches no scan
                in the XML file.
        """
        frame_files, companions = self.split(source)
        data = only(source, frame_files, ".raw file")
        frames = count_frames(source, data, 0, STRIDE, growing=hints.growing)
        nav_shape, notes, metadata = None, [], {}
        if companions:
            companion = only(source, companions, ".xml file")
            scans = _scans(source, companion)
            mode = next((m for m in scans if math.prod(scans[m]) == frames), None)
            if mode is None and not hints.growing and hints.nav_shape is None:
                raise source.fault(
                    data,
                    f"the file has {frames} frames, but {source.files[companion].name} describes "
                    + " or ".join(f"{shape} ({m})" for m, shape in scans.items()),
                    offset=source.files[data].size,
                    hint="If the scan was stopped early, give nav_shape",
                )
            mode = mode or next(iter(scans))
            nav_shape = scans[mode]
            metadata = {"scan": mode}
            named = _named(source, companion)
            if named is not None and named != source.files[data].name:
                notes.append(f"{source.files[companion].name} calls the data file {named}")
        return Found(
            format=self.name,
            extents=[Extent(data, frames, 0, STRIDE)],
            sig_shape=SIG_SHAPE,
            stored=PIXELS,
            nav_shape=nav_shape,
            frame_footer=FOOTER,
            metadata=metadata,
            notes=notes,
        )
