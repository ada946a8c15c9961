"""The experiments of the papers as commands, on the code that the crawler runs.

refresh    simulate.py  policies.py  exact_greedy.py  replay.py
cache      url_caches.py  cache_kernels.py  contender_kernels.py  crawl_order.py
trace      traces.py  link_locality.py  locality_kernels.py
figures    figures.py and one file a paper: figures_ncis.py  figures_azar.py  figures_broder.py
import     kolobov.py: the public data set of page importance and change rates

`python -m crawler.lab` lists the commands.
"""
