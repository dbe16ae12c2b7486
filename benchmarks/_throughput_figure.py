"""The picture of `throughput.py`: two panels, drawn by hand so that it needs nothing and follows the reader's theme."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import floor, log2, log10

from attrs import frozen

Series = Mapping[str, Mapping[int, float]]
"""By name (``inline``, ``thread``, ``process``, ``floor``), tasks a second by the number of workers."""

WIDTH, HEIGHT = 880, 400
INSET = 14  # so that no marker lies on a label of the axis
TITLES = {"wait": "Work that waits (20 ms)", "compute": "Work that computes (about 5 ms)"}
# Drawn in this order, the widest first: where lines lie on each other all of them can still be seen.
NAMES = {"process": "processes", "thread": "threads", "inline": "inline, async"}

# Contrast to the ground: text at least 4.5 : 1, lines 3 : 1. Markers tell the lines apart for who sees no colours.
STYLE = """
  .ground { fill: #ffffff } .text { fill: #1f2328 } .faint { fill: #59636e }
  .grid { stroke: #d1d9e0 } .axis { stroke: #59636e }
  .inline { stroke: #0969da } .thread { stroke: #bc4c00 } .process { stroke: #1a7f37 } .floor { stroke: #59636e }
  .mark { fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117 } .text { fill: #f0f6fc } .faint { fill: #9198a1 }
    .grid { stroke: #30363d } .axis { stroke: #9198a1 }
    .inline { stroke: #58a6ff } .thread { stroke: #f0883e } .process { stroke: #3fb950 } .floor { stroke: #9198a1 }
    .mark { fill: #0d1117 }
  }
  text { font: 13px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif }
  .title { font-weight: 600; font-size: 15px }
  path { fill: none; stroke-linejoin: round }
"""


@frozen
class Panel:
    """A place in the picture, with a scale of its own: workers to the right (each step doubles), tasks/s up."""

    left: float
    top: float
    width: float
    height: float
    widths: tuple[int, ...]
    ticks: tuple[float, ...]
    level: Callable[[float], float]
    """From 0 at the bottom to 1 at the top."""

    def x(self, workers: float) -> float:
        steps = log2(self.widths[-1]) or 1.0
        return self.left + INSET + (self.width - 2 * INSET) * log2(workers) / steps

    def y(self, rate: float) -> float:
        return self.top + self.height * (1 - self.level(rate))


def draw(works: Mapping[str, Series]) -> str:
    """The whole picture as the text of an SVG file."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-labelledby="title about">',
        "<title id='title'>Tasks per second by executor and number of workers</title>",
        f"<desc id='about'>{_told(works)}</desc>",
        f"<style>{STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        *_legend(),
    ]
    for left, (work, series) in zip((70, 500), works.items(), strict=True):
        parts += _panel(_panel_for(work, series, left), TITLES[work], series)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel_for(work: str, series: Series, left: float) -> Panel:
    widths = tuple(sorted(series["inline"]))
    highest = max(rate for rates in series.values() for rate in rates.values())
    if work == "compute":
        step = _round_step(highest / 3)
        ticks = tuple(step * number for number in range(int(highest * 1.15 / step) + 1))
        return Panel(left, 96, 340, 240, widths, ticks, lambda rate: rate / (highest * 1.15))
    lowest = min(series["inline"].values())
    ticks = tuple(50.0 * 2**step for step in range(12) if 50 * 2**step <= highest * 1.3)
    span = log2(highest * 1.3) - log2(lowest * 0.8)
    return Panel(left, 96, 340, 240, widths, ticks, lambda rate: (log2(rate) - log2(lowest * 0.8)) / span)


def _round_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten: the largest that is not above ``rough``, so that there are enough ticks."""
    size = 10.0 ** floor(log10(rough))
    return max(factor * size for factor in (1, 2, 5) if factor * size <= rough)


def _panel(panel: Panel, title: str, series: Series) -> Iterator[str]:
    bottom, right = panel.top + panel.height, panel.left + panel.width
    yield f'<text class="text title" x="{panel.left}" y="{panel.top - 18}">{title}</text>'
    for tick in panel.ticks:
        y = panel.y(tick)
        yield f'<path class="grid" d="M{panel.left} {y:.1f}H{right}"/>'
        yield f'<text class="faint" x="{panel.left - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:,.0f}</text>'
    for width in panel.widths:
        x = panel.x(width)
        yield f'<path class="axis" d="M{x:.1f} {bottom}v4"/>'
        yield f'<text class="faint" x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{width}</text>'
    yield f'<path class="axis" d="M{panel.left} {bottom}H{right}"/>'
    yield f'<text class="text" x="{panel.left + panel.width / 2}" y="{bottom + 42}" text-anchor="middle">workers</text>'
    middle = panel.top + panel.height / 2
    turn = f'transform="rotate(-90 {panel.left - 52} {middle})"'
    yield f'<text class="text" x="{panel.left - 52}" y="{middle}" text-anchor="middle" {turn}>tasks per second</text>'
    (bare,) = series["floor"].values()
    way = f"M{panel.left} {panel.y(bare):.1f}H{right}"
    yield f'<path class="floor" stroke-width="1.5" stroke-dasharray="6 4" d="{way}"/>'
    for thickness, name in zip((5, 3.5, 2), NAMES, strict=True):
        yield from _line(name, thickness, [(panel.x(w), panel.y(rate)) for w, rate in sorted(series[name].items())])


def _line(name: str, thickness: float, points: list[tuple[float, float]]) -> Iterator[str]:
    way = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    yield f'<path class="{name}" stroke-width="{thickness}" d="M{way}"/>'
    for x, y in points:
        yield _mark(name, x, y)


def _mark(name: str, x: float, y: float) -> str:
    if name == "inline":
        return f'<circle class="mark inline" stroke-width="1.5" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>'
    if name == "thread":
        return f'<rect class="mark thread" stroke-width="1.5" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'
    shape = f"{x:.1f},{y - 8:.1f} {x + 8:.1f},{y + 5:.1f} {x - 8:.1f},{y + 5:.1f}"
    return f'<polygon class="mark process" stroke-width="1.5" points="{shape}"/>'


def _legend() -> Iterator[str]:
    x = 70.0
    for name, label in [*reversed(NAMES.items()), ("floor", "two bare processes: the floor")]:
        dashes = ' stroke-dasharray="6 4"' if name == "floor" else ""
        yield f'<path class="{name}" stroke-width="2.5"{dashes} d="M{x} 34h30"/>'
        if name != "floor":
            yield _mark(name, x + 15, 34)
        yield f'<text class="text" x="{x + 38}" y="38">{label}</text>'
        x += 38 + 6.6 * len(label) + 26


def _told(works: Mapping[str, Series]) -> str:
    """The same in words, for those who do not see it."""
    parts = []
    for work, series in works.items():
        most = {name: max(series[name].items()) for name in NAMES}
        told = ", ".join(f"{NAMES[name]} {rate:,.0f}" for name, (_, rate) in most.items())
        (bare,) = series["floor"].values()
        parts.append(f"{TITLES[work]}, at {max(series['inline'])} workers: {told}; two bare processes {bare:,.0f}.")
    return " ".join(parts)
