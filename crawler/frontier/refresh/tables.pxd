from crawler.freshness.learning cimport Learning
from crawler.frontier.refresh.heaps cimport Heaps
from crawler.frontier.refresh.hubs cimport Hubs
from crawler.frontier.refresh.numbering cimport Numbering

cdef unsigned int EXPLORED, AWAY, FAILED, HELD, WITHHELD, DOUBLING, JUMPED, NEW, UNSTEADY, RECALLED, LOW_BITS
cdef int NOWHERE, ELIGIBLE, WAITING

cdef struct PageRow:
    float changes
    float watched
    unsigned int signals

cdef struct DirectoryRow:
    int root
    int pages
    int bounded

cdef struct HostRow:
    double ready
    double previous
    double boost
    double idle
    double weight
    double probed
    double absent_since
    double discovery_share
    double restraint
    double shift
    double mark
    double marked_at
    float slope
    float slope_precision
    int root
    int pages
    int run
    unsigned char busy
    unsigned char place
    unsigned char exploring
    unsigned char bounded
    unsigned char credit
    unsigned char away_rung
    unsigned char failed_rung
    unsigned char absences

cdef struct OwnRow:
    double importance
    double change_rate
    double silent_rate
    double signal_rate
    double false_rate
    double signal_weight

cdef class Tables:
    cdef PageRow[::1] rows
    cdef double[::1] crawled
    cdef unsigned char[::1] states
    cdef signed char[::1] trusts
    cdef signed char[::1] unrests
    cdef DirectoryRow[::1] directory_rows
    cdef HostRow[::1] host_rows
    cdef OwnRow[::1] own
    cdef float[::1] intervals
    cdef unsigned short[::1] importances
    cdef unsigned char[::1] bounds
    cdef double roots
    cdef bint owned
    cdef bint weighted
    cdef bint bounded
    cdef Numbering pages
    cdef Numbering directories
    cdef Numbering hosts
    cdef Heaps page_heaps
    cdef Heaps directory_heaps
    cdef Heaps host_heaps
    cdef Heaps wake_heaps
    cdef Hubs hubs
    cdef Learning learning
    cdef double first_interval
    cdef object touched
    cdef dict _columns
    cdef list _ages
    cdef double[::1] _min_ages
    cdef double[::1] _max_ages
    cdef int new_page(
        self, unsigned long long fingerprint, unsigned long long host_key, unsigned long long directory_key
    ) except? -1
    cdef int new_directory(self, unsigned long long key, int host) except? -1
    cdef int host(self, unsigned long long key) except? -2
    cdef void grow(self) except *
    cdef int owner(self, int page) noexcept
    cdef int first_of(self, int host) noexcept
    cdef void insert(self, int page, double key) noexcept
    cdef double importance(self, int page) noexcept
    cdef void touch(self, int page) except *
    cdef double trust(self, int page) noexcept
    cdef void set_trust(self, int page, double trust) noexcept
    cdef double unrest(self, int page) noexcept
    cdef void set_unrest(self, int page, double unrest) noexcept
    cdef void set_importance(self, int page, double importance) except *
    cdef double min_age(self, int page) noexcept
    cdef double max_age(self, int page) noexcept
    cdef void free(self, int page) except *
    cdef void set_own(self, int page, object parameters) except *
