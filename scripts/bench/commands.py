"""Measure the longest turn of the event loop during each command, in a crawl with a million waiting URLs.

    python scripts/bench/commands.py [--urls 1e6] [--hosts 1e5] [--folder DIR]

The stages are filled as in `scale.py`. The script runs commands on the stages in the same way as a process
does: each step of a command is one turn. The script prints the CPU time that the thread needs for the longest
step. The target is 50 ms. `export` and `check` are not measured because they do not run in the loop: `export`
reads the files of a running crawl in a separate process, and `check` needs a crawl that is not running.
"""

import time
from pathlib import Path

from programs import scratch
from scale import opened

from crawler.bench import harness
from crawler.bench.loading import Loader, hostname, numbers, url
from crawler.cli.parsing import positive_count
from crawler.crawl.relaxed_settings import relaxed
from crawler.process.answering.commands import Commands
from crawler.process.lifecycle import garbage_collection
from crawler.process.opening.stages import Stages
from crawler.storage.commit import Change, Maker


def longest(
    stages: Stages, commands: Commands, queue: list[Change | Maker], request: dict[str, object]
) -> tuple[float, int, float]:
    """Run a command.

    Return the seconds of the command's longest step, the number of steps, and the seconds of the longest call
    of `committed`.
    """
    steps, worst, adopting, count = commands.steps(request), 0.0, 0.0, 0
    while True:
        begun = time.thread_time()
        try:
            next(steps)
            ended = False
        except StopIteration:
            ended = True
        worst, count = max(worst, time.thread_time() - begun), count + 1
        while queue:
            stages.point.add(queue.pop(0))
            worst = max(worst, made(stages))
            group = stages.point.take()
            stages.point.write(group)  # in a crawl, the writer thread writes the group
            begun = time.thread_time()
            stages.point.committed(group)
            adopting = max(adopting, time.thread_time() - begun)
        if ended:
            return worst, count, adopting


def made(stages: Stages) -> float:
    """Run the steps that build the queued changes. Return the seconds of the longest step."""
    worst, more = 0.0, True
    while more:
        begun = time.thread_time()
        more = stages.point.step()
        worst = max(worst, time.thread_time() - begun)
    return worst


def main() -> None:
    """Fill the stages, then print one line per command."""
    parser = harness.parser(__doc__)
    parser.option("--urls", 1_000_000, type=positive_count())
    parser.option("--hosts", 100_000, type=positive_count())
    parser.option("--folder", Path, metavar="DIR")
    parser.option("--set", [], metavar="SECTION.KEY=VALUE")
    args = parser.parse_args()
    garbage_collection.collect_rarely()
    with scratch("commands", args.folder) as args.folder:
        stages = opened(args)
        loader = Loader(stages)
        for group in numbers(0, args.urls):
            loader.take_in([url(number, args.hosts) for number in group])
        loader.flush(dry=True)
        print(f"{stages.frontier!r}", flush=True)
        garbage_collection.freeze()  # a crawl does this at its start
        queue: list[Change | Maker] = []
        commands = Commands(stages, queue.append)
        busiest, last = hostname(0), url(args.urls - 1, args.hosts)
        requests: dict[str, dict[str, object]] = {
            "status": {"command": "status"},
            "status, 10,000 hosts": {"command": "status", "hosts": 10_000},
            "why, to do": {"command": "why", "url": last},
            "why, far behind in a queue": {"command": "why", "url": f"https://{busiest}/never"},
            "why, unknown host": {"command": "why", "url": "https://nowhere.test/"},
            "get": {"command": "get", "url": last},
            "signals": {"command": "signals"},
            "signal, 1,000 URLs": {
                "command": "signal",
                "urls": [url(n, args.hosts) for n in range(1000)],
            },
            "signal, 10,000 URLs": {
                "command": "signal",
                "urls": [url(n, args.hosts) + "?more" for n in range(10_000)],
            },
            "seed, 1,000 URLs": {
                "command": "seed",
                "urls": [f"https://{busiest}/s{n}" for n in range(1000)],
                "settings": relaxed(stages.config),
            },
            "seed, 10,000 URLs, 5,000 hosts": {
                "command": "seed",
                "urls": [f"https://new{n % 5000}.test/s{n}" for n in range(10_000)],
                "settings": relaxed(stages.config),
            },
            "block": {"command": "block", "host": busiest},
            "unblock": {"command": "unblock", "host": busiest},
            "retire, one in 16": {"command": "retire", "pattern": "^https://[^/]*/[0-9a-f]*7/"},
            "retire, all": {"command": "retire", "pattern": "."},
        }
        table = harness.Table(f"{'command':30}", "longest ms", "steps", "committed ms")
        for name, request in requests.items():
            step, steps, adopting = longest(stages, commands, queue, request)
            table.row(name, 1e3 * step, steps, 1e3 * adopting)
        stages.close()


if __name__ == "__main__":
    main()
