"""Alembic runs this file. The connection comes from `store.py`, which also owns the transaction around it all."""

from alembic import context

from steelyard.control.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite cannot alter most columns in place
)
context.run_migrations()
