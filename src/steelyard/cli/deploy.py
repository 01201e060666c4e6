"""`steelyard deploy`: create an endpoint for a model or give an existing one another model, and watch it come up."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote, urlsplit

import typer

from steelyard.cli.connection import Token, Url, connect
from steelyard.cli.failures import CliError, usage_error
from steelyard.cli.loglines import readable
from steelyard.cli.progress import Mark, progress
from steelyard.cli.view import Json, doing_of, failure_of, outcome_of

if TYPE_CHECKING:
    from steelyard.cli.client import Client

POLL_S = 0.5
LOG_LINES = 15


def deploy(
    name: Annotated[str, typer.Argument(help="Name of the endpoint.")],
    uri: Annotated[str, typer.Argument(help="A folder, a .gguf file, models:/NAME/VERSION or runs:/RUN/PATH.")],
    version: Annotated[str | None, typer.Option(help="Version, when URI is the name of a registered model.")] = None,
    min_concurrency: Annotated[
        int | None, typer.Option(min=0, help="Requests at once that must always have room.")
    ] = None,
    max_concurrency: Annotated[
        int | None, typer.Option(min=1, help="Requests at once up to which replicas may be added as the load asks.")
    ] = None,
    scale_to_zero: Annotated[bool, typer.Option("--scale-to-zero", help="Keep no replica while nobody asks.")] = False,
    env: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Environment variable of the model; repeatable.")
    ] = None,
    wait: Annotated[bool, typer.Option(help="Wait until the model serves.")] = True,
    url: Url = None,
    token: Token = None,
) -> None:
    """Serve a model at an endpoint, or put a new model behind an existing one."""
    variables = _variables(env or [])
    with connect(url, token) as client:
        entity_name = uri if version else absolute(uri, must_exist=client.connection.on_this_machine)
        config = entity_config(
            entity_name,
            version=version,
            min_concurrency=min_concurrency,
            max_concurrency=max_concurrency,
            scale_to_zero=scale_to_zero,
            variables=variables,
        )
        apply(client, name, config)
        if wait:
            follow(client, name)
        else:
            print(f"{name}: deployment started; `steelyard endpoints` shows how it goes.")


def entity_config(
    entity_name: str,
    *,
    version: str | None = None,
    min_concurrency: int | None = None,
    max_concurrency: int | None = None,
    scale_to_zero: bool = False,
    variables: dict[str, str] | None = None,
) -> Json:
    """A configuration with one served entity that takes all traffic."""
    entity: dict[str, Any] = {"entity_name": entity_name}
    if version:
        entity["entity_version"] = version
    if min_concurrency is not None:
        entity["min_provisioned_concurrency"] = min_concurrency
    if max_concurrency is not None:
        entity["max_provisioned_concurrency"] = max_concurrency
    if scale_to_zero:
        entity["scale_to_zero_enabled"] = True
    if variables:
        entity["environment_vars"] = variables
    return {"served_entities": [entity]}


def apply(client: Client, name: str, config: Json) -> None:
    """Create the endpoint, or update it when there is one."""
    if client.find_endpoint(name) is None:
        client.create(name, config)
    else:
        client.update(name, config)


def follow(client: Client, name: str) -> None:
    """Show progress until the endpoint is ready; raises CliError with the reason when the update failed."""
    with progress() as shown:
        while True:
            endpoint = client.endpoint(name)
            outcome = outcome_of(endpoint)
            shown.show(name, *progress_of(endpoint))
            if outcome != "working":
                break
            time.sleep(POLL_S)
    if outcome == "failed":
        print_last_lines(client, endpoint)
        raise CliError(f"{name} was not deployed: {failure_of(endpoint)}", _failure_hint(endpoint))
    if outcome == "stopped":
        raise CliError(f"{name} is stopped.", f"`steelyard start {name}` starts it.")


def progress_of(endpoint: Json) -> tuple[str, Mark]:
    """One line about a deployment, and whether it is over."""
    match outcome_of(endpoint):
        case "ready":
            return "ready", Mark.DONE
        case "failed":
            return failure_of(endpoint), Mark.FAILED
        case "stopped":
            return "stopped", Mark.SKIPPED
        case _:
            return doing_of(endpoint), Mark.WORKING


def print_last_lines(client: Client, endpoint: Json) -> None:
    """The end of the failed model's own output, if the platform has it."""
    config = endpoint.get("pending_config") or endpoint.get("config") or {}
    for entity in config.get("served_entities") or []:
        try:
            text = client.logs(str(endpoint["name"]), str(entity["name"]))
        except (CliError, KeyError):
            continue
        for line in readable(text.rstrip())[-LOG_LINES:]:
            print(f"  | {line}")


def absolute(uri: str, *, must_exist: bool) -> str:
    """A URI with a scheme as it is; anything else is a path, made absolute.

    Raises CliError when the path must exist on this machine and does not.
    """
    parts = urlsplit(uri)
    if parts.scheme and parts.scheme != "file":
        return uri
    path = Path(unquote(parts.path) if parts.scheme == "file" else uri).expanduser().absolute()
    if must_exist and not path.exists():
        raise CliError(
            f"There is no model at {path}.",
            "A model is a folder, a .gguf file, models:/NAME/VERSION, runs:/RUN/PATH, or a name with --version.",
        )
    return str(path)


def _variables(pairs: list[str]) -> dict[str, str]:
    variables = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise usage_error(f"{pair!r} is not KEY=VALUE.", "For example --env OMP_NUM_THREADS=1.")
        variables[key] = value
    return variables


def _failure_hint(endpoint: Json) -> str:
    name = endpoint.get("name")
    serving = (endpoint.get("state") or {}).get("ready") == "READY"
    return f"`steelyard logs {name}` shows the model's output." + (
        " The version before still serves." if serving else ""
    )
