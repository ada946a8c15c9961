"""Test the extraction of the markup that the audit checks."""

import pytest
from selectolax.lexbor import LexborHTMLParser

from crawler.config import ExtractConfig
from crawler.extract.collected import Context
from crawler.extract.links import extract_page
from crawler.extract.markup import count_words
from crawler.extract.parser_process import ParserProcess
from crawler.records import Markup

URL = "http://h.example/a"


def _markup(html: str, **context: object) -> Markup:
    page = Context(URL, want_markup=True, **context)  # type: ignore[arg-type]
    found = extract_page(html.encode(), page, ExtractConfig()).markup
    assert found is not None
    return found


def test_markup_is_read_only_on_request() -> None:
    assert extract_page(b"<h1>x</h1>", Context(URL), ExtractConfig()).markup is None


def test_all_markup_is_found() -> None:
    found = _markup(
        """<title>t</title><meta name=Description content="  one
        two "><meta name=keywords content=x><link rel="canonical nofollow" href=/c><link rel=canonical href=/c>
        <link rel=alternate hreflang=" de " href=/de><link rel=alternate type=application/rss+xml href=/feed>
        <h1>First <b>heading</b></h1><svg><title>no</title></svg><h1></h1>
        <img src=a.png><img src=b.png alt=""><img src=c.png role=presentation><img aria-hidden=true>""",
        link_values=('</header>; rel="canonical"', "</x>; rel=next"),
    )
    assert found.descriptions == ["one two"]
    assert found.headings == ["First heading", ""]
    assert found.canonicals == ["/header", "/c"]
    assert found.alternates == [("de", "/de")]
    assert (found.images, found.unnamed_images) == (["a.png"], 1)


@pytest.mark.parametrize(
    ("html", "words"),
    [
        ("<p>one two three", 3),
        ("<nav>a b <nav>c <script>d</script></nav></nav>one<footer>e</footer><p>two", 2),
        (
            "<body><script>var a = 1</script><style>p {}</style><noscript>no</noscript><template>t</template>one",
            1,
        ),
        ("<p>" + "漢字" * 10, 11),  # text without blanks; two characters count as one word
        ("", 0),
        ("<nav>a</nav>" * 3000 + "b", -1),
    ],
)
def test_words_outside_of_navigation(html: str, words: int) -> None:
    assert count_words(LexborHTMLParser(html)) == words


def test_deeply_nested_parts_are_read_once() -> None:
    """If each element were read separately, a nested element would be read again for each element around it."""
    html = "<nav>word " * 1500 + "</nav>" * 1500 + "<p>one"
    assert count_words(LexborHTMLParser(html)) == 1


def test_a_page_whose_markup_is_wanted_is_parsed() -> None:
    """The link scanner extracts no markup, so it must leave such a page to the parser."""
    page = Context(URL, want_markup=True)
    found = ParserProcess(ExtractConfig()).extract(b"<title>t</title><body><h1>x</h1><p>one", page)
    assert found.markup is not None and found.markup.headings == ["x"]
