"""What a run is: the schema, its files and overrides, and checks that need neither torch nor Ray."""

from pipeline.config.checks import Resources, check_model_folder, check_resources
from pipeline.config.errors import UserError, nearest
from pipeline.config.load import config_digest, load_config, to_yaml
from pipeline.config.paths import ROOT, resolve_path, resolve_paths
from pipeline.config.schema import Columns, RunConfig, Source

__all__ = [
    "ROOT",
    "Columns",
    "Resources",
    "RunConfig",
    "Source",
    "UserError",
    "check_model_folder",
    "check_resources",
    "config_digest",
    "load_config",
    "nearest",
    "resolve_path",
    "resolve_paths",
    "to_yaml",
]
