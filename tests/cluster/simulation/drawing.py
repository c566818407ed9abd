"""The projection as a picture: a panel for each network and link speed, efficiency over ranks."""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 430, 270, 56, 40, 14, 44  # panel, in pixels
STYLES = {("ring", "none"): ("#d1495b", "6 4"), ("ring", "overlap"): ("#d1495b", ""),
          ("two-level", "none"): ("#00798c", "6 4"), ("two-level", "overlap"): ("#00798c", "")}


def _text(x, y, words, anchor="middle", size=12, extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" {extra}>{escape(words)}</text>'


def _panel(x0, y0, title, rows):
    ranks = sorted({row["ranks"] for row in rows})
    least = min(row["efficiency"] for row in rows)
    floor = max(0.0, math.floor(10 * least - 0.0001) / 10)
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    span = math.log2(ranks[-1] / ranks[0]) or 1

    def at(rank, efficiency):
        return (x0 + LEFT + wide * math.log2(rank / ranks[0]) / span,
                y0 + TOP + high * (1 - (efficiency - floor) / (1 - floor)))

    parts = [_text(x0 + LEFT + wide / 2, y0 + TOP - 12, title, size=14, extra='font-weight="bold"')]
    step = 0.02 if floor >= 0.895 else 0.1 if floor >= 0.395 else 0.2
    for i in range(int(round((1 - floor) / step)) + 1):
        x, y = at(ranks[0], floor + i * step)
        parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x + wide:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(x - 6, y + 4, f"{100 * (floor + i * step):.0f} %", "end", 11))
    for rank in ranks:
        x, y = at(rank, floor)
        parts.append(_text(x, y + 17, f"{rank:,}", size=11))
    parts.append(_text(x0 + LEFT + wide / 2, y0 + HEIGHT - 8, "ranks"))
    for (algorithm, overlap), (colour, dashes) in STYLES.items():
        points = sorted((row["ranks"], row["efficiency"]) for row in rows
                        if (row["algorithm"], row["overlap"]) == (algorithm, overlap))
        if not points:
            continue
        places = [at(*point) for point in points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2" '
                     f'stroke-dasharray="{dashes}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    return parts


def draw(title, note, panels):
    """`panels`: [(title, rows)], drawn two in a row. SVG text."""
    lines = -(-len(panels) // 2)
    width, height = 2 * WIDTH + 20, 62 + lines * HEIGHT + 40
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
             f'height="{height}" font-family="sans-serif">', f'<rect width="{width}" height="{height}" fill="white"/>',
             _text(width / 2, 26, title, size=17, extra='font-weight="bold"'), _text(width / 2, 48, note)]
    for i, (name, rows) in enumerate(panels):
        parts += _panel(10 + (i % 2) * WIDTH, 58 + (i // 2) * HEIGHT, name, rows)
    x, y = 70, height - 20
    for (algorithm, overlap), (colour, dashes) in STYLES.items():
        parts.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 34}" y2="{y - 4}" stroke="{colour}" stroke-width="2" '
                     f'stroke-dasharray="{dashes}"/>')
        words = f"{algorithm}, {'overlapped' if overlap == 'overlap' else 'after backward'}"
        parts.append(_text(x + 40, y, words, "start"))
        x += 205
    return "\n".join(parts + ["</svg>"]) + "\n"
