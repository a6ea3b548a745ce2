"""The paper's figures, by table. Encoders there: ResNet-18 for images, DistilBERT for texts, unless a row says more.

Its rows named FedCGS outside the first table are a nearest mean with one spherical variance.
"""

ALPHAS = (0.05, 0.1, 0.5)

# Method → set → accuracies at α = 0.05, 0.1, 0.5. One-shot baselines there are quoted from the FedCGS paper.
MAIN: dict[str, dict[str, tuple[float, float, float]]] = {
    "FedAvg, 1 round": {
        "cifar10": (27.38, 24.53, 31.17),
        "cifar100": (2.15, 2.03, 1.50),
        "svhn": (19.26, 11.94, 19.25),
    },
    "FedAvg, 10 rounds": {
        "cifar10": (64.13, 73.08, 82.62),
        "cifar100": (29.19, 29.92, 33.41),
        "svhn": (54.94, 74.16, 80.73),
    },
    "FedAvg, 50 rounds": {
        "cifar10": (77.42, 84.60, 91.52),
        "cifar100": (62.46, 63.58, 68.55),
        "svhn": (78.79, 87.71, 92.13),
    },
    "FedProx, 1 round": {
        "cifar10": (27.49, 32.24, 35.65),
        "cifar100": (2.24, 2.00, 1.47),
        "svhn": (12.99, 11.97, 19.23),
    },
    "FedProx, 10 rounds": {
        "cifar10": (64.18, 81.82, 89.02),
        "cifar100": (29.51, 29.79, 33.71),
        "svhn": (57.84, 74.15, 81.01),
    },
    "FedProx, 50 rounds": {
        "cifar10": (77.54, 85.68, 91.74),
        "cifar100": (62.76, 63.68, 68.61),
        "svhn": (76.30, 87.88, 92.17),
    },
    "SCAFFOLD, 1 round": {
        "cifar10": (20.36, 27.71, 31.81),
        "cifar100": (1.93, 1.63, 1.50),
        "svhn": (12.87, 12.05, 18.79),
    },
    "SCAFFOLD, 10 rounds": {
        "cifar10": (64.58, 79.04, 82.69),
        "cifar100": (28.87, 30.96, 33.28),
        "svhn": (57.45, 71.45, 80.80),
    },
    "SCAFFOLD, 50 rounds": {
        "cifar10": (73.78, 88.39, 91.66),
        "cifar100": (61.63, 64.09, 68.60),
        "svhn": (75.99, 87.45, 92.00),
    },
    "DENSE": {"cifar10": (31.26, 56.21, 62.42), "cifar100": (14.31, 17.21, 26.49), "svhn": (37.49, 51.53, 77.44)},
    "Co-Boosting": {"cifar10": (44.37, 60.41, 67.43), "cifar100": (20.30, 24.63, 34.43), "svhn": (41.90, 57.13, 84.65)},
    "FedPFT": {"cifar10": (56.08, 56.43, 56.80), "cifar100": (36.79, 37.16, 37.95), "svhn": (42.55, 43.03, 43.84)},
    "FedCGS": {"cifar10": (63.95,) * 3, "cifar100": (39.95,) * 3, "svhn": (57.77,) * 3},
    "GH-NB": {"cifar10": (78.84,) * 3, "cifar100": (55.51,) * 3, "svhn": (39.24,) * 3},
    "GH-LDA": {"cifar10": (86.05,) * 3, "cifar100": (63.92,) * 3, "svhn": (62.16,) * 3},
    "GH-QDA": {"cifar10": (84.40,) * 3, "cifar100": (66.52,) * 3, "svhn": (55.30,) * 3},
    "FisherMix": {"cifar10": (84.74,) * 3, "cifar100": (66.99,) * 3, "svhn": (57.79,) * 3},
    "Proto-Hyper": {"cifar10": (85.74,) * 3, "cifar100": (64.05,) * 3, "svhn": (61.97,) * 3},
}

HEADS = ("spherical", "nb", "lda", "qda", "fisher_mix", "proto_hyper")
# CIFAR-10 by encoder, in the order of HEADS.
BACKBONES = {
    "efficientnetb0": (84.15, 84.89, 90.01, 88.43, 90.02, 89.99),
    "mobilenetv2": (78.11, 79.15, 86.61, 84.67, 86.70, 86.62),
    "resnet18": (76.58, 77.58, 86.17, 84.76, 86.04, 85.95),
    "resnet50": (81.06, 81.96, 91.26, 86.68, 91.27, 91.23),
    "vgg16": (66.08, 67.83, 81.39, 77.65, 81.71, 81.32),
}
# ResNet-18 trained on Places365, by set.
PLACES = {
    "cifar10": (77.20, 78.85, 86.26, 85.12, 86.56, 86.31),
    "cifar100": (53.52, 55.51, 64.12, 64.88, 66.42, 65.27),
    "svhn": (34.84, 39.24, 62.88, 57.16, 62.26, 62.35),
}
# CIFAR-100-C, severity 5, mean of 19 corruptions. Its statistics come from severities 1 to 4 of the same test images.
CORRUPTION = {"spherical": 24.4, "nb": 25.4, "lda": 37.6, "fisher_mix": 40.1, "proto_hyper": 39.8, "qda": 64.3}

