"""Training losses against loops that read like their definitions, and small models that learn by them."""

from __future__ import annotations

import copy
import math
from itertools import chain, pairwise

import models
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mmdet.registry import MODELS as KINDS
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData

from saod_ray.detect.losses import RankSortLoss, energy_score, nll
from saod_ray.detect.mmdetection import quiet
from saod_ray.errors import SaodError

SHAPE = (128, 160)


def step(difference: float, delta: float) -> float:
    return min(max(difference / (2 * delta) + 0.5, 0.0), 1.0)


def slow_rank_sort(logits: list[float], targets: list[float], delta: float):
    """Ranking loss, sorting loss and the gradient of each, one pair of examples after another."""
    size = len(logits)
    positives = [k for k in range(size) if targets[k] > 0]
    negatives = [k for k in range(size) if targets[k] == 0]
    ranking = sorting = 0.0
    pulls = [0.0] * size, [0.0] * size
    for i in positives:
        above = {j: step(logits[j] - logits[i], delta) for j in range(size)}
        rank_among_positives = sum(above[j] for j in positives)
        false = sum(above[j] for j in negatives)
        rank_error = false / (rank_among_positives + false)
        better = [j for j in positives if targets[j] >= targets[i]]
        worse = [j for j in positives if targets[j] < targets[i]]
        now = sum(above[j] * (1 - targets[j]) for j in positives) / rank_among_positives
        best = sum(above[j] * (1 - targets[j]) for j in better) / sum(above[j] for j in better)
        sort_error = now - best
        for gradient, error, blamed in ((pulls[0], rank_error, negatives), (pulls[1], sort_error, worse)):
            total = sum(above[j] for j in blamed)
            if total > 0:
                gradient[i] -= error / len(positives)
                for j in blamed:
                    gradient[j] += error * above[j] / total / len(positives)
        ranking += rank_error / len(positives)
        sorting += sort_error / len(positives)
    return ranking, sorting, *pulls


def check_rank_sort(logits: list[float], targets: list[float], delta: float) -> None:
    flat = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    losses = RankSortLoss(delta)(flat, torch.tensor(targets, dtype=torch.float64))
    gradients = [torch.autograd.grad(loss, flat, retain_graph=True)[0].tolist() for loss in losses]
    *expected, rank_gradient, sort_gradient = slow_rank_sort(logits, targets, delta)
    assert [float(loss) for loss in losses] == pytest.approx(expected, abs=1e-9)
    assert gradients[0] == pytest.approx(rank_gradient, abs=1e-9)
    assert gradients[1] == pytest.approx(sort_gradient, abs=1e-9)


LOGITS = st.one_of(st.integers(-12, 12).map(lambda k: k / 8), st.floats(-4, 4))  # eighths are often equal
OVERLAPS = st.one_of(st.integers(1, 8).map(lambda k: k / 8), st.floats(0.01, 1))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(LOGITS, OVERLAPS), max_size=10),
    st.lists(st.tuples(LOGITS, st.just(0.0)), max_size=15),
    st.sampled_from([0.5, 0.25, 1.0]),
    st.randoms(use_true_random=False),
)
def test_rank_and_sort(positives, negatives, delta, random) -> None:
    pairs = positives + negatives
    random.shuffle(pairs)
    check_rank_sort([logit for logit, _ in pairs], [target for _, target in pairs], delta)


def test_rank_and_sort_in_several_blocks() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1100, generator=generator, dtype=torch.float64)
    targets = torch.rand(1100, generator=generator, dtype=torch.float64).clamp(min=0.01)
    targets[600:] = 0
    check_rank_sort(logits.tolist(), targets.tolist(), 0.5)


def test_rank_and_sort_of_half_precision_logits() -> None:
    exact = torch.linspace(-2, 2, 5001).half()
    targets = torch.zeros(5001)
    targets[[3, 2500, 4000]] = torch.tensor([0.9, 0.5, 0.7])
    half = exact.clone().requires_grad_()
    losses = RankSortLoss()(half, targets.half())
    sum(losses).backward()
    expected = RankSortLoss()(exact.float(), targets.half().float())
    torch.testing.assert_close(losses, expected)
    assert half.grad.dtype == torch.float16
    assert half.grad.isfinite().all()


