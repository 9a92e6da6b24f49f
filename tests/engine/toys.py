"""A detector whose detections are a function of the pixels, and that misbehaves on images of a certain content."""

from __future__ import annotations

import json
import os
import time
import zlib
from pathlib import Path

import numpy as np

from saod_ray.config import DetectorSpec
from saod_ray.detect.detections import Detections


class Toy:
    """Images are named by `content`; `notes` is a folder where each process says what it was given, `tally` a file that
    gets a line for every image that is looked at.
    """

    def __init__(
        self,
        spec: DetectorSpec,
        checkpoint: Path | None,
        device: str,
        batch_size: int,
        *,
        shift: float = 0.0,
        seconds: float = 0.0,
        raises: tuple[int, ...] = (),
        exits: tuple[int, ...] = (),
        hangs: tuple[int, ...] = (),
        wrong: tuple[int, ...] = (),
        poisons: tuple[int, ...] = (),
        built: str = "",
        notes: str = "",
        tally: str = "",
    ) -> None:
        self.spec, self._tally = spec, tally
        self._shift, self._seconds = shift, seconds
        self._raises, self._exits, self._hangs, self._wrong = raises, exits, hangs, wrong
        self._poisons, self._poisoned = poisons, False
        if notes:
            note = {"name": spec.name, "device": device, "gpus": os.environ.get("CUDA_VISIBLE_DEVICES", "")}
            (Path(notes) / f"{os.getpid()}.json").write_text(json.dumps(note))
        if built == "raises":
            raise RuntimeError("no such model")
        if built == "exits":
            os._exit(1)

    def detect(self, images: list[np.ndarray]) -> list[Detections]:
        return [self._detected(image) for image in images]

    def _detected(self, image: np.ndarray) -> Detections:
        name = content(image)
        if self._tally:
            with Path(self._tally).open("a") as out:  # one short write: lines of several processes do not mix
                out.write(f"{self.spec.name} {name}\n")
        time.sleep(self._seconds)
        if name in self._raises:
            raise RuntimeError(f"will not look at <image at {id(image):#x}>")
        if name in self._exits:
            os._exit(1)
        self._poisoned |= name in self._poisons
        if self._poisoned:  # as a GPU is for its process once an assertion failed on it
            raise RuntimeError("CUDA error: device-side assert triggered")
        if name in self._hangs:
            time.sleep(3600)
        return self._detect_one(image, name)

    def _detect_one(self, image: np.ndarray, name: int) -> Detections:
        rng = np.random.default_rng(name)
        count = name % 4
        height, width = image.shape[:2]
        corners = np.sort(rng.random((count, 2, 2)), axis=1) * (width, height) + self._shift
        entropy = rng.random(count).astype(np.float32)
        return Detections(
            label=rng.integers(0, len(self.spec.classes), count).astype(np.int16) + 1000 * (name in self._wrong),
            box=corners.reshape(count, 4).astype(np.float32),
            score=np.sort(rng.random(count).astype(np.float32))[::-1],
            entropy=entropy if count else None,
        )


def content(image: np.ndarray) -> int:
    """A number for an image's pixels."""
    return zlib.crc32(np.ascontiguousarray(image))
