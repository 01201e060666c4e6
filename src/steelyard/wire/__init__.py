"""HTTP/1.1 on raw asyncio protocols: the server of router and replica, the client of router and control, SSE framing.

Nothing in here knows what a request is about. Every protocol fault becomes an error of `steelyard.errors` here, once.
"""
