"""What a run is: the schema, its files and overrides, and checks that need neither torch nor Ray."""

from pipeline.config.addresses import bearer, check_address, check_key, host_of, server_root
from pipeline.config.checks import Resources, check_model_folder, check_resources
from pipeline.config.errors import UserError, nearest, user_error_in
from pipeline.config.load import config_digest, load_config, plain_digest, to_yaml
from pipeline.config.paths import ROOT, portable, resolve_path, resolve_paths, results_root
from pipeline.config.schema import Columns, Evaluation, RunConfig, Source
from pipeline.config.schema_teaching import WarmStart
from pipeline.config.whole_file import write_whole

__all__ = [
    "ROOT",
    "Columns",
    "Evaluation",
    "Resources",
    "RunConfig",
    "Source",
    "UserError",
    "WarmStart",
    "bearer",
    "check_address",
    "check_key",
    "check_model_folder",
    "check_resources",
    "config_digest",
    "host_of",
    "load_config",
    "nearest",
    "plain_digest",
    "portable",
    "resolve_path",
    "resolve_paths",
    "results_root",
    "server_root",
    "to_yaml",
    "user_error_in",
    "write_whole",
]
