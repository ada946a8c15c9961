from crawler.freshness.value_kernel cimport Parameters

cpdef double hub_value(double pace, double elapsed) noexcept
cpdef double found_by(double pace, double level) noexcept
cpdef double hub_wait(
    Parameters page, double level, double signals, double pace, double excess, double scale,
    double tolerance) noexcept
cpdef double faded(double count, double elapsed, double unit) noexcept
cpdef double watched_for(double elapsed, double unit) noexcept

cdef class Discovery:
    cdef readonly double unit
    cdef readonly Py_ssize_t sites
    cdef readonly Py_ssize_t directories
    cdef double[:, ::1] _site_sums
    cdef double[:, ::1] _directory_sums
    cdef double[::1] _crawl_sums
    cdef double[:, ::1] _link_sums
    cdef double[::1] _crawl_link_sums
    cdef list _columns
    cpdef Py_ssize_t add_site(self)
    cpdef Py_ssize_t add_directory(self)
    cpdef void watch(
        self, Py_ssize_t site, Py_ssize_t directory, double elapsed, double now, bint shown,
        double links=*) noexcept
    cpdef void credit(
        self, Py_ssize_t site, Py_ssize_t directory, double found, double now, bint shown,
        double links=*) noexcept
    cdef void _add(
        self, Py_ssize_t site, Py_ssize_t directory, double found, double watched, double now) noexcept
    cpdef void note_links(self, Py_ssize_t site, double found, double watched, double now) noexcept
    cpdef double prior(self, Py_ssize_t site, Py_ssize_t directory, double now, double links=*) noexcept
    cpdef double theta(
        self, Py_ssize_t site, Py_ssize_t directory, double found, double watched, double elapsed,
        double now, double links=*) noexcept
    cdef double _weight(self, double expected, double links) noexcept
    cpdef double error(
        self, Py_ssize_t site, Py_ssize_t directory, double found, double watched, double elapsed,
        double now, double links=*) noexcept
