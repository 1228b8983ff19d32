"""One page about one or more runs, with its plots beside it.

    python -m fullgnn.report RUN_DIR...
    python -m fullgnn.report runs/orders out=runs/orders_page

RUN_DIR is the run_dir of a run, finished or not, or of a sweep, which stands for its finished jobs. The page is
report.html, its plots are in report_figures/, and nothing else is needed to read it. They are written to

    out=FOLDER        this folder
                      without it: RUN_DIR if there is one, runs/report_<time> if there are several
"""

import importlib.util
import logging
import sys
from datetime import datetime
from pathlib import Path

from fullgnn.distributed.command import fail
from fullgnn.errors import ConfigError, FullGNNError, UnsupportedError
from fullgnn.report.runs import read_runs
from fullgnn.telemetry.logger import setup_logging

log = logging.getLogger("fullgnn.report")


def report(folders: list[str], out: str | None) -> Path:
    """Write the page of the runs in ``folders`` and return its path.

    Raises:
        ConfigError: a folder holds no run, or ``out`` cannot be written.
        UnsupportedError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise UnsupportedError("a report needs the package matplotlib: pip install matplotlib")
    from fullgnn.report.page import write_page  # it draws

    runs, left_out = read_runs([Path(folder) for folder in folders])
    time = f"{datetime.now():%Y-%m-%d_%H-%M-%S}"
    folder = Path(out or (folders[0] if len(folders) == 1 else f"runs/report_{time}")).absolute()
    try:
        return write_page(runs, left_out, folder)
    except OSError as error:
        raise ConfigError(f"out={folder} cannot be written ({error.strerror}): choose another folder") from error


def parse(arguments: list[str]) -> tuple[list[str], str | None]:
    """The folders and ``out``. A folder may have an equals sign in its name.

    Raises:
        ConfigError: an unknown key, or no folder.
    """
    folders: list[str] = []
    out = None
    for argument in arguments:
        key, sign, value = argument.partition("=")
        if key == "out" and sign:
            if not value:
                raise ConfigError("out= has no value: give a folder")
            out = value
        elif argument.startswith("-") or (key.isidentifier() and sign and not Path(argument).is_dir()):
            raise ConfigError(f"{argument} is not known: give folders of runs and out=FOLDER, or --help")
        else:
            folders.append(argument)
    if not folders:
        raise ConfigError("no run is named: give the run_dir of one or more runs, or --help")
    return folders, out


def main() -> None:
    """Run the command line; a user's mistake ends it with one line and status 1, a defect with its traceback."""
    setup_logging(0)
    arguments = sys.argv[1:]
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return
    try:
        log.info("%s", report(*parse(arguments)))
    except FullGNNError as error:
        fail(error)


if __name__ == "__main__":
    main()
