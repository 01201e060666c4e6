"""What a model URI is: `resolve` finds its files on this machine, `inspect` reads what they say of themselves, and
`environment` (not imported here: it needs more than the worker has) provides the Python environment they ask for.

None imports a model's libraries or runs any of its code; mlflow is imported only for URIs that it alone can resolve.
Every failure is a ModelLoadError of one sentence for the user.
"""

from steelyard.packages.inspect import Package, inspect_package
from steelyard.packages.model_files import Kind
from steelyard.packages.resolve import Location, resolve

__all__ = ["Kind", "Location", "Package", "inspect_package", "resolve"]
