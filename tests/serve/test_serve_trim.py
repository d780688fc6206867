"""What is taken out of vLLM's app before it serves."""

import pytest

pytestmark = pytest.mark.slow  # imports vLLM


def test_browsers_and_adapters_pass_by_and_generations_come_first():
    from fastapi import FastAPI
    from ray.llm._internal.serve.core.server.llm_server import _ResolveLoRAMiddleware
    from starlette.middleware.cors import CORSMiddleware
    from starlette.middleware.gzip import GZipMiddleware

    from serve.server import trim

    app = FastAPI(openapi_url=None)
    for path in ("/health", "/v1/models", "/v1/chat/completions", "/tokenize", "/v1/completions"):
        app.add_api_route(path, lambda: None)
    for layer, options in ((CORSMiddleware, {}), (GZipMiddleware, {}), (_ResolveLoRAMiddleware, {"server": None})):
        app.add_middleware(layer, **options)
    app.middleware_stack = app.build_middleware_stack()
    trim(app)
    assert [layer.cls for layer in app.user_middleware] == [GZipMiddleware] and app.middleware_stack is None
    first = ["/v1/chat/completions", "/v1/completions"]
    assert [route.path for route in app.routes] == [*first, "/health", "/v1/models", "/tokenize"]
