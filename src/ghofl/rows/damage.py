"""What is raised for damaged files: numpy, zipfile and the decompressors have no error in common."""

import errno
import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from safetensors import SafetensorError

from ghofl.errors import EmbeddingsError, GhoflError

# Encrypted members and unknown versions of zip files are a RuntimeError and its child NotImplementedError; a header that
# is not Python is a SyntaxError or, where a bracket is open, a TokenError.
_ERRORS = (
    ValueError, TypeError, LookupError, AttributeError, OverflowError, RuntimeError, SyntaxError, EOFError,
    tokenize.TokenError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, SafetensorError,
)  # fmt: skip


@contextmanager
def damage_as(words: str) -> Iterator[None]:
    """Inside the block, which only reads a file, damage raises `EmbeddingsError` with these words."""
    try:
        yield
    except GhoflError:
        raise
    except MemoryError:
        raise EmbeddingsError(
            f"{words} It claims more than fits into memory; the rows of an .npy are read a few at a time."
        ) from None
    except OSError as error:  # a place before the file's start, or what bz2 cannot read; not a file that is missing
        if error.errno not in (None, errno.EINVAL):
            raise
        raise EmbeddingsError(words) from None
    except _ERRORS:
        raise EmbeddingsError(words) from None
