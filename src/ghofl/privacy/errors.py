"""What the privacy functions raise on purpose.

::

    GhoflError
    ├── PrivacyError        (ValueError)   a bound, a budget or a noise level that cannot work
    └── CompositionError    (ValueError)   guarantees that do not add up to one
"""

from ghofl.errors import GhoflError, PrivacyError

__all__ = ["CompositionError", "PrivacyError"]


class CompositionError(GhoflError, ValueError):
    """Guarantees that do not add up to one."""
