"""Reproduce tables and figures of the paper.

    python -m fullgnn.reproduce target=table2
    python -m fullgnn.reproduce 'target=[fig5,fig8]' 'datasets=[reddit-like]' device=cpu
    python -m fullgnn.reproduce target=all out=runs/paper

Each target leaves a Markdown page, a CSV, a PNG and ``record.json`` in ``out``, by default a new folder of
``runs/reproduce/``. Several targets have a folder each, with ``index.md`` above them. ``scale=1`` is full size.
"""

import logging
import shlex
import sys
import time
import traceback
from datetime import datetime
from pathlib import Path

import torch

from fullgnn.bench.harness import reason_of
from fullgnn.bench.papers import config, page
from fullgnn.config.keys import help_with_keys
from fullgnn.distributed import check_tasks, product_precision
from fullgnn.distributed.command import run_command
from fullgnn.errors import FullGNNError
from fullgnn.kernels.support.process import keep_freed_memory
from fullgnn.storage.cache import Cache
from fullgnn.storage.folder import make_folder, write_text, writing_to
from fullgnn.telemetry.machine import warn_if_busy

log = logging.getLogger("fullgnn.reproduce")  # also when this file is __main__


def main() -> None:
    """Run the command line."""
    keep_freed_memory()
    run_command(run, help_text)


def run(arguments: list[str]) -> None:
    """Run one target, or several one after the other; end with status 1 if one of several fails."""
    names, out, arguments = config.split_arguments(arguments)
    check_tasks(None)
    warn_if_busy()
    label = names[0] if len(names) == 1 else config.ALL
    folder = Path(out or f"runs/reproduce/{label}-{datetime.now():%Y-%m-%d_%H-%M-%S.%f}")
    if len(names) == 1:
        run_target(names[0], config.load_target(names[0], *arguments), arguments, folder)
    elif run_all(names, arguments, folder):
        sys.exit(1)


def run_target(target: str, cfg: config.Keys, arguments: list[str], folder: Path) -> None:
    """Run one target and write its files to ``folder``."""
    begin = time.perf_counter()
    page.check_installed()
    make_folder(folder)
    Cache(cfg.cache_dir).check()
    torch.set_num_threads(cfg.threads or torch.get_num_threads())
    with product_precision():
        result = config.run(target, cfg)
    seconds = time.perf_counter() - begin
    command = shlex.join(["python", "-m", "fullgnn.reproduce", f"target={target}", *arguments])
    log.info("\n%s\n\n%s", cfg.title, page.table_text(result))
    with writing_to("out", folder):
        page.write(folder, page.make_record(target, command, cfg, result, seconds), result)
    log.info("%s: %.1f s", folder, seconds)


def run_all(names: list[str], arguments: list[str], out: Path) -> list[str]:
    """Run the targets one after the other, each in a folder of ``out``, and return the names of those that failed.

    A target that fails does not stop the next one: the log and ``index.md`` give the reason in one line, and a defect
    leaves its traceback in ``error.txt``.
    """
    make_folder(out)
    lines, failed = [], []
    with writing_to("out", out):
        for name in names:
            begin, reason = time.perf_counter(), ""
            try:
                run_target(name, config.load_target(name, *arguments), arguments, out / name)
            except Exception as error:
                failed.append(name)
                reason = str(error) if isinstance(error, FullGNNError) else reason_of(error)
                log.error("target=%s failed: %s", name, reason)
                if not isinstance(error, FullGNNError):
                    write_text(out / name / "error.txt", traceback.format_exc())
            seconds = time.perf_counter() - begin
            lines.append(f"- failed: {name}: {reason}" if reason else f"- [{name}]({name}/{name}.md), {seconds:.0f} s")
            write_text(out / "index.md", "\n".join(["# Reproduction", "", *lines]) + "\n")
    log.info("\n%s", "\n".join(lines))
    return failed


def help_text() -> str:
    """Describe the command, its keys, and the targets there are."""
    width = max(map(len, config.targets())) + 1
    titles = [f"  {name:{width}} {config.title_of(name)}" for name in config.targets()]
    return "\n".join([help_with_keys(__doc__, "reproduce"), "Targets:", *titles])


if __name__ == "__main__":
    main()
