"""The table of σ in docs/privacy.md is what the code computes."""

from pathlib import Path

from ghofl.moments import Layout
from ghofl.privacy import noise_plan
from ghofl.recipe import Privacy

PAGE = Path(__file__).parents[2] / "docs" / "privacy.md"


def row(epsilon):
    plan = noise_plan(Layout(10, 1280), 600, Privacy(radius=1.0, epsilon=epsilon, delta=1e-5))
    n, a, b = (plan.deviation(name) for name in "NAB")
    rest = plan.deviation("B", off_diagonal=True)
    return (
        f"| {epsilon:g} | {plan.multiplier:.4f} | {plan.guarantee.mu:.4f} | {n:.1f} | {a:.1f} | {b:.0f} | {rest:.0f} |"
    )


def test_the_table_of_sigmas_is_what_the_code_computes():
    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index("<!-- sigmas") : text.index("<!-- end -->")]
    assert [line for line in table.splitlines() if line[:3] in ("| 0", "| 1", "| 2", "| 4", "| 8")] == [
        row(epsilon) for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0)
    ]
