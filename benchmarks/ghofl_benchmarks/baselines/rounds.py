"""Training in rounds: FedAvg, FedProx and SCAFFOLD, over any network.

One round of FedAvg (McMahan et al. 2017): every client trains the common model w on its own rows, and the server takes
the mean by rows, w ← Σ p_i w_i with p_i = n_i / n. FedProx (Li et al. 2020) adds μ/2 ‖w_i − w‖² to every client's
loss. SCAFFOLD (Karimireddy et al. 2020) corrects every local step by what the client's gradient is known to differ
from everybody's::

    w_i ← w_i − η (∇ℓ_i(w_i) − c_i + c)         c_i⁺ = mean of the ∇ℓ_i along the way       c⁺ = Σ p_i c_i⁺

Without momentum that c_i⁺ is their option II, c_i − c + (w − w_i) / (K η) after K steps: with w − w_i = η Σ (∇ℓ_i − c_i
+ c) both are the mean gradient. With momentum, (w − w_i) / (K η) is not a gradient any more, the mean still is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ghofl_benchmarks.baselines.local import (
    PAPER,
    LocalTraining,
    Look,
    State,
    bytes_of,
    least_rows,
    put,
    state_of,
    train_locally,
)

METHODS = ("fedavg", "fedprox", "scaffold")
MU = 0.01


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one client in one round, in float32."""

    up: int
    down: int


class Rounds:
    """A federation in rounds. `play` runs one; `model` then is the common model.

    Clients without rows take no part, nor does one with a single row where batches are normalised. Batches depend on
    seed, round and client only, so that methods see the same.
    """

    def __init__(
        self,
        method: str,
        model: nn.Module,
        look: Look,
        clients: Sequence[Tensor],
        training: LocalTraining = PAPER,
        seed: int = 0,
        forward: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        if method not in METHODS:
            raise ValueError(f"{method!r} is not a method in rounds; known are {', '.join(METHODS)}.")
        self.method, self.model, self.round = method, model, 0
        self._look, self._seed, self._forward = look, seed, forward
        self._clients = {i: rows for i, rows in enumerate(clients) if len(rows) >= least_rows(model)}
        if not self._clients:
            raise ValueError("no client has any rows; give at least one client some.")
        self._training = replace(training, proximal=MU) if method == "fedprox" else training
        rows = sum(map(len, self._clients.values()))
        self._shares = {i: len(of) / rows for i, of in self._clients.items()}
        trained = [p for p in model.parameters() if p.requires_grad]
        self._own = {i: [torch.zeros_like(p) for p in trained] for i in self._clients if method == "scaffold"}
        self._common = [torch.zeros_like(p) for p in trained]

    @property
    def traffic(self) -> Traffic:
        """What a client sends and receives: the model, and with SCAFFOLD as many control variates as parameters."""
        size = bytes_of(self._sent(state_of(self.model)))
        control = 4 * sum(c.numel() for c in self._common) if self.method == "scaffold" else 0
        return Traffic(size + control, size + control)

    def play(self) -> None:
        """One round over all clients."""
        start = self._sent(state_of(self.model))
        total = {name: torch.zeros_like(value) for name, value in start.items()}
        changes = [torch.zeros_like(c) for c in self._common]
        for i, rows in self._clients.items():
            put(self.model, start)
            change = self._at_client(i, rows)
            if change is not None:
                torch._foreach_add_(changes, change, alpha=self._shares[i])
            for name, value in self._sent(state_of(self.model)).items():
                total[name] += self._shares[i] * value
        torch._foreach_add_(self._common, changes)
        put(self.model, total)
        self.round += 1

    def at_client(self, client: int, start: State) -> State:
        """The model that a client makes of a common one, without SCAFFOLD: for another engine's loop."""
        put(self.model, start)
        self._at_client(client, self._clients[client])
        return self._sent(state_of(self.model))

    def _at_client(self, i: int, rows: Tensor) -> list[Tensor] | None:
        """Train in place; how SCAFFOLD's control variate of this client changed."""
        generator = torch.Generator().manual_seed(1_000_003 * self._seed + 10_007 * self.round + i)
        if self.method != "scaffold":
            train_locally(self.model, self._look, rows, self._training, generator, forward=self._forward)
            return None
        correction = torch._foreach_sub(self._common, self._own[i])
        gradient = train_locally(self.model, self._look, rows, self._training, generator, correction, self._forward)
        assert gradient is not None, "a correction asks for the mean gradient"
        change = torch._foreach_sub(gradient, self._own[i])
        self._own[i] = gradient
        return list(change)

    def _sent(self, state: State) -> State:
        """Without what nobody trains: frozen parameters are everybody's already."""
        frozen = {name for name, p in self.model.named_parameters() if not p.requires_grad}
        return {name: value for name, value in state.items() if name not in frozen}
