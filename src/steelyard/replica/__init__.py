"""One replica of one model version: `python -m steelyard.replica <dir>`, a process group of its own.

`main` owns the life (start, ready, draining), `app` the paths, `lanes` the threads that predict, `invocations` and
`generations` the two kinds of requests, `load` what it says of itself. It serves whoever asks on its socket and needs
no one to watch it.
"""
