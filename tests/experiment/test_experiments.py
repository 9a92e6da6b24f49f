"""Experiments on small random stores: against loops over the same detections, and as files, commands and a section."""

from __future__ import annotations

import csv
import io
import json
import shutil
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from conftest import saod_ray
from experiment_stores import two_detectors, with_columns

from saod_ray.config import ScoreSettings, UseCase
from saod_ray.engine.plan import PlanOptions, ShardInputs, make_plan
from saod_ray.errors import SaodError
from saod_ray.experiment import NAMES, all_experiments, find, paper
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Outcome, perform, read_outcome
from saod_ray.experiment.render import stored_experiments
from saod_ray.report import page
from saod_ray.report.data import gather
from saod_ray.report.figures import initial_choice
from saod_ray.score.lrp import best_prefix
from saod_ray.score.matching import greedy
from saod_ray.score.order import class_order
from saod_ray.store import ledger
from saod_ray.store.coco_import import import_results
from saod_ray.store.ledger import Origin
from saod_ray.store.rows import Rows
from saod_ray.store.store import Store
from saod_ray.store.units import RUN
from saod_ray.store.verify import verify


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A use case, and a store with a plain detector `atss` and one `nll-rcnn` that has every column."""
    return two_detectors(tmp_path_factory.mktemp("case"))


@pytest.fixture
def context(folder: Path, tmp_path: Path) -> ExperimentContext:
    shutil.copytree(folder / "store", tmp_path / "store")
    return ExperimentContext(Store.open(str(tmp_path / "store")), ScoreSettings(), ["atss", "nll-rcnn"])


# AUROC by loops ----------------------------------------------------------------------------------------------------


def detection_values(
    context: ExperimentContext, kind: str, rows: Rows, ranges: dict[str, tuple[float, float]]
) -> list[float]:
    """The uncertainty of each detection, in plain numbers."""
    out = []
    for k in range(rows.detections):
        cell = {name: np.float64(values[k]) for name, values in rows.columns.items()}
        variance = cell.get("variance")
        h_box = 0.0 if variance is None else 2 + 2 * np.log(2 * np.pi) + sum(np.log(variance)) / 2
        h_class = cell["entropy"]
        low, high = ranges.get("class", (0.0, 1.0))
        low_box, high_box = ranges.get("box", (0.0, 1.0))
        out.append(
            {
                "score": lambda c=cell: 1 - c["score"],
                "entropy": lambda h=h_class: h,
                "ds": lambda c=cell: c["ds"],
                "avg-entropy": lambda c=cell: c["avg_entropy"],
                "max-class-entropy": lambda c=cell: c["max_class_entropy"],
                "determinant": lambda v=variance: v[0] * v[1] * v[2] * v[3],
                "trace": lambda v=variance: sum(v),
                "gaussian-entropy": lambda h=h_box: h,
                "joint-entropy": lambda a=h_class, b=h_box: a + b,
                "joint-entropy-balanced": lambda a=h_class, b=h_box: 4 * a + b,
                "joint-entropy-normalised": lambda a=h_class, b=h_box, low=low, high=high, low_box=low_box, high_box=high_box: (
                    (a - low) / (high - low) + (b - low_box) / (high_box - low_box)
                ),
            }[kind]()
        )
    return [float(value) for value in out]


def aggregated(values: list[float], aggregate: str) -> float:
    if not values:
        return 1e12
    if aggregate in ("sum", "mean"):
        return sum(values) / (len(values) if aggregate == "mean" else 1)
    count = 1 if aggregate == "min" else int(aggregate[4:])
    smallest = sorted(values)[:count]
    return sum(smallest) / len(smallest)


def slow_auroc(context: ExperimentContext, detector: str, kind: str, aggregate: str = "top-3") -> float:
    store = context.store
    rows = {
        split: store.read_shard(detector, split, store.shards(detector, split)[0]) for split in ("val", "id", "ood")
    }
    ranges: dict[str, tuple[float, float]] = {}
    if "variance" in rows["val"].columns:
        for name, of in (("class", "entropy"), ("box", "gaussian-entropy")):
            values = detection_values(context, of, rows["val"], {})
            ranges[name] = (min(values), max(values))
    images = {}
    for split in ("id", "ood"):
        values = detection_values(context, kind, rows[split], ranges)
        offsets = rows[split].offsets
        images[split] = [aggregated(values[a:b], aggregate) for a, b in pairwise(offsets)]
    pairs = list(product(images["id"], images["ood"]))
    return sum(1.0 if a < b else 0.5 if a == b else 0.0 for a, b in pairs) / len(pairs)


@pytest.mark.parametrize("detector", ["atss", "nll-rcnn"])
def test_aurocs_are_those_of_a_loop_over_pairs_of_images(context, detector) -> None:
    from saod_ray.experiment import combined, sigmoid_entropy, uncertainty

    compared = 0
    for module in (uncertainty, sigmoid_entropy, combined):
        outcome = perform(module.EXPERIMENT, context)
        for row in [row for row in outcome.rows if row.headers[0] == detector]:
            kinds = [module.KINDS[row.headers[1]]] if len(row.headers) > 1 else list(module.KINDS.values())
            for kind, value in zip(kinds, row.values, strict=True):
                if kind in ("score", "entropy", "ds") or detector == "nll-rcnn":
                    assert value == pytest.approx(slow_auroc(context, detector, kind), abs=1e-9), (module, kind)
                    compared += 1
                else:
                    assert value is None
    assert compared == {"atss": 3, "nll-rcnn": 6 + 3 + 5}[detector]


def test_aggregations_are_those_of_a_loop(context) -> None:
    outcome = perform(find("aggregation"), context)
    assert [row.headers for row in outcome.rows] == [
        ("atss", "score"),
        ("nll-rcnn", "score"),
        ("nll-rcnn", "determinant"),
    ]
    for row in outcome.rows:
        for column, value in zip(outcome.columns, row.values, strict=True):
            assert value == pytest.approx(slow_auroc(context, *row.headers, column.title), abs=1e-9)


def test_no_sigmoid_and_no_probabilistic_detector_is_refused_with_what_is_needed(context) -> None:
    alone = ExperimentContext(context.store, context.settings, ["atss"])
    for name, needed in (("sigmoid-entropy", "sigmoid-based detector"), ("combined", "probabilistic detector")):
        with pytest.raises(SaodError, match=needed):
            perform(find(name), alone)
        assert read_outcome(context.store, name) is None


def test_subsets_are_pooled_into_all(context) -> None:
    outcome = perform(find("ood-subsets"), context)
    assert [column.title for column in outcome.columns] == ["far", "all OOD"]
    for row in outcome.rows:
        assert row.values[0] == row.values[1] == context.result(row.headers[0]).ood.auroc


# thresholds and bins -----------------------------------------------------------------------------------------------


def test_the_rules_for_u_are_those_of_a_scoring(context) -> None:
    outcome = perform(find("image-threshold"), context)
    for detector in context.detectors:
        _, inside = context.uncertainty(detector, "val")
        annotated = context.ground_truth("val").annotated()
        u = sorted(inside[annotated[context.uncertainty(detector, "val")[0]]])[int(0.95 * annotated.sum())]
        assert context.self_aware(detector, image_threshold="tpr-0.95").image_threshold == u
        for rule, title in (("tpr-0.95", "TPR@0.95"), ("pseudo-ood", "pseudo-OOD")):
            rates = context.result(detector, image_threshold=rule).ood
            cells = [outcome.cell(detector, title, column=name) for name in ("BA", "TPR", "TNR")]
            assert cells == [rates.ba, rates.tpr, rates.tnr] and None not in cells


def test_the_oracle_is_optimal_on_the_id_images(context) -> None:
    outcome = perform(find("oracle"), context)
    objects, raw = context.ground_truth("id"), context.raw_detections("atss", "id")
    matches = greedy(raw, objects, 0.1, zero_id_misses=True)
    counts = objects.counts(raw.images)
    best = best_prefix(*class_order(raw.label, raw.score, objects.classes), matches.state, matches.iou, counts, 0.1)
    for label, name in enumerate(context.classes):
        v, oracle, gap = (outcome.cell("atss", name, column=title) for title in ("v on val", "v on ID", "difference"))
        assert oracle == (raw.score[best.last[label]] if best.any_tp[label] and counts[label] else None)
        assert gap == (None if None in (v, oracle) else pytest.approx(abs(v - oracle)))
    assert any(gap is not None for gap in outcome.column("difference"))


def test_bins_hold_every_image_once(context) -> None:
    outcome = perform(find("reliability"), context)
    shares = [row for row in outcome.rows if row.headers[2] == "images"]
    assert {row.headers[1] for row in shares} == {"id", "id-c1", "id-c3", "id-c5", "ood"}
    for row in shares:
        assert sum(row.values) == pytest.approx(1)
        _, values = context.uncertainty(*row.headers[:2])
        first = np.mean((values >= 0) & (values < 0.1))
        assert row.values[0] == pytest.approx(first)
    assert set(outcome.charts) == {"uncertainty", "reliability-before", "reliability-after"}


def test_components_and_improvements_are_what_a_scoring_gives(context) -> None:
    outcome = perform(find("components"), context)
    result = context.result("atss")
    assert outcome.cell("atss", column="DAQ") == result.daq is not None
    assert outcome.cell("atss", column="FN_T") == result.shift.lrp_fn is not None
    with pytest.raises(SaodError, match="f-rcnn-short"):
        perform(find("improvements"), context)


# files -------------------------------------------------------------------------------------------------------------


def forbidden(context: ExperimentContext) -> Any:
    raise AssertionError("computed again")


def test_an_up_to_date_outcome_is_read_and_not_computed(context) -> None:
    experiment = find("ood-subsets")
    outcome = perform(experiment, context)
    lazy = replace(experiment, rows=forbidden)
    again = ExperimentContext(context.store, context.settings, context.detectors)
    assert perform(lazy, again) == outcome
    for other in (
        ExperimentContext(context.store, ScoreSettings(aggregate="min"), context.detectors),
        ExperimentContext(context.store, context.settings, ["atss"]),
    ):
        with pytest.raises(AssertionError):
            perform(lazy, other)
    path = Path(context.store.folder.path("experiments/ood-subsets.json"))
    text = path.read_bytes()
    path.write_bytes(text[:-20])
    assert perform(experiment, again) == outcome and path.read_bytes() == text
    with_columns(Store(context.store.uri), "atss", ("avg_entropy",), seed=1)
    with pytest.raises(AssertionError):
        perform(lazy, ExperimentContext(Store(context.store.uri), context.settings, context.detectors))


def test_files_are_the_same_bytes_in_another_store(context, folder, tmp_path) -> None:
    shutil.copytree(folder / "store", tmp_path / "other")
    other = ExperimentContext(Store.open(str(tmp_path / "other")), ScoreSettings(), ["atss", "nll-rcnn"])
    for name in ("uncertainty", "oracle", "reliability"):
        assert perform(find(name), context).json() == perform(find(name), other).json()
        assert json.loads(perform(find(name), context).json())["format"] == 2


def test_the_papers_tables_fit_the_experiments(context) -> None:
    """Every row of the package's data has the headers and columns of the experiment."""
    from saod_ray.detect import registry

    for experiment in all_experiments():
        for use_case in ("gen", "av"):
            detectors = {entry.name for entry in registry.all_entries(use_case)}
            for headers, values in paper.table(experiment.name, use_case).items():
                assert len(headers) == len(experiment.headers) and headers[0] in detectors, (experiment.name, headers)
                if not callable(experiment.columns):
                    assert set(values) <= {column.title for column in experiment.columns}, experiment.name
    assert paper.columns("ood-subsets", "gen") == ["objects365", "inaturalist", "svhn", "all OOD"]
    assert paper.table("components", "gen")[("d-detr",)]["DAQ"] == 43.5
    assert paper.table("uncertainty", "gen")[("atss",)]["trace"] is None


