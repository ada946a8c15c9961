cdef class ChangeRates:
    cdef readonly Py_ssize_t size
    cdef readonly double unit
    cdef readonly double prior_time
    cdef readonly double crawl_mean
    cdef readonly double crawl_variation
    cdef readonly double gain
    cdef readonly double watched
    cdef readonly double factor
    cdef readonly double information
    cdef double[:, ::1] sums
    cdef double[::1] totals
    cdef readonly double[::1] means
    cdef readonly double[::1] variations
    cdef list _columns
    cpdef Py_ssize_t add_site(self)
    cdef void _grow(self) except *
    cpdef double rate(self, Py_ssize_t site, double k, double t) noexcept
    cpdef double shape(self, Py_ssize_t site, double k) noexcept
    cpdef double expected(self, Py_ssize_t site, double k, double t, double clock) noexcept
    cpdef void match(self, Py_ssize_t site, double k, double t, double clock, double unsaid=*) noexcept
    cpdef void learn_variation(self, Py_ssize_t site, double k, double t, double clock, bint changed,
        double weight=*) noexcept
    cpdef double observe(self, Py_ssize_t site, float k, float t, double clock, double gain) noexcept
    cpdef void forget(self, Py_ssize_t site, double k, double t) noexcept
    cpdef void renew(self, Py_ssize_t site) noexcept
    cpdef void renew_crawl(self) noexcept
    cpdef void set_revisit(self, double revisit) noexcept
    cdef void _account(self, Py_ssize_t site, double k, double t, double sign) noexcept

cpdef double gain_of(double x) noexcept
cpdef double hazard_of(double mean, double shape) noexcept
