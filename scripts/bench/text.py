#!/usr/bin/env python3
"""Compare the main content of HTML pages with the result of trafilatura, and search for planted near-duplicates.

    pip install trafilatura lxml_html_clean
    scripts/bench/text.py FOLDER [--per-site 80] [--seed 1]

Each subfolder of FOLDER is a site. The true main content is the element that the page marks as such
(`[role=main]`, `main`, `article`, `#content`, `div.body`), if there is exactly one. Pages without a marked
element, or with several, are left out. The score of an extractor is the F1 score over words. A planted
near-duplicate is a text in which a share of the words is replaced. Different pages of one site must not be
identified as copies.
"""

import logging
import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from selectolax.lexbor import LexborHTMLParser

from crawler.bench import harness
from crawler.pages.formats import text
from crawler.pages.formats.duplicates import EQUAL_MIN, Originals
from crawler.pages.formats.simhash import minhash, simhash

MARKED = ("[role=main]", "main", "article", "#content", "div.body")
REPLACED = (0.0, 0.001, 0.01, 0.02, 0.05, 0.1, 0.2)
Extract = Callable[[bytes], str]


def chosen(folder: Path, per_site: int, seed: int) -> list[Path]:
    """Return up to `per_site` pages of each site."""
    draw = random.Random(seed)
    files = []
    for site in sorted(path for path in folder.iterdir() if path.is_dir()):
        pages = sorted(
            path
            for path in site.rglob("*.html")
            if path.is_file() and not path.is_symlink() and 3_000 < path.stat().st_size < 400_000
        )
        files += draw.sample(pages, min(per_site, len(pages)))
    return files


def marked_content(page: bytes) -> str:
    """Return the text of the element that the page marks as its content, or "" if there is no such element."""
    tree = LexborHTMLParser(page)
    for selector in MARKED:
        nodes = tree.css(selector)
        if len(nodes) == 1:
            node = nodes[0]
            for each in node.css("script, style, nav, .headerlink"):
                each.decompose()
            return node.text(separator=" ")
    return ""


def words(content: str) -> list[str]:
    return re.findall(r"\w+", content.lower())


def f1(found: str, truth: str) -> float:
    one, other = Counter(words(found)), Counter(words(truth))
    common = (one & other).total()
    return 2 * common / (one.total() + other.total()) if common else 0.0


def extractors() -> dict[str, Extract]:
    """Return the functions that find the main content. One of them is that of trafilatura, if it is installed."""
    made: dict[str, Extract] = {
        "crawler": lambda page: text.text_of(page, tame=True, main_content=True),
        "whole text": lambda page: text.text_of(page, tame=True),
    }
    try:
        import trafilatura
    except ImportError:
        return made
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    made["trafilatura"] = lambda page: trafilatura.extract(page, include_comments=False, fast=True) or ""
    return made


def compare_main_content(files: list[Path]) -> None:
    """Print the scores and the CPU time of each extractor."""
    scores: dict[str, list[float]] = {name: [] for name in extractors()}
    taken = dict.fromkeys(scores, 0.0)
    for file in files:
        page = file.read_bytes()
        truth = marked_content(page)
        if len(truth.split()) < 50:
            continue
        for name, extract in extractors().items():
            began = time.process_time()
            found = extract(page)
            taken[name] += time.process_time() - began
            scores[name].append(f1(found, truth))
    table = harness.Table(
        "main content", "pages", "F1 median", " mean", "tenth percentile", "least", "ms a page"
    )
    for name, values in scores.items():
        values.sort()
        figures = (statistics.median(values), statistics.mean(values), values[len(values) // 10], values[0])
        table.row(name, len(values), *(f"{each:.3f}" for each in figures), 1000 * taken[name] / len(values))


def plant(files: list[Path], seed: int) -> None:
    """Print the recall of planted near-duplicates by share of replaced words, and the number of false pairs."""
    draw = random.Random(seed)
    texts = [words(text.text_of(file.read_bytes(), tame=True, main_content=True)) for file in files]
    texts = list({" ".join(each): each for each in texts if len(each) >= 100}.values())
    vocabulary = [word for each in texts for word in each[:200]]
    originals = [Originals() for _ in texts]
    hashes = [simhash(" ".join(each)) or 0 for each in texts]
    for each, originals_of in zip(texts, originals, strict=True):
        originals_of.add("original", "", minhash(" ".join(each)))
    table = harness.Table("words replaced", f"found of {len(texts)}", "by simhash (3 bits)")
    for share in REPLACED:
        found = by_simhash = 0
        for number, each in enumerate(texts):
            copy = " ".join(draw.choice(vocabulary) if draw.random() < share else word for word in each)
            found += originals[number].add("copy", "", minhash(copy)) == "original"
            by_simhash += ((simhash(copy) or 0) ^ hashes[number]).bit_count() <= 3
        table.row(f"{share:.1%}", f"{found / len(texts):.3f}", f"{by_simhash / len(texts):.3f}")
    signatures = np.array([list(minhash(" ".join(each)) or b"") for each in texts], np.uint8)
    likeness = []
    for one in range(len(texts)):
        equal = (signatures[:one] == signatures[one]).sum(axis=1)
        for other in np.flatnonzero(equal >= EQUAL_MIN).tolist():
            first, second = phrases(texts[one]), phrases(texts[other])
            likeness.append(len(first & second) / len(first | second))
    total = len(texts) * (len(texts) - 1) // 2
    print(f"\npairs of different pages taken for copies: {len(likeness)} of {total:,}; ", end="")
    print("common phrases:", ", ".join(f"{each:.2f}" for each in sorted(likeness)[:20]) or "none")


def phrases(content: list[str]) -> set[tuple[str, ...]]:
    return set(zip(content, content[1:], content[2:], strict=False))


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.option("--per-site", 80)
    parser.option("--seed", 1)
    args = parser.parse_args()
    files = chosen(args.folder, args.per_site, args.seed)
    compare_main_content(files)
    plant(files, args.seed)


if __name__ == "__main__":
    main()
