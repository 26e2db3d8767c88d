"""Sphinx's configuration of the documentation; ``python -m deploy.docs`` builds it."""

from __future__ import annotations

import builtins
from typing import Any

from sphinx.addnodes import pending_xref

from app import __version__

project = "Thalweg"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_static"]
suppress_warnings = ["misc.highlighting_failure"]  # of JSON in quotes of a shell
highlight_language = "none"
smartquotes = False
myst_heading_anchors = 4
autodoc_class_signature = "separated"
autodoc_typehints = "signature"
add_module_names = False
toc_object_entries = False
html_theme = "furo"
html_title = f"Thalweg {version}"
html_static_path = ["_static"]
html_css_files = ["docs.css"]
html_favicon = html_logo = "_static/icon.svg"
html_copy_source = html_show_sourcelink = html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#06566e", "color-brand-content": "#06566e"},
    "dark_css_variables": {"color-brand-primary": "#7cc7dd", "color-brand-content": "#7cc7dd"},
}


def setup(sphinx: Any) -> None:  # noqa: ANN401 - Sphinx has no types where it is not installed
    """Register what is done to each page."""
    sphinx.connect("doctree-read", _leave_builtins)


def _leave_builtins(_sphinx: Any, page: Any) -> None:  # noqa: ANN401 - as above
    """Link no type of Python's to an attribute of that name."""
    for link in [*page.findall(pending_xref)]:
        if hasattr(builtins, link["reftarget"]):
            link.replace_self(link.children)
