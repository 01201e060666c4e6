"""Entry of the `steelyard` command: assembles the commands and turns every failure into one line and a hint."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from steelyard.cli import calibrate, deploy, doctor, endpoints, logs, query, up, usage
from steelyard.cli.autoscaling import autoscaling
from steelyard.cli.failures import CliError, describe, one_line
from steelyard.cli.simulate import simulate

app = typer.Typer(
    name="steelyard",
    help="Self-hosted model serving: any model becomes a production endpoint.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    up.up,
    deploy.deploy,
    endpoints.endpoints,
    query.query,
    calibrate.calibrate,
    usage.usage,
    logs.logs,
    logs.events,
    endpoints.stop,
    endpoints.start,
    endpoints.delete,
    doctor.doctor,
):
    app.command()(command)
app.add_typer(autoscaling, name="autoscaling")
app.add_typer(simulate, name="simulate")


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"steelyard {version('steelyard')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Self-hosted model serving: any model becomes a production endpoint."""


def run(arguments: list[str]) -> int:
    """Run one command and return its exit status: 0 done, 1 failed, 2 used wrongly, 130 interrupted."""
    try:
        result = app(arguments or ["--help"], prog_name="steelyard", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone: say no more at exit
        return 1
    except Exception as error:
        known = _known(error)
        if known is None and os.environ.get("STEELYARD_DEBUG"):
            raise
        return _complain(known or describe(error))


def main() -> None:
    """Console script."""
    sys.exit(run(sys.argv[1:]))


def _complain(error: CliError) -> int:
    for line in error.lines():
        print(line, file=sys.stderr)
    return error.status


def _known(error: Exception) -> CliError | None:
    """Our own error, or the parser's complaint in our form; None for what nobody foresaw."""
    if isinstance(error, CliError):
        return error
    if isinstance(error, typer.Abort):
        return CliError("Stopped; nothing was changed.", status=130)
    message = getattr(error, "format_message", None)
    if message is None:
        return None
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "steelyard"
    return CliError(one_line(message()), f"`{command} --help` shows how.", status=2)


if __name__ == "__main__":
    main()
