"""Train a policy with PPO, on Ray or in one process, and see where the time goes.

Run `python train.py --help`; the page beside this file explains the rest.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml
from gpuprof.errors import GpuprofError
from runner import Runner
from settings import Settings

log = logging.getLogger("ray_ppo")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code: 2 if the training could not start."""
    parser = _parser()
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s][%(process)d] %(message)s")
    try:
        settings, profiling = _configuration(options)
    except (OSError, TypeError, KeyError, yaml.YAMLError) as error:
        parser.error(f"{options.config}: {error}")
    with ExitStack() as stack:
        try:
            runner = Runner(settings, stack.enter_context(_launch(options, profiling)))
        except GpuprofError as error:
            print(error, file=sys.stderr)
            return 2
        mean_return = runner.run()
    log.info("Mean return of the last %d episodes: %.1f", settings.report_episodes, mean_return)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Proximal policy optimization on Ray, profiled by gpuprof."
    )
    parser.add_argument(
        "--config",
        type=Path,
        default=Path(__file__).with_name("config.yaml"),
        help="a YAML file (default: the one here)",
    )
    parser.add_argument(
        "--serial",
        action="store_true",
        help="everything in this process, without Ray and without a profiler's backend",
    )
    parser.add_argument(
        "--steps", type=int, metavar="N", help="training steps, instead of training.steps"
    )
    parser.add_argument("--seed", type=int, metavar="S", help="instead of training.seed")
    parser.add_argument(
        "--backend", metavar="NAME", help="instead of profiling.backend; none: timing trees only"
    )
    parser.add_argument("--output-dir", metavar="DIR", help="instead of profiling.output_dir")
    parser.add_argument(
        "--timing-only-without-tool",
        action="store_true",
        help="where the profiler is not installed, train without it",
    )
    return parser


def _configuration(options: argparse.Namespace) -> tuple[Settings, dict[str, Any]]:
    configuration = yaml.safe_load(options.config.read_text(encoding="utf-8"))
    training = {"steps": options.steps, "seed": options.seed}
    profiling = {"backend": options.backend, "output_dir": options.output_dir}
    settings = Settings(**configuration["training"] | _given(training))
    return settings, configuration["profiling"] | _given(profiling)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _launch(options: argparse.Namespace, profiling: dict[str, Any]) -> Any:
    # Imported where they are needed: a serial run takes no part of Ray.
    if options.serial:
        import launch_serial

        return launch_serial.launch()
    import launch_ray

    return launch_ray.launch(profiling, options.timing_only_without_tool)


if __name__ == "__main__":
    sys.exit(main())
