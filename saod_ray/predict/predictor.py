"""A detector together with its self-aware part: files or pixels in, verdicts out."""

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
from saod_ray.predict.drawing import draw_verdict
from saod_ray.score.self_aware import SelfAware
from saod_ray.score.verdicts import Verdict

Image = str | Path | np.ndarray


class Prediction(NamedTuple):
    """The verdict on a file, or the reason why there is none."""

    file: str
    verdict: Verdict | None
    error: str | None = None
    picture: bytes | None = None  # a JPEG of the verdict, if requested

    def to_json(self) -> dict[str, Any]:
        """The prediction as a JSON value."""
        content = self.verdict.to_json() if self.verdict is not None else {"error": self.error}
        return {"image": self.file, **content}


@dataclass(frozen=True)
class PredictorConfig:
    """Everything that a process needs to build the predictor."""

    self_aware: SelfAware
    entry: Entry
    weights: Path
    batch_size: int = 1  # in larger batches the last bits of a detection depend on the images beside it

    @classmethod
    def from_self_aware(
        cls,
        self_aware: SelfAware,
        detector: str | None = None,
        *,
        use_case: str | None = None,
        weights: str | Path | None = None,
        batch_size: int = 1,
    ) -> PredictorConfig:
        """The configuration of the detector that `self_aware` was fitted for.

        `detector` is a name or a TOML file. Only the caller can name a TOML file: the name in a self-aware file is
        looked up among the built-in detectors, so that such a file cannot name code to run.

        Raises SaodError for another detector, other weights or another use case than those of the fit.
        """
        identity = self_aware.require_identity()
        if use_case is not None and (requested := UseCase.load(use_case).name) != identity.use_case:
            raise SaodError(
                f"This self-aware detector is for the use case '{identity.use_case}', not '{requested}': leave --use-case "
                "out, or give the file of a store of that use case."
            )
        built_in = [] if detector else [registry.built_in(identity.use_case, identity.detector)]
        chosen = built_in or registry.choose(identity.use_case, detector or "", "--detector")
        entries = {entry.name: entry for entry in chosen}
        if identity.detector not in entries:
            raise SaodError(
                f"This self-aware detector is for '{identity.detector}', not for {', '.join(entries)}: leave --detector "
                "out, or give the file of that detector."
            )
        folder = registry.weights_folder(weights)
        entry = entries[identity.detector]
        self_aware.refuse_other(registry.describe(entry, identity.classes, folder))
        return cls(self_aware, entry, folder, batch_size)

    def build(self) -> Predictor:
        """Build the detector on a GPU if there is one, else on one CPU thread, as the actors of a run do."""
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        classes = self.self_aware.require_identity().classes
        detector = registry.build(self.entry, classes, self.weights, device, self.batch_size, threads=1)
        return Predictor(self.self_aware, detector, self.batch_size)


class Predictor:
    """A detector that is ready to run, and its self-aware part.

    Raises SaodError for another detector than the one that the self-aware part was fitted for.
    """

    def __init__(self, self_aware: SelfAware, detector: Detector, batch_size: int = 1) -> None:
        self_aware.refuse_other(detector.spec)
        self._self_aware, self._detector, self._batch_size = self_aware, detector, batch_size

    def verdicts(self, images: Sequence[Image]) -> list[Verdict]:
        """One verdict per image: files, or (h, w, 3) uint8 RGB arrays.

        Raises SaodError for an image that cannot be read or detected on.
        """
        verdicts = []
        for number, image in enumerate(images):
            prepared = PreparedImage(number, image) if isinstance(image, np.ndarray) else _read([str(image)])[0]
            (prediction,) = self.predict([str(number)], [prepared])
            if prediction.verdict is None:
                raise SaodError(f"Number {number} of {len(images)} images: {prediction.error}")
            verdicts.append(prediction.verdict)
        return verdicts

    def predict(self, files: Sequence[str], images: Sequence[PreparedImage], *, draw: bool = False) -> list[Prediction]:
        """One prediction per file; `images` are the prepared images of the files."""
        pixels = {k: image.pixels for k, image in enumerate(images) if image.pixels is not None}
        detected = dict(zip(pixels, outcomes(self._detector, list(pixels.values()), self._batch_size), strict=True))
        predictions = []
        for k, (file, image) in enumerate(zip(files, images, strict=True)):
            outcome = detected.get(k, image.error or "")
            if isinstance(outcome, str):
                predictions.append(Prediction(file, None, outcome))
                continue
            verdict = self._self_aware.apply(outcome, self._detector.spec.classes)
            picture = draw_verdict(pixels[k], verdict) if draw else None
            predictions.append(Prediction(file, verdict, None, picture))
        return predictions


def predict_files(config: PredictorConfig, files: Sequence[str], *, draw: bool) -> Iterator[Prediction]:
    """Predict in this process, batch by batch, and yield the predictions in the order of the files."""
    predictor = config.build()
    for start in range(0, len(files), config.batch_size):
        batch = files[start : start + config.batch_size]
        yield from predictor.predict(batch, _read(batch), draw=draw)


def _read(files: Sequence[str]) -> list[PreparedImage]:
    options = PrepareOptions(str(Path.cwd()), is_any_path=True)
    return prepare(options, [ImageRequest(k, file) for k, file in enumerate(files)])
