"""A detector and what makes it self-aware, together: files or pixels in, verdicts out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from saod_ray.config import UseCase
from saod_ray.data.prepare import ImageRequest, PreparedImage, PrepareOptions, prepare
from saod_ray.detect import registry
from saod_ray.detect.detections import Detector
from saod_ray.detect.outcomes import outcomes
from saod_ray.detect.registry import Entry
from saod_ray.errors import SaodError
from saod_ray.predict.drawing import drawn
from saod_ray.score.self_aware import SelfAware
from saod_ray.score.verdicts import Verdict

Image = str | Path | np.ndarray


class Outcome(NamedTuple):
    """What came of a file: a verdict, with a JPEG of it where one was asked for, or why there is none."""

    file: str
    verdict: Verdict | None
    error: str | None = None
    picture: bytes | None = None

    def to_json(self) -> dict[str, Any]:
        """The outcome as a JSON value."""
        said = self.verdict.to_json() if self.verdict is not None else {"error": self.error}
        return {"image": self.file, **said}


@dataclass(frozen=True)
class Setup:
    """All that any process needs to build the detector."""

    aware: SelfAware
    entry: Entry
    weights: Path
    batch_size: int = 1  # in larger batches the last bits of a detection depend on the images beside it

    @classmethod
    def of(
        cls,
        aware: SelfAware,
        detector: str | None = None,
        use_case: str | None = None,
        weights: str | Path | None = None,
        batch_size: int = 1,
    ) -> Setup:
        """The detector that a self-aware one is for, by its name or in a TOML file; any other is refused here.

        A TOML file is one that the caller names with `detector`: what the self-aware file names is looked up among the
        detectors that come with the package, so that it cannot name code to run.
        """
        mine = aware.require_identity()
        if use_case is not None and (named := UseCase.load(use_case).name) != mine.use_case:
            raise SaodError(
                f"This self-aware detector is for the use case '{mine.use_case}', not '{named}': leave --use-case out, or "
                "give the file of a store of that use case."
            )
        ours = [] if detector else [registry.built_in(mine.use_case, mine.detector)]
        chosen = {entry.name: entry for entry in ours or registry.choose(mine.use_case, detector or "")}
        if mine.detector not in chosen:
            raise SaodError(
                f"This self-aware detector is for '{mine.detector}', not for {', '.join(chosen)}: leave --detector out, or "
                "give the file of that detector."
            )
        folder = registry.weights_folder(weights)
        entry = chosen[mine.detector]
        aware.refuse_other(registry.describe(entry, mine.classes, folder))
        return cls(aware, entry, folder, batch_size)

    def predictor(self) -> Predictor:
        """The detector, built on a GPU where there is one, and on one CPU thread, as the actors of a run have it."""
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        classes = self.aware.require_identity().classes
        built = registry.build(self.entry, classes, self.weights, device, self.batch_size, threads=1)
        return Predictor(self.aware, built, self.batch_size)


class Predictor:
    """A detector that is ready, and its self-aware part; another detector than the one that was fitted is refused."""

    def __init__(self, aware: SelfAware, detector: Detector, batch_size: int = 1) -> None:
        aware.refuse_other(detector.spec)
        self._aware, self._detector, self._batch_size = aware, detector, batch_size

    def verdicts(self, images: Sequence[Image]) -> list[Verdict]:
        """The verdicts on all images; one that cannot be read or detected on is an error."""
        found = []
        for number, image in enumerate(images):
            picture = PreparedImage(number, image) if isinstance(image, np.ndarray) else _read([str(image)])[0]
            (outcome,) = self.outcomes([str(number)], [picture])
            if outcome.verdict is None:
                raise SaodError(f"Number {number} of {len(images)} images: {outcome.error}")
            found.append(outcome.verdict)
        return found

    def outcomes(self, files: Sequence[str], pictures: Sequence[PreparedImage], draw: bool = False) -> list[Outcome]:
        """What comes of each file, whose pictures these are."""
        good = {k: each.pixels for k, each in enumerate(pictures) if each.pixels is not None}
        detected = dict(zip(good, outcomes(self._detector, list(good.values()), self._batch_size), strict=True))
        out = []
        for k, (file, picture) in enumerate(zip(files, pictures, strict=True)):
            found = detected.get(k, picture.error or "")
            if isinstance(found, str):
                out.append(Outcome(file, None, found))
                continue
            verdict = self._aware.apply(found, self._detector.spec.classes)
            out.append(Outcome(file, verdict, None, drawn(good[k], verdict) if draw else None))
        return out


def predicted(setup: Setup, files: Sequence[str], draw: bool) -> Iterator[Outcome]:
    """The outcomes in the order of the files, each as soon as it is there, in this process."""
    predictor = setup.predictor()
    for start in range(0, len(files), setup.batch_size):
        some = files[start : start + setup.batch_size]
        yield from predictor.outcomes(some, _read(some), draw)


def _read(files: Sequence[str]) -> list[PreparedImage]:
    options = PrepareOptions(str(Path.cwd()), is_any_path=True)
    return prepare(options, [ImageRequest(k, file) for k, file in enumerate(files)])
