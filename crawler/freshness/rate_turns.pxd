from crawler.freshness.change_rates cimport ChangeRates

cdef class RateTurns:
    cdef readonly Py_ssize_t size
    cdef readonly double evidence
    cdef readonly double changes
    cdef readonly double watched
    cdef readonly double[::1] recent
    cdef ChangeRates rates
    cdef object _column
    cdef void add_site(self) except *
    cpdef bint learn(
        self, Py_ssize_t site, double k, double t, double clock, bint changed, double evidence, double weight=*) noexcept
    cdef double _bound(self, Py_ssize_t site, bint higher) noexcept
    cdef void _turn(self, Py_ssize_t site, double rate, double clock, bint changed) noexcept
