"""The experiments of the papers as commands, on the code that the crawler runs.

refresh    crawl_value.py  estimate.py  simulate.py  policies.py  exact_greedy.py  replay.py
           kolobov.py reads the public data set
league     refresh policies on the change histories of real sites
changing   a web on loopback whose pages change, for tests and the demonstration
caches     url_caches.py and its kernels, traces.py  crawl_order.py  link_locality.py
figures    drawing.py and one file a paper: ncis.py  azar.py  broder.py
commands   the command lines

`python -m crawler.lab` lists the commands.
"""
