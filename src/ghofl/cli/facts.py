"""The content of files as plain values, for commands to show."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.cli import console
from ghofl.moments import Moments
from ghofl.privacy import Guarantee
from ghofl.recipe import Recipe
from ghofl.wire.total import Total

CLIPPED = "agree on a recipe with a smaller grid.scale, and let sites send again."


def moments_result(moments: Moments, recipe: Recipe) -> dict[str, Any]:
    """What moments hold, as plain values."""
    counts = {name: int(n) for name, n in zip(recipe.classes, moments.counts, strict=True)}
    return {
        "recipe": recipe.fingerprint,
        "layout": str(moments.layout),
        "rows": moments.rows,
        "moments_sha256": moments.sha256,
        "counts": counts,
        "classes without rows": int(np.count_nonzero(moments.counts == 0)),
    }


def total_result(total: Total, path: Path) -> dict[str, Any]:
    """What a total holds, as plain values."""
    return {
        "file": str(path),
        "sites": len(total.roster),
        "total_sha256": (found := moments_result(total.moments, total.recipe))["moments_sha256"],
        **found,
        **promise_result(total.guarantee),
        **({"small classes": total.small_classes.revealed} if total.small_classes is not None else {}),
        "is released": total.is_released,
        **({"quarantined": [asdict(aside) for aside in total.quarantined]} if total.quarantined else {}),
        "roster": [{"site": e.name, "id": e.id, "rows": e.rows, "clipped": e.clipped} for e in total.roster],
    }


def promise_result(guarantee: Guarantee | None) -> dict[str, Any]:
    """What noise promises, as plain values; nothing without noise."""
    if guarantee is None:
        return {}
    return {"promise": console.promise(guarantee), "guarantee": guarantee.to_dict()}


def warn_of_clipping(total: Total) -> None:
    """Warn on standard error about sites with more clipped entries than is harmless."""
    over = total.clipped()
    if over:
        names = ", ".join(f"{e.name!r} ({e.clipped:.1%})" for e in over[:5]) + (", …" if len(over) > 5 else "")
        console.tell("Warning", f"entries of {names} fell outside the grid; {CLIPPED}")
