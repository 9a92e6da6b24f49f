from __future__ import annotations

import numpy as np
import pytest
import torch
from mmengine.dataset import DefaultSampler
from mmengine.structures import InstanceData

from saod_ray.data.manifest import Manifest, image_table, object_table
from saod_ray.detect.configs import NAMES, build_config
from saod_ray.train.augment import RandomFactor, SimilarSizes
from saod_ray.train.dataset import ManifestDataset, records
from saod_ray.train.recipe import stretch_schedule

from mmdet.structures import DetDataSample  # isort: skip


def manifest(count: int) -> Manifest:
    rng = np.random.default_rng(0)
    widths, heights = rng.integers(100, 400, (2, count)).tolist()
    images = image_table(range(count), "here", [f"{k}.png" for k in range(count)], widths, heights)
    objects = object_table(
        [0, 0, 2, 3],
        [1, 0, 1, 1],
        [[1, 2, 30, 40], [0, 0, 5, 5], [3, 3, 0.5, 9], [1, 1, 9, 9]],
        crowd=[False, True, False, False],
    )
    return Manifest(images, objects)


def dataset(count: int, **settings) -> ManifestDataset:
    return ManifestDataset(records(manifest(count)), "/nowhere", metainfo={"classes": ("a", "b")}, **settings)


def test_what_mmdet_is_told_of_an_image() -> None:
    first = dataset(5).get_data_info(0)
    assert first["img_path"] == "here/0.png"
    assert first["instances"] == [
        {"bbox": [1.0, 2.0, 31.0, 42.0], "bbox_label": 1, "ignore_flag": 0},
        {"bbox": [0.0, 0.0, 5.0, 5.0], "bbox_label": 0, "ignore_flag": 1},
    ]


def test_images_without_objects_are_left_out_where_asked() -> None:
    assert len(dataset(5)) == 5
    filtered = dataset(5, filter_cfg={"filter_empty_gt": True})
    # image 2's box is half a pixel wide
    assert [filtered.get_data_info(k)["img_id"] for k in range(len(filtered))] == [0, 3]


@pytest.mark.parametrize("count", [1, 7, 64, 65])
def test_similar_sizes_have_every_image_once(count) -> None:
    images = dataset(count)
    sampler = DefaultSampler(images, shuffle=True, seed=3)
    batches = list(SimilarSizes(sampler, 8))
    assert sorted(k for batch in batches for k in batch) == list(range(count))
    assert all(len(batch) <= 8 for batch in batches)
    assert len(batches) == len(SimilarSizes(sampler, 8)) == -(-count // 8)
    assert batches == list(SimilarSizes(sampler, 8))
    if count > 8:
        sampler.set_epoch(1)
        assert batches != list(SimilarSizes(sampler, 8))


def test_similar_sizes_need_less_padding_than_chance() -> None:
    images = dataset(200)
    sizes = np.array([(info["height"], info["width"]) for info in (images.get_data_info(k) for k in range(200))])

    def padded(batches) -> int:
        return sum(len(batch) * int(sizes[batch].max(axis=0).prod()) for batch in batches)

    sampler = DefaultSampler(images, shuffle=True, seed=0)
    chance = np.array_split(np.random.default_rng(1).permutation(200), 25)
    assert padded(list(SimilarSizes(sampler, 8))) < 0.75 * padded(chance)


def test_a_random_factor_moves_boxes_with_their_pixels() -> None:
    torch.manual_seed(0)
    image = torch.zeros(1, 3, 80, 120)
    image[..., 20:60, 30:90] = 1
    sample = DetDataSample(
        gt_instances=InstanceData(bboxes=torch.tensor([[30.0, 20, 90, 60]]), labels=torch.tensor([0])),
        metainfo={"img_shape": (70, 110)},
    )
    resized, (changed,) = RandomFactor(0.5, 0.7)(image, [sample])
    height, width = resized.shape[-2:]
    assert (height, width) == changed.batch_input_shape == changed.pad_shape
    assert 40 <= height <= 56
    assert changed.img_shape == (round(70 * height / 80), round(110 * width / 120))
    bright = (resized[0, 0] > 0.5).nonzero()
    edges = torch.cat([bright.min(0).values.flip(0), bright.max(0).values.flip(0) + 1])
    assert (changed.gt_instances.bboxes[0] - edges).abs().max() <= 1


def test_recipes_of_the_paper() -> None:
    rates = {"f-rcnn": 0.02, "nll-rcnn": 0.02, "es-rcnn": 0.02, "atss": 0.01, "rs-rcnn": 0.012, "d-detr": 2e-4}
    for name, rate in rates.items():
        config = build_config(f"paper/{name}", 80)
        assert config.optim_wrapper.optimizer.lr == rate
        assert config.train_cfg.max_epochs == (50 if name == "d-detr" else 36)
        assert config.param_scheduler[-1].milestones == ([40] if name == "d-detr" else [27, 33])
        assert config.auto_scale_lr.base_batch_size == (32 if name == "d-detr" else 16)
        assert "RandomChoice" in str(config.train_dataloader.dataset.pipeline)
    short = build_config("paper/f-rcnn-short", 80)
    assert short.param_scheduler[-1].milestones == [8, 11]
    assert "RandomChoice" not in str(short.train_dataloader.dataset.pipeline)


@pytest.mark.parametrize("name", NAMES)
def test_a_course_is_stretched_to_other_numbers_of_epochs(name) -> None:
    config = build_config(name, 5)
    recipe = config.train_cfg.max_epochs
    assert stretch_schedule(config, recipe) == [dict(scheduler) for scheduler in config.param_scheduler]
    assert stretch_schedule(config, 2 * recipe)[-1]["end"] == 2 * recipe
    assert stretch_schedule(config, 1)[-1]["end"] == 1
