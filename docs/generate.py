"""Writes what the code knows into the docs: docs/cli.md, the table of heads in README.md, and the figure.

Run it with `make docs`. `tests/test_docs.py` fails when the two texts are not what this gives.
"""

import inspect
import json
import math
import re
from pathlib import Path
from typing import Any, get_args, get_type_hints
from xml.sax.saxutils import escape

import numpy as np
import typer

from ghofl import partition
from ghofl.cli import app, console
from ghofl.demo import ALPHA, CLIENTS, FEDAVG_BYTES, digits
from ghofl.heads import HEADS
from ghofl.simulate import all_heads, recipe_for, simulate

ROOT = Path(__file__).parents[1]
CLI = ROOT / "docs" / "cli.md"
README = ROOT / "README.md"
FIGURE = ROOT / "docs" / "figures" / "accuracy-against-bytes.svg"
# A file of `ghofl simulate --json`, with a "title" beside its fields; without it the figure shows the demo's digits.
RESULTS = ROOT / "benchmarks" / "results" / "figure.json"

# ---------------------------------------------------------------------------------------------------- docs/cli.md

VALUES = {int: "INTEGER", float: "NUMBER", Path: "FILE", str: "TEXT"}


def cli() -> str:
    """The command line as Markdown, from the commands themselves."""
    group = typer.main.get_command(app)
    parts = [
        "<!-- Written by docs/generate.py: run `make docs`, do not edit. -->",
        "# The command line",
        str(group.help),
        "Every command has `-h` and `--help`. "
        f"It ends with 0 when it did its work, {console.BAD_INPUT} for input it refuses (the text says why), "
        f"and {console.INTERRUPTED} after Ctrl-C. Files are written whole or not at all.",
        "| command | what it does |\n|---|---|\n"
        + "\n".join(
            f"| [`{name}`](#ghofl-{name.replace(' ', '-')}) | {_cell(_sentence(c))} |" for name, c in commands().items()
        ),
    ]
    options = [p for p in group.params if p.name != "help"]
    if options:
        parts.append(_options(options, {}))
    parts += [_command(name, command) for name, command in commands().items()]
    return "\n\n".join(parts) + "\n"


def commands() -> dict[str, Any]:
    """Every command by its words: those of a group follow its name."""
    out: dict[str, Any] = {}
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", None)
        out |= {name: command} if below is None else {f"{name} {word}": c for word, c in below.items()}
    return out


def example(command: Any) -> str:
    """The example in a command's help, without the word."""
    found = re.search(r"^Example: (.+)$", command.help or "", re.MULTILINE)
    return found[1] if found else ""


def _command(name: str, command: Any) -> str:
    hints = get_type_hints(inspect.unwrap(command.callback))
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    usage = " ".join(["ghofl", name, *(["[OPTIONS]"] if options else []), *map(_placeholder, arguments)])
    text = (command.help or "").split("Example:")[0].strip()
    parts = [f"## ghofl {name}", text, f"```text\n{usage}\n```"]
    if arguments:
        rows = "\n".join(f"| `{_placeholder(p)}` | {_cell(p.help)} |" for p in arguments)
        parts.append(f"| argument | meaning |\n|---|---|\n{rows}")
    if options:
        parts.append(_options(options, hints))
    parts.append(f"Example:\n\n```sh\n{example(command)}\n```")
    return "\n\n".join(parts)


def _options(options: list[Any], hints: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| {', '.join(f'`{o}`' for o in p.opts)} | {_value(p, hints)} | {_default(p)} | {_cell(p.help)} |"
        for p in options
    )
    return f"| option | value | default | meaning |\n|---|---|---|---|\n{rows}"


def _sentence(command: Any) -> str:
    return (command.help or "").split("\n")[0]


def _placeholder(argument: Any) -> str:
    return argument.name.upper() + ("..." if argument.nargs == -1 else "")


def _value(option: Any, hints: dict[str, Any]) -> str:
    if option.is_flag:
        return ""
    hint = hints.get(option.name, str)
    kind = next((a for a in (hint, *get_args(hint)) if a in VALUES), str)
    return option.metavar or VALUES[kind]


def _default(option: Any) -> str:
    if option.required:
        return "required"
    return "" if option.default in (None, "", False) else f"`{option.default}`"


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("\n", " ")


