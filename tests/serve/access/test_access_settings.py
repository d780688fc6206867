"""The settings' trip through `user_config`, and what a config may ask for."""

import json

import pytest

from pipeline.config import UserError, load_config
from serve.access import AccessSettings, settings_from
from serve.access.keys import write_keys
from serve.access.settings import is_loopback
from tests.serve.access.fake_app import KEYS


def serve_cfg(*overrides):
    return load_config(None, overrides).serve


def test_round_trip_is_json():
    settings = AccessSettings(KEYS, 60, 1e6, 1000, 5, 3, ("https://a.example", "http://localhost:3000"), True, False)
    assert AccessSettings.from_config(json.loads(json.dumps(settings.to_config()))) == settings
    assert AccessSettings.from_config({}) == AccessSettings()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"max_body_byte": 1}, "did you mean 'max_body_bytes'"),
        ({"requests_per_minute": 0}, "above 0"),
        ({"requests_per_minute": float("nan")}, "above 0"),
        ({"tokens_per_minute": True}, "above 0"),
        ({"max_waiting": 0}, "whole number"),
        ({"replicas": 1.5}, "whole number"),
        ({"log_requests": "yes"}, "true or false"),
        ({"cors_origins": "*"}, "list of origins"),
        ({"cors_origins": ["*"]}, "is no origin"),
        ({"cors_origins": ["https://a.example/"]}, "is no origin"),
        ({"cors_origins": ["null"]}, "is no origin"),
        ({"keys": "x"}, "list of keys"),
        ({"keys": [{"name": "x"}]}, "has no 'digest'"),
    ],
)
def test_wrong_settings(config, says):
    with pytest.raises(UserError, match=says):
        AccessSettings.from_config(config)


def test_from_the_config(tmp_path):
    file = tmp_path / "keys.json"
    write_keys(file, KEYS)
    cfg = serve_cfg(
        f"serve.access.keys_file={file}", "serve.host=0.0.0.0", "serve.replicas=2", "serve.access.max_waiting=7"
    )
    settings = settings_from(cfg)
    assert settings.keys == KEYS and settings.replicas == 2 and settings.max_waiting == 7
    assert settings.max_body_bytes == 1 << 20 and settings.tenant_salts


def test_defaults_of_config_and_settings_agree():
    assert settings_from(serve_cfg()) == AccessSettings()


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.5", "::", "endpoint.example"])
def test_other_machines_need_keys(host):
    with pytest.raises(UserError, match=r"jobs\.keys add"):
        settings_from(serve_cfg(f"serve.host='{host}'"))
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_none(host):
    assert settings_from(serve_cfg(f"serve.host='{host}'")).keys == ()


def test_a_file_without_keys_does_not_open_the_endpoint(tmp_path):
    write_keys(tmp_path / "keys.json", [])
    with pytest.raises(UserError, match="open to all"):
        settings_from(serve_cfg(f"serve.access.keys_file={tmp_path}/keys.json"))


def test_wrong_origin_in_the_config():
    with pytest.raises(UserError, match="serve.access.cors_origins"):
        settings_from(serve_cfg("serve.access.cors_origins=['*']"))
