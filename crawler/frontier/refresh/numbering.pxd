cdef struct Entry:
    unsigned int low
    unsigned int high
    int next

cdef class Numbering:
    cdef Entry[::1] _entries
    cdef int[::1] _heads
    cdef object _column
    cdef object _heads_column
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _buckets
    cdef Py_ssize_t _half
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t size
    cdef int _free
    cpdef int find(self, unsigned long long key) noexcept
    cpdef int insert(self, unsigned long long key) except? -1
    cpdef void remove(self, int number) noexcept
    cpdef void recycle(self, int number) noexcept
    cpdef unsigned long long key_of(self, int number) noexcept
    cdef Py_ssize_t _bucket_of(self, unsigned long long key) noexcept
    cdef void _split(self) except *
    cdef void _grow(self) except *
