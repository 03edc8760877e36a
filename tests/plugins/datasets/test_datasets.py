"""The data sets: known facts about the real ones, made-up files for the formats."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from verifolio.data import load_data
from verifolio.errors import InputError
from verifolio.files.arrays import read_array, read_arrays

SHARED = Path(os.environ.get("VERIFOLIO_SHARED", Path(__file__).parents[4] / "shared" / "data"))
NO_MNIST = pytest.mark.skipif(
    not (SHARED / "mnist").is_dir(), reason=f"no MNIST at {SHARED / 'mnist'}; set VERIFOLIO_SHARED"
)


@pytest.fixture(autouse=True)
def no_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system's packages hold is no matter of these tests."""
    monkeypatch.setattr("verifolio.plugin.data_source.SYSTEM", tmp_path / "nowhere")


def test_digits_are_split_without_overlap() -> None:
    learn, test, every = (load_data(f"digits:{s}") for s in ("train", "test", "all"))
    assert (len(learn), len(test), len(every)) == (1438, 359, 1797)
    assert test.shape == (1, 8, 8)
    assert test.classes == 10
    assert every.images.min() == 0.0 and every.images.max() == 1.0
    assert np.array_equal(np.sort(np.concatenate([learn.labels, test.labels])), np.sort(every.labels))
    assert set(test.labels.tolist()) == set(range(10))


def test_the_default_split_is_test_and_loading_is_deterministic() -> None:
    first, second = load_data("digits"), load_data("digits:test")
    assert np.array_equal(first.images, second.images)
    assert np.array_equal(first.image(0).astype(np.float32), first.image(0)), "sixteenths are float32"


@NO_MNIST
def test_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFOLIO_DATA", str(SHARED))
    data = load_data("mnist:test")
    assert len(data) == 10_000
    assert data.shape == (1, 28, 28)
    assert data.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert data.image(0).max() == 1.0
    assert data.raw.dtype == np.uint8, "images are converted when asked for"


def write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    data = header + array.astype(np.uint8).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("below", ["", "data", "package/data"])
def test_idx_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, below: str) -> None:
    monkeypatch.setenv("VERIFOLIO_DATA", str(tmp_path))
    folder = tmp_path / "fashion-mnist" / below
    write_idx(folder / f"train-images-idx3-ubyte{ending}", np.full((4, 3, 2), 51))
    write_idx(folder / f"train-labels-idx1-ubyte{ending}", np.array([3, 1, 2, 9]))
    data = load_data("fashion-mnist:train")
    assert data.shape == (1, 3, 2)
    assert data.labels.tolist() == [3, 1, 2, 9]
    assert data.image(0).tolist() == [0.2] * 6
    with pytest.raises(InputError, match=r"t10k-images-idx3-ubyte.*VERIFOLIO_DATA/fashion-mnist"):
        load_data("fashion-mnist:test")


def test_absent_data_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFOLIO_DATA", str(tmp_path))
    for name in ("mnist", "cifar10"):
        with pytest.raises(InputError) as error:
            load_data(name)
        assert str(tmp_path / name) in str(error.value)
        assert "$VERIFOLIO_DATA" in str(error.value)


@pytest.mark.parametrize("damage", ["short", "long", "magic", "header", "gzip"])
def test_damaged_idx_files_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setenv("VERIFOLIO_DATA", str(tmp_path))
    images, labels = (tmp_path / "mnist" / f"t10k-{k}-ubyte" for k in ("images-idx3", "labels-idx1"))
    write_idx(images, np.zeros((2, 2, 2)))
    write_idx(labels, np.zeros(2))
    data = images.read_bytes()
    broken = {"short": data[:-1], "long": data + b"x", "magic": b"\x01" + data[1:], "header": data[:6]}
    if damage == "gzip":
        images.unlink()
        images.with_name(f"{images.name}.gz").write_bytes(b"not gzip")
    else:
        images.write_bytes(broken[damage])
    with pytest.raises(InputError, match="t10k-images"):
        load_data("mnist:test")


