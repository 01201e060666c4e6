"""What a model URI is: `resolve` finds its files on this machine, `inspect` reads what they say of themselves.

Neither imports a model's libraries nor runs any of its code; mlflow is imported only for URIs that it alone can
resolve. Every failure is a ModelLoadError of one sentence for the user.
"""

from steelyard.packages.inspect import Package, inspect_package
from steelyard.packages.resolve import Kind, Location, resolve

__all__ = ["Kind", "Location", "Package", "inspect_package", "resolve"]
