"""The definitions of docs/metrics.md as slow, plain code.

Everything works on plain lists, so that it can be read next to the definitions. A detection is a dict with `image`,
`label`, `bbox` (x, y, w, h) and `score`; an object has `id`, `crowd` and `area` instead of a score. Tests compare the
package's fast code with these functions on random inputs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from reference_calibrators import fit

NO_DETECTION = 1e12
Row = dict[str, Any]
nan = math.nan


# Image-level uncertainty --------------------------------------------------------------------------------------


def image_uncertainty(detections: list[Row], column: str, aggregate: str) -> float:
    """One image's uncertainty; `column` is "score" (meaning 1 - score) or a key of the detection."""
    if not detections:
        return NO_DETECTION
    top = sorted(detections, key=lambda d: -d["score"])[:100]
    values = sorted(1 - d["score"] if column == "score" else d[column] for d in top)
    count = {"min": 1, "mean": len(values), "sum": len(values)}.get(aggregate) or int(aggregate.split("-")[1])
    used = values[:count]
    total = 0.0
    for value in used:
        total += value
    return total if aggregate == "sum" else total / len(used)


# Image threshold ----------------------------------------------------------------------------------------------


def roc(inside: list[float], outside: list[float]) -> list[tuple[float, int, int]]:
    """(t, TP(t), FP(t)) of the candidates that remain after the collinear ones are dropped."""
    points = [(t, sum(u <= t for u in inside), sum(u <= t for u in outside)) for t in sorted({*inside, *outside})]
    if len(points) <= 2:
        return points
    corners = [points[0]]
    for before, here, after in zip(points, points[1:], points[2:], strict=False):
        bends = [before[k] - 2 * here[k] + after[k] for k in (1, 2)]
        if bends != [0, 0]:
            corners.append(here)
    return [*corners, points[-1]]


def harmonic(values: list[float], weights: list[float] | None = None) -> float:
    weights = weights or [1.0] * len(values)
    if any(v == 0 for v in values):
        return 0.0
    return sum(weights) / sum(w / v for w, v in zip(weights, values, strict=True))


def pseudo_ood_threshold(inside: list[float], outside: list[float]) -> float:
    best_t, best_f = nan, -1.0
    for t, tp, fp in roc(inside, outside):
        f = harmonic([tp / len(inside), 1 - fp / len(outside)])
        if f > best_f:
            best_t, best_f = t, f
    return best_t


def tpr_threshold(inside: list[float], q: float) -> float:
    return sorted(inside)[int(q * len(inside))]


# OOD metrics --------------------------------------------------------------------------------------------------


def ood_figures(inside: list[float], outside: list[float], u: float, conventions: str) -> Row:
    if conventions == "paper":
        tpr = sum(x <= u and x != NO_DETECTION for x in inside) / len(inside)
        tnr = 1 - sum(x <= u and x != NO_DETECTION for x in outside) / len(outside)
        return {"tpr": tpr, "tnr": tnr, "ba": harmonic([tpr, tnr])}
    for t, tp, fp in roc(inside, outside):
        if t > u:
            tpr, tnr = tp / len(inside), 1 - fp / len(outside)
            return {"tpr": tpr, "tnr": tnr, "ba": harmonic([tpr, tnr])}
    return {"tpr": 0.0, "tnr": 1.0, "ba": 0.0}


def auroc(inside: list[float], outside: list[float]) -> float:
    wins = sum((i < o) + 0.5 * (i == o) for i in inside for o in outside)
    return wins / (len(inside) * len(outside))


def fpr95(inside: list[float], outside: list[float]) -> float:
    """The share of OOD images at or below the smallest threshold that keeps 95 % of the ID images."""
    for t in sorted({*inside, *outside}):
        if sum(i <= t for i in inside) >= 0.95 * len(inside):
            return sum(o <= t for o in outside) / len(outside)
    raise AssertionError


def accepted(uncertainty: float, has_detection: bool, u: float, conventions: str) -> bool:
    return has_detection and (uncertainty <= u if conventions == "paper" else uncertainty < u)


# Matching -----------------------------------------------------------------------------------------------------


