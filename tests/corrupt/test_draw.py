from __future__ import annotations

from collections import Counter

from scipy import stats

from saod_ray.corrupt import CORRUPTIONS, draw

IDS = range(30_000)


def test_each_of_the_fifteen_is_equally_likely() -> None:
    for seed, severity in ((0, 1), (0, 5), (-7, 3), (2**63 - 1, 3)):
        counts = Counter(draw(seed, image_id, severity) for image_id in IDS)
        assert set(counts) == set(CORRUPTIONS)
        assert stats.chisquare(list(counts.values())).pvalue > 1e-4


def test_severities_seeds_and_neighbouring_ids_are_drawn_independently() -> None:
    base = [draw(0, image_id, 1) for image_id in IDS]
    others = (
        [draw(0, image_id, 3) for image_id in IDS],
        [draw(1, image_id, 1) for image_id in IDS],
        [draw(0, image_id + 1, 1) for image_id in IDS],
        [draw(0, -image_id - 1, 1) for image_id in IDS],
    )
    for other in others:
        same = sum(a == b for a, b in zip(base, other, strict=True))
        assert stats.binomtest(same, len(IDS), 1 / 15).pvalue > 1e-4


def test_a_draw_never_changes() -> None:
    """Figures already published depend on these."""
    assert [draw(0, image_id, 1) for image_id in (1, 2, 3, 139, 285, 632)] == [
        "brightness",
        "impulse_noise",
        "brightness",
        "speckle_noise",
        "brightness",
        "gaussian_blur",
    ]


def test_the_fifteen_are_the_papers() -> None:
    assert len(CORRUPTIONS) == len(set(CORRUPTIONS)) == 15
    assert {"speckle_noise", "gaussian_blur", "jpeg_compression"} < set(CORRUPTIONS)
    assert not {"glass_blur", "zoom_blur", "spatter", "saturate"} & set(CORRUPTIONS)
