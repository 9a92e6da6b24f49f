"""A self-aware detector: what turns raw detections into "accepted, and calibrated" or "rejected"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec
import numpy as np

from saod_ray.config import DetectorSpec, ScoreSettings, base_fingerprint
from saod_ray.detect.detections import Detections, Detector
from saod_ray.errors import SaodError
from saod_ray.files import Folder, check_target
from saod_ray.predict.verdicts import Verdict
from saod_ray.score import calibrators, thresholds
from saod_ray.score import uncertainty as unc
from saod_ray.score.calibrators import Calibrator
from saod_ray.score.lrp import optimal_thresholds
from saod_ray.score.matching import FP, TP, greedy, zero_id_rule
from saod_ray.score.objects import GroundTruth
from saod_ray.score.order import class_order
from saod_ray.score.split import SplitDetections
from saod_ray.score.uncertainty import Range
from saod_ray.store.seals import KEY, is_intact, sealed

if TYPE_CHECKING:
    from saod_ray.predict.predictor import Image

Array = np.ndarray
FIT_TAU = 0.1  # the published evaluation's IoU for v, whatever tau is
FORMAT = 3  # of the JSON form
WITHOUT_DIGEST = 2  # the format before it


class Identity(NamedTuple):
    """Which detector a self-aware one is for; without a fingerprint `origin` says why: its detections were imported, or
    made by more than one version of it."""

    detector: str
    use_case: str
    classes: tuple[str, ...]  # by label
    fingerprint: str | None
    origin: str  # run, import or mixed
    fitted_on: tuple[tuple[str, str], ...] = ()  # split and digest of its detections


class _Head(msgspec.Struct, frozen=True):
    """What every version of the JSON form has."""

    format: int


class SelfAwareFile(_Head, frozen=True):
    """The JSON form. A threshold of null keeps nothing of its class, -1 everything; null calibrates nothing."""

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
    digest: str = ""  # of all the rest


def _refuse_changed(value: dict[str, Any]) -> None:
    """Refuse a file that is not what was written; one of the format before digests has none of their keys."""
    keys = {field.name for field in msgspec.structs.fields(SelfAwareFile)} - {"digest", "fitted_on"}
    if not (set(value) == keys if value.get("format") == WITHOUT_DIGEST else is_intact(value)):
        raise SaodError("it is damaged or was changed since it was written")


@dataclass(frozen=True)
class SelfAware:
    """Image threshold, detection thresholds and calibrators of one detector, by label."""

    settings: ScoreSettings
    image_threshold: float
    detection_thresholds: Array
    calibrators: list[Calibrator | None]
    ranges: Range | None = None  # of val's entropies, where the uncertainty is normalised by them
    identity: Identity | None = None  # whose it is, where that is known
    has_digest: bool = True  # not so for a file of an earlier version, which may have been changed

    # made and kept --------------------------------------------------------------------------------------------

    @classmethod
    def fit(cls, store: str | Path, detector: str, partial: bool = False, **settings: Any) -> SelfAware:
        """What `saod-ray score STORE` writes for a detector; `settings` are that command's options, as in config.py."""
        from saod_ray.score.benchmark import Benchmark
        from saod_ray.store.store import Store

        opened = Store.open(str(store))
        (name,) = opened.choose([detector])
        return cls.of_json(Benchmark(opened, ScoreSettings.of(**settings), partial).score([name])[name].selfaware)

    def to_file(self) -> SelfAwareFile:
        """What `save` writes and `load` reads."""
        identity = self._known()
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
        """A JSON value that `of_json` reads."""
        value: dict[str, Any] = msgspec.to_builtins(self.to_file())
        return value

    @classmethod
    def of_json(cls, value: Any) -> SelfAware:
        """What `to_json` gave; anything else is refused with what is wrong about it."""
        try:
            number = value.format if isinstance(value, SelfAwareFile) else msgspec.convert(value, _Head).format
            if number not in (FORMAT, WITHOUT_DIGEST):
                raise SaodError(f"it is of format {number}, and format {FORMAT} is what is read here")
            file = value if isinstance(value, SelfAwareFile) else msgspec.convert(value, SelfAwareFile)
            settings = ScoreSettings.of(**file.settings)
            v = [file.detection_thresholds[name] for name in file.classes]
            functions = [file.calibrators[name] for name in file.classes]
        except (msgspec.ValidationError, TypeError) as error:
            raise SaodError(str(error)) from None
        except KeyError as error:
            raise SaodError(f"it says nothing of the class {error}") from None
        if len(set(file.classes)) < len(file.classes):
            raise SaodError("it names a class twice")
        numbers = [file.image_threshold, *(each for each in v if each is not None), *chain(*file.ranges or ())]
        if not np.isfinite(numbers).all():
            raise SaodError("a threshold or a range is not finite")
        if settings.uncertainty == "joint-entropy-normalised" and file.ranges is None:
            raise SaodError("it lacks the `ranges` that its uncertainty is normalised by")
        source = tuple(file.fitted_on.items())
        whose = Identity(file.detector, file.use_case, tuple(file.classes), file.fingerprint, file.origin, source)
        limits = np.array([np.nan if each is None else each for each in v], np.float64)
        return cls(settings, file.image_threshold, limits, functions, file.ranges, whose, number == FORMAT)

    def save(self, path: str | Path) -> None:
        """Write it as `saod-ray score` does, all of it or nothing."""
        from saod_ray.report.results import encoded

        target = Path(path)
        check_target(target)
        Folder(str(target.parent)).put(target.name, encoded(self.to_json()))

    @classmethod
    def load(cls, path: str | Path) -> SelfAware:
        """Read a file that `score` or `save` wrote; nothing in it is executed.

        A file that was changed since is refused. One of an earlier version has no digest, and `has_digest` says so.
        """
        try:
            value = msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Any])
            _refuse_changed(value)
            return cls.of_json(value)
        except FileNotFoundError:
            raise SaodError(f"There is no file {path}: `saod-ray score` writes it into the store.") from None
        except OSError as error:
            raise SaodError(
                f"{path} cannot be read ({error.strerror}): name a file that `saod-ray score` wrote."
            ) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, SaodError) as error:
            reason = str(error).rstrip(".")
            raise SaodError(
                f"{path} is not a self-aware detector that can be used ({reason}): score the store again."
            ) from None

    # applied --------------------------------------------------------------------------------------------------

    def apply(self, found: Detections, classes: Sequence[str] | None = None) -> Verdict:
        """The verdict on one image. `classes` are those that labels are indices of, where not the use case's own."""
        label = self._labels(found, classes)
        score = np.asarray(found.score).astype(np.float64)
        u = self.uncertainty(found)
        accepted = bool(self.accepts(np.array([u]), np.array([u != unc.NO_DETECTION]))[0])
        kept = accepted & (score >= self.detection_thresholds[label])
        sure = calibrated_scores(label[kept], score[kept], self.calibrators)
        said = Detections(label[kept], np.asarray(found.box)[kept], sure)
        return Verdict(accepted, u, self.image_threshold, said, self._known().classes)

    def uncertainty(self, found: Detections) -> float:
        """The image-level uncertainty, to the last bit as scoring computes it from a shard."""
        # rows one after the other, as shards have them: sums over other layouts are rounded in another order
        given = {name: np.ascontiguousarray(value) for name, value in vars(found).items() if value is not None}
        score = given["score"].astype(np.float64)
        values = unc.per_detection(self.settings.uncertainty, given, self.ranges) if len(score) else np.empty(0)
        offsets, many = np.array([0, len(score)]), unc.used_of(self.settings.aggregate)
        if many <= unc.KEPT:
            sums, count = unc.smallest_sums(offsets, values, score)
        else:
            sums, count = unc.ascending_sums(offsets, values, score, many)
        column = sums[:, many - 1 if many <= unc.KEPT else 0]
        return float(unc.aggregated(self.settings.aggregate, column, count)[0])

    def predict(self, images: Image | Sequence[Image], detector: Detector | None = None) -> list[Verdict]:
        """The verdicts on images: files, or RGB arrays; a single one is a list of one.

        Without a detector, that which this one was fitted for is built.

        Refuses a detector with other weights, config or classes.
        """
        from saod_ray.predict.predictor import Predictor, PredictorConfig

        is_single = isinstance(images, str | Path) or (isinstance(images, np.ndarray) and images.ndim <= 3)
        listed = cast("Sequence[Image]", [images] if is_single else images)
        predictor = PredictorConfig.from_self_aware(self).build() if detector is None else Predictor(self, detector)
        return predictor.verdicts(listed)

    def refuse_other(self, spec: DetectorSpec) -> None:
        """Refuse a detector that is not the one whose detections this was fitted on."""
        mine = self._known()
        if mine.fingerprint is None:
            what = {"import": "imported detections", "mixed": "detections of which some were imported"}
            raise SaodError(
                f"This self-aware detector of '{mine.detector}' was fitted on {what.get(mine.origin, mine.origin)}, so "
                "that nothing says which weights it is for: run the detector with `saod-ray run` and take the file "
                "from that store, or give detections to `SelfAware.apply`."
            )
        if spec.fingerprint != base_fingerprint(mine.fingerprint):
            raise SaodError(
                f"This self-aware detector is for '{mine.detector}' with fingerprint {mine.fingerprint}, not for "
                f"'{spec.name}' with {spec.fingerprint}: use the weights, config and options that it was fitted with, or "
                "run and score the detector that you have."
            )

    def _known(self) -> Identity:
        if self.identity is None:
            raise SaodError("Nothing says whose this self-aware detector is: fit or load it, or give it an identity.")
        return self.identity

    def _labels(self, found: Detections, classes: Sequence[str] | None) -> Array:
        """Labels by the use case's classes."""
        mine = self._known().classes
        given = mine if classes is None else classes
        label = np.asarray(found.label)
        if not np.isin(label, range(len(given))).all():
            raise SaodError(f"There is a label that is not below {len(given)}: give `classes`, those of the detector.")
        order = {name: number for number, name in enumerate(mine)}
        if set(given) != set(mine):
            raise SaodError("These detections are of other classes than the self-aware detector's: name them alike.")
        translated: Array = np.array([order[name] for name in given], np.int16)[label]
        return translated

    def accepts(self, uncertainty: Array, detected: Array) -> Array:
        """Which images are accepted: those with a detection and an uncertainty below the threshold.

        At the threshold itself an image is accepted under the paper's conventions alone.
        """
        if self.settings.conventions == "paper":
            return detected & (uncertainty <= self.image_threshold)
        return detected & (uncertainty < self.image_threshold)

    def keeps(self, split: SplitDetections, accepted: Array) -> Array:
        """A mask of the detections that reach their class's threshold on accepted images (a mask by position)."""
        on_accepted = np.repeat(accepted[split.images], np.diff(split.offsets))
        mask: Array = on_accepted & (split.score >= self.detection_thresholds[split.label])
        return mask