def test_cifar_binary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFOLIO_DATA", str(tmp_path))
    folder = tmp_path / "cifar10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    (folder / "test_batch.bin").write_bytes(bytes([7]) + bytes([255]) * 3072 + bytes([2]) + bytes(3072))
    data = load_data("cifar10:test")
    assert data.labels.tolist() == [7, 2]
    assert data.shape == (3, 32, 32)
    assert data.image(0).min() == 1.0
    with pytest.raises(InputError, match="data_batch_1"):
        load_data("cifar10:train")
    (folder / "test_batch.bin").write_bytes(b"short")
    with pytest.raises(InputError, match="records of 3073 bytes"):
        load_data("cifar10:test")


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    np.savez(
        path, x_test=np.full((2, 1, 2, 2), 255, np.uint8), y_test=np.array([1, 0]), x_train=np.zeros((3, 4))
    )
    data = load_data(f"{path}:test")
    assert data.shape == (1, 2, 2)
    assert data.image(0).tolist() == [1.0] * 4
    assert data.classes == 2
    assert load_data(str(path)).labels.tolist() == [1, 0]
    unlabelled = load_data(f"{path}:train")
    assert unlabelled.labels.tolist() == [-1, -1, -1]
    assert unlabelled.classes == 0
    with pytest.raises(InputError, match="images_other"):
        load_data(f"{path}:other")


def test_npy_with_labels_beside_it(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.full((2, 3), 0.5))
    assert load_data(str(tmp_path / "a.npy")).labels.tolist() == [-1, -1]
    np.save(tmp_path / "a_labels.npy", np.array([4.0, 2.0]))
    assert load_data(str(tmp_path / "a.npy")).labels.tolist() == [4, 2]


def test_pickled_arrays_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{"x": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="plain array"):
        load_data(str(tmp_path / "a.npy"))


@pytest.mark.parametrize(
    "array",
    [np.zeros(3), np.zeros((2, 0)), np.zeros((0, 2)), np.full((2, 2), np.nan), np.array([["a", "b"]])],
    ids=str,
)
def test_arrays_that_are_no_inputs_are_refused(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(InputError, match=r"a\.npy"):
        load_data(str(tmp_path / "a.npy"))


def test_labels_that_are_no_classes_are_refused(tmp_path: Path) -> None:
    for labels in (np.array([0.5, 1.0]), np.array([0]), np.array([-3, 0]), np.array(["a", "b"])):
        np.savez(tmp_path / "a.npz", x=np.zeros((2, 2)), y=labels)
        with pytest.raises(InputError, match="class numbers"):
            load_data(str(tmp_path / "a.npz"))


@pytest.mark.parametrize(
    ("text", "labels", "first"),
    [
        ("3,0.1,0.2\n1,0.3,0.4\n", [3, 1], [0.1, 0.2]),
        ("a,label,b\n0.1,3,0.2\n0.3,1,0.4\n", [3, 1], [0.1, 0.2]),
        ("a,b\n0.1,0.2\n\n", [-1], [0.1, 0.2]),
    ],
)
def test_csv(tmp_path: Path, text: str, labels: list[int], first: list[float]) -> None:
    for path, data in (
        (tmp_path / "a.csv", text.encode()),
        (tmp_path / "b.csv.gz", gzip.compress(text.encode())),
    ):
        path.write_bytes(data)
        loaded = load_data(str(path))
        assert loaded.labels.tolist() == labels
        assert loaded.image(0).tolist() == first


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("1,2\n1,x\n", "a.csv:2:2"),
        ("1,2\n1\n", "a.csv:2"),
        ("", "empty"),
        ("label,a\n", "one input per row"),
        ("1,nan\n", "finite"),
    ],
)
def test_bad_csv_is_explained(tmp_path: Path, text: str, where: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=where):
        load_data(str(tmp_path / "a.csv"))


