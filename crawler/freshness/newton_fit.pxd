cdef class NewtonFit:
    cdef readonly Py_ssize_t size
    cdef double[::1] _prior
    cdef double[::1] _prior_precision
    cdef double[::1] _low
    cdef double[::1] _high
    cdef double[::1] _coefficients
    cdef double[:, ::1] _matrix
    cdef double[:, ::1] _factor
    cdef double[::1] _features
    cdef double[::1] _step
    cdef void _solve(self) noexcept