NLP_METHODS = ("Client ensemble", "DENSE", "Co-Boosting", "best Gaussian head", "FisherMix", "Proto-Hyper")
NLP = {
    ("ag_news", 0.5): (85.64, 85.79, 84.42, 88.96, 89.14, 88.87),
    ("ag_news", 0.01): (25.00, 25.00, 25.00, 88.96, 89.14, 88.87),
    ("dbpedia14", 0.5): (98.70, 98.74, 98.72, 98.33, 97.21, 98.33),
    ("dbpedia14", 0.01): (51.49, 51.65, 51.37, 98.33, 97.21, 98.33),
    ("sst2", 0.5): (83.14, 82.68, 83.26, 82.68, 70.53, 82.80),
    ("sst2", 0.01): (51.26, 51.26, 51.38, 82.68, 70.53, 82.80),
    ("banking77", 0.5): (30.62, 30.03, 23.28, 77.60, 73.64, 80.26),
    ("banking77", 0.01): (5.32, 4.97, 3.54, 77.60, 73.64, 80.26),
    ("clinc150", 0.5): (43.30, 43.24, 36.37, 84.80, 82.89, 85.69),
    ("clinc150", 0.01): (3.66, 3.70, 2.43, 84.80, 82.89, 85.69),
}

# Head → accuracies, then relative memory and time (NB = 1).
DLR_SETS = ("cifar100", "ag_news", "dbpedia14")
DLR = {
    "nb": ((49.68, 83.86, 92.33), 1.0, 1.0),
    "lda": ((59.46, 88.93, 98.32), 1.0, 1.1),
    "qda": ((48.20, 68.20, 92.33), 16.0, 4.0),
    "low_rank_qda(rank=4)": ((49.99, 67.08, 92.32), 2.0, 1.4),
    "low_rank_qda(rank=8)": ((47.77, 56.53, 92.35), 3.0, 1.6),
    "low_rank_qda(rank=16)": ((42.01, 38.32, 92.19), 5.0, 2.0),
}

CLIENTS = (10, 20, 30, 40, 50, 100)
ABLATION = {
    "α = 0.5": (87.4, 87.6, 87.5, 87.3, 87.2, 87.3),
    "α = 0.1": (87.1, 87.2, 87.0, 86.9, 86.8, 86.9),
    "α = 0.05": (86.1, 86.3, 86.2, 86.1, 86.0, 86.1),
    "2 classes": (86.9, 87.0, 86.8, 86.7, 86.6, 86.7),
    "1 class": (86.1, 86.0, 85.9, 85.8, 85.8, 85.9),
}

# Projection → statistics, kB per client (CIFAR-100, AG News), accuracy (CIFAR-100, AG News).
COMMUNICATION = {
    512: ("A, B, D, N", (913, 529), (58.4, 89.1)),
    256: ("A, D, N", (200, 8), (56.1, 88.6)),
    128: ("A, N", (50, 2), (53.2, 87.8)),
}
COMMUNICATION_SETS = ("cifar100", "ag_news")
MODEL_KB = {"cifar100": 43859, "ag_news": 261543}

# Minutes on a GPU: CIFAR-100, AG News. They include the encoder.
COST = {
    "Centralised fine-tuning": (42, 30), "FedAvg": (88, 65), "Co-Boosting": (31, 26), "DENSE": (37, 32),
    "nb": (1.1, 0.8), "lda": (1.2, 0.9), "qda": (3.7, 1.6), "low_rank_qda(rank=8)": (1.6, 1.2),
    "fisher_mix": (1.4, 1.1), "proto_hyper": (1.3, 1.0),
}  # fmt: skip

# |skewness|: mean, 90th percentile; |excess kurtosis|: mean, 90th percentile.
GAUSSIANITY = {
    "cifar10": (1.69, 2.34, 4.22, 7.61), "cifar100": (1.91, 2.61, 5.64, 10.52), "svhn": (2.35, 4.09, 11.05, 25.27),
    "ag_news": (0.17, 0.36, 0.24, 0.55), "dbpedia14": (0.32, 0.64, 0.60, 1.21), "sst2": (0.27, 0.50, 0.57, 0.86),
}  # fmt: skip

# LDA of all dimensions, LDA of k* Fisher directions, k*.
FISHER = {
    "cifar10": (86.26, 86.26, 16), "cifar100": (64.12, 64.15, 128), "svhn": (62.88, 62.88, 16),
    "ag_news": (90.28, 90.29, 128), "dbpedia14": (98.87, 98.88, 32), "sst2": (83.60, 83.60, 16),
}  # fmt: skip
FISHER_STEPS = {
    "cifar10": {4: (69.55, 0.71), 8: (82.86, 0.97), 16: (86.26, 1.0)},
    "cifar100": {4: (19.02, 0.26), 32: (53.25, 0.77), 128: (64.15, 1.0)},
    "svhn": {4: (51.98, 0.72), 8: (62.12, 0.97), 16: (62.86, 1.0)},
}