def calibrated(split: SplitDetections, functions: list[Calibrator | None]) -> SplitDetections:
    """The same detections with each class's calibrator applied to its scores."""
    return split.with_score(calibrated_scores(split.label, split.score, functions))


def calibrated_scores(label: Array, score: Array, functions: list[Calibrator | None]) -> Array:
    """Scores after each class's calibrator."""
    score = score.copy()
    order = np.argsort(label, kind="stable")
    starts = np.searchsorted(label[order], np.arange(len(functions) + 1))
    for number, function in enumerate(functions):
        mine = order[starts[number] : starts[number + 1]]
        if function is not None and len(mine):
            score[mine] = function(score[mine])
    return score


def image_threshold(inside: Array, outside: Array, rule: str) -> float:
    """u from the uncertainties of pseudo-ID and pseudo-OOD images; the latter are looked at by one rule only."""
    if rule == "pseudo-ood":
        return thresholds.pseudo_ood_threshold(inside, outside)
    if rule.startswith("tpr-"):
        return thresholds.tpr_threshold(inside, float(rule.removeprefix("tpr-")))
    return float(rule)


def detection_thresholds(pseudo_id: SplitDetections, objects: GroundTruth, settings: ScoreSettings) -> Array:
    """v per class from raw detections on pseudo-ID images."""
    if settings.detection_threshold != "lrp":
        return np.full(objects.classes, float(settings.detection_threshold))
    paper = settings.conventions == "paper"
    tau = settings.tau if paper else FIT_TAU
    matches = greedy(pseudo_id, objects, tau, zero_id_misses=zero_id_rule(settings.conventions))
    return optimal_thresholds(pseudo_id.label, pseudo_id.score, matches, objects.counts(pseudo_id.images), tau)


