from crawler.freshness.change_rates cimport ChangeRates

cdef class RateTurns:
    cdef readonly double evidence
    cdef readonly double changes
    cdef readonly double watched
    cdef ChangeRates rates
    cpdef int learn(
        self, Py_ssize_t site, double k, double t, double clock, bint changed, double evidence, double weight=*) noexcept
