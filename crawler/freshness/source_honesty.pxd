cdef class SourceHonesty:
    cdef readonly Py_ssize_t size
    cdef double[:, ::1] announced
    cdef double[:, ::1] claimed
    cdef double[:, ::1] unannounced
    cdef double[:, ::1] exposed
    cdef double[::1] announced_by
    cdef double[::1] claimed_by
    cdef double[::1] unannounced_by
    cdef double[::1] exposed_by
    cdef list _columns
    cpdef void add_site(self) except *
    cdef void _grow(self) except *
    cpdef double share(self, Py_ssize_t source) noexcept
    cdef double recall(self, Py_ssize_t source) noexcept
    cdef void renew(
        self, Py_ssize_t site, Py_ssize_t source, double announced, double claimed, double unannounced,
        double exposed) noexcept
