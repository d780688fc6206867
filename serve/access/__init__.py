"""Who may do what on the endpoint: keys, limits, and the checks of a request before it reaches the engine.

Pure ASGI, inside each replica; imports neither Ray nor vLLM.
"""

from serve.access.keys import Key
from serve.access.middleware import AccessMiddleware
from serve.access.settings import AccessSettings, settings_from

__all__ = ["AccessMiddleware", "AccessSettings", "Key", "settings_from"]
