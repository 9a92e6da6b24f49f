"""Kills, full disks and other filesystems: an import is there as a whole or not at all."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import saod_ray

from saod_ray.files import Folder
from saod_ray.store.store import Store
from saod_ray.store.verify import verify

pytestmark = pytest.mark.slow
IMAGES = 600


@pytest.fixture(scope="module")
def case(tmp_path_factory) -> Path:
    """A use case and 60,000 detections: an import that takes long enough to be killed in every phase."""
    folder = tmp_path_factory.mktemp("case")
    truth = {"images": [{"id": i} for i in range(IMAGES)], "categories": [{"id": 1, "name": "a"}]}
    (folder / "truth.json").write_text(json.dumps(truth))
    (folder / "use-case.toml").write_text(
        'name = "big"\n[splits.val]\nannotations = "truth.json"\n[splits.id]\nannotations = "truth.json"\n'
    )
    rng = np.random.default_rng(0)
    rows = [
        {"image_id": int(i), "category_id": 1, "bbox": box, "score": score}
        for i, box, score in zip(
            rng.integers(0, IMAGES, 60_000).tolist(),
            rng.random((60_000, 4)).tolist(),
            rng.random(60_000).tolist(),
            strict=True,
        )
    ]
    (folder / "found.json").write_text(json.dumps(rows))
    return folder


def command(case: Path, store: object) -> list[str]:
    args = ["import", store, "--use-case", case / "use-case.toml", "--detector", "d", "--split", "id"]
    args += ["--detections", case / "found.json", "--shard-images", 20]
    return [str(arg) for arg in args]


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_sigkill_at_random_moments(case, tmp_path) -> None:
    began = time.monotonic()
    assert saod_ray(*command(case, tmp_path / "undisturbed")).returncode == 0
    whole = time.monotonic() - began
    expected = files(tmp_path / "undisturbed")
    assert len(expected) == 1 + 6 + 1 + IMAGES // 20  # the use case, manifests, a ledger page, shards
    chance = random.Random(7)
    killed = leftovers = 0
    for number in range(10):
        store = tmp_path / f"killed{number}"
        process = subprocess.Popen([sys.executable, "-m", "saod_ray", *command(case, store)], stdout=subprocess.PIPE)
        time.sleep(chance.uniform(0.35, 1.0) * whole)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
        if (store / "use-case.json").exists():  # what a reader sees is absent or whole
            opened = Store.open(str(store))
            assert len(opened.shards("d", "id")) in (0, IMAGES // 20)
            assert [p for p in verify(opened, opened.detectors()).problems if "damaged" in p.what] == []
        leftovers += store.exists() and files(store).keys() != expected.keys()
        again = saod_ray(*command(case, store))
        assert again.returncode == 0, again.stderr  # also where it was done before the kill
        assert files(store) == expected
    assert killed >= 5 and leftovers >= 2  # the kills came at moments that matter


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a tmpfs needs root: run this test as root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_fills_up(case, small_disk) -> None:
    run = saod_ray(*command(case, small_disk / "store"))
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1 and "No space left on device" in run.stderr, run.stderr
    assert "run the same command again" in run.stderr and str(small_disk) in run.stderr
    left = [p for p in (small_disk / "store").rglob("*") if p.is_file() and "manifest" not in str(p)]
    assert [p.name for p in left] == ["use-case.json"]  # no shard, no spill, no half-written file
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert saod_ray(*command(case, small_disk / "store")).returncode == 0


def test_a_disk_that_fills_up_while_shards_are_committed(case, small_disk) -> None:
    # the spilled detections fit (46 bytes each, 2.8 MB), the shards (3.5 MB) do not
    subprocess.run(["mount", "-o", "remount,size=3m", str(small_disk)], check=True)
    run = saod_ray(*command(case, small_disk / "store"))
    assert run.returncode == 1 and "No space left on device" in run.stderr, run.stderr
    assert not list((small_disk / "store").rglob("*.parquet.*")) and not (small_disk / "store" / ".scratch").exists()
    assert not [p for p in (small_disk / "store").rglob("*.parquet") if "detections" in str(p)]


def test_a_folder_that_cannot_be_written(case, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    run = saod_ray(*command(case, tmp_path / "file" / "store"))
    assert run.returncode == 1 and run.stderr.count("\n") == 1 and "Not a directory" in run.stderr, run.stderr


def test_a_killed_writers_temporary_files_are_swept(tmp_path) -> None:
    import socket

    folder = Folder(str(tmp_path))
    folder.put("a/b.json", b"{}")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    gone = tmp_path / "a" / f".x.parquet.{socket.gethostname()}-{dead.pid}-0123abcd.tmp"
    alive = tmp_path / "a" / f".x.parquet.{socket.gethostname()}-{os.getpid()}-0123abcd.tmp"
    for path in (gone, alive):
        path.write_bytes(b"half")
    assert folder.sweep() == 1
    assert alive.exists() and not gone.exists()
    assert folder.list("a") == ["b.json"]


def start(case: Path, store: Path, detections: str = "found.json") -> subprocess.Popen[str]:
    args = command(case, store)
    args[args.index("--detections") + 1] = str(case / detections)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "saod_ray", *args], **pipes)


def test_two_imports_of_one_split_at_once(case, tmp_path) -> None:
    """One import succeeds, the other is refused or has nothing to do. Interrupting one loses nothing of the other."""
    for number in range(4):
        store = tmp_path / str(number)
        is_interrupted = number % 2 == 1
        processes = [start(case, store)]
        while is_interrupted and not store.exists():  # an interrupt during imports would print a traceback
            assert processes[0].poll() is None
            time.sleep(0.01)
        processes.append(start(case, store))
        if is_interrupted:
            time.sleep(0.3 * number)
            processes[0].send_signal(signal.SIGINT)
        messages = [process.communicate()[1] for process in processes]
        codes = [process.returncode for process in processes]
        assert "Traceback" not in "".join(messages), messages
        for code, message in zip(codes, messages, strict=True):
            assert code in ((0, 1, 130) if is_interrupted else (0, 1)), (code, message)
            if code == 1:
                assert "is writing 'd' on id" in message, message
        if not is_interrupted:
            assert 0 in codes, messages  # whoever held the lock has finished
        if codes == [0, 0]:
            assert "already imported" in "".join(messages)
        if 0 not in codes:  # the interrupted process held the lock: the next import must not be locked out
            again = saod_ray(*command(case, store))
            assert again.returncode == 0, again.stderr
        opened = Store.open(str(store))
        assert len(opened.shards("d", "id")) == IMAGES // 20
        assert not [p for p in verify(opened, ["d"]).problems if p.where.startswith("detections")]
        assert not list(store.glob(".writing*"))


def test_imports_of_different_detectors_into_a_new_store_at_once(case, tmp_path) -> None:
    processes = []
    for detector in ("a", "b", "c"):
        args = command(case, tmp_path / "store")
        args[args.index("--detector") + 1] = detector
        processes.append(subprocess.Popen([sys.executable, "-m", "saod_ray", *args], stdout=subprocess.DEVNULL))
    assert [process.wait() for process in processes] == [0, 0, 0]
    opened = Store.open(str(tmp_path / "store"))
    assert opened.detectors() == ["a", "b", "c"]
    assert not [p for p in verify(opened, ["a", "b", "c"]).problems if "no detections" not in p.what]


def test_two_use_cases_into_a_new_store_at_once(case, tmp_path) -> None:
    """One of them gets the store; the other is refused, whoever describes it first."""
    other = tmp_path / "other"
    shutil.copytree(case, other)
    slow = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1]}
    truth = json.loads((case / "truth.json").read_text())
    (other / "truth.json").write_text(json.dumps({**truth, "annotations": [{**slow, "id": k} for k in range(200_000)]}))
    for number, wait in enumerate((0.0, 0.4, 0.8)):
        store = tmp_path / str(number)
        first = start(other, store)
        time.sleep(wait)
        args = command(case, store)
        args[args.index("--detector") + 1] = "e"
        second = saod_ray(*args)
        _, errors = first.communicate()
        codes = (first.returncode, second.returncode)
        assert codes in ((0, 1), (1, 0)), (errors, second.stderr)
        opened = Store.open(str(store))
        assert opened.detectors() == (["d"] if codes[0] == 0 else ["e"])
        assert opened.manifest("val").objects.height == (200_000 if codes[0] == 0 else 0)


def test_a_detector_without_a_page_does_not_exist(case, tmp_path) -> None:
    assert saod_ray(*command(case, tmp_path / "store")).returncode == 0
    (tmp_path / "store" / "ledger" / "ghost" / "val").mkdir(parents=True)
    assert Store.open(str(tmp_path / "store")).detectors() == ["d"]


def test_the_cache_may_be_deleted_while_scoring(golden_store, tmp_path) -> None:
    shutil.copytree(golden_store.uri, tmp_path / "store", ignore=shutil.ignore_patterns("cache"))
    process = subprocess.Popen(
        [sys.executable, "-m", "saod_ray", "score", tmp_path / "store"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None:
        shutil.rmtree(tmp_path / "store" / "cache", ignore_errors=True)
    assert process.returncode == 0, process.communicate()


# other filesystems ------------------------------------------------------------------------------------------------


def golden_through(uri: str, golden: Path, env: dict[str, str] | None = None) -> str:
    """Import, verify, score and export through the real command; returns the results."""
    splits = ("val", "pseudo-ood", "id", "id-c1", "id-c3", "id-c5", "ood")
    for split in splits:
        args = ["--use-case", golden / "use-case.toml", "--detector", "toy", "--split", split]
        run = saod_ray("import", uri, *args, "--detections", golden / f"{split}.detections.json.gz", env=env)
        assert run.returncode == 0, run.stderr
    assert saod_ray("verify", uri, env=env).returncode == 0
    run = saod_ray("score", uri, "--json", env=env)
    assert run.returncode == 0, run.stderr
    assert saod_ray("score", uri, "--calibrator", "none", env=env).returncode == 0
    return run.stdout


def test_a_file_uri(golden, tmp_path) -> None:
    plain = golden_through(str(tmp_path / "plain"), golden)
    assert golden_through(f"file://{tmp_path}/uri", golden) == plain
    shutil.rmtree(tmp_path / "plain" / "cache")
    shutil.rmtree(tmp_path / "uri" / "cache")
    assert files(tmp_path / "plain").keys() == files(tmp_path / "uri").keys()


@pytest.fixture
def s3() -> Iterator[tuple[str, dict[str, str]]]:
    """An S3-compatible server on loopback: (a store's URI, the environment that reaches it)."""
    boto3 = pytest.importorskip("boto3")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    env = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{host}:{port}",
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    client.create_bucket(Bucket="bench")
    yield f"s3://bench/runs/one?endpoint_override={host}:{port}&scheme=http&region=us-east-1", env
    server.stop()


def test_an_object_store(s3, golden, tmp_path) -> None:
    uri, env = s3
    assert golden_through(uri, golden, env) == golden_through(str(tmp_path / "plain"), golden)
    out = tmp_path / "back.json"
    run = saod_ray("export", uri, "--detector", "toy", "--split", "id", "--out", out, env=env)
    assert run.returncode == 0, run.stderr
    assert len(json.loads(out.read_text())) == 3677


def test_an_object_store_that_is_not_there(golden, tmp_path) -> None:
    env = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
    uri = "s3://bench/x?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1"
    run = saod_ray("score", uri, env=env)
    assert run.returncode == 1 and run.stderr.count("\n") == 1, run.stderr


# memory -----------------------------------------------------------------------------------------------------------


def peak_of_import(case: Path, folder: Path, times: int) -> int:
    """The peak memory in MiB of importing the case's detections `times` over."""
    inner = (case / "found.json").read_bytes()[1:-1]
    with (folder / "large.json").open("wb") as out:
        out.write(b"[" + b",".join([inner] * times) + b"]")
    code = (
        "import sys\nfrom saod_ray.cli import main\ntry:\n    main(sys.argv[1:])\nfinally:\n"
        "    print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0], file=sys.stderr)"
    )
    args = command(case, folder / f"store{times}")
    args[args.index("--detections") + 1] = str(folder / "large.json")
    run = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return int(run.stderr.split()[-1]) // 1024


def test_memory_does_not_grow_with_the_file(case, tmp_path) -> None:
    small, large = peak_of_import(case, tmp_path, 4), peak_of_import(case, tmp_path, 24)  # 30 MB and 180 MB of JSON
    assert large < small + 100
    assert large < 700


def test_the_demo(tmp_path) -> None:
    root = Path(__file__).parents[2]
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for _ in range(2):  # it can be run again
        run = subprocess.run([root / "examples/demo/run", tmp_path / "demo"], capture_output=True, text=True, env=env)
        assert run.returncode == 0, run.stderr
    assert "sharp" in run.stdout and "LaECE_T" in run.stdout
    assert json.loads((tmp_path / "demo" / "results.json").read_text())["use_case"] == "demo"