# corrupted copies of val -------------------------------------------------------------------------------------------


def test_corrupted_copies_of_val_count_for_accuracy_alone(folder, tmp_path) -> None:
    shutil.copytree(folder / "store", tmp_path / "store")
    uri = str(tmp_path / "store")
    assert saod_ray("score", uri).returncode == 0
    before = (tmp_path / "store" / "results.json").read_bytes()
    case = UseCase.load(folder / "use-case.toml")
    import_results(uri, case, "atss", "val-c1", folder / "val.detections.json")
    store = Store.open(uri)
    assert store.extra_splits("atss") == ["val-c1"] and "val-c1" not in store.splits
    assert saod_ray("score", uri).returncode == 0
    assert (tmp_path / "store" / "results.json").read_bytes() == before
    outcome = perform(find("accuracy"), ExperimentContext(store, ScoreSettings(), ["atss", "nll-rcnn"]))
    titles = [column.title for column in outcome.columns]
    assert titles == ["val", "val-c1", "val-c3", "val-c5", "id", "id-c1", "id-c3", "id-c5"]
    assert outcome.cell("atss", column="val-c1") == outcome.cell("atss", column="val") is not None
    assert outcome.cell("atss", column="val-c3") is outcome.cell("nll-rcnn", column="val-c1") is None
    assert not verify(store, store.detectors()).problems
    listed = store.pages("atss", "val-c1")[0]
    ledger.write_page(store.folder, msgspec.structs.replace(listed, origin=Origin(RUN, "other weights", "0")))
    again = perform(find("accuracy"), ExperimentContext(store, ScoreSettings(bins=9), ["atss"]))
    assert again.cell("atss", column="val-c1") is None
    ledger.write_page(store.folder, listed)
    exported = tmp_path / "out.json"
    assert saod_ray("export", uri, "--detector", "atss", "--split", "val-c1", "--out", exported).returncode == 0
    assert len(json.loads(exported.read_text())) == len(json.loads((folder / "val.detections.json").read_text()))


