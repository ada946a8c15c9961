"""Translates flags of other tools, and arguments of the Python API, into flags of `crawler crawl`.

The table `FOREIGN` is also shown in this folder's README. If a flag is unknown, the command line first looks
it up in `FOREIGN`, and only then suggests a similar flag of the crawler.
"""

from collections.abc import Iterable, Iterator

WGET, CURL, HTTRACK, SCRAPY, BROWSERTRIX = "wget", "curl", "HTTrack", "Scrapy", "Browsertrix"
PYTHON = "crawler.run"  # arguments of the Python API

_NAMES = "use --mirror, which always names the files so that every link works"
_AGENT = "--token NAME and --contact"
_LOG = "not needed: the log is on stderr and in DIR/crawler.log"
_AGAIN = "run the same command again to continue"

# Each row has a tool, its flags, and what to use instead.
FOREIGN: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (WGET, ("-r", "--recursive"), "not needed: links are followed; --depth 0 fetches only the seeds"),
    (WGET, ("-l", "--level"), "--depth N"),
    (WGET, ("-p", "--page-requisites"), "--requisites"),
    (WGET, ("-k", "--convert-links"), "--mirror, or later `crawler export --format mirror`"),
    (WGET, ("-m",), "--mirror"),
    (WGET, ("-E", "--adjust-extension", "--html-extension"), _NAMES),
    (WGET, ("-x", "-nd", "-nH", "--no-directories", "--no-host-directories", "--cut-dirs"), _NAMES),
    (WGET, ("-N",), "--timestamping"),
    (WGET, ("-c", "--continue", "--start-pos"), _AGAIN),
    (WGET, ("-nc", "--no-clobber"), "not needed: known pages are not fetched again"),
    (WGET, ("-np", "--no-parent"), "--scope prefix"),
    (WGET, ("-H", "--span-hosts"), "--scope any; with --requisites, requisites on other hosts are fetched in any scope"),
    (WGET, ("-D", "--domains"), "--scope any with --include RE"),
    (WGET, ("--exclude-domains",), "--exclude RE"),
    (WGET, ("-I", "--include-directories"), "--include RE"),
    (WGET, ("-X", "--exclude-directories"), "--exclude RE"),
    (WGET, ("-L", "--relative"), "--scope host"),
    (WGET, ("-A",), "--accept LIST"),
    (WGET, ("-R",), "--reject LIST"),
    (WGET, ("-i", "--input-file"), "--seeds FILE"),
    (WGET, ("-O", "--output-document"), "`crawler get URL > FILE` after the crawl"),
    (WGET, ("-P", "--directory-prefix"), "--dir DIR"),
    (WGET, ("-o", "-a", "--output-file", "--append-output"), _LOG),
    (WGET, ("-nv", "--no-verbose"), "-q"),
    (WGET, ("-b", "--background"), "nohup, or a system service"),
    (WGET, ("-w", "--wait"), "--delay S"),
    (WGET, ("--random-wait", "--waitretry"), "not needed: gaps between requests follow response times (--delay-factor)"),
    (WGET, ("-t", "--tries"), "--set frontier.tries=N"),
    (WGET, ("-T", "--timeout", "--read-timeout"), "--set fetch.total_timeout=S"),
    (WGET, ("--connect-timeout",), "--set fetch.connect_timeout=S"),
    (WGET, ("--dns-timeout",), "--set network.dns_timeout=S"),
    (WGET, ("--max-redirect",), "--set fetch.redirects_max=N"),
    (WGET, ("-Q", "--quota"), "--max-bytes B"),
    (WGET, ("-U", "--user-agent"), _AGENT),
    (WGET, ("--referer",), "--header 'Referer: URL'"),
    (WGET, ("-S", "--server-response", "--save-headers"), "`crawler get URL --headers` after the crawl"),
    (WGET, ("-e", "--execute"), "instead of robots=off, use --robots ignore"),
    (WGET, ("--no-check-certificate",), "--set fetch.tls=record"),
    (WGET, ("--ca-certificate",), "the environment variable SSL_CERT_FILE=FILE"),
    (WGET, ("--user",), "--http-user USER"),
    (WGET, ("--password",), "--http-password PASSWORD"),
    (WGET, ("--post-data", "--post-file", "--save-cookies", "--keep-session-cookies"), "--login URL -d NAME=VALUE"),
    (WGET, ("--no-cookies",), "not needed: no cookies are kept by default"),
    (WGET, ("--warc-file",), "not needed: pages are stored as WARC; `crawler export --format warc`"),
    (WGET, ("--warc-cdx",), "`crawler export --format cdxj` after the crawl"),
    (WGET, ("--delete-after",), "--spider"),
    (WGET, ("-F", "--force-html", "-B", "--base"), "--seeds FILE takes a list of absolute URLs"),
    (CURL, ("-x",), "--proxy URL"),
    (CURL, ("-b", "--cookie"), "--load-cookies FILE"),
    (CURL, ("-A",), _AGENT),
    (CURL, ("-H",), "--header 'K: V'"),
    (CURL, ("-u",), "--http-user and --http-password"),
    (CURL, ("-k", "--insecure"), "--set fetch.tls=record"),
    (CURL, ("--cacert",), "the environment variable SSL_CERT_FILE=FILE"),
    (CURL, ("-L", "--location"), "not needed: redirects are followed"),
    (CURL, ("-m",), "--max-time T"),
    (CURL, ("--retry",), "--set frontier.tries=N"),
    (HTTRACK, ("--depth-limit", "--ext-depth"), "--depth N"),
    (HTTRACK, ("--sockets",), "--concurrency N"),
    (HTTRACK, ("--max-rate",), "--limit-rate B"),
    (HTTRACK, ("--continue", "--update"), "run the same command again; add --timestamping to check known pages"),
    (SCRAPY, ("-s",), "--set SECTION.KEY=VALUE"),
    (SCRAPY, ("-a",), "your own program parses its arguments (crawler/api/SCRAPY.md)"),
    (SCRAPY, ("-o", "-O", "--output"), "`crawler export --format jsonl -o FILE` after the crawl"),
    (SCRAPY, ("--nolog",), "-q"),
    (SCRAPY, ("-L", "--loglevel"), "-q or -v"),
    (BROWSERTRIX, ("--url",), "the URL without a flag"),
    (BROWSERTRIX, ("--seedFile", "--urlFile"), "--seeds FILE"),
    (BROWSERTRIX, ("--scopeType",), "--scope KIND"),
    (BROWSERTRIX, ("--limit", "--pageLimit"), "--max-pages N"),
    (BROWSERTRIX, ("--timeLimit",), "--max-time T"),
    (BROWSERTRIX, ("--sizeLimit",), "--max-bytes B"),
    (BROWSERTRIX, ("--workers",), "--processes N"),
    (BROWSERTRIX, ("--collection",), "--dir DIR"),
    (BROWSERTRIX, ("--generateWACZ",), "`crawler export --format wacz` after the crawl"),
    (BROWSERTRIX, ("--generateCDX",), "`crawler export --format cdxj` after the crawl"),
    (PYTHON, ("--items", "--processors", "--errback"), "a program with a callback (`crawler new NAME`)"),
    (PYTHON, ("--follow", "--url-filter"), "--include RE and --exclude RE"),
    (PYTHON, ("--no-follow",), "--depth 0"),
)  # fmt: skip