def test_a_step_of_no_width_is_refused() -> None:
    with pytest.raises(SaodError, match="delta is 0"):
        RankSortLoss(delta=0)


def overlap(a: list[float], b: list[float]) -> tuple[float, float]:
    """IoU and GIoU."""
    width = max(min(a[2], b[2]) - max(a[0], b[0]), 0)
    height = max(min(a[3], b[3]) - max(a[1], b[1]), 0)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
    hull = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    return width * height / union, width * height / union - (hull - union) / hull


def moved(prior: list[float], deltas: list[float]) -> list[float]:
    """The box that deltas with standard deviations (.1, .1, .2, .2) make of a prior."""
    width, height = prior[2] - prior[0], prior[3] - prior[1]
    x, y = (prior[0] + prior[2]) / 2 + 0.1 * deltas[0] * width, (prior[1] + prior[3]) / 2 + 0.1 * deltas[1] * height
    width, height = width * math.exp(0.2 * deltas[2]), height * math.exp(0.2 * deltas[3])
    return [x - width / 2, y - height / 2, x + width / 2, y + height / 2]


def slow_losses(logits: list[list[float]], rows: list[tuple[int, int, list[float], list[float]]]):
    """Ranking, sorting and unscaled box loss; `rows` are a positive's row, class, box and truth."""
    targets = [[0.0] * len(row) for row in logits]
    for row, label, box, truth in rows:
        targets[row][label] = overlap(box, truth)[0]
    ranking, sorting, *_ = slow_rank_sort(list(chain(*logits)), list(chain(*targets)), 0.5)
    scores = [1 / (1 + math.exp(-logits[row][label])) for row, label, _, _ in rows]
    errors = [1 - overlap(box, truth)[1] for _, _, box, truth in rows]
    return ranking, sorting, sum(s * e for s, e in zip(scores, errors, strict=True)) / sum(scores)


