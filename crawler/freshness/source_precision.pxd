from crawler.freshness.false_signals cimport FalseSignals
from crawler.freshness.source_honesty cimport SourceHonesty

cdef class SourcePrecision:
    cdef readonly Py_ssize_t size
    cdef readonly FalseSignals false_signals
    cdef readonly SourceHonesty honesty
    cdef double[:, ::1] true_signals
    cdef readonly double[:, ::1] all_signals
    cdef double[:, ::1] precisions
    cdef double[::1] watched
    cdef double said
    cdef bint believed
    cdef list _columns
    cpdef void add_site(self) except *
    cdef void _grow(self) except *
    cdef bint note(self, Py_ssize_t site, Py_ssize_t source) noexcept
    cpdef bint heard(self, Py_ssize_t site) noexcept
    cpdef double precision(self, Py_ssize_t site, Py_ssize_t source) noexcept
    cpdef bint used(self, Py_ssize_t site, Py_ssize_t source) noexcept
    cpdef double weight(self, Py_ssize_t site, Py_ssize_t source) noexcept
    cdef bint _trusted(self, Py_ssize_t site, Py_ssize_t source) noexcept
    cdef bint watches(self, Py_ssize_t site) noexcept
    cdef double recall_prior(self, Py_ssize_t site) noexcept
    cpdef double announced_changes(self, Py_ssize_t site, double[::1] counts) noexcept
    cpdef double counted_signals(self, Py_ssize_t site, double[::1] counts) noexcept
    cpdef bint silent(self, Py_ssize_t site, double[::1] counts) noexcept
    cdef double used_signals(self, Py_ssize_t site) noexcept
    cpdef double staleness(self, Py_ssize_t site, double[::1] counts) noexcept
    cdef double explain(self, Py_ssize_t site, double[::1] counts, double rate) noexcept
    cdef void observe(
        self, Py_ssize_t site, double[::1] counts, double w, double rate, double clock, double x, double expected,
        bint changed) noexcept
    cdef void renew(self, Py_ssize_t site, double silent_changes, double exposed) noexcept
    cdef double _plausible(self, Py_ssize_t site, Py_ssize_t source) noexcept
    cdef void estimate(self, Py_ssize_t site) noexcept
    cdef void forget(self, Py_ssize_t site, bint ignored) noexcept
    cdef double pooled_weight(self, Py_ssize_t site) noexcept
