"""A package that a model brings along through `code_paths`."""