def iou(detection: Row, obj: Row) -> float:
    dx, dy, dw, dh = detection["bbox"]
    ox, oy, ow, oh = obj["bbox"]
    w = min(dx + dw, ox + ow) - max(dx, ox)
    h = min(dy + dh, oy + oh) - max(dy, oy)
    if w <= 0 or h <= 0:
        return 0.0
    inter = w * h
    return inter / (dw * dh if obj["crowd"] else dw * dh + ow * oh - inter)


def falling(score: float) -> tuple[bool, float]:
    return (math.isnan(score), -score)


def match_class(detections: list[Row], objects: list[Row], tau: float, zero_id: bool) -> list[Row]:
    """The sorted list of one class: rows with score, iou (0 for a FP), kind ("tp", "fp" or "ignored")."""
    dets_of, objs_of = defaultdict(list), defaultdict(list)
    for d in detections:
        dets_of[d["image"]].append(d)
    for o in objects:
        objs_of[o["image"]].append(o)
    out = []
    for image in sorted(dets_of):
        objs = sorted(objs_of[image], key=lambda o: o["crowd"])
        used = [False] * len(objs)
        for d in sorted(dets_of[image], key=lambda d: falling(d["score"]))[:100]:
            best, hit = min(tau, 1 - 1e-10), None
            for k, o in enumerate(objs):
                if used[k] and not o["crowd"]:
                    continue
                if hit is not None and not objs[hit]["crowd"] and o["crowd"]:
                    break
                overlap = iou(d, o)
                if overlap >= best and overlap > 0:
                    best, hit = overlap, k
            row = {"score": d["score"], "iou": 0.0, "kind": "fp"}
            if hit is not None:
                used[hit] = True
                if objs[hit]["crowd"]:
                    row["kind"] = "ignored"
                elif not (zero_id and objs[hit]["id"] == 0):
                    row |= {"kind": "tp", "iou": best}
            out.append(row)
    return sorted(out, key=lambda r: falling(r["score"]))


def match(
    detections: list[Row], objects: list[Row], classes: int, tau: float, zero_id: bool
) -> list[tuple[list[Row], int]]:
    """Per class: the sorted list and the number of non-crowd objects."""
    out = []
    for c in range(classes):
        dets = [d for d in detections if d["label"] == c]
        objs = [o for o in objects if o["label"] == c]
        out.append((match_class(dets, objs, tau, zero_id), sum(not o["crowd"] for o in objs)))
    return out


# Class thresholds ---------------------------------------------------------------------------------------------


def prefix_lrp(rows: list[Row], objects: int, tau: float) -> list[tuple[float, int, int, float]]:
    """(LRP, TP, FP, sum of IoU) after each position of a class list."""
    tp = fp = 0
    total = 0.0
    out = []
    for row in rows:
        tp += row["kind"] == "tp"
        fp += row["kind"] == "fp"
        total += row["iou"] if row["kind"] == "tp" else 0.0
        out.append((((tp - total) / (1 - tau) + fp + objects - tp) / (fp + objects), tp, fp, total))
    return out


def lrp_threshold(rows: list[Row], objects: int, tau: float) -> float:
    if objects == 0:
        return -1.0
    if not any(r["kind"] == "tp" for r in rows):
        return nan
    curve = [p[0] for p in prefix_lrp(rows, objects, tau)]
    return rows[curve.index(min(curve))]["score"]


def survives_fit(score: float, v: float, conventions: str) -> bool:
    if conventions == "paper":
        return score >= v
    return not score < v


# LaECE --------------------------------------------------------------------------------------------------------


def laece(matched: list[tuple[list[Row], int]], bins: int, conventions: str) -> tuple[float, list[float]]:
    per_class = []
    for rows, objects in matched:
        rows = [r for r in rows if r["kind"] != "ignored"]
        if not rows or (objects == 0 and conventions == "official"):
            per_class.append(0.0 if conventions == "official" else nan)
            continue
        error = 0.0
        for k in range(bins):
            lo, hi = k / bins, (k + 1) / bins
            closed = conventions == "paper" and k == bins - 1
            inside = [r for r in rows if r["score"] >= lo and (r["score"] <= hi if closed else r["score"] < hi)]
            if inside:
                precision_iou = sum(r["iou"] for r in inside) / len(inside)
                score = sum(r["score"] for r in inside) / len(inside)
                error += len(inside) / len(rows) * abs(precision_iou - score)
        per_class.append(error)
    return nanmean(per_class), per_class


