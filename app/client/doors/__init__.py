"""Ways in for libraries that look for plugins: xarray and napari; each wants its library."""
