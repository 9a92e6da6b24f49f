"""Pages from templates: their environment, and the style and scripts that are embedded in them."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup


def render_page(template: str, **values: object) -> bytes:
    """Fill a template with values; every page embeds `style` and `table_script`, which sorts and exports tables."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    environment.filters["data"] = script_json
    embedded: dict[str, Any] = {"style": asset("report.css"), "table_script": asset("tables.js")}
    return environment.get_template(template).render(**embedded, **values).encode()


def script_json(value: object) -> Markup:
    """JSON that is safe inside a script element: it can neither end the element nor start a comment."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def asset(name: str) -> Markup:
    """A style sheet or script of this package."""
    return Markup(files("saod_ray.report").joinpath("assets", name).read_text(encoding="utf-8"))


def _template(name: str) -> str:
    return files("saod_ray.report").joinpath("templates", name).read_text(encoding="utf-8")
