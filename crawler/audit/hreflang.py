"""Checks the language codes and return links of `<link rel=alternate hreflang>`.

A code is x-default, or a language of ISO 639-1, optionally followed by a script of four letters and a region
of ISO 3166-1. A link from page A to page B counts only if B links back to A. The links of all pages are kept
as pairs of fingerprints (16 bytes per pair), which are compared at the end.
"""

import re
from array import array
from collections.abc import Callable, Iterable, Iterator

import numpy as np

_CODE = re.compile(r"([a-z]{2})(?:-([a-z]{4}))?(?:-([a-z]{2}))?")
_LANGUAGES = """
aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el
en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it
iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt
my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk
sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi
yo za zh zu
"""
_REGIONS = """
ad ae af ag ai al am ao aq ar as at au aw ax az ba bb bd be bf bg bh bi bj bl bm bn bo bq br bs bt bv bw by
bz ca cc cd cf cg ch ci ck cl cm cn co cr cu cv cw cx cy cz de dj dk dm do dz ec ee eg eh er es et fi fj fk
fm fo fr ga gb gd ge gf gg gh gi gl gm gn gp gq gr gs gt gu gw gy hk hm hn hr ht hu id ie il im in io iq ir
is it je jm jo jp ke kg kh ki km kn kp kr kw ky kz la lb lc li lk lr ls lt lu lv ly ma mc md me mf mg mh mk
ml mm mn mo mp mq mr ms mt mu mv mw mx my mz na nc ne nf ng ni nl no np nr nu nz om pa pe pf pg ph pk pl pm
pn pr ps pt pw py qa re ro rs ru rw sa sb sc sd se sg sh si sj sk sl sm sn so sr ss st sv sx sy sz tc td tf
tg th tj tk tl tm tn to tr tt tv tw tz ua ug um us uy uz va vc ve vg vi vn vu wf ws ye yt za zm zw
"""
_LANGUAGE_CODES, _REGION_CODES = frozenset(_LANGUAGES.split()), frozenset(_REGIONS.split())


def is_code(text: str) -> bool:
    """Return whether a value of hreflang is valid."""
    if text.lower() == "x-default":
        return True
    match = _CODE.fullmatch(text.lower())
    return (
        match is not None and match[1] in _LANGUAGE_CODES and (match[3] is None or match[3] in _REGION_CODES)
    )


class ReturnLinks:
    """Collects the hreflang links of all pages, as pairs of fingerprints (page, translation)."""

    def __init__(self) -> None:
        self._pages, self._translations = array("Q"), array("Q")

    def add(self, page: int, translations: Iterable[int]) -> None:
        for each in translations:
            if each != page:
                self._pages.append(page)
                self._translations.append(each)

    def missing(self, is_page: Callable[[int], bool]) -> Iterator[tuple[int, list[int]]]:
        """Yield each page that has translations which do not link back, together with a list of these translations.

        Only translations for which `is_page` returns True are checked.
        """
        links = np.unique(np.array([self._pages, self._translations], np.uint64).T, axis=0)
        back = np.ascontiguousarray(links[:, ::-1])
        pairs = [("page", np.uint64), ("translation", np.uint64)]
        alone = links[~np.isin(links.view(pairs).ravel(), back.view(pairs).ravel())]
        found: dict[int, list[int]] = {}
        for page, translation in alone.tolist():
            if is_page(translation):
                found.setdefault(page, []).append(translation)
        yield from found.items()
