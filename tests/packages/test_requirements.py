"""What a model's requirements come to: what the worker adds, what counts as the same, what is honoured and refused."""

import random
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import ModelLoadError
from steelyard.packages.inspect import Package
from steelyard.packages.model_files import Kind
from steelyard.packages.requirements import needed

HERE = ("3.11", "cpython-linux-x86_64-glibc-2.39")


def of(*lines: str, folder: Path = Path("/nowhere"), **facts):
    return needed(Package(folder, facts.pop("kind", Kind.MLFLOW), requirements=lines, **facts))


@pytest.mark.parametrize(
    ("lines", "version", "expected"),
    [
        ((), "2.9.2", ("mlflow", "msgspec>=0.19")),  # a model that states nothing conflicts with nothing
        (("numpy==1.26.4",), "2.9.2", ("mlflow==2.9.2", "msgspec>=0.19", "numpy==1.26.4")),
        (("numpy==1.26.4",), "3.2.1.dev0", ("mlflow", "msgspec>=0.19", "numpy==1.26.4")),
        (("numpy",), None, ("mlflow", "msgspec>=0.19", "numpy")),
        (("MLflow-Skinny==2.9.2",), "2.9.2", ("mlflow-skinny==2.9.2", "msgspec>=0.19")),
        (("mlflow[extras]==2.9.2", "msgspec==0.18.6"), "2.9.2", ("mlflow[extras]==2.9.2", "msgspec==0.18.6")),
    ],
)
def test_mlflow_and_msgspec_are_added_where_the_model_names_none(lines, version, expected):
    assert of(*lines, mlflow_version=version).lines == expected


def test_a_bare_file_needs_the_library_of_its_format():
    assert of(kind=Kind.LIGHTGBM).lines == ("lightgbm", "msgspec>=0.19")
    assert of(kind=Kind.SENTENCE_TRANSFORMERS).lines == ("msgspec>=0.19", "sentence-transformers")
    assert of(kind=Kind.LIGHTGBM).beside == ()


def test_setuptools_comes_from_the_time_of_the_model_and_is_no_reason_for_an_environment():
    assert of("numpy").beside == ("setuptools<81",)
    assert of("numpy", build_requirements=("pip", "setuptools", "wheel")).beside == ("setuptools<81",)
    assert of("numpy", build_requirements=("pip==23.0", "setuptools==65.5.0")).beside == ("setuptools==65.5.0",)
    assert of("numpy", build_requirements=("pip==25.0",)).beside == ()
    assert of("numpy", "setuptools==70.0").beside == ()


@given(st.randoms(use_true_random=False))
def test_order_spelling_and_repetition_do_not_change_the_key(rng: random.Random):
    lines = ["scikit-learn==1.4.2", "numpy<2,>=1.20", "pandas==2.1.4; python_version < '3.12'", "torch[opt]==2.1"]
    other = ["Scikit_Learn == 1.4.2", "numpy>=1.20, <2", 'Pandas==2.1.4;python_version<"3.12"', "torch [opt] == 2.1"]
    mixed = [rng.choice(pair) for pair in zip(lines, other, strict=True)] + [rng.choice(lines)]
    rng.shuffle(mixed)
    assert of(*mixed).key(*HERE) == of(*lines).key(*HERE)


def test_everything_that_changes_the_result_changes_the_key():
    base = of("numpy==1.26.4")
    keys = {
        base.key(*HERE),
        base.key("3.12", HERE[1]),
        base.key(HERE[0], "cpython-linux-aarch64-glibc-2.39"),
        of("numpy==1.26.3").key(*HERE),
        of("numpy==1.26.4 --hash=sha256:" + "0" * 64).key(*HERE),
        of("numpy==1.26.4", "--extra-index-url https://wheels.example.invalid/simple").key(*HERE),
        of("numpy==1.26.4", build_requirements=("setuptools==65.0.0",)).key(*HERE),
    }
    assert len(keys) == 7


