"""The commands of `crawler`, with the module and the description of each."""

# Command -> (module, description in one line). The order is that of `crawler --help`.
COMMANDS = {
    "demo": ("crawler.cli.demo", "crawl a small built-in web on loopback"),
    "new": ("crawler.cli.new", "write an example program with a test of its callbacks"),
    "crawl": ("crawler.cli.crawl", "crawl into a directory; run it again to continue"),
    "refresh": ("crawler.cli.refresh", "keep the stored pages fresh, until stopped"),
    "node": ("crawler.cli.node", "run one process of a crawl on many machines"),
    "seed": ("crawler.cli.change", "add seeds to a crawl"),
    "signal": ("crawler.cli.change", "report that pages have changed"),
    "block": ("crawler.cli.change", "stop fetching from a host"),
    "unblock": ("crawler.cli.change", "fetch from a blocked host again"),
    "retire": ("crawler.cli.change", "drop waiting URLs that match a regular expression"),
    "withdraw": ("crawler.cli.withdraw", "take stored pages down, and do not fetch them again"),
    "pause": ("crawler.cli.change", "start no new fetches until `resume`"),
    "resume": ("crawler.cli.change", "continue a paused crawl"),
    "stop": ("crawler.cli.change", "stop a running crawl cleanly"),
    "set": ("crawler.cli.change", "change a setting of a running crawl"),
    "top": ("crawler.cli.top", "show a running crawl live on the terminal"),
    "status": ("crawler.cli.inspect", "show what a crawl is doing or has done"),
    "why": ("crawler.cli.inspect", "explain the state of a URL"),
    "get": ("crawler.cli.inspect", "print a stored page"),
    "report": ("crawler.cli.report", "list dead links, redirect chains, duplicates and more"),
    "shell": ("crawler.cli.shell", "fetch a page and try selectors on it at a Python prompt"),
    "serve": ("crawler.cli.serve", "serve the stored pages over HTTP"),
    "key": ("crawler.cli.key", "make, rotate or show the key that signs requests"),
    "export": ("crawler.cli.export", "write WARC, WACZ, JSON lines, Parquet, text, links or offline files"),
    "ship": ("crawler.cli.ship", "copy WARC files to object storage, or bring them back"),
    "check": ("crawler.cli.check", "verify a crawl directory; with --repair, repair it"),
    "reshard": ("crawler.cli.reshard", "divide a crawl among other processes"),
    "recover": ("crawler.cli.reshard", "recover from the loss of a process's disk"),
    "config": ("crawler.cli.config", "show the settings in force, or check a file"),
    "completion": ("crawler.cli.completion", "print completion code for bash, zsh or fish"),
    "man": ("crawler.cli.completion", "print a manual page, for man(1)"),
    "plan": ("crawler.bench.plan", "estimate machines, disk, memory and days for a crawl"),
    "lab": ("crawler.lab.__main__", "run the experiments of the papers"),
    "bench": ("crawler.bench.__main__", "run the built-in benchmarks beside their references"),
}

IN_ORDER = ("crawl", "refresh", "node")  # commands that shut down cleanly on a signal, even during startup

# Commands that end with code 0 as soon as the reader of their output closes the pipe. All others go on without
# output and end with their own exit code, except that `get` and `export` stop in the middle of what they write.
END_WITH_READER = ("top", "shell", "lab", "bench")