def boxes_near(boxes: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return boxes + torch.rand(boxes.shape, generator=generator, dtype=boxes.dtype) * 8 - 4


def box_head(kind: str, **extra):
    config = models.rs().roi_head.bbox_head
    config.update(type=kind, **extra)
    with quiet():
        head = KINDS.build(config)
        head.init_weights()
    return head


def rois(generator: torch.Generator, count: int = 20) -> torch.Tensor:
    corner = torch.rand(count, 2, generator=generator, dtype=torch.float64) * 60
    size = 15 + torch.rand(count, 2, generator=generator, dtype=torch.float64) * 40
    return torch.cat([torch.zeros(count, 1), corner, corner + size], dim=1)


@pytest.mark.parametrize("agnostic", [False, True])
def test_rank_and_sort_of_rois(agnostic) -> None:
    generator = torch.Generator().manual_seed(1)
    head = box_head("RankSortBBoxHead", reg_class_agnostic=agnostic)
    priors = rois(generator)
    logits = torch.randn(20, 5, generator=generator, dtype=torch.float64)
    columns = 4 if agnostic else 20
    deltas = torch.randn(20, columns, generator=generator, dtype=torch.float64).requires_grad_()
    labels = torch.randint(0, 6, (20,), generator=generator)
    truths = boxes_near(priors[:, 1:], generator)
    losses = head.loss(logits, deltas, priors, labels, torch.ones(20), truths, None)

    def slow(values: list[list[float]]):
        found = []
        for row, label in enumerate(labels.tolist()):
            if label < 5:
                first = 0 if agnostic else 4 * label
                box = moved(priors[row, 1:].tolist(), values[row][first : first + 4])
                found.append((row, label, box, truths[row].tolist()))
        return slow_losses(logits.tolist(), found)

    ranking, sorting, box = slow(deltas.tolist())
    expected = {"loss_rank": ranking, "loss_sort": sorting, "loss_bbox": ranking + sorting}
    assert {name: float(loss) for name, loss in losses.items()} == pytest.approx(expected, abs=1e-6)
    losses["loss_bbox"].backward()
    for row, column in [(0, 0), (3, 1), (7, 2), (11, 3)] if agnostic else deltas.grad.nonzero()[:4].tolist():
        sides = []
        for side in (-1e-6, 1e-6):
            nudged = deltas.tolist()
            nudged[row][column] += side
            sides.append(slow(nudged)[2])
        slope = (sides[1] - sides[0]) / 2e-6 * (ranking + sorting) / box
        assert float(deltas.grad[row, column]) == pytest.approx(slope, abs=1e-5)


def slow_assignment(anchors: list[list[float]], truths: list[list[float]]) -> list[int]:
    """The truth of each anchor, -1 for none, -2 where it is ignored; a truth's best anchor is always its own."""
    table = [[overlap(anchor, truth)[0] for truth in truths] for anchor in anchors]
    found = []
    for row in table:
        best = max(row)
        found.append(row.index(best) if best >= 0.7 else -1 if best < 0.3 else -2)
    for k in range(len(truths)):
        best = max(row[k] for row in table)
        for number, row in enumerate(table):
            if best >= 0.3 and row[k] == best:
                found[number] = k
    return found


def rpn(weight: float = 0.2):
    config = models.rs()
    config.train_cfg.rpn.sampler = {"type": "PseudoSampler"}
    settings = {**config.rpn_head, "type": "RankSortRPNHead", "head_weight": weight}
    return KINDS.build({**settings, "train_cfg": config.train_cfg.rpn, "test_cfg": config.test_cfg.rpn})


def test_rank_and_sort_of_anchors() -> None:
    generator = torch.Generator().manual_seed(2)
    head = rpn(weight=0.3)
    sizes = [(8, 8), (4, 4), (2, 2), (1, 1), (1, 1)]
    scores = [torch.randn(2, 3, *size, generator=generator) for size in sizes]
    deltas = [torch.randn(2, 12, *size, generator=generator) for size in sizes]
    # a little larger than an anchor, so that no two anchors inside a truth have the same IoU
    truths = [[[2.1, 3.3, 35.4, 37.0], [5.7, -6.4, 29.9, 41.3]], [[0.3, 0.8, 34.4, 33.9]]]
    instances = [InstanceData(bboxes=torch.tensor(t), labels=torch.zeros(len(t)).long()) for t in truths]
    metas = [{"img_shape": (32, 32), "pad_shape": (32, 32)}] * 2
    losses = head.loss_by_feat(scores, deltas, instances, metas)

    anchors = torch.cat(head.prior_generator.grid_priors(sizes, device="cpu")).tolist()
    cells = [(v, y, x, a) for v, (h, w) in enumerate(sizes) for y in range(h) for x in range(w) for a in range(3)]
    logits, rows = [], []
    for image in range(2):
        owners = slow_assignment(anchors, truths[image])
        for (v, y, x, a), anchor, owner in zip(cells, anchors, owners, strict=True):
            if owner == -2:
                continue
            if owner >= 0:
                box = moved(anchor, deltas[v][image, 4 * a : 4 * a + 4, y, x].tolist())
                rows.append((len(logits), 0, box, truths[image][owner]))
            logits.append([float(scores[v][image, a, y, x])])
    ranking, sorting, _ = slow_losses(logits, rows)
    assert len(rows) > 5
    expected = {"loss_rpn_rank": ranking, "loss_rpn_sort": sorting, "loss_rpn_bbox": ranking + sorting}
    expected = {name: 0.3 * loss for name, loss in expected.items()}
    assert {name: float(loss) for name, loss in losses.items()} == pytest.approx(expected, abs=1e-6)


def test_the_rpn_finds_what_mmdets_finds() -> None:
    config = models.rs()
    plain = KINDS.build({**config.rpn_head, "test_cfg": config.test_cfg.rpn})
    head = rpn()
    head.load_state_dict(plain.state_dict())
    features = [torch.randn(1, 16, 32 >> k, 40 >> k, generator=torch.Generator().manual_seed(k)) for k in range(5)]
    sample = DetDataSample(metainfo={"img_shape": SHAPE, "scale_factor": (1.0, 1.0)})
    with torch.inference_mode():
        found, expected = (each.predict(features, [sample])[0] for each in (head, plain))
    assert len(found) > 100
    torch.testing.assert_close(found.bboxes, expected.bboxes)
    torch.testing.assert_close(found.scores, expected.scores)


def slow_nll(values: list[tuple[float, float, float]], count: int) -> float:
    """Of all positives' deltas, log variances and targets."""
    misses, spreads = 0.0, 0.0
    for delta, s, target in values:
        s = min(max(s, -7.0), 7.0)
        misses += 0.5 * math.exp(-s) * abs(delta - target)
        spreads += s / 2
    return misses / len(values) + spreads / count


def slow_energy(deltas, log_variance, targets, noise) -> float:
    """Of one box: lists of four, and a list of draws."""
    total = 0.0
    for k in range(4):
        drawn = [deltas[k] + math.exp(log_variance[k] / 2) * eps[k] for eps in noise]
        terms = [2 * abs(now - targets[k]) - abs(now - after) for now, after in pairwise(drawn)]
        total += sum(terms) / len(terms)
    return total


def three(generator: torch.Generator) -> list[torch.Tensor]:
    """Deltas, log variances (two beyond the limits) and targets of six boxes."""
    deltas, s, targets = torch.randn(3, 6, 4, generator=generator, dtype=torch.float64)
    s[0, 0], s[3, 2] = 8, -9
    return [deltas.requires_grad_(), s.requires_grad_(), targets]


def test_nll() -> None:
    values = three(torch.Generator().manual_seed(3))
    flat = list(zip(*(each.flatten().tolist() for each in values), strict=True))
    assert float(nll(*values, 11)) == pytest.approx(slow_nll(flat, 11))
    assert torch.autograd.gradcheck(nll, (*values, 11))


def test_energy_score() -> None:
    generator = torch.Generator().manual_seed(4)
    values = three(generator)
    noise = torch.randn(9, 6, 4, generator=generator, dtype=torch.float64)
    expected = sum(slow_energy(*(each[k].tolist() for each in values), noise[:, k].tolist()) for k in range(6))
    assert float(energy_score(*values, noise, 11)) == pytest.approx(expected / 11)
    assert torch.autograd.gradcheck(energy_score, (*values, noise, 11))


@pytest.mark.parametrize("likelihood", ["nll", "energy"])
def test_what_variances_learn(likelihood) -> None:
    """The energy score is least at the true mean and variance; the NLL at the median, with a variance of E|error|."""
    generator = torch.Generator().manual_seed(8)
    deviations, means = torch.tensor([0.5, 0.7, 1.0, 1.4]), torch.tensor([0.0, 1.0, -1.0, 0.5])
    targets = means + deviations * torch.randn(2000, 4, generator=generator)
    values = [torch.zeros(4, requires_grad=True), torch.zeros(4, requires_grad=True)]
    optimiser = torch.optim.Adam(values, 0.05)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 300)
    for _ in range(300):
        deltas, s = (each.expand(2000, 4) for each in values)
        noise = torch.randn(5, 2000, 4, generator=generator)
        # four values a box: with 8,000 for the count both terms of the NLL have one divisor
        loss = nll(deltas, s, targets, 8000) if likelihood == "nll" else energy_score(deltas, s, targets, noise, 2000)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        slower.step()
    learnt, variance = values[0].detach(), values[1].detach().exp()
    expected = deviations**2 if likelihood == "energy" else (targets - means).abs().mean(0)
    torch.testing.assert_close(learnt, means, rtol=0, atol=0.1)
    torch.testing.assert_close(variance, expected, rtol=0.1, atol=0)


