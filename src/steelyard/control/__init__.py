"""The control plane: what users want, kept in a store, and the loop that makes it so.

`main` is the process. `api/` speaks HTTP on a Unix socket; `operations` is what users can ask; `store` keeps it;
`plan` decides, purely, what to do next for an endpoint; `reconcile` observes, plans, acts through the substrate and
publishes `snapshots` to the routers. Losing control stops changes, not traffic.
"""
