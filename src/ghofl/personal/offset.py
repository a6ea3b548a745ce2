"""Sites that see everything shifted: a head of means without site effects, and each site's own offset for it."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ghofl.classifier import Classifier, Warn, show_warning
from ghofl.errors import EmbeddingsError, HeadError, PrivacyError, RosterError
from ghofl.features import Features
from ghofl.gaussians.site_effects import SiteEffects
from ghofl.heads.rules import Linear
from ghofl.heads.spec import HeadSpec
from ghofl.moments import Layout
from ghofl.shapes import Int64, Num
from ghofl.wire.message import Message
from ghofl.wire.roster import list_names
from ghofl.wire.total import Total


def fit_without_site_effects(
    total: Total, messages: Iterable[Message], spec: HeadSpec | None = None, warn: Warn = show_warning
) -> Classifier:
    """The head of a total's rows with what each site adds to all of its rows taken out; `lda` unless another is named.

    `messages` are all of the total's: counts and sums of single sites, which neither a secure nor a noisy total shows.
    """
    _check(total)
    counts, sums, left = [], [], {e.id: e for e in total.roster}
    for message in messages:
        if left.pop(message.id, None) is None:
            raise RosterError(
                f"message {message.name!r} is not in this total, or came twice; give each of its messages once."
            )
        counts.append(message.moments.counts)
        sums.append(message.moments.sums)
    if left:
        raise RosterError(
            f"the messages of {list_names(tuple(left.values()))} are missing; give all that are in the total."
        )
    moments, unit = total.moments, Features.of(total.recipe).unit
    if not moments.rows:
        raise EmbeddingsError("the total holds no rows; a head needs at least one site with data.")
    effects = SiteEffects.estimate(np.array(counts), np.array(sums) * unit, moments.pooled() * unit**2)
    spec = HeadSpec("lda") if spec is None else spec
    spec.check(replace(Layout.of(total.recipe), statistics=("B",)), total.recipe)
    return replace(Classifier.fit(total, spec, warn, adapt=effects.apply), site_effects=effects)


def _check(total: Total) -> None:
    asked = total.recipe.privacy
    if total.is_released or asked.epsilon is not None or asked.secure or asked.min_count:
        raise PrivacyError(
            f"recipe {total.recipe.fingerprint[:12]}… hides single sites or small classes, and site effects follow from the "
            "counts and sums of all; they need plain messages, under a recipe without epsilon, secure aggregation and min_count."
        )
    total.moments.check_has("B")


def offset_head(classifier: Classifier, x: Num[np.ndarray, "n dim"], y: Int64[np.ndarray, " n"]) -> Classifier:
    """The head for one site, moved by the offset that its labelled rows predict."""
    effects, rule = classifier.site_effects, classifier.rule
    if effects is None or not isinstance(rule, Linear):
        raise HeadError(
            f"an own offset needs a linear head that was made with site effects ('ghofl head --site-effects'), and this "
            f"{classifier.head.name!r} was not; give that head, or the total."
        )
    if classifier.personal:
        raise HeadError(
            f"this head is one site's own already ({classifier.personal}); give the head that all sites share."
        )
    if not len(y):
        raise EmbeddingsError("no rows came, and an offset takes at least one; give labelled rows of this site.")
    values, classes = classifier.features.values(x), len(classifier.recipe.classes)
    hot = np.eye(classes)[y]
    by = effects.offset(hot.sum(axis=0), hot.T @ values)
    novelty = classifier.novelty_rule
    return replace(
        classifier,
        rule=replace(rule, bias=rule.bias - rule.weights @ by),
        novelty_rule=None if novelty is None else replace(novelty, centre=(novelty.centre + by).astype(np.float32)),
        guarantee=None,
        personal=f"own offset (ratio {effects.ratio:g})",
    )