@pytest.mark.parametrize("likelihood", ["nll", "energy"])
def test_boxes_with_variances(likelihood) -> None:
    """A positive counts by the eight values of its own class, and all RoIs are counted."""
    generator = torch.Generator().manual_seed(5)
    head = box_head("ProbabilisticBBoxHead", likelihood=likelihood, samples=7)
    logits = torch.randn(20, 6, generator=generator, dtype=torch.float64)
    values = torch.randn(20, 40, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 6, (20,), generator=generator)
    targets = torch.randn(20, 4, generator=generator, dtype=torch.float64)
    torch.manual_seed(6)
    losses = head.loss(logits, values, rois(generator), labels, torch.ones(20).double(), targets, None)
    positives = [row for row, label in enumerate(labels.tolist()) if label < 5]
    torch.manual_seed(6)
    noise = torch.randn(8, len(positives), 4, dtype=torch.float64)
    total, flat = 0.0, []
    for k, row in enumerate(positives):
        first = 4 * int(labels[row])
        delta, s = (values[row, start : start + 4].tolist() for start in (first, 20 + first))
        target = targets[row].tolist()
        flat += zip(delta, s, target, strict=True)
        total += slow_energy(delta, s, target, noise[:, k].tolist())
    expected = slow_nll(flat, 20) if likelihood == "nll" else total / 20
    assert float(losses["loss_bbox"]) == pytest.approx(expected)
    surprise = [-math.log(row[label]) for row, label in zip(logits.softmax(1).tolist(), labels.tolist(), strict=True)]
    assert float(losses["loss_cls"]) == pytest.approx(sum(surprise) / 20)


