"""Faults of jobs that runners do not support, reported together."""

import pytest
from runner_cases import command, make_job, typical

from hyperplane.errors import RequestError
from hyperplane.jobs import Resources, calls
from hyperplane.jobs.exporters.registry import EXPORTERS, create_exporter, render
from hyperplane.jobs.runners.registry import RUNNERS, create_runner


def faults(runner, job, **options):
    with pytest.raises(RequestError) as caught:
        render(runner, job, **options)
    return {fault.where: str(fault) for fault in caught.value.faults}


def test_an_unknown_runner_suggests_the_similar_one():
    (fault,) = faults("slrum", typical()).values()
    known = ", ".join(EXPORTERS.names())
    assert fault == f"runner = 'slrum': expected one of {known}; did you mean slurm?"
    assert [create_exporter(name).name for name in EXPORTERS.names()] == EXPORTERS.names()
    known = f"expected one of {', '.join(RUNNERS.names())}; did you mean local"
    with pytest.raises(RequestError, match=known):
        create_runner("locale", {}, {})


def test_unknown_options_suggest_the_similar_ones():
    with pytest.raises(RequestError) as caught:
        create_exporter("kubernetes", imgae="x", python="y")
    first, second = map(str, caught.value.faults)
    assert first.startswith("imgae: unknown option of kubernetes; expected image, root")
    assert first.endswith("did you mean image?")
    assert second.startswith("python: unknown option")


def test_features_that_kubernetes_lacks_are_reported_together():
    steps = [
        command("a", "x", resources=Resources(ram_gb=1), more_memory=2, depends_on=()),
        command("b", "x", chunks=2, split=4, secrets=("My_Db/password",), depends_on=()),
        command("c", "x", foreach=("é" * 70_000,), depends_on=()),
        command("d", "python", "-m", calls.PROGRAM, resources=Resources(pool="16_61")),
    ]
    job = make_job(*steps, requirements="requirements.txt", parameters={"a": "\udcff"})
    messages = faults("kubernetes", job, root="relative")
    assert list(messages) == [
        "image",
        "root",
        "requirements",
        "steps[0].more_memory",
        "steps[1].split",
        "steps[3].resources.pool",
        "steps[1].secrets[0]",
        "steps[2].foreach",
        "steps[3].argv",
        "parameters['a']",
    ]
    assert messages["image"].startswith("image is not set; expected the name of an image")
    assert "--option image=" in messages["image"]
    assert "did you mean 16_16" in messages["steps[3].resources.pool"]
    assert "140004 bytes" in messages["steps[2].foreach"]


@pytest.mark.parametrize("image", ["", "a b", "x\ny", "-x", "$(x)", 3, "x" * 600])
def test_an_invalid_image_is_refused(image):
    assert list(faults("kubernetes", typical(), image=image)) == ["image"]


@pytest.mark.parametrize("image", ["a", "a/b:1", "localhost:5000/a/b@sha256:" + "0" * 64])
def test_a_valid_image_is_accepted(image):
    assert len(render("kubernetes", typical(), image=image)) == 4


@pytest.mark.parametrize("root", ["", "a/b", "/a\nb"])
def test_an_invalid_root_is_refused(root):
    assert list(faults("kubernetes", typical(), image="a", root=root)) == ["root"]


def test_features_that_slurm_lacks_are_reported_together():
    step = command("b", "x", chunks=2, split=4)
    messages = faults("slurm", make_job(step, parameters={"a": "\udcff"}))
    assert list(messages) == ["steps[0].split", "parameters['a']"]
    assert messages["steps[0].split"] == (
        "steps[0].split = 4: expected no value on slurm, which restarts steps unchanged; "
        "request the memory at once, or use the local runner"
    )


def test_documents_have_names_that_every_file_system_takes():
    names = ("../../etc/passwd", "a/b", "CON", "x" * 128, "\u2066", ".", "a\\b:c")
    job = make_job(*(command(name, "x") for name in names))
    for runner, options in {"slurm": {}, "kubernetes": {"image": "a"}}.items():
        documents = render(runner, job, **options)
        assert len({document.name for document in documents}) == len(documents)
        for document in documents:
            assert document.name.replace("-", "").replace(".", "").isalnum()
            assert document.name.isascii()
            assert len(document.name) < 60
            assert document.kind == ("submit" if document.name == "submit.sh" else "step")
