from crawler.freshness.false_signals cimport FalseSignals
from crawler.freshness.page_kinds cimport PageKinds
from crawler.freshness.source_precision cimport SourcePrecision

cdef class SignalQuality:
    cdef readonly Py_ssize_t size
    cdef double[::1] silent_changes
    cdef double[::1] exposed
    cdef double[::1] changes
    cdef readonly double[::1] weights
    cdef readonly double[::1] recalls
    cdef readonly PageKinds kinds
    cdef readonly FalseSignals false_signals
    cdef readonly SourcePrecision sources
    cdef list _columns
    cpdef Py_ssize_t add_site(self)
    cdef void _grow(self) except *
    cpdef void note_signal(self, Py_ssize_t site, Py_ssize_t source) noexcept
    cpdef double per_change(self, Py_ssize_t site) noexcept
    cpdef double recall_of(self, Py_ssize_t site, double w) noexcept
    cpdef double share_watched(self, Py_ssize_t site) noexcept
    cpdef double interim_changes(self, Py_ssize_t site, double[::1] counts, double trust) noexcept
    cpdef double interim_watched(self, Py_ssize_t site, double trust, bint silent=*) noexcept
    cpdef double signals(self, Py_ssize_t site, double[::1] counts) noexcept
    cpdef double observe(
        self, Py_ssize_t site, double[::1] counts, double rate, double clock, bint changed,
        double trust=*, double evidence=*, double bad_rate=*, double shape=*) noexcept
    cdef bint _note_sources(self, Py_ssize_t site, double[::1] counts) noexcept
    cdef void _add_silence(
        self, Py_ssize_t site, double unexplained, double silent, double x, double expected,
        bint changed) noexcept
    cpdef void renew(self, Py_ssize_t site, double mean_rate) noexcept
    cpdef void forget(self, Py_ssize_t site, bint ignored=*) noexcept
    cdef void _estimate(self, Py_ssize_t site) noexcept
    cdef double _recalled(self, Py_ssize_t site) noexcept