# flag -> tool that has this flag -> what to use instead
_BY_FLAG: dict[str, dict[str, str]] = {}
for _tool, _flags, _instead in FOREIGN:
    for _flag in _flags:
        _BY_FLAG.setdefault(_flag, {})[_tool] = _instead


def translation(words: Iterable[str]) -> str:
    """Return what to use instead of the flags of other tools among `words`, such as `-l (wget): --depth N`.

    If a tool has all these flags, the other tools are left out. The result is "" if no word is such a flag.
    """
    found = dict.fromkeys(flag for word in words for flag in _flags_of(word))
    every = dict.fromkeys(tool for flag in found for tool in _BY_FLAG[flag])
    tools = [tool for tool in every if all(tool in _BY_FLAG[flag] for flag in found)] or list(every)
    return "; ".join(
        f"{flag} ({tool}): {_BY_FLAG[flag][tool]}"
        for flag in found
        for tool in tools
        if tool in _BY_FLAG[flag]
    )


def _flags_of(word: str) -> Iterator[str]:
    """Yield the known flags in a word such as `--level=2`, `-l2` or `-rkp`."""
    name = word.partition("=")[0]
    if name in _BY_FLAG:
        yield name
    elif len(word) > 2 and word[0] == "-" and word[1] != "-":
        letters = [f"-{letter}" for letter in word[1:]]
        if letters[0] in _BY_FLAG and word[2].isdigit():
            yield letters[0]
        elif all(letter in _BY_FLAG for letter in letters):
            yield from letters


def page_table() -> str:
    """Return the table of this folder's README."""
    lines = ["| tool | its flags | what to use instead |", "|---|---|---|"]
    for tool, flags, instead in FOREIGN:
        lines.append(f"| {tool} | {', '.join(f'`{flag}`' for flag in flags)} | {instead} |")
    return "\n".join(lines) + "\n"
