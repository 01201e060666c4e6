"""The API dialects that clients speak: MLflow's `/invocations` and OpenAI's chat and text completions.

Bytes in, typed values out, and back. Nothing here does I/O, reads a clock or knows a runtime; pandas is imported only
when a request needs a frame. Every fault of a client is a `BadRequest` (or 415) that names the field; nothing else
ever escapes a parser.
"""
