"""What must hold before an endpoint is deployed or gets other access settings; command, dry run and client ask here."""

from pipeline.config import RunConfig, UserError
from serve.access import AccessSettings, settings_from
from serve.scaling import check_scaling


def checked_access(cfg: RunConfig) -> AccessSettings:
    """The access settings of `cfg`. UserError for what would leave the endpoint open, answer some keys with errors, or
    never scale."""
    settings = settings_from(cfg.serve)
    check_priorities(settings, cfg.admission.policy)
    check_scaling(cfg)
    return settings


def check_priorities(settings: AccessSettings, policy: str) -> None:
    """UserError when a key has a priority that the engine would refuse: with `fcfs` it answers 400 to any but 0."""
    for key in settings.keys:
        if key.priority and policy != "priority":
            raise UserError(
                f"the key '{key.name}' has priority {key.priority}, but the engine serves first come, first served and "
                "would refuse its requests: set admission.policy=priority, or make the key without --priority"
            )
