"""The type checker that jaxtyping applies to ghofl while tests run; an int is accepted where a float is asked for.

jaxtyping binds the arguments of every call, opens a new scope for the names of its axes and checks the arguments before
and after, which costs more than most functions do. Here beartype checks arguments and result once, which raises the same
error, in such a scope where the signature names axes. The check is written when a function is first called: most
processes of a test run call few of the two thousand functions.
"""

import dataclasses
import functools
import inspect
import re
import types
import typing

import jaxtyping
from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=jaxtyping.TypeCheckError))
# pytest imports this file once more while it looks for doctests, when jaxtyping's own has been replaced.
with_axes = getattr(jaxtyping.jaxtyped, "with_axes", jaxtyping.jaxtyped)


def jaxtyped(what=None, *, typechecker):
    """beartype for functions, in a scope for axes where the signature has any, and `jaxtyping.jaxtyped` for the rest."""
    if what is None:
        return functools.partial(jaxtyped, typechecker=typechecker)
    if isinstance(what, types.FunctionType):
        return _checked_later(what, checked_in_scope if names_axes(what) else checked)
    if inspect.isclass(what) and dataclasses.is_dataclass(what):
        made = what.__init__
        if isinstance(made, types.FunctionType) and made.__globals__["__name__"] == __name__:
            return what  # inherited, or written by hand and checked as a function
        if isinstance(made, types.FunctionType) and not hasattr(made, "__wrapped__") and not names_axes(made):
            what.__init__ = _checked_later(made, checked)
            return what
    return with_axes(what, typechecker=typechecker)


def checked_in_scope(function):
    """A function whose axes of one name have one length within a call."""
    strict, scope = checked(function), with_axes("context")

    def scoped(*args, **kwargs):
        with scope:
            return strict(*args, **kwargs)

    return scoped


def names_axes(function):
    """Whether any annotation of a function holds an array with axes, also one that is written as a string."""
    return any(_has_axes(annotation, function.__globals__) for annotation in function.__annotations__.values())


def _has_axes(annotation, names):
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        words = re.findall(r"\w+", annotation)
        return any(hasattr(jaxtyping, word) or _has_axes(names.get(word), {}) for word in words)
    if isinstance(annotation, list | tuple):
        return any(_has_axes(part, names) for part in annotation)
    if getattr(annotation, "__module__", "").split(".")[0] == "jaxtyping":
        return True
    if inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return any(_has_axes(part, names) for part in typing.get_args(annotation))


def _checked_later(function, check):
    if not function.__annotations__:
        return function
    strict = None

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        nonlocal strict
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        if strict is None:
            strict = check(function)
        return strict(*args, **kwargs)

    return wrapped


# The import hook decorates with `jaxtyping.jaxtyped`, looked up for each function.
jaxtyped.with_axes = with_axes
jaxtyping.jaxtyped = jaxtyped
