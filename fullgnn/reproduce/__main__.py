"""Reproduce tables and figures of the paper. Read downward.

    python -m fullgnn.reproduce target=table2
    python -m fullgnn.reproduce target=[fig5,fig8] datasets=[reddit-like] device=cpu
    python -m fullgnn.reproduce target=all out=runs/paper

Each target leaves a Markdown page, a CSV, a PNG and ``record.json`` in ``out``, by default a new folder of
``runs/reproduce/``; of several targets each has a folder of its own, with ``index.md`` above them. ``scale=1`` is full
size.
"""

import logging
import shlex
import sys
import time
import traceback
from datetime import datetime
from pathlib import Path

import torch

from fullgnn.bench.environment import load_before
from fullgnn.bench.harness import reason_of
from fullgnn.config import conf_dir
from fullgnn.distributed.command import fail
from fullgnn.errors import FullGNNError
from fullgnn.kernels.support.process import keep_freed_memory
from fullgnn.reproduce.config import ALL, TargetConfig, load_target, module_of, split_arguments, targets
from fullgnn.reproduce.page import check_folder, make_record, table_text, write, write_text
from fullgnn.reproduce.plot import check_installed
from fullgnn.storage.cache import Cache
from fullgnn.telemetry.logger import setup_logging

log = logging.getLogger("fullgnn.reproduce")


def run(target: str, cfg: TargetConfig, arguments: list[str], folder: Path) -> None:
    """One target: what it finds goes into ``folder``."""
    begin = time.perf_counter()
    check_installed()
    check_folder(folder)
    Cache(cfg.cache_dir).check()
    torch.set_num_threads(cfg.threads or torch.get_num_threads())
    result = module_of(target).run(cfg)
    seconds = time.perf_counter() - begin
    command = shlex.join(["python", "-m", "fullgnn.reproduce", f"target={target}", *arguments])
    write(folder, make_record(target, command, cfg, result, seconds), result)
    log.info("\n%s\n\n%s\n%s: %.1f s", cfg.title, table_text(result), folder, seconds)


def run_all(names: list[str], arguments: list[str], out: Path) -> list[str]:
    """The targets one after the other, each in a folder of ``out``; returns the names of those that failed.

    One that fails says so in a line, a defect leaves its traceback in ``error.txt``, and the next one goes on.
    """
    check_folder(out)
    lines, failed = [], []
    for name in names:
        begin, reason = time.perf_counter(), ""
        try:
            run(name, load_target(name, *arguments), arguments, out / name)
        except Exception as error:
            failed.append(name)
            reason = str(error) if isinstance(error, FullGNNError) else reason_of(error)
            log.error("target=%s failed: %s", name, reason)
            if not isinstance(error, FullGNNError):
                check_folder(out / name)
                write_text(out / name / "error.txt", traceback.format_exc())
        seconds = time.perf_counter() - begin
        lines.append(f"- failed: {name}: {reason}" if reason else f"- [{name}]({name}/{name}.md), {seconds:.0f} s")
        write_text(out / "index.md", "\n".join(["# Reproduction", "", *lines]) + "\n")
    log.info("\n%s", "\n".join(lines))
    return failed


def help_text() -> str:
    """The command, its keys, and the targets there are."""
    conf = conf_dir()
    titles = [f"  {name:8} {load_target(name).title}" for name in targets()]
    return "\n".join([__doc__ or "", (conf / "reproduce.yaml").read_text(), "Targets:", *titles])


def main() -> None:
    """Run the command line; a user's mistake ends it with one line and status 1, a defect with its traceback."""
    setup_logging()
    arguments = sys.argv[1:]
    keep_freed_memory()
    try:
        if {"-h", "--help"} & set(arguments):
            print(help_text())
            return
        names, out, arguments = split_arguments(arguments)
        load_before()
        label = names[0] if len(names) == 1 else ALL
        folder = Path(out or f"runs/reproduce/{label}-{datetime.now():%Y-%m-%d_%H-%M-%S.%f}")
        if len(names) == 1:
            run(names[0], load_target(names[0], *arguments), arguments, folder)
        elif run_all(names, arguments, folder):
            sys.exit(1)
    except FullGNNError as error:
        fail(error)


if __name__ == "__main__":
    main()
