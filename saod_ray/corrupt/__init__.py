"""The fifteen image corruptions, the draw of one per image, and pseudo-OOD images. Pure functions on arrays."""

from saod_ray.corrupt.blank import blank
from saod_ray.corrupt.draw import CORRUPTIONS, draw
from saod_ray.corrupt.images import as_rgb
from saod_ray.corrupt.pipeline import corrupt

__all__ = ["CORRUPTIONS", "as_rgb", "blank", "corrupt", "draw"]
