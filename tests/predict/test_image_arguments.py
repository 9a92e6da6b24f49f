"""Which files are meant, what their pictures are called, and what a request's body holds."""

from __future__ import annotations

import io
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from saod_ray.detect.detections import Detections
from saod_ray.errors import SaodError
from saod_ray.predict.bodies import RefusedError, decode_pixels, extract_image
from saod_ray.predict.drawing import draw_verdict, picture_name
from saod_ray.predict.files import resolve_inputs
from saod_ray.score.verdicts import Verdict


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.png", "b.JPG", "notes.txt", "sub/c.webp", "sub/.hidden.png", "sub/deep/d.png", "odd[1].png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "empty").mkdir()
    return tmp_path


def test_files_folders_and_patterns_in_their_order_and_once(place) -> None:
    assert resolve_inputs(["b.JPG", "a.png", "./a.png", str(place / "a.png")], ()) == ["b.JPG", "a.png"]
    assert resolve_inputs(["sub"], ()) == ["sub/c.webp", "sub/deep/d.png"]
    assert resolve_inputs(["**/*.png"], ()) == ["a.png", "odd[1].png", "sub/deep/d.png"]
    assert resolve_inputs(["odd[1].png"], ()) == ["odd[1].png"]  # a file that is called like a pattern
    assert resolve_inputs(["notes.txt", "gone.png"], ()) == ["notes.txt", "gone.png"]  # failed images, later


def test_a_list_on_stdin(place) -> None:
    assert resolve_inputs(["a.png", "-"], ["b.JPG\n", "\n", "a.png\r\n", "sub\n", "*.png\n"]) == [
        "a.png", "b.JPG", "sub/c.webp", "sub/deep/d.png", "*.png",
    ]  # fmt: skip


@pytest.mark.parametrize(("words", "message"), [([], "no image"), (["empty"], "no image"), (["*.gif"], "No file"), (["-"], "no image")])  # fmt: skip
def test_nothing_meant_is_a_mistake(place, words, message) -> None:
    with pytest.raises(SaodError, match=message):
        resolve_inputs(words, ())


def test_names_of_pictures_are_plain_and_never_shared() -> None:
    files = ["/x/a.png", "/x/a.jpg", "/y/a.png", "/x/a_.png", "/x/a?.png", "/x/..", "/x/.a", "/x/" + "é" * 300 + ".png"]
    names = [picture_name(file) for file in files]
    assert len(set(names)) == len(names)
    for name in names:
        assert Path(name).name == name and not name.startswith(".") and len(name.encode()) < 255


def verdict(box: list[float], accepted: bool = True) -> Verdict:
    detections = Detections(np.array([1], np.int16), np.array([box], np.float32), np.array([0.5]))
    return Verdict(accepted, 0.25, 0.5, detections, ("ball", "star"))


@pytest.mark.parametrize("shape", [(40, 60, 3), (3, 900, 3), (2000, 2400, 3), (1, 1, 3)])
def test_a_picture_shows_the_box_where_it_is(shape) -> None:
    pixels = np.full(shape, 128, np.uint8)
    height, width = shape[:2]
    inside = [0.4 * width, 0.4 * height, 0.8 * width, 0.8 * height]
    with_box = np.asarray(Image.open(io.BytesIO(draw_verdict(pixels, verdict(inside)))))
    assert 480 <= max(with_box.shape[:2]) <= 1600 + 24
    if min(shape[:2]) > 30:
        scale = min(max(height, width, 480), 1600) / max(height, width)
        x, y = round(0.4 * width * scale), round(0.6 * height * scale)
        left = with_box[y, x - 1 : x + 3].astype(int)
        assert (np.abs(left - 128).max(axis=1) > 40).any()  # the box's left edge
        assert np.abs(with_box[y, x // 2].astype(int) - 128).max() < 10


def test_a_box_that_is_turned_over_or_outside_is_no_error() -> None:
    for box in ([50.0, 50.0, 10.0, 10.0], [-30.0, -30.0, 900.0, 900.0]):
        assert draw_verdict(np.zeros((40, 60, 3), np.uint8), verdict(box))


# requests ---------------------------------------------------------------------------------------------------------


def form(*parts: tuple[bytes, bytes]) -> bytes:
    return b"".join(b"--XX\r\n" + head + b"\r\n\r\n" + content + b"\r\n" for head, content in parts) + b"--XX--\r\n"


def test_the_file_of_a_form_is_found_to_the_last_byte() -> None:
    head = b'Content-Disposition: form-data; name="image"; filename="a.png"'
    content = bytes(range(256)) + b"\r\n--X\r\n\r\n"
    text = (b'Content-Disposition: form-data; name="note"', b"hello")
    for kind in (
        "multipart/form-data; boundary=XX", 'Multipart/Form-Data; charset=utf-8; boundary="XX"',
        "multipart/form-data; boundary=XX ; charset=utf-8", "multipart/form-data;boundary=XX;charset=utf-8",
    ):  # fmt: skip
        assert extract_image(kind, form(text, (head, content))) == content
    spaced = form((head, content)).replace(b"--XX", b"--X; X")
    assert extract_image('multipart/form-data; boundary="X; X"', spaced) == content
    for disposition in (b'form-data; name="filename="', b"form-data; name=note"):
        other = (b"Content-Disposition: " + disposition, b"hello")
        assert extract_image("multipart/form-data; boundary=XX", form(other, (head, content))) == content
    for body in (form(text), form((head, b"1"), (head, b"2")), b"", b"nonsense"):
        with pytest.raises(RefusedError) as refusal:
            extract_image("multipart/form-data; boundary=XX", body)
        assert refusal.value.status == 400


@pytest.mark.parametrize(("kind", "body", "status"), [
    ("text/plain", b"x", 415), ("", b"x", 415), ("application/x-www-form-urlencoded", b"x", 415),
    ("image/png", b"", 400), ("multipart/form-data", b"x", 400),
])  # fmt: skip
def test_other_requests_are_refused(kind, body, status) -> None:
    with pytest.raises(RefusedError) as refusal:
        extract_image(kind, body)
    assert refusal.value.status == status


def png(height: int, width: int) -> bytes:
    return cv2.imencode(".png", np.zeros((height, width, 3), np.uint8))[1].tobytes()


def test_the_limit_of_pixels_is_ours_alone(monkeypatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    gif = io.BytesIO()
    Image.new("RGB", (20, 30)).save(gif, "GIF")
    for data in (png(30, 20), gif.getvalue()):
        assert decode_pixels(data, 600).shape == (30, 20, 3)
    assert Image.MAX_IMAGE_PIXELS == 100  # what others may read stays as it was


def test_pixels_are_counted_before_they_are_made() -> None:
    assert decode_pixels(png(30, 20), 600).shape == (30, 20, 3)
    huge = bytearray(png(1, 1))
    huge[16:24] = (60000).to_bytes(4, "big") * 2  # a header that promises 10 GB
    huge[29:33] = zlib.crc32(huge[12:29]).to_bytes(4, "big")
    for data, max_pixels, status in (
        (png(30, 20), 599, 413), (bytes(huge), 10**6, 413), (b"no image at all", 10**6, 415),
        (png(300, 200)[:90], 10**6, 400), (b"%!PS-Adobe-3.0 EPSF-3.0\n", 10**6, 415),
    ):  # fmt: skip
        with pytest.raises(RefusedError) as refusal:
            decode_pixels(data, max_pixels)
        assert refusal.value.status == status, data[:8]
