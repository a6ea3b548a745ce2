"""Whether the Hugging Face hub can be reached, checked at once instead of after a minute of retries."""

import importlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

ENDPOINT = "https://huggingface.co"
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
# Each library reads the environment once, when it is imported, and keeps the result here.
SWITCHES = ("huggingface_hub.constants", "datasets.config")


def is_reachable() -> bool:
    """Whether the hub's address resolves, or a proxy may resolve it; never when HF_HUB_OFFLINE is set."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    if any(os.environ.get(name) for name in PROXIES):
        return True
    try:
        return bool(socket.getaddrinfo(urlsplit(os.environ.get("HF_ENDPOINT", ENDPOINT)).hostname, 443))
    except OSError:
        return False


@contextmanager
def offline_where_unreachable() -> Iterator[None]:
    """While the block runs, the Hugging Face libraries only use their caches if the hub cannot be reached."""
    modules = [] if is_reachable() else [importlib.import_module(name) for name in SWITCHES]
    before = [module.HF_HUB_OFFLINE for module in modules]
    try:
        for module in modules:
            module.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
        yield
    finally:
        for module, value in zip(modules, before, strict=True):
            module.HF_HUB_OFFLINE = value  # type: ignore[attr-defined]
