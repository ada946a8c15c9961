from crawler.freshness.change_rates cimport ChangeRates

cdef class Restless:
    cdef readonly double odds
    cdef readonly double information
    cdef readonly double evidence
    cdef readonly double memory
    cdef ChangeRates rates
    cpdef void set_revisit(self, double revisit) noexcept
    cpdef double chance(self, double k, double evidence, double elapsed) noexcept
    cpdef double suspicion(self, double k, double evidence, double elapsed) noexcept
    cdef double _chance(self, double odds, double k, double evidence, double elapsed) noexcept
    cpdef void learn(
        self, Py_ssize_t site, double k, double t, double clock, bint changed, double evidence,
        double elapsed) noexcept