def test_an_unknown_kind_of_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("")
    with pytest.raises(InputError, match=r"\.csv"):
        load_data(str(tmp_path / "a.parquet"))


def test_archives_are_read_up_to_a_limit(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((1000, 1000)))
    assert (tmp_path / "a.npz").stat().st_size < 100_000
    with pytest.raises(InputError, match="more than 1000000 bytes"):
        read_arrays(tmp_path / "a.npz", "arrays", 1_000_000)
    np.save(tmp_path / "a.npy", np.zeros((10, 10)))
    with pytest.raises(InputError, match="allowed"):
        read_array(tmp_path / "a.npy", "an array", 500)


def test_arrays_are_what_numpy_reads(tmp_path: Path) -> None:
    for array in (
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.eye(3)),
        np.array(7),
        np.zeros((0, 2)),
        np.array("a"),
    ):
        np.savez(tmp_path / "a.npz", x=array)
        found = read_arrays(tmp_path / "a.npz", "arrays")["x"]
        assert found.dtype == array.dtype
        assert found.shape == array.shape
        assert (found == array).all()


def test_a_header_that_claims_too_much(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 2)))
    data = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(data.replace(b"(2, 2)", b"(9, 9)"))
    with pytest.raises(InputError, match=r"a\.npy"):
        load_data(str(tmp_path / "a.npy"))


def test_a_table_has_names(tmp_path: Path) -> None:
    path = tmp_path / "wine.csv"
    path.write_text("Alcohol,class,proline\n13.5,red,1000\n12,white,700\n11,red,650\n")
    data = load_data(str(path))
    assert data.features == ("Alcohol", "proline") and data.class_names == ("red", "white")
    assert data.labels.tolist() == [0, 1, 0] and data.image(1).tolist() == [12.0, 700.0]
    path.write_text("a,b,kind\n1,2,x\n3,4,y\n")
    assert load_data(f"{path}:kind").class_names == ("x", "y")
    with pytest.raises(InputError, match="a column among a, b, kind"):
        load_data(f"{path}:sort")
    with pytest.raises(InputError, match=r":2:3: expected a number, got 'x'"):
        load_data(str(path))


def test_pictures_by_class_and_one_picture(tmp_path: Path) -> None:
    from PIL import Image

    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    for name in ("cat/1.png", "dog/2.png", "dog/3.PNG"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / name)
    data = load_data(str(tmp_path))
    assert data.class_names == ("cat", "dog") and data.labels.tolist() == [0, 1, 1]
    assert data.shape == (3, 4, 4) and data.image(0)[1] == 3 / 255
    Image.fromarray(pixels[:, :, 0]).save(tmp_path / "grey.png")
    one = load_data(str(tmp_path / "grey.png"))
    assert one.shape == (1, 4, 4) and one.labels.tolist() == [-1]
    Image.fromarray(pixels[:3]).save(tmp_path / "cat/4.png")
    with pytest.raises(InputError, match="resize the pictures"):
        load_data(str(tmp_path))
    (tmp_path / "cat/4.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match="a picture"):
        load_data(str(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="one folder for each class"):
        load_data(str(tmp_path / "empty"))


def test_pictures_of_more_than_eight_bits_are_refused(tmp_path: Path) -> None:
    """The library cuts their values off at 255, so that nearly all of them were white."""
    from PIL import Image

    Image.fromarray(np.array([[0, 1000, 65535]], np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(InputError, match="more than 8 bits"):
        load_data(str(tmp_path / "deep.png"))


def test_a_folder_without_pictures_is_a_class_as_well(tmp_path: Path) -> None:
    from PIL import Image

    for name in ("bird", "cat", "dog", ".cache"):
        (tmp_path / name).mkdir()
    Image.fromarray(np.zeros((2, 2), np.uint8)).save(tmp_path / "dog/1.png")
    data = load_data(str(tmp_path))
    assert data.class_names == ("bird", "cat", "dog") and data.labels.tolist() == [2]