def test_indexes_and_hashes_are_honoured():
    found = of(
        "--index-url https://a.example.invalid/simple --extra-index-url=https://b.example.invalid/whl",
        "-f https://c.example.invalid/links",
        "--pre",
        "--prefer-binary",
        "six==1.16.0 --hash=sha256:ab --hash sha256:cd",
        "mylib @ https://d.example.invalid/mylib-1.0-py3-none-any.whl",
        "git+https://e.example.invalid/lib.git@v1",
    )
    assert found.options == (
        *("--index-url", "https://a.example.invalid/simple", "--extra-index-url", "https://b.example.invalid/whl"),
        *("--find-links", "https://c.example.invalid/links", "--prerelease=allow"),
        *("--index-strategy", "unsafe-best-match"),  # as pip, for which the model was written
    )
    assert "six==1.16.0 --hash=sha256:ab --hash=sha256:cd" in found.lines
    assert "mylib@ https://d.example.invalid/mylib-1.0-py3-none-any.whl" in [
        line.replace("mylib @", "mylib@") for line in found.lines
    ]
    assert "git+https://e.example.invalid/lib.git@v1" in found.lines
    assert not any("://" in name for name in found.names())


def test_files_and_wheels_of_the_model_are_honoured_by_their_content(tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        (folder / "wheels").mkdir(parents=True)
        (folder / "wheels" / "My_Lib-1.0-py3-none-any.whl").write_bytes(b"a wheel")
        (folder / "more.txt").write_text("six==1.16.0\n-c constraints.txt\n")
        (folder / "constraints.txt").write_text("numpy<2  # why\n")
    lines = ("-r more.txt", "wheels/My_Lib-1.0-py3-none-any.whl")
    one, two = (of(*lines, folder=folder) for folder in folders)
    assert one.wheels[0].name == "my-lib"
    assert "six==1.16.0" in one.lines
    assert one.constraints == ("numpy<2",)
    assert any(line.startswith("my-lib @ file:///") for line in one.for_uv())
    assert one.key(*HERE) == two.key(*HERE)
    (folders[1] / "wheels" / "My_Lib-1.0-py3-none-any.whl").write_bytes(b"another wheel")
    assert of(*lines, folder=folders[1]).key(*HERE) != one.key(*HERE)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-e .", "an editable install has no place in a model"),
        ("--editable=./src", "an editable install"),
        ("--trusted-host evil.example.invalid", "certificate"),
        ("--no-binary :all:", "build packages from source"),
        ("--config-settings=--build-option=x", "not one that is known"),
        ("--python /bin/sh", "not one that is known"),
        ("-r ../secrets.txt", "outside of the model"),
        ("-r /etc/passwd", "outside of the model"),
        ("-r none.txt", "the model does not hold it"),
        ("-r", "the model does not hold it"),
        ("-c '", "quotes do not match"),
        ("-r circle.txt", "circle"),
        ("--find-links ./wheels", "must be an http"),
        ("--index-url file:///srv/index", "must be an http"),
        ("./pkg", "only wheels inside of the model"),
        ("pkg/dist/pkg-1.0.tar.gz", "only wheels inside of the model"),
        ("../other-1.0-py3-none-any.whl", "outside of the model"),
        ("missing-1.0-py3-none-any.whl", "the model does not hold it"),
        ("numpy @ file:///croot/numpy_1/work", "outside of the model"),
        ("lib @ git+ssh://git@host.invalid/lib", "only https:// and git\\+https://"),
        ("git+file:///srv/lib", "only https:// and git\\+https://"),
        ("git+ext::sh -c evil", "cannot be honoured"),
        ("lib @ https://${TOKEN}@host.invalid/lib.whl", "environment variable"),
        ("--index-url https://host.invalid/?${AWS_SECRET_ACCESS_KEY}", "environment variable"),
        ("six==1.16.0 --global-option=--evil", "no requirement that can be read"),
        ("name_", "no requirement that can be read"),
        ("not a requirement", "no requirement that can be read"),
    ],
)
def test_what_could_run_commands_or_leave_the_model_is_refused_in_one_sentence(tmp_path, line, message):
    (tmp_path / "circle.txt").write_text("-r circle.txt\n")
    with pytest.raises(ModelLoadError, match=message) as caught:
        of(line, folder=tmp_path)
    assert caught.value.message.startswith("The model's requirements name ")
    assert "\n" not in caught.value.message


@given(st.text(alphabet=string.ascii_letters + string.digits + " -=<>./:@[];\"'$+_~#\\", max_size=60))
def test_any_text_is_either_a_requirement_or_a_refusal_and_never_an_unknown_option(line):
    try:
        found = of(line, folder=Path("/nowhere"))
    except ModelLoadError:
        return
    assert not any(item.startswith("-") for item in found.for_uv())
    allowed = ("--index-url", "--extra-index-url", "--find-links", "--prerelease=allow", "--no-index")
    assert all(item in allowed or item.startswith("http") for item in found.options if item not in _STRATEGY)


_STRATEGY = ("--index-strategy", "unsafe-best-match")
