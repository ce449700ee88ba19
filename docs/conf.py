"""Sphinx configuration of the documentation."""

import hyperplane

project = "hyperplane"
author = "the hyperplane developers"
release = version = hyperplane.__version__

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # types are in the numpydoc sections
numpydoc_show_class_members = False
autosummary_generate = False  # numpydoc loads autosummary, which is not used

html_theme = "pydata_sphinx_theme"
html_title = "hyperplane"
html_static_path = ["_static"]
html_css_files = ["hyperplane.css"]
html_show_sourcelink = False
html_sidebars = {"index": [], "gallery": [], "tutorial/*": []}
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": True,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_copy_source = False
copyright = author
