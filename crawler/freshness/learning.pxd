from crawler.freshness.biases cimport Biases
from crawler.freshness.change_rates cimport ChangeRates
from crawler.freshness.discovery cimport Discovery
from crawler.freshness.neighbourhood cimport Counts, Credence
from crawler.freshness.page_kinds cimport PageKinds
from crawler.freshness.restless cimport Restless
from crawler.freshness.seasons cimport Seasons
from crawler.freshness.signal_evidence cimport SignalEvidence
from crawler.freshness.signal_quality cimport SignalQuality
from crawler.freshness.rate_turns cimport RateTurns
from crawler.freshness.value_kernel cimport Parameters

cdef class Learning:
    cdef public bint neighbourhood
    cdef public double scale
    cdef public double plain_share
    cdef readonly double watched
    cdef readonly double unrest
    cdef double hazard
    cdef double signalled
    cdef double recall
    cdef double told
    cdef bint unannounced
    cdef readonly ChangeRates rates
    cdef readonly Restless restless
    cdef readonly RateTurns turns
    cdef readonly SignalQuality quality
    cdef readonly PageKinds kinds
    cdef readonly Biases biases
    cdef readonly SignalEvidence evidence
    cdef bint _usual
    cdef double _paced
    cdef double _stated
    cdef readonly Counts directories
    cdef readonly Counts sites
    cdef readonly Credence credence
    cdef readonly Seasons seasons
    cdef readonly Discovery discovery
    cdef Py_ssize_t kind
    cdef Py_ssize_t terms
    cpdef Py_ssize_t add_site(self)
    cpdef Py_ssize_t add_directory(self)
    cpdef double excess(self, Py_ssize_t site, Py_ssize_t directory, double now) noexcept
    cdef double _said(self, Py_ssize_t site, Py_ssize_t directory, double now) noexcept
    cdef void _pace(
        self, Py_ssize_t site, double k, double t, double elapsed, double now, double silent, bint changed) noexcept
    cdef void _foresee(
        self, Py_ssize_t site, double k, double t, double clock, double[::1] counts, double trust) noexcept
    cdef double _judge(
        self, Py_ssize_t site, double k, double t, double clock, double predicted, double[::1] counts, bint changed,
        double trust) noexcept
    cpdef double directory_lead(self, Py_ssize_t site, Py_ssize_t directory, double now) noexcept
    cpdef double site_lead(self, Py_ssize_t site, double now) noexcept
    cpdef double clock(self, Py_ssize_t site, Py_ssize_t directory, double elapsed, double now) noexcept
    cpdef double paced_clock(self, Py_ssize_t site, Py_ssize_t directory, double elapsed, double now) noexcept
    cpdef void assign(self, Parameters page, Py_ssize_t site, double k, double t, double importance,
        double trust=*, double restless=*) noexcept
    cdef double _page_precision(self, Py_ssize_t site, double rate, double w) noexcept
    cdef void _weigh_clock(
        self, Py_ssize_t site, Py_ssize_t directory, double k, double t, double elapsed, double clock, double now,
        double silent, bint changed) noexcept
    cpdef double signals(self, Py_ssize_t site, double[::1] counts) noexcept
    cpdef double expected(
        self, Py_ssize_t site, double k, double t, double clock, double[::1] counts, double trust=*,
        double restless=*) noexcept
    cpdef double observe(
        self, Py_ssize_t site, Py_ssize_t directory, double k, double t, double elapsed, double now,
        double[::1] counts, bint changed, double trust=*, double unrest=*) noexcept
    cdef double _learn_clocks(
        self, Py_ssize_t site, Py_ssize_t directory, double k, double t, double elapsed, double now,
        double[::1] counts, bint changed, double trust) noexcept
    cdef double _count(
        self, Py_ssize_t site, double k, double t, double elapsed, double watched, double[::1] counts, bint changed,
        double trust) noexcept
    cpdef void renew(self, Py_ssize_t site) noexcept
    cpdef void renew_crawl(self) noexcept
