"""The only door: authenticates, admits, chooses, streams, settles. `python -m steelyard.router --index 0`.

Works on its last snapshot when control is away. Nothing on the path of a request starts a task, writes a log line or
waits for a disk.

| file | job |
|---|---|
| `__main__.py` | the process: settings, signals, lifeline, drain |
| `app.py` | path → action, errors → replies |
| `inbound.py` | one pass over a request's headers |
| `identity.py` | bearer token → principal |
| `table.py` | live endpoints, served entities, replicas; applies snapshots |
| `snapshot.py` | receives snapshots, keeps the last one on disk |
| `dispatch.py`, `queue.py` | choose a replica, or wait, or refuse; wake who waits |
| `exchange.py` | one request's life, from admission to settlement |
| `forward.py` | requests for the control plane |
| `models.py` | `/v1/models` |
| `measures.py`, `admin.py` | metrics, and the socket on which the platform reads them |
"""
