"""One-shot federated learning from exact integer moments."""

__version__ = "0.1.0"
