"""The JSON Schema of run files in Taplo, which editors use: it accepts the file of `trainhost init` and marks wrong keys."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

if not shutil.which("taplo"):
    print("skipped: no taplo (pip install taplo)")
    sys.exit(77)
program = pathlib.Path(sys.argv[1]) / "bin/trainhost"


def lint(text):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "run.toml"
        file.write_text(text)
        r = subprocess.run(["taplo", "lint", "--colors=never", str(file)], capture_output=True, text=True, cwd=folder)
        return r.returncode, r.stderr


text = subprocess.run([program, "init"], capture_output=True, text=True, check=True).stdout
code, messages = lint(text)
assert code == 0, messages
schema = text.splitlines()[0]
for wrong, message in [
    ("[train]\nsteps = 10.0\n", "10.0 is not of type"),  # a float in TOML
    ("[train]\nsteps = 0\n", "0 is less than the minimum of 1"),
    ("[train]\nmicro_bach = 8\n", "micro_bach"),
    ("[train]\nprecision = 'bf61'\n", "is not one of"),
    ("[memory]\nbudget = '24'\n", "does not match"),
    ("[plugins]\norder = ['cpu', 'cpu']\n", "is not valid under any of"),
    ("[plugin.cuda]\nmode = [1]\n", "is not of type"),
]:
    code, messages = lint(schema + "\n" + wrong)
    assert code != 0 and message in messages, (wrong, messages)
print("taplo agrees")
