cdef class FalseSignals:
    cdef readonly Py_ssize_t size
    cdef double[::1] means
    cdef readonly double[::1] scores
    cdef readonly double[::1] counted
    cdef list _columns
    cpdef void add_site(self) except *
    cdef void _grow(self) except *
    cpdef double precision_of(self, Py_ssize_t site, double precision, double rate) noexcept
    cpdef void score(self, Py_ssize_t site, double plain, double counting, bint changed) noexcept
    cdef void set_score(self, Py_ssize_t site, double score) noexcept

cpdef double precision_at(double precision, double rate, double mean_rate) noexcept
