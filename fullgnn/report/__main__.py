"""One page about one or more runs, with its plots beside it.

    python -m fullgnn.report RUN_DIR...
    python -m fullgnn.report runs/orders out=runs/orders_page
    python -m fullgnn.report runs

RUN_DIR is the run_dir of a run, finished or not, or of a sweep, which stands for its finished jobs; or a folder that
holds some of them, up to three levels below it: other folders in it are skipped, and damaged runs are named. Runs that
differ in the seed or in the split alone are shown as one, by their mean and standard deviation. Where a run has not
counted where its non-zeros are, they are counted from its prepared graph in runtime.cache_dir, which takes a while once
for each graph. The page is report.html, its plots are in report_figures/, and nothing else is needed to read it. They
are written to

    out=FOLDER        this folder
                      without it: RUN_DIR if there is one, runs/report_<time> if there are several
"""

import importlib.util
import logging
from datetime import datetime
from pathlib import Path

from fullgnn.distributed.command import run_command
from fullgnn.errors import ConfigError, UnsupportedError
from fullgnn.report.runs import read_runs
from fullgnn.storage.folder import writing_to

log = logging.getLogger("fullgnn.report")


def report(arguments: list[str]) -> Path:
    """Write the page that the command's arguments ask for, and return its path.

    Raises:
        ConfigError: an unknown key, no folder, a folder without a run that can be read, or ``out`` cannot be
            written.
        UnsupportedError: matplotlib is not installed.
    """
    folders, out = parse(arguments)
    if importlib.util.find_spec("matplotlib") is None:
        raise UnsupportedError("a report needs the package matplotlib: pip install matplotlib")
    from fullgnn.report.page import sections, write_page  # needs matplotlib

    runs, search = read_runs([Path(folder) for folder in folders], lambda run: sections([run], []))
    time = f"{datetime.now():%Y-%m-%d_%H-%M-%S}"
    folder = Path(out or (folders[0] if len(folders) == 1 else f"runs/report_{time}")).absolute()
    with writing_to("out", folder):
        return write_page(runs, search, folder)


def parse(arguments: list[str]) -> tuple[list[str], str | None]:
    """The folders and ``out``. A folder may have an equals sign in its name.

    Raises:
        ConfigError: an unknown key, or no folder.
    """
    outs = [argument.removeprefix("out=") for argument in arguments if argument.startswith("out=")]
    folders = [argument for argument in arguments if not argument.startswith("out=")]
    if "" in outs:
        raise ConfigError("out= has no value: give a folder")
    for folder in folders:
        key, sign, _ = folder.partition("=")
        if key.isidentifier() and sign and not Path(folder).is_dir():
            raise ConfigError(f"{folder} is not known: give folders of runs and out=FOLDER, or --help")
    if not folders:
        raise ConfigError("no run is named: give the run_dir of one or more runs, or --help")
    return folders, outs[-1] if outs else None


if __name__ == "__main__":
    run_command(lambda arguments: log.info("%s", report(arguments)), lambda: str(__doc__))
