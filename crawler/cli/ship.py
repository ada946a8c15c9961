"""`crawler ship`: copy the WARC files of a crawl to object storage, list them, or bring them back."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from msgspec.structs import replace

from crawler.cli import options
from crawler.cli.parsing import add_option
from crawler.cli.work_progress import WaitProgress
from crawler.clock import SystemClock, iso_time
from crawler.config import PagesConfig
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.shipper import folders, ship_waiting
from crawler.errors import UsageError
from crawler.pages import released, shipping
from crawler.printable import printable
from crawler.storage.object_store import ObjectStore
from crawler.upgrade.ready import opened
from crawler.wording import several

_EXAMPLES = """\
crawler ship --dir example --to s3://bucket/example
  crawler ship --dir example --delete
  crawler ship --dir example --list
  crawler ship --dir example --fetch"""


def main(_command: str, argv: list[str]) -> int:
    """Ship, list or fetch the WARC files. Return 0 if no transfer failed."""
    parser = options.parser(
        "ship",
        "Copy the finished WARC files of a crawl to object storage, while it runs or not; files that are there\n"
        "already are not copied again. `--set pages.ship=URL` makes a crawl do this by itself. Credentials come\n"
        "from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL and so on.",
        _EXAMPLES,
    )
    parser.option(
        "--to",
        "",
        "s3://, gs://, az:// or file:// (default: pages.ship, or the storage that was used last)",
        metavar="URL",
    )
    parser.option("--delete", False, "then delete the local files that the storage has confirmed")
    how = parser.add_mutually_exclusive_group()
    add_option(how, "--list", False, "list the files that were shipped")
    add_option(how, "--fetch", False, "bring back the files that were deleted on this disk")
    args = parser.parse_args(argv)
    directory = opened(args.dir)
    options.set_up_log(args)
    if args.list:
        return _list(directory)
    if args.fetch:
        return _fetch(directory, quiet=args.quiet)
    saved = directory.settings.config().pages
    storage = args.to or saved.ship or _latest_storage(directory)
    config = replace(saved, ship=storage, ship_delete=args.delete or saved.ship_delete)
    return _ship(directory, config, quiet=args.quiet)


def _latest_storage(directory: CrawlDirectory) -> str:
    """Return the URL of the storage to which the latest file was shipped; "" if there is none."""
    notes = [note for _, note, _ in shipping.shipped(folders(directory.path))]
    return max(notes, key=lambda note: note.at).url.rpartition("/")[0] if notes else ""


def _ship(directory: CrawlDirectory, config: PagesConfig, *, quiet: bool) -> int:
    if not config.ship:
        raise UsageError("ship: name the storage with --to URL, or set pages.ship")
    with ExitStack() as stack:
        # a running crawl must not delete segments with old copies while they are shipped
        for folder in folders(directory.path):
            stack.enter_context(released.reading(folder))
        following = stack.enter_context(
            _progress(quiet=quiet, ended=lambda note: f"{note.length:,} bytes  {printable(note.url)}")
        )
        count, freed = ship_waiting(directory.path, config, SystemClock().now, transfers=following)
    if not quiet:
        deleted = f"; {freed:,} bytes deleted here" if config.ship_delete else ""
        print(f"{several(count, 'WARC file')} shipped to {printable(config.ship)}{deleted}")
    return 0


@contextmanager
def _progress(*, quiet: bool, ended: Callable[[shipping.ShippingNote], str]) -> Iterator[shipping.Transfers]:
    """Show the progress of transfers, and print the line `ended(note)` about each finished transfer."""
    following = shipping.Transfers(lambda note: shown.print(ended(note)))
    with WaitProgress(following.__str__, quiet=quiet) as shown:
        yield following


def _list(directory: CrawlDirectory) -> int:
    for path, note, here in shipping.shipped(folders(directory.path)):
        where = "changed since" if note.changed else "here too" if here else "not here"
        print(f"{iso_time(note.at)}  {note.length:,} bytes  {where}  {printable(note.url)}  {path.name}")
    return 0


def _fetch(directory: CrawlDirectory, *, quiet: bool) -> int:
    missing = [(path, note) for path, note, here in shipping.shipped(folders(directory.path)) if not here]

    def name_and_length(note: shipping.ShippingNote) -> str:
        return f"{note.length:,} bytes  {note.url.rpartition('/')[2]}"

    with _progress(quiet=quiet, ended=name_and_length) as following:
        following.expect(len(missing))
        for path, note in missing:
            following.begin(path.name, note.length)
            store = ObjectStore(note.url.rpartition("/")[0], following.moved)
            store.fetch(path.name, path, note.sha256)
            following.end(note)
    if not quiet:
        print(f"{several(len(missing), 'WARC file')} brought back")
    return 0
