cdef struct Node:
    double key
    int left
    int right
    int parent
    int owner

cdef class Heaps:
    cdef Node[::1] nodes
    cdef readonly Py_ssize_t capacity
    cdef object _column
    cdef unsigned long long _random
    cpdef void clear(self, int node, int owner) noexcept
    cpdef double key_of(self, int node) noexcept
    cpdef bint holds(self, int node) noexcept
    cpdef int insert(self, int root, int node, double key) noexcept
    cpdef int remove(self, int root, int node) noexcept
    cpdef int move(self, int root, int node, double key) noexcept
    cdef bint _before(self, int a, int b) noexcept
    cdef int _meld(self, int a, int b) noexcept
    cdef unsigned long long _draw(self) noexcept
