"""The whole of GH-OFL in numpy, with floats and the paper's settings; the package has exact integers and privacy.

`python examples/paper_in_numpy.py [embeddings.npz with x_train, y_train, x_test, y_test]`
"""

import sys

import numpy as np


def client(x, y, classes):  # what leaves a client, once: per class N, A = Σx, S = Σxxᵀ (B = Σ_c S_c, D = diag S_c)
    one_hot = np.eye(classes)[y]
    return one_hot.sum(0), one_hot.T @ x, np.stack([x[y == c].T @ x[y == c] for c in range(classes)])


def gaussians(n, a, s):  # means, priors, class covariances and the pooled one, from the sums alone
    mu = a / n[:, None]
    by_class = s / n[:, None, None] - np.einsum("ci,cj->cij", mu, mu)
    return mu, n / n.sum(), by_class, np.einsum("c,cij->ij", n, by_class) / n.sum()


def shrink(sigma, a):
    return (1 - a) * sigma + (a * np.trace(sigma) / len(sigma) + 1e-6) * np.eye(len(sigma))


def naive_bayes(x, mu, pi, by_class):
    v = np.maximum(np.einsum("cii->ci", by_class), 1e-6)
    return np.stack([np.log(p) - 0.5 * (np.log(w) + (x - m) ** 2 / w).sum(1) for p, m, w in zip(pi, mu, v)], 1)


def lda(x, mu, pi, pooled, a=0.05):
    w = np.linalg.solve(shrink(pooled, a), mu.T)
    return x @ w + np.log(pi) - 0.5 * (mu.T * w).sum(0)


def qda(x, mu, pi, by_class, a=0.1):
    roots = [np.linalg.cholesky(shrink(sigma, a)) for sigma in by_class]
    far = [(np.linalg.solve(root, (x - m).T) ** 2).sum(0) for m, root in zip(mu, roots)]
    return np.stack([np.log(p) - np.log(np.diag(r)).sum() - 0.5 * f for p, r, f in zip(pi, roots, far)], 1)


def fisher(mu, pi, pooled, energy=0.995):  # V with S_B v = λ S_W v, as many directions as hold the energy
    values, vectors = np.linalg.eigh(shrink(pooled, 0.05))
    root = vectors / np.sqrt(values) @ vectors.T
    u, ratios, _ = np.linalg.svd(root @ ((mu - pi @ mu) * np.sqrt(pi)[:, None]).T, full_matrices=False)
    k = int(np.searchsorted(np.cumsum(ratios**2) / (ratios**2).sum(), energy)) + 1
    return root @ u[:, : min(k, len(pi) - 1)]


def synthesise(mu, by_class, per_class, rng, tau=0.9):  # draws of N(μ_c, τ² Σ_c), equally many per class
    roots = [np.linalg.cholesky(shrink(sigma, 0.05)) for sigma in by_class]
    z = [m + tau * rng.normal(size=(per_class, len(m))) @ r.T for m, r in zip(mu, roots)]
    return np.concatenate(z), np.repeat(np.arange(len(mu)), per_class)


def softmax(s):
    return (e := np.exp(s - s.max(1, keepdims=True))) / e.sum(1, keepdims=True)


def train(z, y, rng, base, teacher, rank, alpha, t=4.0, epochs=40, batch=2048, rate=2e-3):
    """Proto-Hyper by Adam: base(z) + z U V + b from labels and a teacher (KL at t); FisherMix has U = I and no base."""
    fixed, soft, labels = base(z), softmax(teacher(z) / t), np.eye(y.max() + 1)[y]
    u = np.eye(z.shape[1]) if rank is None else rng.normal(size=(z.shape[1], rank)) / z.shape[1] ** 0.5
    p = [u, np.zeros((u.shape[1], y.max() + 1)), np.zeros(y.max() + 1)]
    first, second, step = [np.zeros_like(w) for w in p], [np.zeros_like(w) for w in p], 0
    for i in (i for _ in range(epochs) for i in np.array_split(rng.permutation(len(z)), max(1, len(z) // batch))):
        step += 1
        s = fixed[i] + z[i] @ p[0] @ p[1] + p[2]
        e = ((1 - alpha) * (softmax(s) - labels[i]) + alpha * t * (softmax(s / t) - soft[i])) / len(i)
        gradients = (z[i].T @ (e @ p[1].T) * (rank is not None), (z[i] @ p[0]).T @ e, e.sum(0))
        for w, g, m, v in zip(p, gradients, first, second):
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            w -= rate * m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    return lambda new: base(new) + new @ p[0] @ p[1] + p[2]


def heads(x, y, parts, rng):  # every client sends once; then each head is a function from rows to scores
    n, a, s = (sum(each) for each in zip(*(client(x[i], y[i], y.max() + 1) for i in parts)))
    mu, pi, by_class, pooled = gaussians(n, a, s)
    v = fisher(mu, pi, pooled)
    m, c, w = mu @ v, v.T @ by_class @ v, v.T @ pooled @ v  # the same Gaussians in the Fisher space
    z, drawn = synthesise(m, c, 2000, rng)
    nothing, base = (lambda r: np.zeros((len(r), len(pi)))), (lambda r: naive_bayes(r, m, pi, c))
    mix = train(z, drawn, rng, nothing, nothing, rank=None, alpha=0.0)
    hyper = train(z, drawn, rng, base, lambda r: 0.7 * lda(r, m, pi, w) + 0.3 * qda(r, m, pi, c), rank=16, alpha=0.4)
    closed = {"NB": (naive_bayes, by_class), "LDA": (lda, pooled), "QDA": (qda, by_class)}
    plain = {name: lambda new, f=f, sigma=sigma: f(new, mu, pi, sigma) for name, (f, sigma) in closed.items()}
    return plain | {"FisherMix": lambda new: mix(new @ v), "Proto-Hyper": lambda new: hyper(new @ v)}


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    shapes, means, y = rng.normal(size=(5, 20, 20)) / 4, rng.normal(size=(5, 20)), rng.integers(5, size=8000)
    x = means[y] + np.einsum("ni,nij->nj", rng.normal(size=(8000, 20)), shapes[y])  # where no file is given
    data = {"x_train": x[::2], "y_train": y[::2], "x_test": x[1::2], "y_test": y[1::2]}
    x, y, new, labels = ((np.load(sys.argv[1]) if sys.argv[1:] else data)[name] for name in data)
    skewed = np.array_split(np.argsort(y, kind="stable"), 10)  # ten clients
    for name, scores in heads(x, y, skewed, rng).items():
        print(f"{name:12} {100 * (scores(new).argmax(1) == labels).mean():.2f} %")
