"""A first draft of a table's schema, from a data dictionary or from the rows of one site."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ghofl.errors import DatasetError
from ghofl.names import NAMES_ARE, columns_but_not, is_name, shorten
from ghofl.planning.breaks import draft_breaks
from ghofl.recipe import Column, Schema, Table
from ghofl.recipe.table import KINDS, MISSING_WORDS, NO, YES
from ghofl.rows.reader import number_of, text_of
from ghofl.shapes import Float64

RARE = 10  # rows that a level needs to be drafted
REST = "other levels"  # the name of the level of all rare ones
MOST_LEVELS = 50
FEW_CLASSES = 20  # of which any number may have one row; of more, a quarter
IDENTIFIER = "its name and values, which are all different, are those of an identifier"
IDENTIFIERS = (
    "index",
    "row",
    "row number",
    "row names",
    "rownames",
    "unnamed 0",
    "patient",
    "subject",
    "person",
    "case",
    "record",
    "key",
)
IDENTIFIERS_END = ("id", "ids", "uuid", "guid", "mrn")  # the last word of a name
WIDEST = 1e100  # ranges wider than this, or narrower than its inverse, are beyond what floats can be rounded in
LEANING = 1.0  # the skewness above which a logarithm is tried; an exponential distribution has 2
# Names of the columns of a data dictionary, by their meaning.
SAYS = {
    "name": ("name", "column", "variable", "field", "feature"),
    "kind": ("kind", "type"),
    "unit": ("unit", "units"),
    "low": ("low", "min", "minimum", "lower"),
    "high": ("high", "max", "maximum", "upper"),
    "levels": ("levels", "values", "categories", "codes", "options"),
    "rest": ("rest",),
    "breaks": ("breaks", "quantiles"),
    "missing": ("missing",),
}
KIND_WORDS = {
    **dict.fromkeys(KINDS, None), "numeric": "number", "float": "number", "integer": "number", "int": "number",
    "real": "number", "continuous": "number", "logarithmic": "log", "categorical": "category", "factor": "category",
    "nominal": "category", "text": "category", "string": "category", "boolean": "yes/no", "bool": "yes/no",
    "binary": "yes/no", "yesno": "yes/no", "label": "label", "class": "label", "target": "label",
}  # fmt: skip


def is_dictionary(columns: Iterable[str]) -> bool:
    """Whether a table looks like a data dictionary: it names columns, and gives their levels or ranges."""
    found = {says for says, words in SAYS.items() if any(name.strip().lower() in words for name in columns)}
    return "name" in found and bool(found & {"levels"} | ({"low", "high"} if {"low", "high"} <= found else set()))


def draft_schema(
    columns: Mapping[str, Sequence[Any]], label: str = "", without: Iterable[str] = (), where: str = "the table"
) -> tuple[Schema, bool]:
    """The schema of a data dictionary, or a draft from rows; and whether it was a dictionary."""
    if label or not is_dictionary(columns):  # only rows have a column of labels
        return schema_of_rows(columns, label, without), False
    if without := tuple(without):
        raise DatasetError(
            f"{where} looks like a data dictionary, and `without` {', '.join(without)} is about rows; leave it out, or "
            "say that these are rows by `label_column`."
        )
    return schema_of_dictionary(columns, where), True


def schema_of_dictionary(columns: Mapping[str, Sequence[Any]], where: str = "the dictionary") -> Schema:
    """The schema that a data dictionary describes: one row per column, with its kind, unit, range or levels.

    A row of kind ``label`` names the column of labels, and its levels are the classes. Without a kind, a row with
    levels is a category and one with a range a number.

    >>> schema_of_dictionary({"name": ["age"], "min": ["0"], "max": ["120"], "unit": ["years"]}).table.columns[0].high
    120.0
    """
    by_word = {name.strip().lower(): name for name in columns}
    says = {key: next((by_word[w] for w in words if w in by_word), None) for key, words in SAYS.items()}
    if says["name"] is None:
        raise DatasetError(f"{where} has no column called name or variable, as a data dictionary has.")
    out, label, classes = [], "", ()
    for i in range(len(columns[says["name"]])):
        facts = {key: text_of(columns[name][i]) if name else "" for key, name in says.items()}
        try:
            column = _column_of(facts)
        except ValueError as error:
            raise DatasetError(f"{where}, column {facts['name']!r}: {error}") from None
        if isinstance(column, Column):
            out.append(column)
        else:
            label, classes = facts["name"], column
    return Schema(Table(tuple(out), label), classes)


def _column_of(facts: Mapping[str, str]) -> Column | tuple[str, ...]:
    """The column that one row of a dictionary describes, or the classes of the label."""
    levels = tuple(part for part in (p.strip() for p in _split(facts["levels"])) if part)
    word = facts["kind"].lower()
    if word and word not in KIND_WORDS:
        raise DatasetError(f"its kind is {word!r}; write one of {', '.join(KINDS)} or label.")
    kind = (KIND_WORDS[word] or word) if word else "category" if levels else "number"
    if kind == "label":
        return levels
    if not word and {level.lower() for level in levels} in ({"yes", "no"}, {"0", "1"}, {"true", "false"}):
        kind = "yes/no"
    breaks = tuple(float(part) for part in _split(facts["breaks"]) if part.strip())
    if kind == "number" and breaks and not (facts["low"] and facts["high"]):
        kind = "quantiles"
    missing = facts["missing"].lower()
    ends: dict[str, Any] = {}
    if kind in ("number", "log"):
        if not facts["low"] or not facts["high"]:
            raise DatasetError("it has no range; write its smallest and largest plausible value, or its levels.")
        ends = {"low": float(facts["low"]), "high": float(facts["high"])}
    return Column(
        facts["name"], kind, facts["unit"], **ends,
        breaks=breaks if kind in ("number", "log", "quantiles") else (), levels=levels if kind == "category" else (),
        rest=facts["rest"] if kind == "category" else "",
        missing={"": "refuse", "no": "refuse", "yes": "indicator", "allowed": "indicator"}.get(missing, missing),
    )  # fmt: skip


def _split(text: str) -> list[str]:
    return text.split(next((mark for mark in ("|", ";") if mark in text), ","))


def schema_of_rows(
    columns: Mapping[str, Sequence[Any]],
    label: str = "",
    without: Iterable[str] = (),
    rare: int = RARE,
    beside: Mapping[str, Sequence[Any]] | None = None,
) -> Schema:
    """A draft of the schema from one site's rows, for somebody who knows the columns to correct.

    Ranges are rounded outwards to one digit of their width, and levels of fewer than `rare` rows share one level for the
    rest, so that the draft reveals as little about single rows as possible; it is marked `from_rows` and refused under
    ε all the same. Positive columns that are skewed to the right become logarithmic. Identifiers and constants are left
    out. Columns in which values are missing get an indicator; in others a value that is missing later becomes the neutral
    one. Numbers get breaks, which are rounded quantiles, and the schema says roughly how many rows there are: a recipe's
    [basis] follows from both. Rows `beside` those decide with them what kind a column is and whether values are missing, but
    neither ranges nor levels.

    Guarantees
    ----------
    The schema takes every row that it was drafted from, and those beside: none is refused.

    Examples
    --------
    >>> schema = schema_of_rows({"age": list(range(17, 78)), "sex": ["f", "m"] * 30 + ["d"]})
    >>> schema.table.columns[0].low, schema.table.columns[0].high, schema.table.columns[1].all_levels
    (10.0, 80.0, ('f', 'm', 'other levels'))
    """
    without, beside = set(without), beside or {}
    unknown = (without | ({label} if label else set())) - set(columns)
    if unknown:
        raise DatasetError(f"the table has {columns_but_not(columns, min(unknown))}; check the names.")
    if not any(map(len, columns.values())):
        raise DatasetError(f"there are no rows below the names of the {len(columns)} columns; a draft needs some.")
    out: list[Column] = []
    left_out: list[tuple[str, str]] = []
    for name, values in columns.items():
        if (label and name == label) or name in without:
            continue
        column = _draft(name, list(map(text_of, values)), rare, set(map(text_of, beside.get(name, ()))))
        if isinstance(column, Column):
            out.append(column)
        else:
            left_out.append((shorten(name, 80), column))
    if not out:
        reasons = "; ".join(f"{n!r}: {why}" for n, why in left_out[:5]) or "there is none beside the labels"
        raise DatasetError(f"no column could be drafted: {reasons}.")
    rows = len(next(iter(columns.values())))
    table = Table(tuple(out), label, from_rows=True, site_rows=rows - rows % 10 ** max(0, len(str(rows)) - 2))
    return Schema(table, _classes(columns[label] if label else (), label), tuple(left_out))


def _classes(labels: Sequence[Any], label: str) -> tuple[str, ...]:
    counts = Counter(map(text_of, labels))
    found, alone = sorted(set(counts) - {""}), sum(many == 1 for many in counts.values())
    if len(found) > FEW_CLASSES and 4 * alone > len(found):
        raise DatasetError(
            f"column {label!r} has {len(found):,} different values in {len(labels):,} rows, and {alone:,} of them once: they "
            "are no classes. Name another column of labels, or put ranges or groups in place of these values."
        )
    bad = next((name for name in found if not is_name(name)), None)
    if bad is not None:
        raise DatasetError(f"a label is {bad[:80]!a}; {NAMES_ARE} Rename it in the table.")
    return tuple(found)


def _draft(name: str, texts: list[str], rare: int, beside: set[str]) -> Column | str:
    """A column, or why it is left out."""
    if not name or not is_name(name):
        return f"{NAMES_ARE[:-1]}, and not empty"
    present = [text for text in texts if text not in MISSING_WORDS]
    counts = Counter(present)
    kinds = set(counts) | (beside - set(MISSING_WORDS))
    # An indicator of what is never missing here would be a constant; a value that is missing later is the neutral one.
    missing = "indicator" if not beside.isdisjoint(MISSING_WORDS) or len(present) < len(texts) else "neutral"
    if len(counts) < 2:
        return "all values are the same" if counts else "all values are missing" if texts else "there are no rows"
    numbers = _all_numbers(present) if _all_numbers(kinds) is not None else None
    is_real = numbers is not None and not all(map(float.is_integer, numbers))
    if len(counts) == len(present) and not is_real and is_called_like_an_identifier(name):
        return IDENTIFIER
    if numbers is not None:
        return _draft_number(name, numbers, missing, rare)
    if {text.lower() for text in kinds} <= {*YES, *NO}:
        return Column(name, "yes/no", missing=missing)
    levels = tuple(sorted(text for text, count in counts.items() if count >= rare and is_name(text)))
    if not levels:
        return f"no level has {rare} rows; it may be an identifier or free text"
    if len(levels) > MOST_LEVELS:
        return f"it has {len(levels)} levels, more than {MOST_LEVELS}; group them first"
    return Column(name, "category", levels=levels, missing=missing, rest=REST if len(levels) < len(counts) else "")


def _draft_number(name: str, numbers: list[float], missing: str, rare: int) -> Column | str:
    least, most = min(numbers), max(numbers)
    if least == most:
        return "all values are the same"
    if not 1.0 / WIDEST < most - least < WIDEST:
        return f"its values go from {least:g} to {most:g}, too wide or too narrow for a range; give them another unit"
    low, high = round_outwards(least, most)
    is_log = _is_logarithmic(numbers)
    low = _first_digit(least) if is_log else low
    breaks = draft_breaks(numbers, low, high, rare=rare, is_log=is_log)
    return Column(name, "log" if is_log else "number", low=low, high=high, breaks=breaks, missing=missing)


def is_called_like_an_identifier(name: str) -> bool:
    """Whether a column has a name that identifiers have.

    >>> [name for name in ("id", "patient_id", "caseID", "row", "acid", "refractive index") if is_called_like_an_identifier(name)]
    ['id', 'patient_id', 'caseID', 'row']
    """
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]
    return " ".join(words) in IDENTIFIERS or (bool(words) and words[-1] in IDENTIFIERS_END)


def _all_numbers(texts: Iterable[str]) -> list[float] | None:
    try:
        return list(map(number_of, texts))
    except ValueError:
        return None


def _is_logarithmic(numbers: list[float]) -> bool:
    """Whether the numbers are positive and skewed to the right, and logarithms at least halve the skewness."""
    if min(numbers) <= 0:
        return False
    skewness = _skewness(np.array(numbers))
    return skewness > LEANING and abs(_skewness(np.log(numbers))) < skewness / 2


def _skewness(values: Float64[np.ndarray, " n"]) -> float:
    away = values - values.mean()
    away /= np.abs(away).max()
    return float((away**3).mean() / (away**2).mean() ** 1.5)


def _first_digit(value: float) -> float:
    """A positive number rounded down to its first digit."""
    power = 10.0 ** math.floor(math.log10(value))
    down = float(f"{math.floor(value / power) * power:.12g}") if power else 0.0
    return down if 0.0 < down <= value else value  # the smallest floats have no powers of ten to round to


def round_outwards(low: float, high: float) -> tuple[float, float]:
    """A range rounded outwards to one digit of its width; one that starts near zero then starts at zero.

    >>> round_outwards(143.5, 2501.0), round_outwards(0.053, 0.163)
    ((0.0, 3000.0), (0.0, 0.2))
    """
    step = 10.0 ** math.floor(math.log10(high - low))
    down, up = _multiple(math.floor(low / step), step), _multiple(math.ceil(high / step), step)
    # A value that a division by the step rounds away is still inside, and so is one that has more than twelve digits.
    down = down if down <= low else _multiple(math.floor(low / step) - 1, step)
    up = up if up >= high else _multiple(math.ceil(high / step) + 1, step)
    return min(down, low), max(up, high)


def _multiple(times: int, step: float) -> float:
    return float(f"{times * step:.12g}")