# ------------------------------------------------------------------------------------- the table of heads in README

SIZES = {
    (): "C + C·d",
    ("D",): "C + 2·C·d",
    ("B",): "C + C·d + d·(d+1)/2",
    ("B", "Z"): "C + C·d + d·(d+1)/2 + C·k·(k+1)/2",
    ("S",): "C + C·d + C·d·(d+1)/2",
}
START, END = "<!-- heads: written by docs/generate.py -->", "<!-- end of heads -->"


def heads() -> str:
    """The heads as a Markdown table: what each is, needs, costs and can be told."""
    rows = [
        f"| `{name}` | {_cell((inspect.getdoc(head) or '').splitlines()[0])} "
        f"| {' or '.join(' and '.join(need) or 'nothing more' for need in head.needs)} "
        f"| {SIZES[head.needs[0]]} | {_head_options(name)} |"
        for name, head in HEADS.items()
    ]
    return "| head | rule | needs | integers in a message | options |\n|---|---|---|---|---|\n" + "\n".join(rows)


def with_heads(readme: str) -> str:
    """A README text with the table of heads between its two marks."""
    before, _, rest = readme.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{heads()}\n{END}{after}"


def _head_options(name: str) -> str:
    shown = []
    for o in HEADS[name].Options.known().values():
        differs = o.paper not in (None, o.default)
        shown.append(f"`{o.name}`: {_shown(o.default)}" + (f" (paper: {_shown(o.paper)})" if differs else ""))
    more = f" and {len(shown) - 5} more" if len(shown) > 6 else ""
    return ", ".join(shown[:5] if more else shown) + more or "none"


def _shown(value: object) -> str:
    if value is None:
        return "chosen from the total"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


# ------------------------------------------------------------------------------------------------------ the figure

WIDTH, HEIGHT = 860, 470
LEFT, RIGHT, TOP, BOTTOM = 74, 30, 78, 66
INK, SOFT, RULE = "#1f2933", "#52606d", "#dde3ea"
COLOURS = {
    (): ("#6b7280", "counts and sums"),
    ("D",): ("#b45309", "+ squares (D)"),
    ("B",): ("#1d4ed8", "+ one matrix (B)"),
    ("B", "Z"): ("#7c3aed", "+ a sketch a class (Z)"),
    ("S",): ("#047857", "+ a matrix a class (S)"),
}


def results() -> dict[str, Any]:
    """What the figure shows: the benchmark's results where they are, otherwise the demo's digits."""
    if RESULTS.exists():
        return json.loads(RESULTS.read_text())
    data, specs = digits(), all_heads(sketch=True)
    parts = partition.dirichlet_by_class(data.y_train, CLIENTS, ALPHA, np.random.default_rng(CLIENTS))
    result = simulate(data, parts, recipe_for(data, specs.values(), sketch=16), specs).to_dict()
    title = f"scikit-learn digits, {result['rows']:,} rows over {CLIENTS} clients, Dirichlet {ALPHA}"
    return {"title": title, **result}


