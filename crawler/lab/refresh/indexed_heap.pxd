cdef class IndexedHeap:
    cdef readonly Py_ssize_t size
    cdef double[::1] keys
    cdef int[::1] items
    cdef int[::1] places
    cpdef void put(self, Py_ssize_t item, double key) noexcept
    cpdef void drop(self, Py_ssize_t item) noexcept
    cpdef Py_ssize_t first(self) noexcept
    cpdef double first_key(self) noexcept
    cpdef double key_of(self, Py_ssize_t item) noexcept
    cpdef bint holds(self, Py_ssize_t item) noexcept
    cdef bint _before(self, double key, Py_ssize_t item, Py_ssize_t place) noexcept
    cdef void _set(self, Py_ssize_t place, Py_ssize_t item, double key) noexcept
    cdef void _up(self, Py_ssize_t place, Py_ssize_t item, double key) noexcept
    cdef void _down(self, Py_ssize_t place, Py_ssize_t item, double key) noexcept
