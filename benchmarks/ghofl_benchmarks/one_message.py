"""One message from frozen embeddings, in torch: for machines where `ghofl` is not installed.

The head is the library's LDA in floating point (a test holds both together); what it takes is counts, sums and second
moments of all rows, which is what clients would send.
"""

import torch
from torch import Tensor, nn

from ghofl_benchmarks.baselines.local import Look, autocast
from ghofl_benchmarks.baselines.networks import Prepared


@torch.no_grad()
def embed(network: Prepared, look: Look, rows: Tensor, bfloat16: bool = False) -> tuple[Tensor, Tensor]:
    """Square roots of MobileNetV2's pooled features, and labels."""
    network.eval()
    found = []
    for part in rows.split(1000):
        x, y = look(part)
        with autocast(x.device, bfloat16):
            features = network.network.features(network.prepare(x))
        found.append((features.float().mean(dim=(2, 3)).sqrt(), y))
    return torch.cat([x for x, _ in found]), torch.cat([y for _, y in found])


def lda_of_moments(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Weights (dim, classes) and biases of linear discriminants, the shared covariance shrunk by OAS; in float64."""
    x, hot = x.double(), nn.functional.one_hot(y).double()
    counts, rows, dim = hot.sum(dim=0), len(x), x.shape[1]
    means = hot.T @ x / counts.clamp_min(1)[:, None]
    within = (x.T @ x - means.T @ (counts[:, None] * means)) / rows
    square, trace = within.square().mean(), within.diagonal().mean()
    share = min(1.0, float((square + trace**2) / ((rows + 1) * (square - trace**2 / dim))))
    within = (1 - share) * within + share * trace * torch.eye(dim, dtype=x.dtype, device=x.device)
    weights = torch.linalg.solve(within, means.T)
    return weights, torch.log(counts / rows) - 0.5 * (means.T * weights).sum(dim=0)