def fit_calibrators(
    pseudo_id: SplitDetections,
    objects: GroundTruth,
    v: Array,
    settings: ScoreSettings,
    tau: float,
    after_paper: bool = False,
) -> list[Calibrator | None]:
    """One calibrator a class from the detections that survive v; no image is rejected.

    `after_paper` fits the variants of Kuzucu et al.: isotonic regression clips, a line does not fall.
    """
    paper = settings.conventions == "paper"
    limit = v[pseudo_id.label]
    kept = pseudo_id.select(pseudo_id.score >= limit if paper else ~(pseudo_id.score < limit))
    misses = not after_paper and zero_id_rule(settings.conventions)
    matches = greedy(kept, objects, tau, zero_id_misses=misses)
    order, start = class_order(kept.label, kept.score, objects.classes)
    known = objects.counts(kept.images) > 0
    fitted: list[Calibrator | None] = []
    for label in range(objects.classes):
        mine = order[start[label] : start[label + 1]]
        mine = mine[(matches.state[mine] == TP) | (matches.state[mine] == FP)] if known[label] else mine[:0]
        pairs = kept.score[mine], matches.iou[mine]
        clip = paper or after_paper
        fitted.append(calibrators.fit(settings.calibrator, *pairs, settings.bins, clip=clip, rising=after_paper))
    return fitted
