"""What every picture is drawn with: colours that people with colour blindness tell apart, a canvas, and its files."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from xml.etree import ElementTree

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from truenorth.models.errors import QuestionError
from truenorth.models.scenario import write_atomically

COLOURS = (
    "#4477AA", "#E0556A", "#228833", "#A08000", "#8855CC", "#00917C", "#D06A2C", "#B8458A", "#2F8FBF", "#5E8C1F",
    "#A0703C", "#6C7FD8",
)  # fmt: skip
"""One colour per model, starting over where there are more; a contrast of 3 on light and on dark pages."""
PLAIN = "#888888"
"""What belongs to no model."""
Rgb = tuple[float, float, float]


def colour_of(model: int | None) -> str:
    """Return the colour of a model by its index; None is what belongs to no model."""
    return PLAIN if model is None else COLOURS[model % len(COLOURS)]


def fade(colour: str, share: float) -> Rgb:
    """Return a colour of which so much is left over white paper."""
    red, green, blue = (1 - share + share * part for part in to_rgb(colour))
    return red, green, blue


def contrast(one: str | Rgb, other: str | Rgb) -> float:
    """Return the contrast ratio of two colours, from 1 to 21; text should have 4.5 (WCAG 2.2, 1.4.3).

    >>> round(contrast("black", "white"), 3)
    21.0
    """
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def ink_on(colour: str | Rgb) -> str:
    """Return black or white, whichever is easier to read on a colour; the ratio is at least 4.58 on any.

    >>> ink_on("#4477AA"), ink_on("#E0C040")
    ('white', 'black')
    """
    return max(("black", "white"), key=lambda ink: contrast(ink, colour))


def _luminance(colour: str | Rgb) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


PNG_DPI = 130
"""Pixels per inch of a picture."""
COLUMN_INCHES = 3.4
"""Width of a column of a paper with two; a figure as wide as this is set in 8 points."""
IN_A_COLUMN = rc_context({"font.size": 8})
"""Decorates what draws a figure for one."""
AS_DATA = rc_context({"text.parse_math": False})
"""Decorates what draws a picture: names are data, and a dollar sign in one begins no formula."""
INK, SOFT, LINE = "#010101", "#020202", "#030303"
"""Colours that stand for those of a page, light or dark: of what counts, of words beside it, and of thin lines."""
_OF_PAGE = {INK: "var(--ink, #1c1c1e)", SOFT: "var(--soft, #5c5c62)", LINE: "var(--line, #dcdce0)"}
_LONG_NUMBER, _FONT = re.compile(r"-?\d+\.\d{2,}"), re.compile(r"font-family: [^;]*; ")
_COMMAND = re.compile(r"([A-Za-z])([^A-Za-z]*)")
_SVG, _LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"


def blank(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure of so many inches with axes to draw on, which lays itself out."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def lay_out(figure: Figure) -> None:
    """Give what a figure holds its places, once: it would lay itself out, and be drawn twice, for every file."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        if _break_labels(figure):
            engine.execute(figure)
        figure.set_layout_engine(None)


def _break_labels(figure: Figure) -> bool:
    """Break the labels of horizontal axes that reach beyond the figure into lines; say whether one was.

    A layout makes room for their height alone.
    """
    broken = False
    for axis in (axes.xaxis for axes in figure.axes):
        text, extent = axis.label.get_text(), axis.label.get_window_extent()
        middle = (extent.x0 + extent.x1) / 2
        room = 2 * min(middle, figure.bbox.width - middle)
        if text and extent.width > room:
            axis.set_label_text(fill(text, max(1, int(len(text) * room / extent.width))))
            broken = True
    return broken


def png(figure: Figure) -> bytes:
    """Return a figure as a PNG file's bytes."""
    buffer = io.BytesIO()
    lay_out(figure)
    figure.savefig(buffer, format="png", dpi=PNG_DPI)
    return buffer.getvalue()


