"""read_run() of folders of runs, complete and damaged; the examples of docs/python.md."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import trainhost

DOCUMENT = Path(__file__).parents[3] / "docs" / "python.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    program = Path(trainhost.__file__).parent / "bin" / "trainhost"
    settings = ["train.eval_every=2", f"output.dir={folder}", "train.backend=cpu"]
    words = [word for setting in settings for word in ("--set", setting)]
    subprocess.run([program, "train", "-q", "--steps", "4", *words], check=True)
    return folder


def test_a_finished_run(folder):
    run = trainhost.read_run(folder)
    assert run.status == "finished" and [step.step for step in run.steps] == [1, 2, 3, 4]
    assert all(step.time.endswith("Z") for step in run.steps) and run.steps[0].time <= run.steps[3].time
    assert run.evaluations[-1].step == 4 and run.evaluations[-1].loss < 8
    assert run.plan.fits and run.plan.backend == "cpu" and run.summary["steps"] == 4
    assert run.summary["memory"]["predicted_bytes"] == run.plan.total_bytes
    assert run.events[0]["event"] == "start" and "[train]" in run.run_file
    planned = trainhost.plan(run_file=folder / "run.toml")
    assert planned.total_bytes == run.plan.total_bytes


def test_frame_of_a_run(folder):
    pytest.importorskip("pandas")
    frame = trainhost.read_run(str(folder)).to_pandas()
    assert list(frame.step) == [1, 2, 3, 4] and list(frame.validation_loss.notna()) == [False, True, False, True]


def test_a_run_that_is_still_written(folder, tmp_path):
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_text("".join(lines[:3]) + lines[3][:10])
    run = trainhost.read_run(tmp_path)
    assert len(run.events) == 3 and run.summary == {} and run.status == "" and run.run_file == ""


def test_broken_folders(folder, tmp_path):
    for path, message in [(tmp_path / "no", "no is not a folder"), (tmp_path, "it is not the folder of a run")]:
        with pytest.raises(trainhost.UsageError, match=message):
            trainhost.read_run(path)
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    for broken, message in [("{x\n", "it is no JSON"), ("[1]\n", "it is no JSON object")]:
        (tmp_path / "metrics.jsonl").write_text(lines[0] + broken + lines[1])
        with pytest.raises(trainhost.Error, match=message) as raised:
            trainhost.read_run(tmp_path)
        assert (raised.value.file, raised.value.line) == (str(tmp_path / "metrics.jsonl"), 2)
    (tmp_path / "metrics.jsonl").write_bytes(b"\xff\n")
    with pytest.raises(trainhost.Error, match="it cannot be read"):
        trainhost.read_run(tmp_path)


def blocks():
    """The examples of the document: (heading, [(language, text)])."""
    sections = re.split(r"^### ", DOCUMENT.read_text().split("\n## A wheel")[0], flags=re.M)[1:]
    return [(part.splitlines()[0], re.findall(r"^```(\w+)\n(.*?)^```$", part, re.M | re.S)) for part in sections]


@pytest.mark.parametrize("title, parts", blocks(), ids=[title for title, _ in blocks()])
def test_examples_of_the_document(title, parts, tmp_path):
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    program = Path(trainhost.__file__).parent / "bin"
    variables = {**os.environ, "MPLBACKEND": "Agg", "PATH": f"{program}:{os.environ['PATH']}"}
    printed = ""
    for language, text in parts:
        if language == "text":
            for line in text.splitlines():
                assert line in printed, printed
            continue
        command = [sys.executable, "-c", text] if language == "python" else ["sh", "-ec", text]
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        printed = done.stdout
        for image in re.findall(r'savefig\("(.*?)"', text):
            assert (tmp_path / image).read_bytes().startswith(b"\x89PNG")


def test_the_document_has_three_examples():
    assert len(blocks()) == 3 and all(any(kind == "python" for kind, _ in parts) for _, parts in blocks())