def test_variances_begin_at_one() -> None:
    head = box_head("ProbabilisticBBoxHead")
    assert 0 < float(head.fc_var.weight.detach().std()) < 2e-4
    assert float(head.fc_var.bias.detach().abs().max()) == 0


def test_an_unknown_likelihood_is_refused() -> None:
    with pytest.raises(SaodError, match="'nll' or 'energy'"):
        box_head("ProbabilisticBBoxHead", likelihood="laplace")


def trainable(name: str):
    """A reduced model in training mode; RS R-CNN with its own RPN and without sampling."""
    config = models.rs() if name == "rs" else models.nll()
    if name == "rs":
        config.rpn_head.type = "RankSortRPNHead"
        config.train_cfg.rpn.sampler = {"type": "PseudoSampler"}
        config.train_cfg.rcnn.sampler = {"type": "PseudoSampler"}
    else:
        config.roi_head.bbox_head.likelihood = name
    torch.manual_seed(0)
    with quiet():
        model = KINDS.build(config)
        model.init_weights()
    return model.train()


def batch(objects: int = 2) -> tuple[torch.Tensor, list[DetDataSample]]:
    """Two images of noise with rectangles of a colour a class."""
    images = torch.randn(2, 3, *SHAPE, generator=torch.Generator().manual_seed(7)) * 0.1
    found = []
    for number, image in enumerate(images):
        boxes = torch.tensor([[16.0, 24, 72, 80], [80, 40, 140, 110]])[:objects] + 8 * number
        labels = torch.tensor([number, 2 + number])[:objects]
        for (x1, y1, x2, y2), label in zip(boxes.int().tolist(), labels.tolist(), strict=True):
            image[label % 3, y1:y2, x1:x2] += 1 + label / 2
        sample = DetDataSample(gt_instances=InstanceData(bboxes=boxes, labels=labels))
        shapes = dict.fromkeys(("img_shape", "ori_shape", "pad_shape", "batch_input_shape"), SHAPE)
        sample.set_metainfo({**shapes, "scale_factor": (1.0, 1.0)})
        found.append(sample)
    return images, found


@pytest.mark.parametrize("name", ["rs", "nll", "energy"])
def test_images_without_objects(name) -> None:
    model = trainable(name)
    losses = model.loss(*batch(objects=0))
    total, values = model.parse_losses(losses)
    names = ["loss_rank", "loss_sort", "loss_bbox", "loss_rpn_rank"] if name == "rs" else ["loss_bbox"]
    assert [float(values[each]) for each in names] == [0] * len(names)
    total.backward()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in model.roi_head.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rs", "nll", "energy"])
def test_training_learns(name) -> None:
    model = trainable(name)
    images, samples = batch()
    optimiser = torch.optim.AdamW(model.parameters(), 2e-3)
    totals = []
    for _ in range(40):
        total, _ = model.parse_losses(model.loss(images, copy.deepcopy(samples)))
        optimiser.zero_grad()
        total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10)
        optimiser.step()
        totals.append(float(total.detach()))
    assert sum(totals[-5:]) < 0.4 * sum(totals[:5])
