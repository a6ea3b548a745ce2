"""The whole of GH-OFL in numpy: clients' statistics, the sum, closed-form heads, FisherMix and Proto-Hyper.

    python examples/paper_in_numpy.py [embeddings.npz with x_train, y_train, x_test, y_test]

Floats and the paper's settings; the package does the same with exact integers, better defaults and privacy.
"""

import sys

import numpy as np

EPS = 1e-6


def client(x, y, classes):
    """What a client sends, once: per class N, A = Σx, S = Σxxᵀ (B = Σ_c S_c and D = diag S_c follow)."""
    one_hot = np.eye(classes)[y]
    return one_hot.sum(0), one_hot.T @ x, np.stack([x[y == c].T @ x[y == c] for c in range(classes)])


def shrink(sigma, a):
    return (1 - a) * sigma + a * np.trace(sigma) / len(sigma) * np.eye(len(sigma))


def gaussians(n, a, s):
    """Means, priors, class covariances and the pooled one, from the sums alone."""
    mu = a / n[:, None]
    by_class = s / n[:, None, None] - np.einsum("ci,cj->cij", mu, mu)
    return mu, n / n.sum(), by_class, np.einsum("c,cij->ij", n, by_class) / n.sum()


def naive_bayes(x, mu, pi, by_class):
    v = np.maximum(np.einsum("cii->ci", by_class), EPS)
    return np.stack([np.log(p) - 0.5 * (np.log(w) + (x - m) ** 2 / w).sum(1) for p, m, w in zip(pi, mu, v)], 1)


def lda(x, mu, pi, pooled, a=0.05):
    w = np.linalg.solve(shrink(pooled, a), mu.T)
    return x @ w + np.log(pi) - 0.5 * (mu.T * w).sum(0)


def qda(x, mu, pi, by_class, a=0.1):
    out = []
    for p, m, sigma in zip(pi, mu, by_class):
        lower = np.linalg.cholesky(shrink(sigma, a) + EPS * np.eye(len(m)))
        z = np.linalg.solve(lower, (x - m).T)
        out.append(np.log(p) - np.log(np.diag(lower)).sum() - 0.5 * (z**2).sum(0))
    return np.stack(out, 1)


def fisher(mu, pi, pooled, energy=0.995):
    """V with S_B v = λ S_W v, whitened, as many directions as hold the energy."""
    values, vectors = np.linalg.eigh(shrink(pooled, 0.05) + EPS * np.eye(len(pooled)))
    root = vectors / np.sqrt(values) @ vectors.T
    apart = (mu - pi @ mu) * np.sqrt(pi)[:, None]
    u, ratios, _ = np.linalg.svd(root @ apart.T, full_matrices=False)
    k = int(np.searchsorted(np.cumsum(ratios**2) / (ratios**2).sum(), energy)) + 1
    return root @ u[:, : min(k, len(pi) - 1)]


def synthesise(mu, by_class, v, per_class, rng, tau=0.9):
    """Draws of N(μ_c, τ² Σ_c) in the Fisher space, equally many per class."""
    roots = [np.linalg.cholesky(shrink(v.T @ s @ v, 0.05) + EPS * np.eye(v.shape[1])) for s in by_class]
    z = [m @ v + tau * rng.normal(size=(per_class, v.shape[1])) @ r.T for m, r in zip(mu, roots)]
    return np.concatenate(z), np.repeat(np.arange(len(mu)), per_class)


def softmax(s):
    e = np.exp(s - s.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def descend(parameters, gradient, rows, rng, epochs=40, batch=2048, rate=2e-3):
    """Adam on mini-batches."""
    first, second, step = [np.zeros_like(p) for p in parameters], [np.zeros_like(p) for p in parameters], 0
    for _ in range(epochs):
        for part in np.array_split(rng.permutation(rows), max(1, rows // batch)):
            step += 1
            for p, g, m, v in zip(parameters, gradient(part), first, second):
                m += 0.1 * (g - m)
                v += 0.001 * (g * g - v)
                p -= rate * m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)


def fisher_mix(z, y, classes, rng):
    w, b = np.zeros((z.shape[1], classes)), np.zeros(classes)

    def gradient(part):
        error = softmax(z[part] @ w + b) - np.eye(classes)[y[part]]
        return z[part].T @ error / len(part), error.mean(0)

    descend([w, b], gradient, len(z), rng)
    return lambda new: new @ w + b


def proto_hyper(z, y, base, teacher, classes, rng, rank=16, alpha=0.4, t=4.0):
    """base(z) + z U V, taught by labels and by a teacher's soft labels (KL at temperature t)."""
    u, v = rng.normal(size=(z.shape[1], rank)) / np.sqrt(z.shape[1]), np.zeros((rank, classes))
    fixed, soft = base(z), softmax(teacher(z) / t)

    def gradient(part):
        s = fixed[part] + z[part] @ u @ v
        error = (1 - alpha) * (softmax(s) - np.eye(classes)[y[part]]) + alpha * t * (softmax(s / t) - soft[part])
        return z[part].T @ (error @ v.T) / len(part), (z[part] @ u).T @ error / len(part)

    descend([u, v], gradient, len(z), rng)
    return lambda new: base(new) + new @ u @ v


def main():
    rng = np.random.default_rng(0)
    if len(sys.argv) > 1:
        data = np.load(sys.argv[1])
        x, y, new, labels = (data[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    else:  # five clouds of different shapes
        mix, means = rng.normal(size=(5, 20, 20)) / 4, rng.normal(size=(5, 20))
        y, labels = rng.integers(5, size=4000), rng.integers(5, size=2000)
        x, new = (means[c] + np.einsum("ni,nij->nj", rng.normal(size=(len(c), 20)), mix[c]) for c in (y, labels))
    classes, parts = int(y.max()) + 1, np.array_split(np.argsort(y, kind="stable"), 10)  # ten clients, badly skewed
    n, a, s = (sum(each) for each in zip(*(client(x[p], y[p], classes) for p in parts)))
    mu, pi, by_class, pooled = gaussians(n, a, s)
    v = fisher(mu, pi, pooled)
    z, drawn = synthesise(mu, by_class, v, 2000, rng)
    in_z = (mu @ v, pi, np.stack([v.T @ c @ v for c in by_class]), v.T @ pooled @ v)
    mixed = fisher_mix(z, drawn, classes, rng)
    blend = lambda r: 0.7 * lda(r, in_z[0], pi, in_z[3]) + 0.3 * qda(r, in_z[0], pi, in_z[2])  # noqa: E731
    hyper = proto_hyper(z, drawn, lambda r: naive_bayes(r, *in_z[:3]), blend, classes, rng)
    scores = {
        "NB": naive_bayes(new, mu, pi, by_class),
        "LDA": lda(new, mu, pi, pooled),
        "QDA": qda(new, mu, pi, by_class),
        "FisherMix": mixed(new @ v),
        "Proto-Hyper": hyper(new @ v),
    }
    for name, found in scores.items():
        print(f"{name:12} {100 * (found.argmax(1) == labels).mean():.2f} %")


if __name__ == "__main__":
    main()
