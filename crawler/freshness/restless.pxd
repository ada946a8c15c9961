from crawler.freshness.change_rates cimport ChangeRates

cdef class Restless:
    cdef readonly double odds
    cdef readonly double information
    cdef ChangeRates rates
    cpdef double chance(self, Py_ssize_t site, double k, double t) noexcept
    cpdef void learn(self, Py_ssize_t site, double k, double t, double clock, bint changed) noexcept
