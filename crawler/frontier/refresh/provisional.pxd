cdef class Parameters:
    cdef Py_ssize_t kind, terms
    cdef double mu, delta, alpha, gamma, nu
    cdef readonly double signal_weight, ceiling, beta
    cpdef void assign(self, Py_ssize_t kind, Py_ssize_t terms, double importance, double change_rate, double silent_rate, double signal_rate, double false_rate, double signal_weight) noexcept
    cpdef double value(self, double elapsed, double signals) noexcept
    cpdef double wait(self, double level, double signals, double guess, double tolerance) noexcept

cdef class Learning:
    cdef double k, t
    cdef public double scale
    cdef bint neighbourhood
    cdef Py_ssize_t kinds
    cdef double[:, ::1] counts
    cdef readonly double observed_clock
    cpdef double excess(self, Py_ssize_t slot, double now, double prior) noexcept
    cpdef double both(self, Py_ssize_t site, Py_ssize_t directory, double now) noexcept
    cpdef double clock(self, Py_ssize_t site, Py_ssize_t directory, double elapsed, double now) noexcept
    cpdef void assign(self, Parameters p, Py_ssize_t site, double k, double t, double importance) noexcept
    cpdef double signals(self, Parameters p, Py_ssize_t site, double[::1] counts) noexcept
    cpdef double observe(self, Py_ssize_t site, Py_ssize_t directory, double k, double t, double elapsed, double now, double[::1] counts, bint changed) noexcept
    cpdef void renew(self, Py_ssize_t site) noexcept
    cpdef void renew_crawl(self) noexcept
