cdef class Counts:
    cdef readonly Py_ssize_t size
    cdef readonly double prior
    cdef readonly double[::1] observed_counts
    cdef readonly double[::1] expected_counts
    cdef readonly double[::1] instants
    cdef list _columns
    cdef void _grow(self) except *
    cpdef Py_ssize_t add(self)
    cpdef void observe(self, Py_ssize_t number, double now, double scale, double changed, double expected) noexcept
    cpdef double excess(self, Py_ssize_t number, double now, double scale) noexcept

cpdef double clock_of(double elapsed, double excess, double scale) noexcept
cpdef double predicted_clock_of(double elapsed, double excess, double scale) noexcept
cpdef double lead_of(double elapsed, double offset, double scale) noexcept
cpdef double elapsed_of(double clock, double excess, double scale) noexcept
cpdef double offset_of(double excess, double scale) noexcept
cpdef double scale_of(double pages, double fetch_rate, double low, double high) noexcept

cdef class Credence:
    cdef readonly Py_ssize_t size
    cdef double[::1] agreements
    cdef double[::1] weights
    cdef readonly double[::1] credences
    cdef double[::1] scores
    cdef list _columns
    cdef void _grow(self) except *
    cdef readonly double agreement
    cdef readonly double weight
    cpdef Py_ssize_t add(self)
    cpdef void observe(self, Py_ssize_t site, double alone, double heeding, bint changed) noexcept
    cpdef void score(self, Py_ssize_t site, double alone, double heeding, bint changed) noexcept
    cpdef void renew(self, Py_ssize_t site) noexcept
    cpdef void forget(self, Py_ssize_t site) noexcept
