"""CIFAR-10 and GTSRB in all forms in which they are published, made by the tests; the real signs where they are."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from verifolio.data import load_data
from verifolio.errors import InputError

SHARED = Path(os.environ.get("VERIFOLIO_SHARED", Path(__file__).parents[4] / "shared" / "data"))
SIGNS = SHARED / "gtsrb" / "gtsrb.zip"
NO_SIGNS = pytest.mark.skipif(
    not SIGNS.is_file(), reason=f"no traffic signs at {SIGNS}; set VERIFOLIO_SHARED"
)
PARTS = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("verifolio.plugin.data_source.SYSTEM", tmp_path / "nowhere")
    monkeypatch.setenv("VERIFOLIO_DATA", str(tmp_path))
    return tmp_path


def cifar_images(count: int, seed: int) -> tuple[np.ndarray, list[int]]:
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (count, 3072), np.uint8), random.integers(0, 10, count).tolist()


def write_binary(folder: Path, name: str, images: np.ndarray, labels: list[int]) -> None:
    rows = np.concatenate([np.array(labels, np.uint8)[:, None], images], axis=1)
    (folder / f"{name}.bin").write_bytes(rows.tobytes())


def write_pickle(folder: Path, name: str, images: np.ndarray, labels: list[int], protocol: int = 2) -> None:
    data = {b"batch_label": name.encode(), b"labels": labels, b"data": images, b"filenames": [b"x.png"]}
    (folder / name).write_bytes(pickle.dumps(data, protocol))


def write_sheet(folder: Path, name: str, images: np.ndarray, labels: list[int]) -> None:
    pixels = np.moveaxis(images.reshape(-1, 3, 1024), 1, 2)
    Image.fromarray(pixels).save(folder / f"{name}.png")
    path = folder / f"{'test' if name == 'test_batch' else 'train'}_lables.json"
    known = json.loads(path.read_text()) if path.is_file() else []
    path.write_text(json.dumps(known + labels))


@pytest.mark.parametrize("write", [write_binary, write_pickle, write_sheet])
@pytest.mark.parametrize("below", ["", "package", "package/dist"])
def test_cifar_is_the_same_in_every_form(place: Path, write: object, below: str) -> None:
    folder = place / "cifar10" / below
    folder.mkdir(parents=True)
    made = {name: cifar_images(3, k) for k, name in enumerate(PARTS)}
    for name, (images, labels) in made.items():
        write(folder, name, images, labels)  # type: ignore[operator]
    test, train = load_data("cifar10:test"), load_data("cifar10:train")
    assert np.array_equal(test.raw, made["test_batch"][0])
    assert test.labels.tolist() == made["test_batch"][1]
    assert test.shape == (3, 32, 32) and test.scale == 255
    assert np.array_equal(train.raw, np.concatenate([made[n][0] for n in PARTS[:5]]))
    assert train.labels.tolist() == [y for n in PARTS[:5] for y in made[n][1]]


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_batches_of_every_protocol_are_read(place: Path, protocol: int) -> None:
    (place / "cifar10").mkdir()
    images, labels = cifar_images(2, 7)
    write_pickle(place / "cifar10", "test_batch", images, labels, protocol)
    assert np.array_equal(load_data("cifar10:test").raw, images)


class Trap:
    """What a malicious file holds: a call of any function with any arguments."""

    def __init__(self, call: object, *arguments: object) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.call, self.arguments


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_batch_calls_nothing(place: Path, protocol: int) -> None:
    (place / "cifar10").mkdir()
    mark = place / "called"
    for trap in (Trap(os.mkdir, str(mark)), Trap(eval, f"__import__('os').mkdir({str(mark)!r})")):
        (place / "cifar10" / "test_batch").write_bytes(
            pickle.dumps({b"data": trap, b"labels": [1]}, protocol)
        )
        with pytest.raises(InputError, match="it names"):
            load_data("cifar10:test")
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x02garbage",
        pickle.dumps([1, 2]),
        pickle.dumps({b"data": np.zeros((2, 5), np.uint8), b"labels": [1, 2]}),
        pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 12]}),
        pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}),
        pickle.dumps({b"data": np.array([["a"] * 3072]), b"labels": [1]}),
    ],
)
def test_damaged_batches_are_explained(place: Path, content: bytes) -> None:
    (place / "cifar10").mkdir()
    (place / "cifar10" / "test_batch").write_bytes(content)
    with pytest.raises(InputError, match="test_batch"):
        load_data("cifar10:test")


def test_sheets_need_their_labels(place: Path) -> None:
    (place / "cifar10").mkdir()
    write_sheet(place / "cifar10", "test_batch", *cifar_images(3, 1))
    labels = place / "cifar10" / "test_lables.json"
    labels.write_text("[1, 2]")
    with pytest.raises(InputError, match="a label for every row"):
        load_data("cifar10:test")
    labels.write_text("[1, 2, ")
    with pytest.raises(InputError, match=r"test_lables.json:1: expected a list of labels"):
        load_data("cifar10:test")
    labels.unlink()
    with pytest.raises(InputError, match=r"test_lables\.json beside the sheets"):
        load_data("cifar10:test")


def sign(colour: int, suffix: str, width: int = 20, height: int = 25) -> bytes:
    stream = io.BytesIO()
    pixels = np.full((height, width, 3), (colour, 255 - colour, 7), np.uint8)
    Image.fromarray(pixels).save(stream, "PPM" if suffix == "ppm" else "PNG")
    return stream.getvalue()


def table(rows: list[tuple[str, int]], column: str, delimiter: str) -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=delimiter)
    writer.writerow(["Width", "ClassId", column])
    writer.writerows([20, label, path] for path, label in rows)
    return stream.getvalue().encode()


def kaggle() -> dict[str, bytes]:
    return {
        "Train.csv": table([("Train/20/00020_0.png", 20), ("Train/0/00000_0.png", 0)], "Path", ","),
        "Test.csv": table([("Test/00000.png", 16), ("Test/00001.png", 1)], "Path", ","),
        "Train/20/00020_0.png": sign(20, "png"),
        "Train/0/00000_0.png": sign(0, "png"),
        "Test/00000.png": sign(16, "png", 40, 33),
        "Test/00001.png": sign(1, "png"),
    }


def official() -> dict[str, bytes]:
    """The training tables lie beside their pictures, the test labels in a folder of their own."""
    train, test = "GTSRB/Final_Training/Images", "GTSRB/Final_Test/Images"
    return {
        f"{train}/00020/GT-00020.csv": table([("00000_00000.ppm", 20)], "Filename", ";"),
        f"{train}/00020/00000_00000.ppm": sign(20, "ppm"),
        f"{train}/00000/GT-00000.csv": table([("00000_00000.ppm", 0)], "Filename", ";"),
        f"{train}/00000/00000_00000.ppm": sign(0, "ppm"),
        f"{test}/GT-final_test.test.csv": b"Filename;Width\n00000.ppm;20\n",
        f"{test}/00000.ppm": sign(16, "ppm", 40, 33),
        f"{test}/00001.ppm": sign(1, "ppm"),
        "labels/GT-final_test.csv": table([("00000.ppm", 16), ("00001.ppm", 1)], "Filename", ";"),
    }


@pytest.mark.parametrize("files", [kaggle(), official()], ids=["kaggle", "official"])
@pytest.mark.parametrize("zipped", [False, True])
def test_signs(place: Path, files: dict[str, bytes], zipped: bool) -> None:
    folder = place / "gtsrb"
    folder.mkdir()
    if zipped:
        with zipfile.ZipFile(folder / "signs.zip", "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
    else:
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    test, train = load_data("gtsrb:test"), load_data("gtsrb:train")
    assert test.labels.tolist() == [16, 1]
    assert sorted(train.labels.tolist()) == [0, 20]
    assert test.shape == (3, 32, 32) and test.classes == 43
    for data in (test, train):
        for k, label in enumerate(data.labels.tolist()):
            red, green, blue = data.raw[k].reshape(3, 1024)
            assert set(red) == {label} and set(green) == {255 - label} and set(blue) == {7}


@pytest.mark.parametrize(
    ("rows", "column", "said"),
    [
        ([("Test/00000.png", 43)], "Path", r"Test\.csv:2: expected a class below 43"),
        ([("Test/7.png", 1)], "Path", "a picture that the table names"),
        ([("Test/00000.png", 1)], "File", "the columns ClassId and Path or Filename"),
    ],
)
def test_wrong_tables_are_explained(place: Path, rows: list[tuple[str, int]], column: str, said: str) -> None:
    (place / "gtsrb" / "Test").mkdir(parents=True)
    (place / "gtsrb" / "Test.csv").write_bytes(table(rows, column, ","))
    (place / "gtsrb" / "Test" / "00000.png").write_bytes(sign(1, "png"))
    with pytest.raises(InputError, match=said):
        load_data("gtsrb:test")


def test_broken_archives_are_explained(place: Path) -> None:
    (place / "gtsrb").mkdir()
    (place / "gtsrb" / "signs.zip").write_bytes(b"PK no zip")
    with pytest.raises(InputError, match="a zip file"):
        load_data("gtsrb:test")


@NO_SIGNS
@pytest.mark.slow
def test_the_real_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFOLIO_DATA", str(SHARED))
    data = load_data("gtsrb:test")
    assert len(data) == 12_630
    assert data.labels[:5].tolist() == [16, 1, 38, 33, 11]
    assert set(data.labels.tolist()) == set(range(43))
    assert len(load_data("gtsrb:train")) == 7842
