"""Fifteen image corruptions, which of them an image gets, and pseudo-OOD images. Nothing here knows files or Ray."""

from saod_ray.corrupt.blank import blank
from saod_ray.corrupt.corrupting import corrupt
from saod_ray.corrupt.draw import CORRUPTIONS, draw
from saod_ray.corrupt.images import as_rgb

__all__ = ["CORRUPTIONS", "as_rgb", "blank", "corrupt", "draw"]
