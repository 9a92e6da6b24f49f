"""A self-aware detector: thresholds and calibrators that accept or reject an image and calibrate its detections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np

from saod_ray.config import DetectorSpec, ScoreSettings, base_fingerprint
from saod_ray.detect.detections import Detections
from saod_ray.errors import SaodError
from saod_ray.files import Folder, check_target
from saod_ray.score import uncertainty as unc
from saod_ray.score.calibrators import Calibrator, calibrated_scores
from saod_ray.score.split import SplitDetections
from saod_ray.score.uncertainty import Range
from saod_ray.score.verdicts import Verdict
from saod_ray.store.seals import KEY, encode_json, is_intact, sealed

Array = np.ndarray
FORMAT = 3  # of the JSON file
FORMAT_WITHOUT_DIGEST = 2  # the previous format, which is still read


class Identity(NamedTuple):
    """The detector whose detections were used for fitting.

    Without a `fingerprint`, `origin` says why: the detections were imported, or more than one version of the detector
    produced them.
    """

    detector: str
    use_case: str
    classes: tuple[str, ...]  # by label
    fingerprint: str | None
    origin: str  # run, import or mixed
    fitted_on: tuple[tuple[str, str], ...] = ()  # split and digest of its detections


class _FormatNumber(msgspec.Struct, frozen=True):
    """The part that every version of the file has."""

    format: int


class SelfAwareFile(_FormatNumber, frozen=True):
    """The JSON file.

    A detection threshold of null drops every detection of its class, and -1 drops none. A calibrator of null leaves scores
    unchanged.
    """

    detector: str
    fingerprint: str | None
    origin: str
    use_case: str
    classes: list[str]
    settings: dict[str, Any]
    image_threshold: float
    detection_thresholds: dict[str, float | None]
    calibrators: dict[str, Calibrator | None]
    ranges: Range | None
    fitted_on: dict[str, str] = {}
    digest: str = ""  # of all other keys


@dataclass(frozen=True)
class SelfAware:
    """Image threshold, detection thresholds and calibrators of one detector, by label.

    Args:
        settings: The settings it was fitted with.
        image_threshold: u-bar: images with a larger uncertainty are rejected.
        detection_thresholds: v-bar, (classes,) float64; NaN drops every detection of its class.
        calibrators: One per class; None leaves scores unchanged.
        ranges: Ranges of val's entropies, for the uncertainty `joint-entropy-normalised`.
        identity: The detector it was fitted for.
        has_digest: False if it was read from a file of an earlier version, in which changes go unnoticed.
    """

    settings: ScoreSettings
    image_threshold: float
    detection_thresholds: Array
    calibrators: list[Calibrator | None]
    ranges: Range | None = None
    identity: Identity | None = None
    has_digest: bool = True

    # fit, save, load --------------------------------------------------------------------------------------------

    @classmethod
    def fit(cls, store: str | Path, detector: str, partial: bool = False, **settings: Any) -> Self:
        """Fit to a detector of a store, as `saod-ray score STORE` does.

        Args:
            store: Folder or URI of the store.
            detector: Name of a detector in the store.
            partial: Accept a store in which images are missing.
            settings: Options of `saod-ray score`, with underscores.
        """
        from saod_ray.score.benchmark import Benchmark
        from saod_ray.store.store import Store

        opened = Store.open(str(store))
        (name,) = opened.choose([detector])
        benchmark = Benchmark(opened, ScoreSettings.from_options(**settings), partial)
        return cls.from_json(benchmark.score([name])[name].selfaware)

    def to_file(self) -> SelfAwareFile:
        """The content of the JSON file, with its digest."""
        identity = self.require_identity()
        values = [None if np.isnan(v) else float(v) for v in self.detection_thresholds]
        file = SelfAwareFile(
            format=FORMAT,
            detector=identity.detector,
            fingerprint=identity.fingerprint,
            origin=identity.origin,
            use_case=identity.use_case,
            classes=list(identity.classes),
            fitted_on=dict(identity.fitted_on),
            settings=self.settings.model_dump(mode="json"),
            image_threshold=self.image_threshold,
            detection_thresholds=dict(zip(identity.classes, values, strict=True)),
            calibrators=dict(zip(identity.classes, self.calibrators, strict=True)),
            ranges=self.ranges,
        )
        return msgspec.structs.replace(file, digest=sealed(msgspec.to_builtins(file))[KEY])

    def to_json(self) -> dict[str, Any]:
        """A JSON value that `from_json` reads."""
        value: dict[str, Any] = msgspec.to_builtins(self.to_file())
        return value

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Read a value of `to_json`, or a `SelfAwareFile`. SaodError says what is wrong with any other value."""
        file = value if isinstance(value, SelfAwareFile) else _convert(value)
        try:
            settings = ScoreSettings.from_options(**file.settings)
            v = [file.detection_thresholds[name] for name in file.classes]
            calibrators = [file.calibrators[name] for name in file.classes]
        except TypeError as error:
            raise SaodError(str(error)) from error
        except KeyError as error:
            raise SaodError(f"the class {error} has no threshold or no calibrator") from error
        if len(set(file.classes)) < len(file.classes):
            raise SaodError("it names a class twice")
        numbers = [file.image_threshold, *(limit for limit in v if limit is not None), *chain(*file.ranges or ())]
        if not np.isfinite(numbers).all():
            raise SaodError("a threshold or a range is not finite")
        if settings.uncertainty == "joint-entropy-normalised" and file.ranges is None:
            raise SaodError("it lacks the `ranges` that its uncertainty is normalised by")
        return cls(
            settings=settings,
            image_threshold=file.image_threshold,
            detection_thresholds=np.array([np.nan if limit is None else limit for limit in v], np.float64),
            calibrators=calibrators,
            ranges=file.ranges,
            identity=Identity(
                detector=file.detector,
                use_case=file.use_case,
                classes=tuple(file.classes),
                fingerprint=file.fingerprint,
                origin=file.origin,
                fitted_on=tuple(file.fitted_on.items()),
            ),
            has_digest=file.format == FORMAT,
        )

    def save(self, path: str | Path) -> None:
        """Write the file that `saod-ray score` writes. The write is atomic."""
        target = Path(path)
        check_target(target)
        Folder(str(target.parent)).put(target.name, encode_json(self.to_json()))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that `saod-ray score` or `save` wrote. Nothing in it is executed.

        A file that was changed since is refused. A file of an earlier version has no digest: `has_digest` is False.
        """
        try:
            value = msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Any])
            _refuse_changed(value)
            return cls.from_json(value)
        except FileNotFoundError as error:
            raise SaodError(f"There is no file {path}: `saod-ray score` writes it into the store.") from error
        except OSError as error:
            raise SaodError(
                f"{path} cannot be read ({error.strerror}): name a file that `saod-ray score` wrote."
            ) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, SaodError) as error:
            reason = str(error).rstrip(".")
            raise SaodError(
                f"{path} is not a self-aware detector that can be used ({reason}): score the store again."
            ) from error

    # apply ------------------------------------------------------------------------------------------------------

    def apply(self, detections: Detections, classes: Sequence[str] | None = None) -> Verdict:
        """Accept or reject one image, and threshold and calibrate its detections.

        `classes` are the names that labels index, if they are not the use case's classes in their order.
        """
        label = self._labels(detections, classes)
        score = np.asarray(detections.score).astype(np.float64)
        u = self.uncertainty(detections)
        accepted = bool(self.accepts(np.array([u]), np.array([u != unc.NO_DETECTION]))[0])
        keep = accepted & (score >= self.detection_thresholds[label])
        calibrated = calibrated_scores(label[keep], score[keep], self.calibrators)
        selected = Detections(label[keep], np.asarray(detections.box)[keep], calibrated)
        return Verdict(accepted, u, self.image_threshold, selected, self.require_identity().classes)

    def uncertainty(self, detections: Detections) -> float:
        """The image-level uncertainty of one image, bit for bit as scoring computes it from a shard."""
        # contiguous rows, as in shards: other memory layouts are summed in another order and round differently
        columns = {name: np.ascontiguousarray(value) for name, value in vars(detections).items() if value is not None}
        score = columns["score"].astype(np.float64)
        values = unc.per_detection(self.settings.uncertainty, columns, self.ranges) if len(score) else np.empty(0)
        offsets, limit = np.array([0, len(score)]), unc.smallest_count(self.settings.aggregate)
        if limit <= unc.CACHED_SMALLEST:
            sums, count = unc.smallest_sums(offsets, values, score)
        else:
            sums, count = unc.ascending_sums(offsets, values, score, limit)
        column = sums[:, limit - 1 if limit <= unc.CACHED_SMALLEST else 0]
        return float(unc.aggregate_sums(self.settings.aggregate, column, count)[0])

    def accepts(self, uncertainty: Array, detected: Array) -> Array:
        """A mask of the accepted images: those with a detection and an uncertainty below the threshold.

        An uncertainty equal to the threshold is accepted under the paper's conventions only.

        Args:
            uncertainty: (images,) float64.
            detected: (images,) bool, whether an image has any detection.
        """
        if self.settings.conventions == "paper":
            return detected & (uncertainty <= self.image_threshold)
        return detected & (uncertainty < self.image_threshold)

    def keeps(self, detections: SplitDetections, accepted: Array) -> Array:
        """A mask of the detections on accepted images that reach their class's threshold.

        `accepted` is a bool mask over all images of the source.
        """
        on_accepted = np.repeat(accepted[detections.images], np.diff(detections.offsets))
        mask: Array = on_accepted & (detections.score >= self.detection_thresholds[detections.label])
        return mask

    # identity ---------------------------------------------------------------------------------------------------

    def require_identity(self) -> Identity:
        """The detector it was fitted for; SaodError if that is unknown."""
        if self.identity is None:
            raise SaodError("This self-aware detector has no identity: fit it, load it, or give it an `identity`.")
        return self.identity

    def refuse_other(self, spec: DetectorSpec) -> None:
        """Raise SaodError unless this was fitted on detections of the detector `spec`."""
        identity = self.require_identity()
        if identity.fingerprint is None:
            origins = {"import": "imported detections", "mixed": "detections of which some were imported"}
            raise SaodError(
                f"This self-aware detector of '{identity.detector}' was fitted on "
                f"{origins.get(identity.origin, identity.origin)}, which do not name the weights: run the detector with "
                "`saod-ray run` and take the file from that store, or pass detections to `SelfAware.apply`."
            )
        if spec.fingerprint != base_fingerprint(identity.fingerprint):
            raise SaodError(
                f"This self-aware detector is for '{identity.detector}' with fingerprint {identity.fingerprint}, not for "
                f"'{spec.name}' with {spec.fingerprint}: use the weights, config and options that it was fitted with, or "
                "run and score the detector that you have."
            )

    def _labels(self, detections: Detections, classes: Sequence[str] | None) -> Array:
        """Labels as indices of the use case's classes."""
        own_classes = self.require_identity().classes
        detector_classes = own_classes if classes is None else classes
        label = np.asarray(detections.label)
        if not np.isin(label, range(len(detector_classes))).all():
            raise SaodError(f"A label is negative or not below {len(detector_classes)}: pass the detector's `classes`.")
        if set(detector_classes) != set(own_classes):
            raise SaodError(
                "The classes of these detections differ from those of the self-aware detector: use the same names."
            )
        number = {name: number for number, name in enumerate(own_classes)}
        translated: Array = np.array([number[name] for name in detector_classes], np.int16)[label]
        return translated


def _refuse_changed(value: dict[str, Any]) -> None:
    """Refuse a file that was changed. A file without a digest must be of the format that had none."""
    keys = {field.name for field in msgspec.structs.fields(SelfAwareFile)} - {"digest", "fitted_on"}
    if not (set(value) == keys if value.get("format") == FORMAT_WITHOUT_DIGEST else is_intact(value)):
        raise SaodError("it is damaged or was changed since it was written")


def _convert(value: Any) -> SelfAwareFile:
    """A JSON value as a file of a format that is known."""
    try:
        number = msgspec.convert(value, _FormatNumber).format
        if number in (FORMAT, FORMAT_WITHOUT_DIGEST):
            return msgspec.convert(value, SelfAwareFile)
    except msgspec.ValidationError as error:
        raise SaodError(str(error)) from error
    raise SaodError(f"it has format {number}, and this version reads format {FORMAT}")
