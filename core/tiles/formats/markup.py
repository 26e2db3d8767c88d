"""Safe parsing of XML companion files."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from ...budget import current
from .source import Source

_ELEMENT_BYTES = 160
"""Memory of an element or its end."""


class _DeclarationError(Exception):
    """The document has a type declaration, whose entities could expand to any size."""


class _Builder(ET.TreeBuilder):
    def doctype(self, *_: str | None) -> None:
        raise _DeclarationError


def read_xml(source: Source, file: int) -> ET.Element:
    """Parse a companion file and return its root element.

    Raises:
        FormatError: the file is not XML, is too large, or declares a document type.
    """
    octets = source.octets(file)
    current().hold("companion", _ELEMENT_BYTES * octets.count(b"<"))
    parser = ET.XMLParser(target=_Builder())  # noqa: S314 - declarations, hence entities, are refused
    try:
        parser.feed(octets)
        root: ET.Element = parser.close()
    except _DeclarationError:
        raise source.fault(
            file,
            "the XML declares a document type, which detector software never does",
            hint="Leave the file out, and give the shapes",
        ) from None
    except (ET.ParseError, ValueError, LookupError) as error:
        raise source.fault(
            file,
            f"the file is not XML: {error}",
            hint="Leave it out, and give the shapes",
        ) from None
    return root


def integer(source: Source, file: int, element: ET.Element | None, label: str) -> int:
    """Return the content of an element as an integer; ``label`` names it in the error.

    Raises:
        FormatError: the element is missing or is not a number below 1e9.
    """
    text = "" if element is None else (element.text or "").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 9):  # noqa: PLR2004 - below 1e9
        raise source.fault(
            file,
            f"{label} is missing" if element is None else f"{label} is {text[:40]!r}, not a number",
            hint="Leave the file out, and give nav_shape",
        )
    return int(text)