def write_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PNG, PDF and SVG, the same bytes for the same figure; return the paths."""
    paths = [stem.with_name(f"{stem.name}.png")]
    write_atomically(paths[0], png(figure))
    return paths + write_vectors(figure, stem)


def save_figure(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as what its file's name ends in; return the path.

    Raises
    ------
    QuestionError
        If that is neither PNG nor SVG nor PDF.
    """
    if path.suffix == ".png":
        write_atomically(path, png(figure))
    elif path.suffix in (".pdf", ".svg"):
        _write_vector(figure, path)
    else:
        raise QuestionError(f"{path} ends in {path.suffix!r}; allowed are .png, .svg, .pdf", "path")
    return [path]


def write_vectors(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PDF and SVG, whose texts stay texts."""
    paths = [stem.with_name(f"{stem.name}.{ending}") for ending in ("pdf", "svg")]
    for path in paths:
        _write_vector(figure, path)
    return paths


def _write_vector(figure: Figure, path: Path) -> None:
    lay_out(figure)
    buffer, undated = io.BytesIO(), {"CreationDate" if path.suffix == ".pdf" else "Date": None}
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem, "pdf.fonttype": 42}):
        figure.savefig(buffer, format=path.suffix[1:], metadata=undated)
    write_atomically(path, buffer.getvalue())


def svg(figure: Figure, label: str, words: Mapping[str, Sequence[str]]) -> str:
    """Return a figure as an element that stands in a page: texts are texts, and colours follow the reader.

    Parameters
    ----------
    label
        What a screen reader says of it.
    words
        What is said of the markers of a line when they are pointed at, by the line's gid.
    """
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    lay_out(figure)
    # Without a salt of its own, names of markers would change from run to run.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": label}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    root = ElementTree.fromstring(buffer.getvalue())  # noqa: S314 (written by the line above)
    for gid, lines in words.items():
        markers = root.iterfind(f".//*[@id='{gid}']//{{{_SVG}}}use")
        for marker, line in zip(markers, lines, strict=True):
            ElementTree.SubElement(marker, f"{{{_SVG}}}title").text = line
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": label}
    for element in root.iter():
        _tidy(element)
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _LINK)
    return ElementTree.tostring(root, encoding="unicode")


def _tidy(element: ElementTree.Element) -> None:
    """Take from an element what a page does not need, or must not have, and give it the page's colours."""
    for style in element.findall(f"{{{_SVG}}}style"):
        element.remove(style)  # it would hold for the whole page
    for group in element.findall(f"{{{_SVG}}}g"):
        group.attrib.pop("id", None)
        if len(group) == 0:
            element.remove(group)
    for name, value in list(element.attrib.items()):
        if name in ("d", "x", "y", "transform"):
            element.attrib[name] = _LONG_NUMBER.sub(lambda match: f"{float(match[0]):.1f}", " ".join(value.split()))
        if name == "d":
            element.attrib[name] = _shorten(element.attrib[name])
        elif name == "transform" and value.startswith("rotate(-0 "):
            del element.attrib[name]
        elif name == "style":
            for stand_in, colour in _OF_PAGE.items():
                value = value.replace(stand_in, colour)
            element.attrib[name] = _FONT.sub("", value)
    if element.text is not None and not element.text.strip():
        element.text = None
    element.tail = None


def _shorten(path: str) -> str:
    """Return a path with its lines along an axis in the short form.

    >>> _shorten("M 1 2 L 3 2 L 3 4 L 5 6 z")
    'M1 2H3V4L5 6z'
    """
    kept, x, y = [], "", ""
    for command, numbers in _COMMAND.findall(path):
        x_before, y_before = x, y
        if numbers:
            *_, x, y = numbers.split()
        if command == "L" and y == y_before:
            kept.append(f"H{x}")
        elif command == "L" and x == x_before:
            kept.append(f"V{y}")
        else:
            kept.append(command + numbers.strip())
    return "".join(kept)
