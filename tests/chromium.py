"""Which Chromium the browser tests drive: the system's. `python -m tests.chromium` installs it where that is possible.

`make test` runs it first. It never fails: without a Chromium the browser tests are skipped, and the summary says so.
"""

import os
import shutil
import subprocess

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TIMEOUT = 600  # seconds for each of apt-get's two commands


def find() -> str | None:
    """The path of a Chromium, or None. The environment's CHROMIUM, a path or a name, overrides the search."""
    names = (os.environ["CHROMIUM"],) if os.environ.get("CHROMIUM") else NAMES
    return next((path for name in names if (path := shutil.which(name))), None)


def install() -> str:
    """Install Chromium with apt-get. Returns why it did not work, or nothing."""
    if os.environ.get("CHROMIUM"):
        return f"CHROMIUM is {os.environ['CHROMIUM']}, which is no program"
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return "it can be installed only by root, with apt-get"
    print("tests.chromium: there is no Chromium; installing it with apt-get", flush=True)
    for command in (["apt-get", "-qq", "update"], ["apt-get", "-qq", "install", "-y", "chromium"]):
        try:
            subprocess.run(
                command,
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TIMEOUT,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
    return "" if find() else "apt-get installed no program of that name"


if __name__ == "__main__" and find() is None and (why := install()):
    print(f"tests.chromium: there is no Chromium ({why}); the browser tests will be skipped")
