from crawler.freshness.page_kinds cimport PageKinds

cdef class SignalQuality:
    cdef readonly Py_ssize_t size
    cdef double[:, ::1] true_signals
    cdef double[:, ::1] all_signals
    cdef double[:, ::1] precisions
    cdef double[::1] silent_changes
    cdef double[::1] exposed
    cdef double[::1] watched
    cdef double[::1] means
    cdef readonly double[::1] weights
    cdef readonly double[::1] recalls
    cdef double[::1] changes
    cdef readonly double[::1] scores
    cdef readonly double[::1] counted
    cdef readonly PageKinds kinds
    cdef double[:, ::1] announced
    cdef double[:, ::1] claimed
    cdef double[:, ::1] unannounced
    cdef double[:, ::1] exposed_part
    cdef double[::1] announced_by
    cdef double[::1] claimed_by
    cdef double[::1] unannounced_by
    cdef double[::1] exposed_by
    cdef double said
    cdef bint believed
    cdef list _columns
    cpdef Py_ssize_t add_site(self)
    cdef void _grow(self) except *
    cpdef void note_signal(self, Py_ssize_t site, Py_ssize_t source) noexcept
    cpdef bint heard(self, Py_ssize_t site) noexcept
    cpdef double precision(self, Py_ssize_t site, Py_ssize_t source) noexcept
    cpdef bint used(self, Py_ssize_t site, Py_ssize_t source) noexcept
    cpdef double honesty(self, Py_ssize_t source) noexcept
    cdef bint _trusted(self, Py_ssize_t site, Py_ssize_t source) noexcept
    cdef double _plausible(self, Py_ssize_t site, Py_ssize_t source) noexcept
    cpdef double share_watched(self, Py_ssize_t site) noexcept
    cpdef double announced_changes(self, Py_ssize_t site, double[::1] counts) noexcept
    cpdef double weight(self, Py_ssize_t site, Py_ssize_t source) noexcept
    cpdef double precision_of(self, Py_ssize_t site, double precision, double rate) noexcept
    cpdef double counted_signals(self, Py_ssize_t site, double[::1] counts) noexcept
    cpdef double per_change(self, Py_ssize_t site) noexcept
    cpdef double interim_changes(self, Py_ssize_t site, double[::1] counts, double trust) noexcept
    cpdef double interim_watched(self, Py_ssize_t site, double trust, bint silent=*) noexcept
    cpdef void score(self, Py_ssize_t site, double plain, double counting, bint changed) noexcept
    cpdef double recall_of(self, Py_ssize_t site, double w) noexcept
    cdef void _set_score(self, Py_ssize_t site, double score) noexcept
    cpdef double signals(self, Py_ssize_t site, double[::1] counts) noexcept
    cpdef double staleness(self, Py_ssize_t site, double[::1] counts) noexcept
    cpdef double observe(
        self, Py_ssize_t site, double[::1] counts, double rate, double clock, bint changed,
        double trust=*, double evidence=*, double bad_rate=*) noexcept
    cdef bint _note_sources(self, Py_ssize_t site, double[::1] counts) noexcept
    cdef double _explain(self, Py_ssize_t site, double[::1] counts, double rate) noexcept
    cdef void _add_silence(
        self, Py_ssize_t site, double w, double silent, double x, double expected, bint changed) noexcept
    cdef void _add_signals(
        self, Py_ssize_t site, double[::1] counts, double w, double rate, double x, double expected,
        bint changed) noexcept
    cpdef void renew(self, Py_ssize_t site, double mean_rate) noexcept
    cdef void _estimate(self, Py_ssize_t site) noexcept
    cdef double _recalled(self, Py_ssize_t site) noexcept
    cdef void _pool(self, Py_ssize_t site) noexcept

cpdef double precision_at(double precision, double rate, double mean_rate) noexcept
