"""XML of companion files, read without trust."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from .source import Source


class _DeclarationError(Exception):
    """A document type declaration, which could make a small file a large tree."""


class _Builder(ET.TreeBuilder):
    def doctype(self, *_: str | None) -> None:
        raise _DeclarationError


def read_xml(source: Source, file: int) -> ET.Element:
    """The root of a companion file.

    Raises:
        FormatError: it is not XML, too large, or declares a document type.
    """
    octets = source.octets(file)
    parser = ET.XMLParser(target=_Builder())  # noqa: S314 - declarations, and with them entities, are refused
    try:
        parser.feed(octets)
        root: ET.Element = parser.close()
    except _DeclarationError:
        raise source.fault(
            file,
            "the XML declares a document type, which no detector writes",
            hint="Leave the file out, and give the shapes",
        ) from None
    except (ET.ParseError, ValueError, LookupError) as error:
        raise source.fault(
            file,
            f"the file is not XML: {error}",
            hint="Leave it out, and give the shapes",
        ) from None
    return root


def integer(source: Source, file: int, element: ET.Element | None, what: str) -> int:
    """The number an element holds.

    Raises:
        FormatError: it is missing, or holds something else.
    """
    text = "" if element is None else (element.text or "").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 9):  # noqa: PLR2004 - below 1e9
        raise source.fault(
            file,
            f"{what} is missing" if element is None else f"{what} is {text[:40]!r}, not a number",
            hint="Leave the file out, and give nav_shape",
        )
    return int(text)
