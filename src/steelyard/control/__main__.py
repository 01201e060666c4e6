"""`python -m steelyard.control`."""

from steelyard.control.main import main

main()
