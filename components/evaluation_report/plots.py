"""Plots as SVG text, without a library, a script or a network."""

import html
import math
from collections.abc import Sequence

Point = tuple[float, float]

_WIDTH, _HEIGHT = 720, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 32
_MOST_POINTS = 400


def curves(series: Sequence[tuple[str, str, Sequence[Point]]], x_label: str, y_label: str) -> str:
    """Lines over one pair of axes.

    Args:
      series: name, CSS class and points (x, y) of each; points that are not finite are left out.
    """
    kept = [(name, style, _thinned(_finite(points))) for name, style, points in series]
    everything = [point for _, _, points in kept for point in points]
    if not everything:
        return "<p>Nothing was logged.</p>"
    x_low, x_high = _bounds([x for x, _ in everything])
    y_low, y_high = _bounds([y for _, y in everything])

    def place(point: Point) -> str:
        x = _LEFT + (point[0] - x_low) / (x_high - x_low) * (_WIDTH - _LEFT - _RIGHT)
        y = _HEIGHT - _BOTTOM - (point[1] - y_low) / (y_high - y_low) * (_HEIGHT - _TOP - _BOTTOM)
        return f"{x:.1f},{y:.1f}"

    parts = [_frame(f"{y_label} over {x_label}", _HEIGHT)]
    for value in _ticks(y_low, y_high):
        y = place((x_low, value)).split(",")[1]
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y}" text-anchor="end" dy=".35em">{value:g}</text>')
    for value in _ticks(x_low, x_high):
        x = place((value, y_low)).split(",")[0]
        parts.append(f'<text x="{x}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{value:,g}</text>')
    for _, style, points in kept:
        if not points:
            continue
        parts.append(f'<polyline class="line {style}" points="{" ".join(map(place, points))}"/>')
        if len(points) <= 40:
            for point in points:
                x, y = place(point).split(",")
                parts.append(f'<circle class="dot {style}" cx="{x}" cy="{y}" r="3"/>')
    names = [f'<span class="key {style}"></span>{html.escape(name)}' for name, style, points in kept if points]
    legend = f'<p class="legend">{" ".join(names)} <span class="axis">{html.escape(y_label)}, by {x_label}</span></p>'
    return f"{''.join(parts)}</svg>{legend}"


def bars(rows: Sequence[tuple[str, float, float | None]], names: tuple[str, str]) -> str:
    """A pair of horizontal bars for each row: the candidate's value and the baseline's, which may be missing.

    Values that are not finite have no bar, and are written out.
    """
    finite = [value for _, *pair in rows for value in pair if value is not None and math.isfinite(value)]
    largest = max(finite, default=1.0) or 1.0
    label_width, bar_height = 200, 11
    height = sum(34 if before is not None else 22 for _, _, before in rows) + 4
    parts, y = [_frame("bits per byte by slice", height)], 4
    for label, value, before in rows:
        shown = label if len(label) <= 28 else label[:27] + "…"
        parts.append(f'<text x="{label_width - 8}" y="{y + 9}" text-anchor="end">{html.escape(shown)}</text>')
        for number, style in ((value, "candidate"), (before, "baseline")):
            if number is None:
                continue
            width = number / largest * (_WIDTH - label_width - 70) if math.isfinite(number) else 0.0
            parts.append(
                f'<rect class="{style}" x="{label_width}" y="{y}" width="{max(width, 0):.1f}" height="{bar_height}"/>'
                f'<text x="{label_width + max(width, 0) + 6:.1f}" y="{y + 9}">{number:.3f}</text>'
            )
            y += bar_height + 2
        y += 8
    keys = f'<span class="key candidate"></span>{html.escape(names[0])}'
    if any(before is not None for _, _, before in rows):
        keys += f' <span class="key baseline"></span>{html.escape(names[1])}'
    return f'{"".join(parts)}</svg><p class="legend">{keys}</p>'


def _frame(label: str, height: int) -> str:
    return f'<svg role="img" aria-label="{html.escape(label)}" viewBox="0 0 {_WIDTH} {height}">'


def _finite(points: Sequence[Point]) -> list[Point]:
    return [point for point in points if all(math.isfinite(value) for value in point)]


def _thinned(points: list[Point]) -> list[Point]:
    """Evenly taken, the last among them: a page of a long training stays small."""
    if len(points) <= _MOST_POINTS:
        return points
    step = (len(points) - 1) / (_MOST_POINTS - 1)
    return [points[round(number * step)] for number in range(_MOST_POINTS)]


def _bounds(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between two bounds, four to nine of them."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]
