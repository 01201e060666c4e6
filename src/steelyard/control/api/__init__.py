"""Control's HTTP API: the public serving-endpoints API, and what the platform's own processes ask.

`app.build_app` assembles it; routes are thin and call `operations`. It listens on a Unix socket only; the router in
front of it has authenticated the caller and says who it is.
"""
