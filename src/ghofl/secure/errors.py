"""What secure aggregation raises on purpose. No error text ever contains a key, a seed or a share.

::

    GhoflError
    └── SecureError
        ├── RingError         (OverflowError)    a total that would not fit, or an entry beyond the bound
        ├── SharingError      (ValueError)       secrets that cannot be split or rebuilt
        ├── PlanError         (ValueError)       a cohort, or assumptions about it, that cannot work
        ├── WireError         (ValueError)       bytes that are not the expected message or state
        ├── RefusedError      (PermissionError)  a client refuses what it was asked
        └── RoundFailedError  (RuntimeError)     too few clients are left: no sum is revealed
"""

from ghofl.errors import GhoflError


class SecureError(GhoflError):
    """Base of every error of secure aggregation."""


class RingError(SecureError, OverflowError):
    """A total that would not fit the largest ring, or an entry beyond the agreed bound."""


class SharingError(SecureError, ValueError):
    """Secrets that cannot be split, or shares that give no secret."""


class PlanError(SecureError, ValueError):
    """A cohort, or assumptions about it, for which no safe round exists."""


class WireError(SecureError, ValueError):
    """Bytes that are not the message or the state that was expected."""

    quotes_no_rows = True


class RefusedError(SecureError, PermissionError):
    """A client refuses what it was asked, because that would reveal something."""

    quotes_no_rows = True


class RoundFailedError(SecureError, RuntimeError):
    """Too few clients are left, or one cheated: no sum is revealed."""
