"""Sphinx's configuration of the documentation; ``python -m deploy.docs`` builds it."""

from app import __version__

project = "Thalweg"
version = release = __version__
copyright = "the authors of Thalweg"  # noqa: A001 - Sphinx's name
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_static"]
highlight_language = "none"
smartquotes = False
myst_heading_anchors = 4
autodoc_class_signature = "separated"
autodoc_member_order = "groupwise"
autodoc_typehints = "signature"
add_module_names = False
toc_object_entries = False
html_theme = "furo"
html_title = f"Thalweg {version}"
html_static_path = ["_static"]
html_css_files = ["docs.css"]
html_favicon = "_static/icon.svg"
html_copy_source = html_show_sourcelink = html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#06566e", "color-brand-content": "#06566e"},
    "dark_css_variables": {"color-brand-primary": "#7cc7dd", "color-brand-content": "#7cc7dd"},
    "light_logo": "icon.svg",
    "dark_logo": "icon.svg",
}
