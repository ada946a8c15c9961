cdef class _CodedJoin:
    cdef const unsigned long long[::1] queries
    cdef const unsigned long long[::1] words
    cdef const unsigned long long[::1] posts
    cdef const unsigned long long[::1] fences  # posts without the last, which is the greatest key
    cdef const unsigned char[::1] widths
    cdef const Py_ssize_t[::1] starts
    cdef unsigned char[::1] known
    cdef unsigned long long[::1] held
    cdef Py_ssize_t count
    cdef Py_ssize_t block  # of the query taken up last
    cdef Py_ssize_t walked  # the block in which zeros are counted
    cdef unsigned long long word  # where, in bits: a word of it,
    cdef unsigned long long passed  # and the zeros before that word, fewer than the last query's
    cdef Py_ssize_t taken
    cdef Py_ssize_t blocks[16]
    cdef Py_ssize_t asked[16]
    cdef unsigned long long places[16]  # behind the zeros that stand before the query's high part
    cdef unsigned long long lows[16]  # where the low parts begin, in bits
    cdef void run(self) noexcept nogil
    cdef Py_ssize_t gather(self, Py_ssize_t start) noexcept nogil
    cdef Py_ssize_t join_whole(self, Py_ssize_t block, Py_ssize_t start) noexcept nogil
    cdef void find(self) noexcept nogil
    cdef unsigned long long walk(self, unsigned long long high, unsigned long long low) noexcept nogil
    cdef void answer(self) noexcept nogil
