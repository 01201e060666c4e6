"""Request and reply bodies as pydantic models, named and shaped as the official clients send and read them.

Fields that we do not know are ignored, since newer clients send more. Only shapes and sizes are checked here; what
belongs together is checked in `definitions.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _printable(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not hold a NUL character")
    return text


Text = Annotated[str, Field(max_length=4096), AfterValidator(_printable)]
LongText = Annotated[str, Field(max_length=32_768), AfterValidator(_printable)]
Concurrency = Annotated[int, Field(ge=0, le=4096, strict=True)]
Percentage = Annotated[int, Field(ge=0, le=100, strict=True)]
Amount = Annotated[int, Field(ge=0, le=10**12, strict=True)]
Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]


class _Given(BaseModel):
    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class _Sizes(_Given):
    name: Text | None = None
    workload_size: Text | None = None
    workload_type: Text | None = None
    scale_to_zero_enabled: bool | None = None
    min_provisioned_concurrency: Concurrency | None = None
    max_provisioned_concurrency: Concurrency | None = None
    environment_vars: dict[Text, LongText] | None = None


class ServedEntityInput(_Sizes):
    """`entity_name`: a registered model, a path, models:/…, runs:/…, a Hugging Face folder, a .gguf file."""

    entity_name: Text | None = None
    entity_version: Text | None = None
    external_model: object | None = None
    foundation_model: object | None = None


class ServedModelInput(_Sizes):
    """The deprecated form of a served entity."""

    model_name: Text
    model_version: Text | None = None


class Route(_Given):
    traffic_percentage: Percentage
    served_entity_name: Text | None = None
    served_model_name: Text | None = None


class TrafficConfig(_Given):
    routes: list[Route] | None = Field(default=None, max_length=100)


class ConfigInput(_Given):
    served_entities: list[ServedEntityInput] | None = Field(default=None, max_length=100)
    served_models: list[ServedModelInput] | None = Field(default=None, max_length=100)
    traffic_config: TrafficConfig | None = None


class Tag(_Given):
    key: Text
    value: Text | None = None


class RateLimitInput(_Given):
    """At most so many calls, tokens or model units per minute, of all requests of an endpoint, a user or a group."""

    key: Text | None = None
    principal: Text | None = None
    renewal_period: Text | None = None
    calls: Amount | None = None
    tokens: Amount | None = None
    input_tokens: Amount | None = None
    output_tokens: Amount | None = None
    model_units: Amount | None = None


class GatewayInput(_Given):
    """Replaces what was set before. Usage is always tracked."""

    rate_limits: list[RateLimitInput] | None = Field(default=None, max_length=1000)
    usage_tracking_config: dict[str, Any] | None = None
    guardrails: dict[str, Any] | None = None
    inference_table_config: dict[str, Any] | None = None
    fallback_config: dict[str, Any] | None = None


class CreateEndpoint(_Given):
    name: Text
    config: ConfigInput
    ai_gateway: GatewayInput | None = None
    tags: list[Tag] | None = Field(default=None, max_length=100)
    description: LongText | None = None


class ChangeTags(_Given):
    add_tags: list[Tag] | None = Field(default=None, max_length=100)
    delete_tags: list[Text] | None = Field(default=None, max_length=100)


class CreateToken(_Given):
    comment: Text | None = None
    lifetime_seconds: Annotated[int, Field(ge=1, le=10 * 366 * 86_400, strict=True)] | None = None


class CreateTokenFor(CreateToken):
    """`application_id`: whose token it becomes; `groups`: that they belong to."""

    application_id: Text
    groups: list[Text] | None = Field(default=None, max_length=20)


class DeleteToken(_Given):
    token_id: Text


class TargetInput(_Given):
    """What nine in ten requests shall meet; what is left out has no limit."""

    first_token_seconds: Seconds | None = None
    per_token_seconds: Seconds | None = None
    whole_seconds: Seconds | None = None


class CalibrateInput(_Given):
    """`served_entity_name`: by default the one with most of the traffic."""

    served_entity_name: Text | None = None
    budget_seconds: Annotated[float, Field(ge=5, le=3600, allow_inf_nan=False)] | None = None
    target: TargetInput | None = None


class _Told(BaseModel):
    model_config = ConfigDict(protected_namespaces=())


class EntityState(_Told):
    deployment: str
    deployment_state_message: str = ""


class _ServedOutput(_Told):
    name: str
    workload_size: str | None = None
    workload_type: str | None = None
    scale_to_zero_enabled: bool = False
    min_provisioned_concurrency: int | None = None
    max_provisioned_concurrency: int | None = None
    environment_vars: dict[str, str] | None = None
    creator: str
    creation_timestamp: int
    state: EntityState


class ServedEntityOutput(_ServedOutput):
    """`runtime`, `ready_replicas` and `replicas` are ours; official clients ignore them."""

    entity_name: str
    entity_version: str | None = None
    runtime: str | None = None
    ready_replicas: int | None = None
    replicas: int | None = None


class ServedModelOutput(_ServedOutput):
    model_name: str
    model_version: str | None = None


class RouteOutput(_Told):
    """The entity under both of its names, as older clients read the second."""

    served_entity_name: str
    served_model_name: str
    traffic_percentage: int


class TrafficOutput(_Told):
    routes: list[RouteOutput] = []


class ConfigOutput(_Told):
    served_entities: list[ServedEntityOutput] = []
    served_models: list[ServedModelOutput] = []
    traffic_config: TrafficOutput = TrafficOutput()
    config_version: int = 0


class PendingConfigOutput(ConfigOutput):
    start_time: int


class EndpointStateOutput(_Told):
    ready: Literal["READY", "NOT_READY"]
    config_update: Literal["NOT_UPDATING", "IN_PROGRESS", "UPDATE_FAILED", "UPDATE_CANCELED"]


class TagOutput(_Told):
    key: str
    value: str = ""


class RateLimitOutput(_Told):
    key: str
    principal: str | None = None
    renewal_period: Literal["minute"] = "minute"
    calls: int | None = None
    tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    model_units: int | None = None


class GatewayOutput(_Told):
    rate_limits: list[RateLimitOutput] = []


class EndpointOutput(_Told):
    """`pending_config` is the configuration being deployed or, after a failure, the one that failed."""

    id: str
    name: str
    creator: str
    creation_timestamp: int
    last_updated_timestamp: int
    state: EndpointStateOutput
    config: ConfigOutput
    pending_config: PendingConfigOutput | None = None
    stopped: bool = False
    task: str | None = None
    ai_gateway: GatewayOutput | None = None
    tags: list[TagOutput] = []
    description: str = ""
    permission_level: Literal["CAN_MANAGE", "CAN_QUERY", "CAN_VIEW"] = "CAN_MANAGE"
    route_optimized: bool = False
    endpoint_url: str


class EndpointList(_Told):
    endpoints: list[EndpointOutput]


class TagList(_Told):
    tags: list[TagOutput]


class LogsOutput(_Told):
    logs: str


class EventOutput(_Told):
    timestamp: int
    kind: str
    message: str
    served_entity: str | None = None
    replica: str | None = None


class EventList(_Told):
    events: list[EventOutput]


class UsageItem(_Told):
    """What one principal's requests at one served entity took."""

    start_time: int | None = Field(None, description="Begin of the hour, in ms since the epoch; not with by=total.")
    served_entity_name: str
    principal: str
    requests: int
    rows: int
    input_tokens: int = Field(description="Of text, the cached ones included.")
    cached_tokens: int
    output_tokens: int
    image_tokens: int
    model_units: float


class UsageOutput(_Told):
    endpoint_name: str
    start_time: int
    end_time: int
    usage: list[UsageItem]


class TokenInfo(_Told):
    token_id: str
    creation_time: int
    expiry_time: int
    comment: str


class ManagedTokenInfo(TokenInfo):
    created_by_username: str
    groups: list[str] = []


class ManagedTokenList(_Told):
    token_infos: list[ManagedTokenInfo]


class TokenCreated(_Told):
    token_value: str
    token_info: TokenInfo


class TokenList(_Told):
    token_infos: list[TokenInfo]


class CalibrationOutput(_Told):
    """`result` is as `contracts.cost.Calibration` says: coefficients in model units, errors, windows."""

    served_entity_name: str
    state: Literal["RUNNING", "DONE", "FAILED"]
    done: int = 0
    left: int = 0
    detail: str = ""
    message: str = ""
    result: dict[str, Any] | None = None


class CalibrationList(_Told):
    calibrations: list[CalibrationOutput]


class Nothing(_Told):
    """An empty object."""


class ErrorOutput(_Told):
    """As databricks-sdk and MLflow read it; see `errors.py`."""

    error_code: str
    message: str
    param: str | None = None  # the field at fault, where one is
