"""Detectors by name: choosing, finding weights, fingerprinting and building them. Other rooms use this module.

torch and mmdet are imported only when a detector is built or its fingerprint is computed.
"""

from __future__ import annotations

from saod_ray.detect.build import build
from saod_ray.detect.entries import Entry, all_entries, built_in, choose, use_cases
from saod_ray.detect.fingerprints import describe, fingerprint
from saod_ray.detect.mmdet_config import class_counts
from saod_ray.detect.weight_files import DetectorState, find_weights, state, weight_paths, weights_folder

__all__ = [
    "DetectorState",
    "Entry",
    "all_entries",
    "build",
    "built_in",
    "choose",
    "class_counts",
    "describe",
    "find_weights",
    "fingerprint",
    "state",
    "use_cases",
    "weight_paths",
    "weights_folder",
]
