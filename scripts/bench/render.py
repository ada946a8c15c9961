"""Measure which pages `--render auto` renders, and at what cost, on 30 sites of five kinds.

    python scripts/bench/render.py [--packages FOLDER] [--pages 20] [--crawlee PYTHON]

`FOLDER` is a `node_modules` with docsify@4, swagger-ui-dist, redoc, vue, vue-router, react@18 and
react-dom@18. Without `--packages`, sites made with these packages are left out. The sites are crawled three
times: without rendering, with `auto`, and with `always`. Recall is the share of the URLs reached by `always`
that `auto` reached, too. An oracle would render exactly the pages that gain links or text. CPU is the CPU
time of the crawl with its browsers. Wall time includes the gaps between requests.

PYTHON is the Python of an environment with the package crawlee[adaptive-crawler]. If PYTHON is given, the
script simulates crawls of the same sites in which the predictor of Crawlee decides which pages are rendered.
The predictor examines some pages both with and without rendering, and learns from them which pages gain from
rendering. On a page that is rendered, a simulated crawl follows the links of the DOM; on any other page, it
follows the links of the server's answer.
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from programs import CRAWLER

from crawler.bench import harness
from tests.end_to_end.web import FAST, Answer, ReceivedRequest, Route, Web

_WORDS = "some words that a reader would like to find in a search. " * 12
_JAVASCRIPT = {"Content-Type": "text/javascript; charset=utf-8"}
_JSON = {"Content-Type": "application/json"}
_TEXT = {"Content-Type": "text/plain; charset=utf-8"}
Site = dict[str, Route]


def _links(n: int, pages: int) -> list[str]:
    return [f"/page/{child}" for child in (2 * n + 1, 2 * n + 2) if child < pages]


def _anchors(n: int, pages: int) -> str:
    return " ".join(f'<a href="{link}">{link}</a>' for link in _links(n, pages))


def _number(path: str) -> int:
    return int(path.rpartition("/")[2].partition(".")[0] or 0)


def _each(pages: int, make: Callable[[int], Route]) -> Site:
    return {"/": make(0)} | {f"/page/{n}": make(n) for n in range(1, pages)}


def _data(request: ReceivedRequest, pages: int) -> Answer:
    n = _number(request.path)
    return 200, _JSON, json.dumps({"title": f"Page {n}", "text": _WORDS, "links": _links(n, pages)})


# -- kinds of sites


def static(pages: int) -> Site:
    """Return a site whose pages are complete and have no script."""
    return _each(pages, lambda n: f"<title>{n}</title><p>{_WORDS}</p>{_anchors(n, pages)}")


def scripted(pages: int) -> Site:
    """Return a site whose pages are complete without scripts, but have scripts for a menu and statistics."""
    head = '<script src="/menu.js"></script><script>window.count = 1</script>'
    site = _each(pages, lambda n: f"<title>{n}</title>{head}<p>{_WORDS}</p>{_anchors(n, pages)}")
    return site | {"/menu.js": (200, _JAVASCRIPT, "document.body.dataset.menu = 'closed'")}


def short(pages: int) -> Site:
    """Return a site of short pages that look as if they needed a browser, but whose script adds nothing."""
    return _each(
        pages, lambda n: f"<title>{n}</title><script>1</script><p>Picture {n}</p>{_anchors(n, pages)}"
    )


def hydrated(pages: int) -> Site:
    """Return a site whose server has rendered the pages into the root element of a framework."""
    body = '<div id="__next"><p>{}</p>{}</div><script src="/app.js"></script>'
    site = _each(pages, lambda n: f"<title>{n}</title>" + body.format(_WORDS, _anchors(n, pages)))
    return site | {"/app.js": (200, _JAVASCRIPT, "document.getElementById('__next').dataset.ready = 1")}


_CLIENT = """
const n = +(location.pathname.split('/')[2] || 0);
fetch('/api/' + n + '.json').then(a => a.json()).then(page => {
  document.title = page.title;
  document.getElementById('ROOT').innerHTML = '<p>' + page.text + '</p>' +
    page.links.map(link => '<a href="' + link + '">' + link + '</a>').join(' ');
});
"""


def client(pages: int, root: str = "root") -> Site:
    """Return a site whose pages are empty until their script has fetched the data."""
    shell = f'<!doctype html><title>app</title><div id="{root}"></div><script src="/app.js"></script>'
    data: Site = {f"/api/{n}.json": lambda request: _data(request, pages) for n in range(pages)}
    return (
        _each(pages, lambda n: shell) | data | {"/app.js": (200, _JAVASCRIPT, _CLIENT.replace("ROOT", root))}
    )


def mixed(pages: int) -> Site:
    """Return a site in which half of the pages need no script.

    A script builds the content of the others, which have different paths.
    """
    site = client(pages)
    documents = {
        f"/doc/{n}": f"<title>{n}</title><p>{_WORDS}</p><a href='/doc/{n + 1}'>next</a>" for n in range(pages)
    }
    return (
        site
        | documents
        | {"/": f"<p>{_WORDS}</p><a href='/doc/0'>docs</a> <a href='/page/1'>shop</a><a href='/page/2'>2</a>"}
    )


# -- real software


def _file(packages: Path, name: str, kind: str = "text/javascript") -> Route:
    body = (packages / name).read_bytes()
    return 200, {"Content-Type": f"{kind}; charset=utf-8", "Cache-Control": "max-age=3600"}, body


def docsify(packages: Path, pages: int) -> Site:
    """Return a site made with docsify, in which a script renders Markdown at paths of the history API."""
    shell = (
        '<!doctype html><title>docs</title><div id="app"></div><script>window.$docsify = '
        "{routerMode: 'history', basePath: '/', loadSidebar: true, alias: {'/.*/_sidebar.md': '/_sidebar.md'}}"
        '</script><script src="/docsify.js"></script>'
    )
    text: Site = {f"/page/{n}.md": (200, _TEXT, f"# Page {n}\n\n{_WORDS}") for n in range(1, pages)}
    sidebar = "\n".join(f"* [Page {n}](/page/{n})" for n in range(1, pages))
    more: Site = {
        "/README.md": (200, _TEXT, f"# Home\n\n{_WORDS}"),
        "/_sidebar.md": (200, _TEXT, sidebar),
        "/docsify.js": _file(packages, "docsify/lib/docsify.min.js"),
    }
    return _each(pages, lambda n: shell) | text | more


def _shell(title: str, root: str, *scripts: str) -> str:
    """Return a page that contains only a root element and the scripts that fill this element."""
    tags = "".join(f'<script src="{script}"></script>' for script in scripts)
    return f'<!doctype html><title>{title}</title><div id="{root}"></div>{tags}'


def _petstore(pages: int) -> Answer:
    answers = {"200": {"description": "ok"}}
    paths = {
        f"/pets/{n}": {
            "get": {"summary": f"Pet {n}", "description": f"[guide](/guide/{n})", "responses": answers}
        }
        for n in range(pages)
    }
    about = {"title": "Pets", "version": "1", "description": f"{_WORDS} Read [the guide](/guide/0)."}
    return 200, _JSON, json.dumps({"openapi": "3.0.0", "info": about, "paths": paths})


def _guides(pages: int) -> Site:
    return {f"/guide/{n}": f"<title>{n}</title><p>{_WORDS}</p>" for n in range(pages)}


def swagger(packages: Path, pages: int) -> Site:
    """Return a site made with Swagger UI: one page that shows a description of an API."""
    shell = (
        '<!doctype html><title>API</title><div id="swagger-ui"></div><script src="/ui.js"></script>'
        "<script>SwaggerUIBundle({url: '/openapi.json', dom_id: '#swagger-ui'})</script>"
    )
    files: Site = {
        "/": shell,
        "/openapi.json": _petstore(pages),
        "/ui.js": _file(packages, "swagger-ui-dist/swagger-ui-bundle.js"),
    }
    return files | _guides(pages)


def redoc(packages: Path, pages: int) -> Site:
    """Return a site made with Redoc: one page that shows a description of an API."""
    shell = '<!doctype html><title>API</title><redoc spec-url="/openapi.json"></redoc><script src="/redoc.js"></script>'
    files: Site = {
        "/": shell,
        "/openapi.json": _petstore(pages),
        "/redoc.js": _file(packages, "redoc/bundles/redoc.standalone.js"),
    }
    return files | _guides(pages)


def vue(packages: Path, pages: int) -> Site:
    """Return a site made with Vue and its router, which changes the path by the history API."""
    app = """
    const Shown = {data: () => ({page: {links: []}}), template: '<p>{{page.text}}</p>' +
        '<router-link v-for="l in page.links" :key="l" :to="l">{{l}}</router-link>',
      created() { fetch('/api/' + (this.$route.params.n || 0) + '.json').then(a => a.json())
        .then(page => { this.page = page }) }};
    const router = VueRouter.createRouter({history: VueRouter.createWebHistory(),
      routes: [{path: '/', component: Shown}, {path: '/page/:n', component: Shown}]});
    Vue.createApp({template: '<router-view/>'}).use(router).mount('#app');
    """
    shell = _shell("vue", "app", "/vue.js", "/router.js", "/main.js")
    data: Site = {f"/api/{n}.json": lambda request: _data(request, pages) for n in range(pages)}
    files: Site = {
        "/vue.js": _file(packages, "vue/dist/vue.global.prod.js"),
        "/router.js": _file(packages, "vue-router/dist/vue-router.global.prod.js"),
        "/main.js": (200, _JAVASCRIPT, app),
    }
    return _each(pages, lambda n: shell) | data | files


def react(packages: Path, pages: int) -> Site:
    """Return a site made with React, which fetches its data in an effect."""
    app = """
    const {createElement: e, useEffect, useState} = React;
    function Shown() {
      const [page, set] = useState(null), n = +(location.pathname.split('/')[2] || 0);
      useEffect(() => { fetch('/api/' + n + '.json').then(a => a.json()).then(set) }, []);
      if (!page) return e('p', null, 'Loading');
      return e('main', null, e('p', null, page.text), page.links.map(l => e('a', {href: l, key: l}, l)));
    }
    ReactDOM.createRoot(document.getElementById('root')).render(e(Shown));
    """
    shell = _shell("react", "root", "/react.js", "/dom.js", "/main.js")
    data: Site = {f"/api/{n}.json": lambda request: _data(request, pages) for n in range(pages)}
    files: Site = {
        "/react.js": _file(packages, "react/umd/react.production.min.js"),
        "/dom.js": _file(packages, "react-dom/umd/react-dom.production.min.js"),
        "/main.js": (200, _JAVASCRIPT, app),
    }
    return _each(pages, lambda n: shell) | data | files


def sites(pages: int, packages: Path | None) -> dict[str, Site]:
    """Return the sites by name."""
    made: dict[str, Site] = {}
    made |= {f"static{n}": static(pages) for n in range(6)}
    made |= {f"scripted{n}": scripted(pages) for n in range(4)}
    made |= {f"short{n}": short(pages) for n in range(2)}
    made |= {f"hydrated{n}": hydrated(pages) for n in range(3)}
    roots = ("root", "app", "__nuxt", "___gatsby", "svelte", "main", "content")
    made |= {f"client-{root.strip('_')}": client(pages, root) for root in roots}
    made |= {f"mixed{n}": mixed(pages) for n in range(3)}
    if packages is not None:
        made |= {make.__name__: make(packages, pages) for make in (docsify, swagger, redoc, vue, react)}
    return made


# This program is run by the Python interpreter that has Crawlee. The input is {"pages": {URL: [whether
# rendering gained something, static links, links shown]}, "crawls": [the seeds of each crawl]}. The output
# has, for each of five runs, [URLs reached, number of pages shown in a browser, number of pages examined in
# both ways].
_CRAWLEE = """
import asyncio, collections, json, random, sys
from crawlee import Request
from crawlee.crawlers._adaptive_playwright._rendering_type_predictor import DefaultRenderingTypePredictor
web = json.load(sys.stdin)
async def play(seed):
    random.seed(seed)
    known, counts = set(), [0, 0]
    for seeds in web["crawls"]:
        async with DefaultRenderingTypePredictor(detection_ratio=0.1) as predictor:
            visit(predictor, seeds, known, counts)
    return [sorted(known), *counts]