def test_a_run_plans_corrupted_copies_of_val_where_asked(folder, tmp_path) -> None:
    from saod_ray.config import DetectorSpec

    store = Store.open_or_create(str(tmp_path / "empty"), UseCase.load(folder / "use-case.toml"))
    spec = DetectorSpec(name="a", classes=tuple(store.description.classes), fingerprint="f")
    plain, more = (
        make_plan(ShardInputs(store, 0), [spec], options=PlanOptions(val_shift=flag)) for flag in (False, True)
    )
    added = [planned.unit for planned in more.units if planned not in plain.units]
    assert [(unit.split, unit.severity) for unit in added] == [("val-c1", 1), ("val-c3", 3), ("val-c5", 5)]
    keys = {ShardInputs(store, seed).key("f", unit) for unit in added for seed in (0, 1)}
    assert len(keys) == 6  # the draw's seed is in them


# commands and the report -------------------------------------------------------------------------------------------


def test_list_names_all_in_the_papers_order() -> None:
    result = saod_ray("experiment", "list", "--json")
    listed = json.loads(result.stdout)
    assert [entry["name"] for entry in listed] == list(NAMES) and len(NAMES) == 17
    for entry in listed:
        assert entry["shows"] and entry["needs"].endswith(".") and entry["paper"][:3] in ("Tab", "Fig")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("agregation", "x"), "did you mean 'aggregation'?"),
        (("tau",), "saod-ray experiment tau STORE"),
        (("tau", "nowhere"), "There is no store at nowhere"),
        (("all", "x", "--csv", "a.csv"), "name one experiment"),
    ],
)
def test_mistakes_are_one_sentence(arguments, message, tmp_path) -> None:
    result = saod_ray("experiment", *arguments, cwd=tmp_path)
    assert result.returncode == 1 and message in result.stderr and len(result.stderr.splitlines()) == 1


