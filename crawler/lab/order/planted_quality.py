"""Gives each page of a link graph a known quality, to measure how early a crawl finds the pages of high quality.

    rank     PageRank x a log-normal factor (sigma 1): pages to which many links lead are good
    topic    one page in `TOPIC` belongs to a topic; topic pages are worth 1, others 0.01. The topic spreads along
             links from a few random pages. Anchors of links to topic pages contain the topic's word with p = 0.7,
             other anchors with p = 0.02. So both the anchors and the linking pages indicate a page's quality
    depth    0.5 ^ depth x a log-normal factor (sigma 1)
    random   Pareto (alpha 1.2), independent of the links: nothing indicates it before the page is fetched

Only reachable pages have a quality; the qualities sum to 1.
"""

import random
from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from crawler.lab.order.link_graph import LinkGraph, page_rank

WORD = "sought"  # the topic's word
TOPIC = 20
SEEDS = 8  # a topic spreads from this many pages
STAYS = 0.75  # probability that a topic grows by following a link from one of its pages
SAID, SAID_WRONGLY = 0.7, 0.02


class Planted(msgspec.Struct):
    """The array `quality` has one number per page.

    For the kind `topic`, `said` contains the links (page, target) whose texts contain the word of the topic.
    """

    quality: NDArray[np.float64]
    said: frozenset[tuple[int, int]] = frozenset()


def _rank(graph: LinkGraph, reached: list[int], rng: random.Random) -> Planted:
    rank = page_rank(graph)
    return Planted(np.array([rank[page] * rng.lognormvariate(0.0, 1.0) for page in range(len(graph.urls))]))


def _depth(graph: LinkGraph, reached: list[int], rng: random.Random) -> Planted:
    depth = graph.depths()
    return Planted(
        np.array(
            [0.5 ** depth.get(page, 99) * rng.lognormvariate(0.0, 1.0) for page in range(len(graph.urls))]
        )
    )


def _random(graph: LinkGraph, reached: list[int], rng: random.Random) -> Planted:
    return Planted(np.array([rng.paretovariate(1.2) for _ in graph.urls]))


def _topic(graph: LinkGraph, reached: list[int], rng: random.Random) -> Planted:
    wanted = max(SEEDS, len(reached) // TOPIC)
    topic = dict.fromkeys(rng.sample(reached, min(SEEDS, len(reached))))
    edge = list(topic)
    while len(topic) < wanted:
        page = rng.choice(edge) if rng.random() < STAYS else rng.choice(reached)
        links = graph.links[page]
        target = rng.choice(links)[0] if links else rng.choice(reached)
        if target not in topic:
            topic[target] = None
            edge.append(target)
    quality = np.array([1.0 if page in topic else 0.01 for page in range(len(graph.urls))])
    said = frozenset(
        (page, target)
        for page in reached
        for target, _ in graph.links[page]
        if rng.random() < (SAID if target in topic else SAID_WRONGLY)
    )
    return Planted(quality, said)


PLANTINGS: dict[str, Callable[[LinkGraph, list[int], random.Random], Planted]] = {
    "rank": _rank,
    "topic": _topic,
    "depth": _depth,
    "random": _random,
}


def plant(kind: str, graph: LinkGraph, seed: int) -> Planted:
    """Assign a quality of one kind to each page of a link graph; return the qualities."""
    reached = list(graph.depths())
    planted = PLANTINGS[kind](graph, reached, random.Random(f"{kind} {seed}"))
    there = np.zeros(len(graph.urls), np.bool_)
    there[reached] = True
    quality = np.where(there, planted.quality, 0.0)
    return Planted(quality / quality.sum(), planted.said)