def visit(predictor, seeds, known, counts):
    queue = collections.deque(seeds)
    known.update(seeds)
    while queue:
        url = queue.popleft()
        gained, static, dom = web["pages"][url]
        request = Request.from_url(url)
        predicted = predictor.predict(request)
        examines = random.random() < predicted.detection_probability_recommendation
        renders = examines or predicted.rendering_type == "client only"
        counts[0] += renders
        counts[1] += examines
        if examines:
            predictor.store_result(request, "client only" if gained else "static")
        for link in dom if renders else static:
            if link in web["pages"] and link not in known:
                known.add(link)
                queue.append(link)
print(json.dumps([asyncio.run(play(seed)) for seed in range(5)]))
"""


class Crawled(NamedTuple):
    """A crawl of all sites: pages by host, rendered pages, pages that gained from rendering, CPU and wall time.

    `links` holds pairs (URL, target) for the links in the server's answers and in the rendered pages. Only a
    crawl that renders all pages has them.
    """

    pages: Mapping[str, set[str]]
    rendered: Mapping[str, int]
    gained: Mapping[str, int]
    seconds: float
    cpu: float
    gaining: set[str]
    links: tuple[list[list[str]], list[list[str]]]


def _links_of(folder: str, *flags: str) -> list[list[str]]:
    """Return a pair (URL, target) for each link of the stored pages."""
    command = [*CRAWLER, "export", "--dir", folder, "--format", "links", *flags]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [line.split("\t")[:2] for line in text.splitlines()]


def crawl(web: Web, names: list[str], when: str) -> Crawled:
    """Crawl all sites."""
    with tempfile.TemporaryDirectory() as folder:
        seeds = [web.url(host=f"{name}.localhost") for name in names]
        command = [*CRAWLER, "crawl", "--dir", folder, *FAST, "--render", when, *seeds]
        began = time.perf_counter()
        with Account() as account:
            subprocess.run([*account.prefix, *command], check=True, stderr=subprocess.DEVNULL)
        took = time.perf_counter() - began
        pages: dict[str, set[str]] = {name: set() for name in names}
        rendered, gained = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
        gaining: set[str] = set()
        for text in (Path(folder) / "pages.jsonl").read_text().splitlines():
            line = json.loads(text)
            name = line["url"].split("//")[1].split(".localhost")[0]
            pages[name].add(line["url"])
            rendered[name] += "rendered" in line
            gained[name] += line.get("gained", False)
            if line.get("gained"):
                gaining.add(line["url"])
        links = (_links_of(folder, "--static"), _links_of(folder)) if when == "always" else ([], [])
        return Crawled(pages, rendered, gained, took, account.cpu, gaining, links)


def print_crawlee(python: str, always: Crawled, seeds: list[str]) -> None:
    """Print which share of the URLs a crawl with Crawlee's predictor would reach, and how many pages it would render.

    Both are printed for one crawl of all sites, and for a separate crawl of each site.
    """
    everything = {url for pages in always.pages.values() for url in pages}
    web: dict[str, tuple[bool, list[str], list[str]]] = {
        url: (url in always.gaining, [], []) for url in everything
    }
    for place, links in zip((1, 2), always.links, strict=True):
        for url, target in links:
            if url in web:
                (web[url][1] if place == 1 else web[url][2]).append(target)
    for title, crawls in (("one crawl", [seeds]), ("a crawl for each site", [[seed] for seed in seeds])):
        told = json.dumps({"pages": web, "crawls": crawls})
        ran = subprocess.run([python, "-c", _CRAWLEE], input=told, capture_output=True, text=True, check=True)
        runs = json.loads(ran.stdout)
        recall = harness.spread([len(everything & set(reached)) / len(everything) for reached, _, _ in runs])
        renders = harness.spread([shown / max(1, len(always.gaining)) for _, shown, _ in runs])
        examined = harness.spread([float(examined) for _, _, examined in runs])
        print(f"crawlee, {title}: recall {recall}; renders {renders} x an oracle's; examined {examined}")


class Account:
    """Measures the CPU time of a command and its descendants, which run in a control group (cgroup).

    This needs root."""

    def __init__(self) -> None:
        self._folder = Path("/sys/fs/cgroup/cpuacct/crawler-bench")
        self.cpu = float("nan")
        self.prefix: list[str] = []

    def __enter__(self) -> "Account":
        try:
            self._folder.mkdir(exist_ok=True)
            self._before = self._usage()
            self.prefix = ["sh", "-c", f'echo $$ > {self._folder}/cgroup.procs; exec "$@"', "sh"]
        except OSError:
            self._folder = Path()
        return self

    def __exit__(self, *_: object) -> None:
        if self.prefix:
            self.cpu = self._usage() - self._before

    def processes(self) -> list[int]:
        """Return the running processes of the control group."""
        return (
            [int(pid) for pid in (self._folder / "cgroup.procs").read_text().split()] if self.prefix else []
        )

    def _usage(self) -> float:
        return int((self._folder / "cpuacct.usage").read_text()) / 1e9


def main() -> None:
    """Crawl the sites in three ways and print the table."""
    parser = harness.parser(__doc__)
    parser.option("--packages", Path)
    parser.option("--pages", 20)
    parser.option("--crawlee", str, metavar="PYTHON")
    args = parser.parse_args()
    made = sites(args.pages, args.packages)
    routes = {f"{name}.localhost{path}": route for name, site in made.items() for path, route in site.items()}
    with Web(routes) as web:
        never, auto, always = (crawl(web, list(made), when) for when in ("never", "auto", "always"))
    table = harness.Table(f"{'site':16}", "never", " auto", "always", "rendered", "oracle")
    for name in made:
        counts = (len(crawled.pages[name]) for crawled in (never, auto, always))
        table.row(name, *counts, auto.rendered[name], always.gained[name])
    reached = sum(len(auto.pages[name] & always.pages[name]) for name in made)
    everything = sum(len(always.pages[name]) for name in made)
    renders, needed = sum(auto.rendered.values()), max(1, sum(always.gained.values()))
    print(f"recall {reached / everything:.3f}; renders {renders / needed:.2f} x an oracle's")
    for title, crawled in (("never", never), ("auto", auto), ("always", always)):
        pages, shown = sum(map(len, crawled.pages.values())), sum(crawled.rendered.values())
        print(
            f"{title:<8}{pages:>6} pages, {shown} rendered, {crawled.seconds:.1f} s, {crawled.cpu:.1f} CPU s"
        )
    more = sum(always.rendered.values()) - renders
    if args.crawlee:
        print_crawlee(args.crawlee, always, [web.url(host=f"{name}.localhost") for name in made])
    print(f"a rendering: {(always.cpu - auto.cpu) / max(1, more):.2f} CPU s")


if __name__ == "__main__":
    main()