def nanmean(values: list[float]) -> float:
    values = [v for v in values if not math.isnan(v)]
    return sum(values) / len(values) if values else nan


# LRP ----------------------------------------------------------------------------------------------------------


def lrp(matched: list[tuple[list[Row], int]], tau: float, conventions: str) -> tuple[Row, list[float]]:
    parts: dict[str, list[float]] = defaultdict(list)
    for rows, objects in matched:
        tp = sum(r["kind"] == "tp" for r in rows)
        fp = sum(r["kind"] == "fp" for r in rows)
        fn = objects - tp
        missing = tp - sum(r["iou"] for r in rows if r["kind"] == "tp")
        if objects == 0:
            values = [nan] * 4
        elif tp == 0:
            values = [1.0, nan, 1.0 if fp and conventions == "paper" else nan, 1.0]
        else:
            total = (missing / (1 - tau) + fp + fn) / (tp + fp + fn)
            values = [total, missing / tp, fp / (tp + fp), fn / objects]
        for name, value in zip(("lrp", "lrp_loc", "lrp_fp", "lrp_fn"), values, strict=True):
            parts[name].append(value)
    return {name: nanmean(values) for name, values in parts.items()}, parts["lrp"]


# oLRP ---------------------------------------------------------------------------------------------------------


def olrp(matched: list[tuple[list[Row], int]]) -> Row:
    parts: dict[str, list[float]] = defaultdict(list)
    for rows, objects in matched:
        if objects == 0:
            continue
        values = (1.0, nan, nan, 1.0)
        if any(r["kind"] == "tp" for r in rows):
            curve = prefix_lrp(rows, objects, 0.5)
            best = min(p[0] for p in curve)
            total, tp, fp, ious = next(p for p in curve if p[0] == best)
            if tp:
                values = (total, (tp - ious) / tp, fp / (tp + fp), (objects - tp) / objects)
            else:
                values = (total, nan, nan, 1.0)
        for name, value in zip(("olrp", "olrp_loc", "olrp_fp", "olrp_fn"), values, strict=True):
            parts[name].append(value)
    return {name: nanmean(values) for name, values in parts.items()} if parts else {"olrp": nan}


# After the paper ----------------------------------------------------------------------------------------------


def after_paper(matched: list[tuple[list[Row], int]], bins: int = 25) -> Row:
    """LaECE_0, LaACE_0 and LRP_0 of lists matched at tau = 0."""
    laece_0, laace_0, lrp_0 = [], [], []
    for rows, objects in matched:
        rows = [r for r in rows if r["kind"] != "ignored"]
        if rows:
            error = 0.0
            for k in range(bins):
                lo, hi = k / bins, (k + 1) / bins
                inside = [r for r in rows if (lo < r["score"] or k == 0) and r["score"] <= hi]
                if inside:
                    gap = sum(r["score"] for r in inside) / len(inside) - sum(r["iou"] for r in inside) / len(inside)
                    error += len(inside) / len(rows) * abs(gap)
            laece_0.append(error)
            laace_0.append(sum(abs(r["score"] - r["iou"]) for r in rows) / len(rows))
        tp = sum(r["kind"] == "tp" for r in rows)
        fp = len(rows) - tp
        if objects:
            lrp_0.append((sum(1 - r["iou"] for r in rows if r["kind"] == "tp") + fp + objects - tp) / (fp + objects))
    return {"laece_0": nanmean(laece_0), "laace_0": nanmean(laace_0), "lrp_0": nanmean(lrp_0)}


# Everything combined ----------------------------------------------------------------------------------------------------


def by_image(detections: list[Row]) -> dict[int, list[Row]]:
    out: dict[int, list[Row]] = defaultdict(list)
    for d in detections:
        out[d["image"]].append(d)
    return out


