from crawler.freshness.change_rates cimport ChangeRates
from crawler.freshness.page_kinds cimport PageKinds
from crawler.freshness.signal_quality cimport SignalQuality
from crawler.freshness.source_turns cimport SourceTurns

cdef class SignalEvidence:
    cdef readonly double gain
    cdef readonly double watched
    cdef ChangeRates rates
    cdef SignalQuality quality
    cdef PageKinds kinds
    cdef readonly SourceTurns turns
    cdef double judge(
        self, Py_ssize_t site, double k, double t, double elapsed, double watched, double[::1] counts, bint changed,
        double trust, double counted) noexcept
    cdef double _compare(
        self, Py_ssize_t site, double k, double t, double elapsed, double clock, double[::1] counts, bint changed,
        double trust) noexcept
    cdef void count(
        self, Py_ssize_t site, double k, double t, double elapsed, double clock, double[::1] counts,
        bint changed) noexcept
    cdef bint turn(
        self, Py_ssize_t site, double k, double t, double clock, double[::1] counts, bint changed, double stated,
        double now) noexcept
