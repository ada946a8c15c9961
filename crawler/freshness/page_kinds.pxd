cdef double FADING, PRECISION_MAX, RECALL_WEIGHT, CHANGES_WEIGHT, SCORE_KEPT, SCORE_MAX, TRUST_MAX

cdef class PageKinds:
    cdef readonly Py_ssize_t size
    cdef double[::1] good
    cdef double[::1] judged
    cdef readonly double[::1] splits
    cdef readonly double[::1] split_scores
    cdef double[::1] bad_true
    cdef double[::1] bad_all
    cdef double[::1] bad_changes
    cdef double[::1] bad_silent
    cdef double[::1] bad_exposed
    cdef readonly double[::1] bad_precisions
    cdef readonly double[::1] bad_recalls
    cdef public double trust
    cdef list _columns
    cpdef void add_site(self) except *
    cdef void _grow(self) except *
    cpdef double reliability(self, Py_ssize_t site, double trust) noexcept
    cpdef void split(self, Py_ssize_t site, double better) noexcept
    cdef void _set_split(self, Py_ssize_t site, double score) noexcept
    cdef void forget(self, Py_ssize_t site) noexcept
    cdef double judge_page(self, Py_ssize_t site, double evidence, double trust) noexcept
    cdef double observe(
        self, Py_ssize_t site, double weight, double signals, double rate, double clock, bint changed,
        bint trusted, double shape) noexcept
    cdef void estimate(self, Py_ssize_t site, bint used) noexcept
    cpdef double per_bad_change(self, Py_ssize_t site) noexcept

cdef double believable(double changes, double x, bint trusted) noexcept
