"""The `steelyard` command: one thin file per group of commands, over the public API.

`main` assembles the commands and turns every failure into one line and a hint. Only `up` touches the supervisor; all
other commands reach a platform by URL and token as any client does. Modules import heavy libraries inside functions,
so that `steelyard --help` answers at once.
"""