def test_one_command_writes_table_and_figures(context, tmp_path) -> None:
    out = tmp_path / "out"
    result = saod_ray(
        "experiment", "oracle", context.store.uri, "--csv", out / "t.csv", "--latex", out / "t.tex", "--figures", out
    )
    assert result.returncode == 0, result.stderr
    outcome = read_outcome(context.store, "oracle")
    assert isinstance(outcome, Outcome)
    rows = list(csv.reader(io.StringIO((out / "t.csv").read_text())))
    assert rows[0] == ["detector", "class", "v on val", "v on ID", "difference"]
    assert [float(row[2]) if row[2] else None for row in rows[1:]] == outcome.column("v on val")
    assert (out / "t.tex").read_text().count(r"\\") == len(rows)
    assert sorted(path.name for path in (out / "oracle").iterdir()) == [
        f"oracle-{name}.{kind}" for name in ("atss", "nll-rcnn") for kind in ("pdf", "svg")
    ]
    printed = saod_ray("experiment", "oracle", context.store.uri, "--json")
    assert json.loads(printed.stdout) == json.loads(outcome.json())
    lines = [line.split()[0] for line in result.stdout.splitlines() if line.strip().startswith(("atss", "nll"))]
    assert len(lines) == len(outcome.rows)


def test_an_experiment_of_other_detectors_than_the_reports_is_left_out(context) -> None:
    assert saod_ray("score", context.store.uri).returncode == 0
    report_data = gather(Store.open(context.store.uri))
    benchmark, choice = report_data.benchmark, initial_choice(report_data)
    detectors = list(report_data.results)
    perform(find("ood-subsets"), context)
    assert [section.name for section in stored_experiments(benchmark, choice, detectors).sections] == ["ood-subsets"]
    perform(find("ood-subsets"), ExperimentContext(context.store, context.settings, ["atss"]))
    experiments = stored_experiments(benchmark, choice, detectors)
    assert (experiments.sections, experiments.stale) == ((), ("ood-subsets",))
    text = page.report(report_data, None, experiments).decode()
    assert "saod-ray experiment all STORE --detectors atss,nll-rcnn</code> recomputes them" in text