def figure(result: dict[str, Any]) -> str:
    """Accuracy against the bytes a client sends, one labelled point a head, as an SVG on its own white card."""
    heads = result["heads"]
    sizes = [h["payload_bytes"] for h in heads.values()]
    low = math.floor(math.log10(min(sizes)))
    high = math.log10(FEDAVG_BYTES) + 0.35
    floor = 2 * math.floor(50 * min(h["accuracy"] for h in heads.values()) - 0.25)
    ceiling = min(100, 2 * math.ceil(50 * max(h["accuracy"] for h in heads.values()) + 0.25))

    def x(size: float) -> float:
        return LEFT + (math.log10(size) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(percent: float) -> float:
        return HEIGHT - BOTTOM - (percent - floor) / (ceiling - floor) * (HEIGHT - TOP - BOTTOM)

    step = next(s for s in (2, 5, 10, 20) if (ceiling - floor) / s <= 7)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'role="img" font-family="Helvetica, Arial, DejaVu Sans, sans-serif" font-size="13">',
        "<title>Accuracy against the bytes a client sends, one point a head</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="#ffffff" stroke="{RULE}"/>',
        _text(LEFT, 30, "One message a client: accuracy against its size", size=17, weight="bold"),
        _text(LEFT, 52, result["title"], fill=SOFT),
    ]
    for percent in range(floor, ceiling + 1, step):
        out += [
            _line(LEFT, y(percent), WIDTH - RIGHT, y(percent)),
            _text(LEFT - 10, y(percent) + 4, f"{percent}", anchor="end", fill=SOFT),
        ]
    for power in range(low, int(high) + 1):
        out += [
            _line(x(10**power), HEIGHT - BOTTOM, x(10**power), HEIGHT - BOTTOM + 5, SOFT),
            _text(x(10**power), HEIGHT - BOTTOM + 21, _size(10**power), anchor="middle", fill=SOFT),
        ]
    middle = (TOP + HEIGHT - BOTTOM) / 2
    out += [
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 18, "a client sends, once (log scale)", anchor="middle"),
        f'<text transform="rotate(-90)" x="{-middle:.1f}" y="24" text-anchor="middle" fill="{INK}">'
        "test accuracy %</text>",
        _line(x(FEDAVG_BYTES), TOP - 6, x(FEDAVG_BYTES), HEIGHT - BOTTOM, "#b91c1c", "6 4"),
        _text(x(FEDAVG_BYTES) - 10, middle + 94, "FedAvg: a ResNet-18,", anchor="end", fill="#b91c1c"),
        _text(x(FEDAVG_BYTES) - 10, middle + 111, f"{_size(FEDAVG_BYTES)} in each round", anchor="end", fill="#b91c1c"),
    ]
    out += _legend(x(FEDAVG_BYTES) - 190, middle - 60, {HEADS[_name(n)].needs[0] for n in heads})
    out += _points(heads, x, y)
    return "\n".join([*out, "</svg>"]) + "\n"


def _points(heads: dict[str, Any], x: Any, y: Any) -> list[str]:
    """A dot a head and its label beside it, pushed apart where they would overlap."""
    spots: dict[tuple[int, float], list[str]] = {}
    for name, head in heads.items():
        spots.setdefault((head["payload_bytes"], head["accuracy"]), []).append(name)
    out, placed = [], []
    for (size, accuracy), names in sorted(spots.items(), key=lambda item: -item[0][1]):
        colour = COLOURS[HEADS[_name(names[0])].needs[0]][0]
        label = f"{', '.join(names)}  {100 * accuracy:.1f} %, {_size(size)}"
        px, py = x(size), y(100 * accuracy)
        left, right, at = px + 16, px + 20 + 6.7 * len(label), py
        for dot in (y(100 * a) for s, a in spots if left < x(s) < right and abs(y(100 * a) - py) < 12):
            at = min(at, dot - 14)
        for a, b, other in sorted(placed, key=lambda p: p[2]):
            if left < b and a < right and abs(at - other) < 17:
                at = other + 17
        placed.append((left - 22, right, at))
        out += [
            _line(px, py, left - 3, at, colour),
            f'<circle cx="{px:.1f}" cy="{py:.1f}" r="5.5" fill="{colour}" stroke="#ffffff" stroke-width="1.5"/>',
            _text(left, at + 4.5, label),
        ]
    return out


def _legend(left: float, top: float, needs: set[tuple[str, ...]]) -> list[str]:
    out = []
    for i, need in enumerate(need for need in COLOURS if need in needs):
        colour, words = COLOURS[need]
        out += [
            f'<circle cx="{left:.1f}" cy="{top + 19 * i:.1f}" r="5.5" fill="{colour}"/>',
            _text(left + 14, top + 19 * i + 4.5, words, fill=SOFT),
        ]
    return out


def _text(
    x: float, y: float, text: str, anchor: str = "start", fill: str = INK, size: int = 13, weight: str = "normal"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}" '
        f'font-weight="{weight}">{escape(text)}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str = RULE, dash: str = "none") -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="1" stroke-dasharray="{dash}"/>'
    )


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if count == int(count) else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _name(label: str) -> str:
    return label.split("(")[0]


def main() -> None:
    """Write all three."""
    CLI.write_text(cli())
    README.write_text(with_heads(README.read_text()))
    FIGURE.parent.mkdir(exist_ok=True)
    FIGURE.write_text(figure(results()))
    for path in (CLI, README, FIGURE):
        print(f"Wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
