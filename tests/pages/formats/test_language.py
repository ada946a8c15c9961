"""Test the detection of a text's language, which also uses the language that the document declares."""

from pathlib import Path

import pytest

from crawler.pages.formats.language import CHARACTERS_MIN, declared, language

# The first article of the Universal Declaration of Human Rights.
TEXTS = {
    "en": "All human beings are born free and equal in dignity and rights. They are endowed with reason.",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft begabt.",
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison.",
    "fi": "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan. Heille on annettu järki.",
    "ru": "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом.",
    "es": "Todos los seres humanos nacen libres e iguales en dignidad y derechos, dotados como están de razón.",
    "it": "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Essi sono dotati di ragione.",
    "pt": "Todos os seres humanos nascem livres e iguais em dignidade e em direitos. Dotados de razão.",
    "nl": "Alle mensen worden vrij en gelijk in waardigheid en rechten geboren. Zij zijn begiftigd met verstand.",
    "sv": "Alla människor är födda fria och lika i värde och rättigheter. De är utrustade med förnuft.",
    "pl": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są obdarzeni rozumem.",
    "cs": "Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv. Jsou nadáni rozumem a svědomím.",
    "ja": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
}


@pytest.mark.parametrize("code", TEXTS)
def test_languages_are_detected(code: str) -> None:
    found = language(TEXTS[code])
    assert found is not None and found.code == code and 0.5 < found.confidence <= 1.0


def test_documentation_full_of_names_is_english() -> None:
    """An earlier detector mistook English manuals full of command names and options for Catalan, Latin or Swedish."""
    text = "apt-get install -y libfoo-dev. The option --no-install-recommends skips recommended packages. "
    found = language(text * 3)
    assert found is not None and found.code == "en"


PAGES = sorted(Path(__file__).parents[3].glob("crawler/**/*.md"))


def test_technical_english_is_english() -> None:
    """The pages of this project contain many names, numbers and options.

    They are tested in pieces, the smallest of which are as short as a small page.
    """
    pieces = [
        text[at : at + size]
        for text in (page.read_text() for page in PAGES)
        for size in (800, 5_000)
        for at in range(0, len(text) - size, 8 * size)
    ]
    assert len(PAGES) > 30 and len(pieces) > 60
    found = [language(piece) for piece in pieces]
    labels = [each.code for each in found if each is not None]
    assert set(labels) == {"en"} and len(labels) >= 0.99 * len(pieces), labels


def test_the_declaration_decides_only_if_the_text_is_unclear() -> None:
    clear = language(TEXTS["de"], "en")
    assert clear is not None and clear.code == "de"
    unclear = "OK 200 HTTP GET POST PUT DELETE 404 500 TCP UDP IP DNS TLS"
    said = language(unclear, "nl")
    assert language(unclear) is None and said is not None and said.code == "nl"
    assert language(TEXTS["de"], "xx") == language(TEXTS["de"])


def test_a_short_text_has_no_label() -> None:
    assert language("x" * (CHARACTERS_MIN - 1)) is None


@pytest.mark.parametrize(
    ("page", "code"),
    [
        (b"<!doctype html><html lang=de>", "de"),
        (b"<HTML class='a' LANG='pt-BR'>", "pt"),
        (b'<html xmlns="x" xml:lang="en">', "en"),
        (b"<html data-lang=de>", ""),
        (b"<html><body lang=fr>", ""),
        (b"", ""),
    ],
)
def test_the_declared_language_is_read(page: bytes, code: str) -> None:
    assert declared(page) == code
