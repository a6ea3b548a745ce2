"""What a simulation gives: its total, and every head and baseline on the test rows."""

from dataclasses import dataclass
from typing import Any

from ghofl.evaluation import Metrics
from ghofl.features import Clipping
from ghofl.notebook import Printable, abbreviate
from ghofl.simulation.cohort import SecureRound
from ghofl.wire.total import Total


@dataclass(frozen=True, slots=True)
class HeadResult:
    """One head or baseline on the test rows: its measures, the mean bytes a client sends in all its rounds, its times."""

    metrics: Metrics
    payload_bytes: int
    fit_seconds: float
    ms_per_sample: float
    rounds: int = 1

    @property
    def accuracy(self) -> float:
        """The share of test rows whose class was predicted."""
        return self.metrics.confusion.accuracy


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Simulation(Printable):
    """The results of a simulation."""

    total: Total
    clients: int
    empty_clients: int
    clipping: Clipping
    heads: dict[str, HeadResult]
    secure_round: SecureRound | None = None
    notes: tuple[str, ...] = ()

    def _facts(self) -> dict[str, object]:
        best = max(self.heads, key=lambda name: self.heads[name].accuracy, default="")
        return {
            "clients": self.clients,
            "rows": f"{self.total.moments.rows:,}",
            "heads": abbreviate(list(self.heads)),
            **({"best": f"{best}, accuracy {100 * self.heads[best].accuracy:.2f} %"} if best else {}),
            "total": f"{self.total.moments.sha256[:12]}…",
        }

    def to_dict(self) -> dict[str, Any]:
        """The results as plain values."""
        return {
            "total_sha256": self.total.moments.sha256,
            "clients": self.clients,
            "empty_clients": self.empty_clients,
            "rows": self.total.moments.rows,
            "clipped_share": self.clipping.share,
            "recipe": self.total.recipe.fingerprint,
            "grid": {"bits": self.total.recipe.grid.bits, "scale": self.total.recipe.grid.scale},
            "guarantee": None if self.total.guarantee is None else self.total.guarantee.to_dict(),
            "small_classes": None if self.total.small_classes is None else self.total.small_classes.revealed,
            "secure": None if self.secure_round is None else self.secure_round.to_dict(),
            "notes": list(self.notes),
            "heads": {
                name: {
                    **result.metrics.to_dict(),
                    "payload_bytes": result.payload_bytes,
                    "rounds": result.rounds,
                    "fit_seconds": result.fit_seconds,
                    "ms_per_sample": result.ms_per_sample,
                }
                for name, result in self.heads.items()
            },
        }
