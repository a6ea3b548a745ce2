"""Everything ghofl raises on purpose, each also the built-in a user would catch.

::

    GhoflError
    ├── RecipeError              (ValueError)       a recipe that cannot work
    ├── DatasetError             (ValueError)       samples that cannot be found or have no such column
    ├── SampleError              (ValueError)       one sample that cannot be read
    ├── EncoderError             (ValueError)       an encoder that is unknown, or weights that do not fit it
    ├── EmbeddingsError          (ValueError)       rows or labels that do not fit the recipe
    ├── LayoutError              (ValueError)       moments that cannot be added or restricted
    ├── MomentsOverflowError     (OverflowError)    a sum that would overflow 64-bit integers
    ├── MessageError             (ValueError)       bytes that are not the message we asked for
    ├── RosterError              (ValueError)       a site counted twice, or not there to be removed
    ├── MissingStatisticError    (LookupError)      a head asked for a statistic that was not sent
    ├── NotPositiveDefiniteError (ArithmeticError)  a covariance that cannot be inverted
    ├── HeadError                (ValueError)       an unknown head or option
    ├── PartitionError           (ValueError)       a split that cannot be made
    ├── PrivacyError             (ValueError)       a bound, a budget or a noise level that cannot work
    ├── SiteError                (ValueError)       a site's own configuration that cannot work
    ├── PolicyError              (PermissionError)  something a site's policy does not allow; others may read its text
    ├── BusyError                (TimeoutError)     a folder that another process is using
    ├── MemoryLimitError         (MemoryError)      an array that fits neither into memory nor on the disk
    ├── FederationError          (RuntimeError)     a run over several machines that cannot be completed
    └── MissingExtraError        (ImportError)      an optional dependency that is not installed

Warnings do not stop the work::

    UserWarning
    ├── ClippingWarning          entries that fell outside the grid
    ├── EmptyClassWarning        classes that no site has
    ├── IdentifierWarning        a column that was left out of a draft because it identifies rows
    ├── TrainingWarning          a trained head that is still near its random start
    └── CalibrationWarning       probabilities that could not be calibrated
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar


class GhoflError(Exception):
    """Base of every error that ghofl raises on purpose."""

    quotes_no_rows: ClassVar[bool] = False

    @property
    def outside(self) -> str:
        """What others than the site itself may know of it: only its kind where its text may quote rows."""
        return str(self) if self.quotes_no_rows else f"{type(self).__name__}. The site's log has the details."


class RecipeError(GhoflError, ValueError):
    """A recipe that cannot work."""


class DatasetError(GhoflError, ValueError):
    """Samples that cannot be found, or that lack the column asked for."""


class SampleError(GhoflError, ValueError):
    """One sample that cannot be read: a broken image, an empty text."""


class EncoderError(GhoflError, ValueError):
    """An encoder that is unknown, or weights that do not fit it."""


class EmbeddingsError(GhoflError, ValueError):
    """Rows or labels that do not fit the recipe."""


class LayoutError(GhoflError, ValueError):
    """Moments that cannot be added, subtracted or restricted."""


class MomentsOverflowError(GhoflError, OverflowError):
    """A sum that would overflow 64-bit integers."""


class MessageError(GhoflError, ValueError):
    """Bytes that are not the message we asked for."""


class RosterError(GhoflError, ValueError):
    """A site counted twice, or not there to be removed."""


class MissingStatisticError(GhoflError, LookupError):
    """A head asked for a statistic that was not sent."""


class NotPositiveDefiniteError(GhoflError, ArithmeticError):
    """A covariance that cannot be inverted."""


class HeadError(GhoflError, ValueError):
    """An unknown head, or an option it does not have."""


class PartitionError(GhoflError, ValueError):
    """A split of rows over clients that cannot be made."""


class PrivacyError(GhoflError, ValueError):
    """A bound, a budget or a noise level that cannot work."""


class SiteError(GhoflError, ValueError):
    """A site's own configuration that cannot work."""


class PolicyError(GhoflError, PermissionError):
    """Something a site's policy does not allow. Its text says nothing about the site's rows, so others may read it."""

    quotes_no_rows = True


class BusyError(GhoflError, TimeoutError):
    """A folder that another process is using."""


class MemoryLimitError(GhoflError, MemoryError):
    """An array that fits neither into memory nor on the disk."""


class FederationError(GhoflError, RuntimeError):
    """A run over several machines that cannot be completed."""


class MissingExtraError(GhoflError, ImportError):
    """An optional dependency that is not installed."""


class ClippingWarning(UserWarning):
    """More entries than expected fell outside the grid."""


class EmptyClassWarning(UserWarning):
    """Classes of the recipe that have no row in a total, so that its heads never predict them."""


class IdentifierWarning(UserWarning):
    """A column that was left out of a draft because it identifies rows."""


class TrainingWarning(UserWarning):
    """A head whose settings leave it near the random weights that it starts from."""


class CalibrationWarning(UserWarning):
    """A head whose probabilities could not be calibrated: its temperature is 1."""


@contextmanager
def errors_about(path: str | Path) -> Iterator[None]:
    """Errors inside say which file they are about."""
    try:
        yield
    except (EmbeddingsError, MessageError, RosterError) as error:
        raise type(error)(f"{path}: {error}") from None