@pytest.mark.slow
def test_all_computes_what_the_store_allows_and_the_report_shows_it(context, tmp_path) -> None:
    uri = context.store.uri
    assert saod_ray("score", uri).returncode == 0
    result = saod_ray("experiment", "all", uri)
    assert result.returncode == 0, result.stderr
    assert "not done: 'improvements' cannot be computed" in result.stderr
    names = sorted(path.stem for path in (Path(uri) / "experiments").iterdir())
    assert names == sorted(set(NAMES) - {"improvements"})
    assert saod_ray("report", uri, "--out", tmp_path / "one.html").returncode == 0
    page_bytes = (tmp_path / "one.html").read_bytes()
    report_data = gather(Store.open(uri))
    choice, detectors = initial_choice(report_data), list(report_data.results)
    fresh = stored_experiments(report_data.benchmark, choice, detectors)
    assert page.report(report_data, None, fresh) == page_bytes
    text = page_bytes.decode()
    for name in names:
        assert text.count(f'id="experiment-{name}"') == (name != "thresholds")  # its table is long
        assert text.count(f"<h3>{name}: ") == 1
    for name in ("oracle", "uncertainty", "top-k", "thresholds-u"):
        assert text.count(f'data-chart="{name}"') == 1 and text.count(f'data-spec="{name}"') == 1
    assert "Omitted" not in text
    stale = stored_experiments(report_data.benchmark.under(ScoreSettings(aggregate="min")), choice, detectors)
    assert stale.sections == () and sorted(stale.stale) == names
    text = page.report(report_data, None, replace(stale, sections=fresh.sections[:1])).decode()
    assert "Omitted" in text and 'id="experiment-accuracy"' in text and 'id="experiment-tau"' not in text
