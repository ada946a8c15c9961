"""`crawler shell URL`: fetch a page and try selectors on it at the Python prompt."""

import sys
from types import CodeType
from typing import Any

from crawler.cli import flags, options
from crawler.signing.key_file import with_key_file
from crawler.urls.typed_url import crawled

BANNER = """\
page       {page}
css(Q)     the elements that match a selector: css("h1").text, css("a").attrs("href")
xpath(Q)   the nodes that match an XPath expression: xpath("//h1/text()").get()
fetch(URL) fetch another page; it becomes `page`"""


def main(_command: str, argv: list[str]) -> int:
    """Fetch a page and open a prompt, or run `-c CODE`."""
    parser = options.parser(
        "shell",
        "Fetch a page and open a Python prompt to try selectors on it: `page`, css(query), xpath(query),\n"
        "fetch(url). Nothing is kept.",
        "crawler shell https://example.org/ -c 'css(\"h1\").text'",
        settings=True,
    )
    parser.add_argument("url", metavar="URL", type=options.url, help="the page to fetch")
    parser.add_argument("-c", "--code", metavar="CODE", help="evaluate this expression, print it and exit")
    flags.add_config_flags(flags.grouped(parser), "shell")
    args = parser.parse_args(argv)
    options.set_up_log(args)
    config = with_key_file(options.layers(args).config(), args.dir.absolute())
    import crawler

    names: dict[str, Any] = {"crawler": crawler}

    def fetch(url: str) -> crawler.Page:
        names["page"] = crawler.fetch(crawled(url), config)
        names["css"], names["xpath"] = names["page"].css, names["page"].xpath
        return names["page"]  # type: ignore[no-any-return]

    names["fetch"] = fetch
    page = fetch(args.url)
    if args.code is not None:
        return _run(args.code, names)
    import code

    shown = f"{page.status} {page.url}, {page.content_type}, {len(page.content):,} bytes"
    code.interact(BANNER.format(page=shown), local=names, exitmsg="")
    return 0


def _run(source: str, names: dict[str, Any]) -> int:
    """Run the user's code; print the error if it fails."""
    try:
        value = eval(_compiled(source), names)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    if value is not None:
        print(value if isinstance(value, str) else repr(value))
    return 0


def _compiled(source: str) -> CodeType:
    """Compile the code of the user, which is an expression or statements."""
    try:
        return compile(source, "<-c>", "eval")
    except SyntaxError:
        return compile(source, "<-c>", "exec")