def benchmark(data: Row, settings: Row) -> Row:
    """Every metric of one detector. `data` has K, images, objects (per split) and detections (per split)."""
    s = {"conventions": "official", "bins": 25, "tau": 0.1} | settings
    conventions, tau, classes = s["conventions"], s["tau"], data["classes"]
    zero_id = conventions == "official"
    unc: dict[str, dict[int, float]] = {}
    dets_of = {split: by_image(rows) for split, rows in data["detections"].items()}
    for split in data["detections"]:
        source = {"pseudo-ood": "val", "ood": "ood", "val": "val"}.get(split, "id")
        unc[split] = {
            image: image_uncertainty(dets_of[split].get(image, []), s["uncertainty"], s["aggregate"])
            for image in data["images"][source]
        }
    pseudo_id = {o["image"] for o in data["objects"]["val"]}
    inside = [unc["val"][i] for i in data["images"]["val"] if i in pseudo_id]
    rule = s["image-threshold"]
    if rule == "pseudo-ood":
        u = pseudo_ood_threshold(inside, list(unc["pseudo-ood"].values()))
    elif rule.startswith("tpr-"):
        u = tpr_threshold(inside, float(rule[4:]))
    else:
        u = float(rule)
    out: Row = {"image_threshold": u}
    test, ood = list(unc["id"].values()), list(unc["ood"].values())
    figures = ood_figures(test, ood, u, conventions) | {"auroc": auroc(test, ood), "fpr95": fpr95(test, ood)}
    out |= {f"ood.{k}": v for k, v in figures.items()}

    val = [d for d in data["detections"]["val"] if d["image"] in pseudo_id]
    if s["detection-threshold"] == "lrp":
        tau_v = tau if conventions == "paper" else 0.1
        thresholds = [
            lrp_threshold(r, g, tau_v) for r, g in match(val, data["objects"]["val"], classes, tau_v, zero_id)
        ]
    else:
        thresholds = [float(s["detection-threshold"])] * classes
    out["detection_thresholds"] = thresholds

    fitted = [d for d in val if survives_fit(d["score"], thresholds[d["label"]], conventions)]
    calibrators = []
    for rows, objects in match(fitted, data["objects"]["val"], classes, tau, zero_id):
        rows = [r for r in rows if r["kind"] != "ignored"] if objects else []
        pairs = [r["score"] for r in rows], [r["iou"] for r in rows]
        calibrators.append(fit(s["calibrator"], *pairs, s["bins"], conventions))

    def self_aware(split: str, offset: int = 0) -> list[Row]:
        rows = []
        for image, dets in dets_of[split].items():
            if not accepted(unc[split][image], True, u, conventions):
                continue
            for d in dets:
                if d["score"] >= thresholds[d["label"]]:
                    zeta = calibrators[d["label"]]
                    rows.append(d | {"score": zeta(d["score"]) if zeta else d["score"], "image": image + offset})
        return rows

    matched = match(self_aware("id"), data["objects"]["id"], classes, tau, zero_id)
    out |= quality("id", matched, s)
    pooled_dets, pooled_objects = [], []
    span = max(data["images"]["id"]) + 1
    for k, split in enumerate(sp for sp in data["detections"] if sp.startswith("id-c")):
        pooled_dets += self_aware(split, k * span)
        taken = {i for i in data["images"]["id"] if accepted(unc[split][i], i in dets_of[split], u, conventions)}
        if split == "id-c5":
            out["shift.accept_rate_c5"] = len(taken) / len(data["images"]["id"])
        for o in data["objects"]["id"]:
            if split != "id-c5" or o["image"] in taken:
                number = o["id"] if k == 0 else 1
                pooled_objects.append(o | {"image": o["image"] + k * span, "id": number})
    matched = match(pooled_dets, pooled_objects, classes, tau, zero_id)
    out |= quality("shift", matched, s)
    out["daq"] = harmonic([out["ood.ba"], out["id.idq"], out["shift.idq"]])
    return out


def near_a_bin_edge(matched: list[tuple[list[Row], int]], bins: int) -> bool:
    """Whether a calibrated score is so close to a bin edge that rounding decides its bin."""
    scores = [r["score"] * bins for rows, _ in matched for r in rows if not math.isnan(r["score"])]
    return any(abs(s - round(s)) < 1e-9 for s in scores)


def quality(name: str, matched: list[tuple[list[Row], int]], s: Row) -> Row:
    figures, _ = lrp(matched, s["tau"], s["conventions"])
    figures["laece"], _ = laece(matched, s["bins"], s["conventions"])
    figures["idq"] = harmonic([1 - figures["lrp"], 1 - figures["laece"]])
    figures["near_a_bin_edge"] = near_a_bin_edge(matched, s["bins"])
    return {f"{name}.{key}": value for key, value in figures.items()}
