from crawler.frontier.refresh.heaps cimport Heaps
from crawler.frontier.refresh.numbering cimport Numbering
from crawler.freshness.learning cimport Learning
from crawler.freshness.value_kernel cimport Parameters

cdef struct PageRow:
    float changes
    float watched
    unsigned int signals

cdef struct DirectoryRow:
    int root
    int pages

cdef struct HostRow:
    double ready
    double previous
    double boost
    double idle
    double renewed
    int root
    int pages
    int run
    int crawls
    unsigned char busy
    unsigned char place
    unsigned char exploring

cdef struct OwnRow:
    double importance
    double change_rate
    double silent_rate
    double signal_rate
    double false_rate
    double signal_weight
